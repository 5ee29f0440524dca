// SPDX-License-Identifier: Apache-2.0
//! Behaviour 32: bookkeeping memory is bounded by the pool, however long it is used.

use std::collections::VecDeque;

use striata::Reserve;
use striata_tests::planned::{NAMESPACE, Planned, W, chain};

const CYCLES: usize = 1_000_000;
const OUTSTANDING: usize = 100;

/// Resident memory of this process; 0 where the platform does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

/// Seen to fail if the keys of a released lease are kept.
#[test]
fn b32_bookkeeping_is_flat_over_a_million_cycles() {
    let mut rig = Planned::new(64 * OUTSTANDING as u64, 0);
    // Nothing is ever inserted, so no request hits.
    let keys = chain(1, 64);
    let mut held = VecDeque::new();
    let mut resident = 0;
    for cycle in 0..CYCLES {
        let pages = 1 + cycle % 64;
        if held.len() == OUTSTANDING {
            held.pop_front();
        }
        let outcome = rig
            .planner
            .reserve(NAMESPACE, &keys[..pages], pages as u64 * W)
            .unwrap();
        let Reserve::Granted(lease) = outcome else {
            panic!("{outcome:?}")
        };
        held.push_back(lease);
        if cycle == 10_000 {
            resident = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(resident);
    assert!(grown < 1 << 20, "resident memory grew by {grown} bytes");
    held.clear();
    rig.planner.apply_releases().unwrap();
    rig.check();
    assert_eq!(rig.used(), (0, 0));
}
