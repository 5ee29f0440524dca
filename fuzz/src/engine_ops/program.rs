// SPDX-License-Identifier: Apache-2.0
//! What the fuzzer makes programs from.

use arbitrary::Arbitrary;
use striata::gpu::Direction;
use striata::gpu::sim::{Fault, OpClass};
use striata_core::PoolKind;
use striata_core::config::{PolicyName, WritePolicy};
use striata_tests::programs::{End, Op, Path, Program};
use striata_tests::stepped::{Side, Sizes};

/// Most calls of a program.
const MAX_OPS: usize = 64;

/// An engine and calls of it. Numbers are taken modulo what there is.
#[derive(Arbitrary, Debug)]
pub struct Input {
    seed: u16,
    dcp: u8,
    groups: u8,
    page_rows: u8,
    layers: u8,
    l1_pages: u8,
    l2_pages: u8,
    small_calls: bool,
    side: Option<(bool, u8, u8)>,
    policy: u8,
    write_policy: u8,
    duplicates_first: bool,
    quota: Option<u8>,
    max_store_pages: Option<u8>,
    watermark: u8,
    full_length_hits: bool,
    end: Option<Ending>,
    calls: Vec<Call>,
}

/// What breaks the engine in the second half of the program.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Ending {
    rank: u8,
    class: u8,
    nth: u8,
    refuse: bool,
}

/// Up to six pages of two kinds, packed, and a namespace.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Name(u16);

impl Name {
    fn path(self) -> Path {
        let [bits, rest] = self.0.to_le_bytes();
        Path::new(rest >> 7, bits, rest & 7)
    }
}

/// One call.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Call {
    Serve {
        name: Name,
        settled: bool,
    },
    Reserve {
        name: Name,
        tail: bool,
    },
    Load {
        name: Name,
    },
    Lookup {
        name: Name,
    },
    StartLoads,
    Forward {
        lease: u8,
    },
    StepEnd,
    Confirm {
        lease: u8,
    },
    Insert {
        lease: u8,
        pages: u8,
        chunk: bool,
    },
    Extend {
        lease: u8,
        bits: u8,
        pages: u8,
    },
    Store {
        lease: u8,
    },
    Drop {
        lease: u8,
        elsewhere: bool,
    },
    Evict {
        pages: u8,
    },
    Reset {
        root: u8,
    },
    Poll,
    Pump {
        times: u8,
    },
    Run {
        steps: u8,
    },
    Fault {
        rank: u8,
        class: u8,
        nth: u8,
        amount: u8,
    },
    Release,
    Settle,
}

impl Call {
    fn op(self) -> Op {
        match self {
            Self::Serve { name, settled } => Op::Serve {
                path: name.path(),
                settled,
            },
            Self::Reserve { name, tail } => Op::Reserve {
                path: name.path(),
                tail,
            },
            Self::Load { name } => Op::Load { path: name.path() },
            Self::Lookup { name } => Op::Lookup { path: name.path() },
            Self::StartLoads => Op::StartLoads,
            Self::Forward { lease } => Op::Forward { lease },
            Self::StepEnd => Op::StepEnd,
            Self::Confirm { lease } => Op::Confirm { lease },
            Self::Insert {
                lease,
                pages,
                chunk,
            } => Op::Insert {
                lease,
                pages: pages % 8,
                chunk,
            },
            Self::Extend { lease, bits, pages } => Op::Extend {
                lease,
                bits,
                pages: 1 + pages % 2,
            },
            Self::Store { lease } => Op::Store { lease },
            Self::Drop { lease, elsewhere } => Op::Drop { lease, elsewhere },
            Self::Evict { pages } => Op::Evict { pages: pages % 20 },
            Self::Reset { root } => Op::Reset { root: root % 2 },
            Self::Poll => Op::Poll,
            Self::Pump { times } => Op::Pump { times: times % 8 },
            Self::Run { steps } => Op::Run { steps: steps % 32 },
            Self::Fault {
                rank,
                class,
                nth,
                amount,
            } => {
                let (class, fault) = fault(class, amount);
                Op::Fault {
                    rank,
                    class,
                    nth: nth % 4,
                    fault,
                }
            }
            Self::Release => Op::Release,
            Self::Settle => Op::Settle,
        }
    }
}

/// What the engine goes on after: copies that fail, and anything that comes late.
fn fault(class: u8, amount: u8) -> (OpClass, Fault) {
    let class = match class % 5 {
        0 => OpClass::CopyOf(Direction::HostToDevice),
        1 => OpClass::CopyOf(Direction::DeviceToHost),
        2 => OpClass::Record,
        3 => OpClass::Wait,
        _ => OpClass::Kernel,
    };
    let fault = match (class, amount % 4) {
        (OpClass::CopyOf(_), 0 | 1) => Fault::Fail {
            good_pieces: usize::from(amount / 4 % 4),
        },
        (_, 0 | 2) => Fault::Hold,
        _ => Fault::Delay {
            nanos: 1000 * u64::from(amount),
        },
    };
    (class, fault)
}

impl Ending {
    fn end(self) -> End {
        let classes = [
            OpClass::Any,
            OpClass::Copy,
            OpClass::Record,
            OpClass::Wait,
            OpClass::Kernel,
        ];
        let (class, fault) = if self.refuse {
            (OpClass::Copy, Fault::Refuse)
        } else {
            (classes[usize::from(self.class) % classes.len()], Fault::Die)
        };
        End {
            rank: self.rank,
            class,
            nth: self.nth % 24,
            fault,
        }
    }
}

impl Input {
    /// The program, and what breaks its engine.
    pub(super) fn program(&self) -> (Program, Option<End>) {
        let dcp = 1 + u32::from(self.dcp % 4);
        let page_rows = 1 + u32::from(self.page_rows % 2);
        let side = self.side.map(|(striped, row_words, layers)| Side {
            kind: if striped {
                PoolKind::Striped
            } else {
                PoolKind::Replicated
            },
            row_words: 1 + u32::from(row_words % 5),
            layers: 1 + u32::from(layers % 4),
        });
        let sizes = Sizes {
            dcp,
            groups: if dcp <= 2 {
                1 + u32::from(self.groups % 2)
            } else {
                1
            },
            // A page of one token leaves no room for a tail.
            page_rows: page_rows + u32::from(dcp == 1),
            layers: 1 + u32::from(self.layers % 3),
            l1_pages: 4 + u64::from(self.l1_pages % 10),
            l2_pages: u32::from(self.l2_pages % 14),
            call_pieces: if self.small_calls { 3 } else { 512 },
            sides: [side, None],
        };
        let pick = |n: u8, of: usize| usize::from(n) % of;
        let program = Program {
            seed: self.seed.into(),
            sizes,
            policy: PolicyName::ALL[pick(self.policy, PolicyName::ALL.len())],
            write_policy: WritePolicy::ALL[pick(self.write_policy, WritePolicy::ALL.len())],
            duplicates_first: self.duplicates_first,
            quota: self.quota.map(|quota| u32::from(quota % 3)),
            max_store_pages: self.max_store_pages.map(|pages| 1 + u32::from(pages % 3)),
            watermark: u32::from(self.watermark % 4),
            full_length_hits: self.full_length_hits,
            concurrent: false,
            ops: self
                .calls
                .iter()
                .take(MAX_OPS)
                .map(|call| call.op())
                .collect(),
        };
        (program, self.end.map(Ending::end))
    }
}
