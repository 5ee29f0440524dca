// SPDX-License-Identifier: Apache-2.0
//! What programs are made of.

use core::fmt;

use proptest::prelude::*;
use striata::PlannerConfig;
use striata::core::PoolKind;
use striata::core::config::{PolicyName, WritePolicy};
use striata::gpu::Direction;
use striata::gpu::sim::Fault;
use striata_tests::stepped::{Side, Sizes};

/// Namespaces of a program.
pub(crate) const ROOTS: u8 = 2;

/// A path of whole pages of two kinds, at most six, packed: so short that programs share much.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) root: u8,
    bits: u8,
    len: u8,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.root, self.symbols())
    }
}

impl Path {
    pub(crate) fn symbols(self) -> Vec<u8> {
        (0..self.len).map(|at| self.bits >> at & 1).collect()
    }
}

/// One call, or what the world does between two calls. Leases are named modulo their number.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Reserve, forward, the end of the step, insert and drop; with every copy awaited, or with all
    /// left in flight.
    Serve {
        path: Path,
        settled: bool,
    },
    Reserve {
        path: Path,
        tail: bool,
    },
    Load {
        path: Path,
    },
    Lookup {
        path: Path,
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
        direction: Direction,
        nth: u8,
        fault: Fault,
    },
    Release,
    Settle,
}

/// An engine and what is done to it.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) seed: u64,
    pub(crate) sizes: Sizes,
    pub(crate) policy: PolicyName,
    pub(crate) write_policy: WritePolicy,
    pub(crate) duplicates_first: bool,
    pub(crate) quota: Option<u32>,
    pub(crate) max_store_pages: Option<u32>,
    pub(crate) watermark: u32,
    pub(crate) full_length_hits: bool,
    /// Whether calls go on while other threads drop leases.
    pub(crate) concurrent: bool,
    pub(crate) ops: Vec<Op>,
}

impl fmt::Debug for Program {
    /// A call a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            sizes,
            policy,
            write_policy,
            ops,
            ..
        } = self;
        writeln!(f, "seed {seed}, {sizes:?}, {policy}, {write_policy}")?;
        let Self {
            duplicates_first,
            quota,
            max_store_pages,
            watermark,
            ..
        } = self;
        writeln!(f, "duplicates first {duplicates_first}, quota {quota:?}, ")?;
        writeln!(
            f,
            "at most {max_store_pages:?} in stores, watermark {watermark}, "
        )?;
        writeln!(f, "full-length hits {}", self.full_length_hits)?;
        writeln!(f, "concurrent {}", self.concurrent)?;
        ops.iter().try_for_each(|op| writeln!(f, "{op:?}"))
    }
}

impl Program {
    pub(crate) fn configure(&self, config: &mut PlannerConfig) {
        config.policy = self.policy;
        config.write_policy = self.write_policy;
        config.duplicates_first = self.duplicates_first;
        config.load_back_quota = self.quota;
        config.max_store_pages = self.max_store_pages;
        config.free_watermark = self.watermark;
        config.full_length_hits = self.full_length_hits;
        config.max_leases = 16;
    }
}

fn path() -> impl Strategy<Value = Path> {
    let len = prop_oneof![1 => 0u8..2, 5 => 2u8..7];
    (0..ROOTS, any::<u8>(), len).prop_map(|(root, bits, len)| Path { root, bits, len })
}

fn fault() -> impl Strategy<Value = Op> {
    let direction = prop_oneof![Just(Direction::HostToDevice), Just(Direction::DeviceToHost)];
    let fault = prop_oneof![
        4 => (0usize..4).prop_map(|good_pieces| Fault::Fail { good_pieces }),
        1 => (1u64..1_000_000).prop_map(|nanos| Fault::Delay { nanos }),
        2 => Just(Fault::Hold),
    ];
    (any::<u8>(), direction, 0u8..3, fault).prop_map(|(rank, direction, nth, fault)| Op::Fault {
        rank,
        direction,
        nth,
        fault,
    })
}

