// SPDX-License-Identifier: Apache-2.0
//! What the fuzzer makes programs from.

use arbitrary::Arbitrary;

/// Up to seven pages of two kinds, packed, and a namespace.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Path(u16);

impl Path {
    pub(super) const fn root(self) -> u8 {
        (self.0 >> 15) as u8
    }

    pub(super) fn symbols(self) -> Vec<u8> {
        let length = self.0 & 7;
        (0..length)
            .map(|at| u8::try_from(self.0 >> (3 + at) & 1).unwrap_or(0))
            .collect()
    }
}

/// One call. Numbers are taken modulo what there is.
#[derive(Arbitrary, Debug)]
pub(super) enum Op {
    /// With keys for all whole pages but `missing`.
    Reserve {
        path: Path,
        tail: u8,
        missing: u8,
    },
    Load {
        path: Path,
        tail: u8,
    },
    Lookup {
        path: Path,
        tail: u8,
    },
    StepBegin,
    StepEnd,
    /// Ends an operation in flight, or one that is none.
    Acknowledge {
        op: u8,
        good: u8,
    },
    Confirm {
        lease: u8,
    },
    Insert {
        lease: u8,
        tokens: u16,
        count_hit: bool,
    },
    Extend {
        lease: u8,
        tokens: u16,
        keys: u8,
    },
    Store {
        lease: u8,
    },
    Drop {
        lease: u8,
    },
    ApplyReleases,
    Evict {
        pages: u8,
    },
    Maintain,
    Reset {
        root: bool,
    },
    TakeOrders,
}

/// A program and the planner that it runs on.
#[derive(Arbitrary, Debug)]
pub struct Input {
    pub(super) policy: u8,
    pub(super) write_policy: u8,
    pub(super) dcp: u8,
    pub(super) page_rows: u8,
    pub(super) l1_pages: u8,
    pub(super) l2_pages: u8,
    pub(super) threshold: u8,
    pub(super) quota: Option<u8>,
    pub(super) max_store_pages: Option<u8>,
    pub(super) watermark: u8,
    pub(super) full_length_hits: bool,
    pub(super) duplicates_first: bool,
    pub(super) ops: Vec<Op>,
}
