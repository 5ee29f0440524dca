// SPDX-License-Identifier: Apache-2.0
//! What the fuzzer makes programs from.

use arbitrary::Arbitrary;

/// Up to six pages of four kinds, packed.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Path(u16);

impl Path {
    pub(super) fn symbols(self) -> Vec<u8> {
        let length = (self.0 & 7).min(6);
        (0..length)
            .map(|at| u8::try_from((self.0 >> (3 + 2 * at)) & 3).unwrap_or(0))
            .collect()
    }
}

/// One call.
#[derive(Arbitrary, Debug)]
pub(super) enum Op {
    Acquire {
        root: bool,
        path: Path,
    },
    Release {
        lock: u8,
    },
    Insert {
        lock: u8,
        suffix: Path,
        count_hit: bool,
        priority: i8,
    },
    EvictL1 {
        n: u8,
    },
    EvictL2 {
        n: u8,
        copies_first: bool,
    },
    AttachL1 {
        lock: u8,
        count: u8,
    },
    DetachL1 {
        lock: u8,
        from: u8,
    },
    AttachL2 {
        l1: u8,
    },
    LoseL2 {
        l2: u8,
    },
    PinL1 {
        page: u8,
        on: bool,
    },
    PinL2 {
        page: u8,
        on: bool,
    },
}

/// A program and the index that it runs on.
#[derive(Arbitrary, Debug)]
pub struct Input {
    pub(super) policy: u8,
    pub(super) exact_hits: bool,
    pub(super) l1_pages: u8,
    pub(super) l2_pages: u8,
    pub(super) ops: Vec<Op>,
}
