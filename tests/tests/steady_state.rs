// SPDX-License-Identifier: Apache-2.0
//! In the steady state the planner's match, insert and evict allocate nothing on the heap. A
//! reservation does: it hands a page table out.

use allocation_counter::measure;
use striata::Reserve;
use striata_tests::planned::{NAMESPACE, Planned, W, chain};

const REQUESTS: u32 = 4_000;
const PAGES: usize = 8;

#[test]
fn match_insert_and_evict_allocate_nothing() {
    let mut rig = Planned::new(200, 0);
    let paths: Vec<_> = (0..REQUESTS).map(|n| chain(1 + n % 500, PAGES)).collect();
    let tokens = PAGES as u64 * W;
    let (mut matched, mut inserted, mut evicted) = (0, 0, 0);
    for (n, keys) in (0u32..).zip(&paths) {
        let counted = n >= REQUESTS / 2;
        let found = measure(|| {
            let _ = rig.planner.lookup(NAMESPACE, keys, tokens);
        });
        let Reserve::Granted(lease) = rig.planner.reserve(NAMESPACE, keys, tokens).unwrap() else {
            panic!("a small request fits");
        };
        let insert = measure(|| {
            rig.planner.insert(&lease, tokens, true).unwrap();
        });
        drop(lease);
        rig.planner.apply_releases().unwrap();
        let evict = measure(|| {
            rig.planner.evict(3).unwrap();
        });
        if counted {
            matched += found.count_total;
            inserted += insert.count_total;
            evicted += evict.count_total;
        }
    }
    assert_eq!((matched, inserted, evicted), (0, 0, 0));
    assert!(rig.planner.stats().evicted_pages_dropped > 0);
    rig.check();
}