fn op(resets: bool) -> impl Strategy<Value = Op> {
    let lease = any::<u8>;
    prop_oneof![
        20 => (path(), any::<bool>())
            .prop_map(|(path, settled)| Op::Serve { path, settled }),
        14 => (path(), any::<bool>()).prop_map(|(path, tail)| Op::Reserve { path, tail }),
        4 => path().prop_map(|path| Op::Load { path }),
        3 => path().prop_map(|path| Op::Lookup { path }),
        6 => Just(Op::StartLoads),
        14 => lease().prop_map(|lease| Op::Forward { lease }),
        7 => Just(Op::StepEnd),
        6 => lease().prop_map(|lease| Op::Confirm { lease }),
        12 => (lease(), 0u8..8, any::<bool>())
            .prop_map(|(lease, pages, chunk)| Op::Insert { lease, pages, chunk }),
        5 => (lease(), any::<u8>(), 1u8..3)
            .prop_map(|(lease, bits, pages)| Op::Extend { lease, bits, pages }),
        2 => lease().prop_map(|lease| Op::Store { lease }),
        12 => (lease(), any::<bool>()).prop_map(|(lease, elsewhere)| Op::Drop { lease, elsewhere }),
        6 => (0u8..8).prop_map(|pages| Op::Evict { pages }),
        4 => Just(Op::Evict { pages: 16 }),
        1 => (0..ROOTS).prop_map(move |root| if resets { Op::Reset { root } } else { Op::Poll }),
        5 => Just(Op::Poll),
        8 => (1u8..6).prop_map(|times| Op::Pump { times }),
        8 => (1u8..30).prop_map(|steps| Op::Run { steps }),
        5 => fault(),
        2 => Just(Op::Release),
        5 => Just(Op::Settle),
    ]
}

/// Pools beside the main one, in half of the programs.
fn sides() -> impl Strategy<Value = [Option<Side>; 2]> {
    let side = |kind| {
        (1u32..6, 1u32..5).prop_map(move |(row_words, layers)| {
            Some(Side {
                kind,
                row_words,
                layers,
            })
        })
    };
    prop_oneof![
        5 => Just([None; 2]),
        4 => side(PoolKind::Replicated).prop_map(|side| [side, None]),
        1 => (side(PoolKind::Replicated), side(PoolKind::Striped)).prop_map(Into::into),
    ]
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let call_pieces = prop_oneof![Just(512usize), Just(3)];
    (
        1u32..=8,
        1u32..3,
        1u32..3,
        1u32..4,
        4u64..14,
        0u32..14,
        call_pieces,
        sides(),
    )
        .prop_map(
            |(dcp, groups, page_rows, layers, l1_pages, l2_pages, call_pieces, sides)| Sizes {
                dcp,
                groups: if dcp <= 2 { groups } else { 1 },
                // A page of one token leaves no room for a tail.
                page_rows: if dcp == 1 { page_rows + 1 } else { page_rows },
                layers,
                l1_pages,
                l2_pages,
                call_pieces,
                sides,
            },
        )
}

/// Programs of `calls` calls on average, with or without resets of namespaces.
pub(crate) fn program(calls: usize, resets: bool) -> impl Strategy<Value = Program> {
    let policies = (
        proptest::sample::select(PolicyName::ALL.to_vec()),
        proptest::sample::select(WritePolicy::ALL.to_vec()),
        any::<bool>(),
        any::<bool>(),
    );
    let limits = (
        proptest::option::weighted(0.3, 0u32..3),
        proptest::option::weighted(0.3, 1u32..4),
        prop_oneof![3 => Just(0u32), 1 => 1u32..4],
        proptest::bool::weighted(0.2),
    );
    let ops = proptest::collection::vec(op(resets), 1..=2 * calls);
    (any::<u64>(), sizes(), policies, limits, ops).prop_map(
        |(seed, sizes, (policy, write_policy, duplicates_first, concurrent), limits, ops)| {
            Program {
                seed,
                sizes,
                policy,
                write_policy,
                duplicates_first,
                quota: limits.0,
                max_store_pages: limits.1,
                watermark: limits.2,
                full_length_hits: limits.3,
                concurrent,
                ops,
            }
        },
    )
}
