// SPDX-License-Identifier: Apache-2.0
//! L2 grows while it is in use: on every rank first, then in the planner's books.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use striata::core::{PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::host::{HostError, NoPin, PagePinner, PinError, PinRegion};
use striata::{GrowL2, HiCache, HiCacheSetup, Planner, PlannerConfig, Shard};
use striata_tests::rig::{Rig, RigConfig, Served};

/// A page of a rank is a memory page, so that every page is a registration of its own.
const CONFIG: RigConfig = RigConfig {
    dcp: 2,
    groups: 1,
    page_rows: 4,
    layers: 4,
    row_bytes: 256,
    l1_pages: 6,
    l2_pages: 4,
};
/// Tokens of a widened page.
const W: usize = 8;

fn prompt(seed: u32, pages: usize) -> Vec<u32> {
    let len = u32::try_from(pages * W).unwrap() + 1;
    (0..len).map(|at| seed * 100_000 + at).collect()
}

fn any_pinner(_rank: usize) -> Arc<dyn PagePinner> {
    Arc::new(NoPin)
}

fn assert_stats(rig: &Rig, pages: u64) {
    let stats = rig.cache.stats();
    assert_eq!(stats.pages_l2, pages);
    // Nothing is in flight, so that free and resident pages are all there are.
    assert_eq!(stats.free_pages_l2 + stats.resident_pages_l2, pages);
    rig.cache.check_invariants().unwrap();
}

#[test]
fn a_prompt_that_l2_could_not_hold_comes_back_once_it_has_grown() {
    let mut rig = Rig::growing(CONFIG, 20, any_pinner);
    // Two prompts of five pages: L1 holds one, L2 four pages of the other.
    let (one, other) = (prompt(1, 5), prompt(2, 5));
    let serve = |rig: &mut Rig| {
        let served = [&one, &other, &one, &other].map(|tokens| rig.serve(tokens));
        assert_eq!(served.iter().map(|s| s.wrong_rows).sum::<u64>(), 0);
        served
    };
    let hits = |served: [Served; 4]| served[3].hit_tokens_l1 + served[3].hit_tokens_l2;
    let before = hits(serve(&mut rig));
    assert!(before < (5 * W) as u64);
    assert_stats(&rig, 4);
    let grown = rig.cache.grow_l2(16).unwrap();
    let GrowL2::Grown {
        pages_before,
        pages,
        ..
    } = grown
    else {
        panic!("{grown:?}")
    };
    assert_eq!((pages_before, pages), (4, 20));
    assert_stats(&rig, 20);
    assert_eq!(hits(serve(&mut rig)), (5 * W) as u64);
    assert_stats(&rig, 20);
}

#[test]
fn growth_above_the_maximum_is_an_outcome_and_does_nothing() {
    let mut rig = Rig::growing(CONFIG, 6, any_pinner);
    let above = GrowL2::AboveMaximum {
        pages: 4,
        asked: 7,
        max_pages: 6,
    };
    assert_eq!(rig.cache.grow_l2(3).unwrap(), above);
    assert_stats(&rig, 4);
    for more in [0, 2, 0] {
        let grown = rig.cache.grow_l2(more).unwrap();
        assert!(matches!(grown, GrowL2::Grown { .. }), "{grown:?}");
    }
    assert_stats(&rig, 6);
    // A tier of fixed size is one that may grow to the pages that it has.
    let mut fixed = Rig::new(CONFIG);
    assert!(matches!(
        fixed.cache.grow_l2(1).unwrap(),
        GrowL2::AboveMaximum { max_pages: 4, .. }
    ));
}

/// Refuses after some registrations, until it is told otherwise.
#[derive(Debug, Default)]
struct Refusing {
    registered: AtomicUsize,
    willing: AtomicBool,
}

impl PagePinner for Refusing {
    fn locks_pages(&self) -> bool {
        true
    }
    fn register(&self, _: PinRegion) -> Result<(), PinError> {
        let before = self.registered.fetch_add(1, Ordering::Relaxed);
        if before < 6 || self.willing.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.registered.fetch_sub(1, Ordering::Relaxed);
        let reason = "no more".to_owned();
        Err(PinError { code: 2, reason })
    }
    fn unregister(&self, _: PinRegion) -> Result<(), PinError> {
        self.registered.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn l2_has_the_pages_that_every_rank_has() {
    let refusing = Arc::new(Refusing::default());
    let pinner = |rank| -> Arc<dyn PagePinner> {
        if rank == 1 {
            refusing.clone()
        } else {
            Arc::new(NoPin)
        }
    };
    let mut rig = Rig::growing(CONFIG, 20, pinner);
    let before = rig.serve(&prompt(1, 5));
    let refused = rig.cache.grow_l2(8).unwrap();
    let GrowL2::Refused {
        rank,
        pages,
        asked,
        cause: HostError::Register { chunk, .. },
    } = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((rank, pages, asked, chunk), (1, 4, 12, 6));
    let has = |rig: &Rig, rank| {
        let shard = rig.cache.shards().shard(rank).unwrap();
        shard.host().unwrap().pages()
    };
    assert_eq!((has(&rig, 0), has(&rig, 1)), (12, 4));
    assert_eq!(refusing.registered.load(Ordering::Relaxed), 4);
    assert_eq!(rig.cache.take_up_l2(), 4, "the least of all ranks");
    assert_stats(&rig, 4);
    assert_eq!(rig.serve(&prompt(1, 5)).wrong_rows + before.wrong_rows, 0);
    refusing.willing.store(true, Ordering::Relaxed);
    let grown = rig.cache.grow_l2(8).unwrap();
    assert!(
        matches!(grown, GrowL2::Grown { pages: 12, .. }),
        "{grown:?}"
    );
    assert_stats(&rig, 12);
    assert_eq!((has(&rig, 0), has(&rig, 1)), (12, 12));
    drop(rig);
    assert_eq!(refusing.registered.load(Ordering::Relaxed), 0);
}

/// A side pool of every rank grows with the main one, or the growth is none.
#[test]
fn side_pools_grow_with_the_main_one() {
    let stripe = Stripe::new(2, 4).unwrap();
    let page = PageGeometry::new(4, 256, 4).unwrap();
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 24).unwrap();
    let draft = pool.beside(PoolKind::Replicated, 64, 1).unwrap();
    let mut planner = PlannerConfig::new(pool, 4);
    planner.l2_max_pages = Some(10);
    let setup = HiCacheSetup {
        side_pools: vec![draft],
        ..HiCacheSetup::new(planner)
    };
    let devices = (0..2).map(|rank| SimDevice::new(SimConfig::new(rank)));
    let mut cache = HiCache::new(&setup, devices.collect()).unwrap();
    let pages = |cache: &HiCache<SimDevice>| -> Vec<u32> {
        let shards = cache.shards().shards().iter();
        let pools = shards.flat_map(Shard::pools);
        pools.map(|pool| pool.host().unwrap().pages()).collect()
    };
    assert_eq!(pages(&cache), [4; 4]);
    let grown = cache.grow_l2(5).unwrap();
    assert!(matches!(grown, GrowL2::Grown { pages: 9, .. }), "{grown:?}");
    assert_eq!(pages(&cache), [9; 4]);
    assert_eq!(cache.stats().pages_l2, 9);
    cache.check_invariants().unwrap();
}

/// Another thread makes pages present and registers them while requests are served; they are used
/// from the call that takes them up.
#[test]
fn another_thread_grows_what_is_served() {
    let mut rig = Rig::growing(CONFIG, 64, any_pinner);
    let grower = rig.cache.l2_grower();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for pages in (5..=64).step_by(3) {
                grower.grow_to(pages).unwrap();
            }
            grower.grow_to(64).unwrap();
        });
        let mut seed = 0;
        while rig.cache.stats().pages_l2 < 64 {
            let (before, taken) = (rig.cache.stats().pages_l2, rig.cache.take_up_l2());
            assert!(u64::from(taken) >= before);
            seed += 1;
            for tokens in [prompt(seed % 5, 5), prompt(1, 4)] {
                assert_eq!(rig.serve(&tokens).wrong_rows, 0);
            }
        }
    });
    assert_stats(&rig, 64);
}

#[test]
fn maxima_without_sense_are_refused() {
    let stripe = Stripe::new(2, 4).unwrap();
    let page = PageGeometry::new(4, 16, 3).unwrap();
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 40).unwrap();
    for (l2_pages, max_pages, said) in [(4, 3, "below the 4 pages"), (0, 5, "L2 is off")] {
        let mut config = PlannerConfig::new(pool, l2_pages);
        config.l2_max_pages = Some(max_pages);
        let refused = Planner::new(config).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Requests of shared prefixes between growths of any size: every byte comes back, and the
    /// books hold after each call.
    #[test]
    fn any_growths_between_requests_keep_bytes_and_books(
        ops in proptest::collection::vec((0u32..9, 1usize..6), 1..40),
    ) {
        let mut rig = Rig::growing(CONFIG, 24, any_pinner);
        let mut pages = 4;
        for (kind, size) in ops {
            if kind < 2 {
                let more = u32::try_from(size).unwrap();
                let grown = rig.cache.grow_l2(more).unwrap();
                if pages + more <= 24 {
                    let whole = matches!(grown, GrowL2::Grown { pages: now, .. } if now == pages + more);
                    prop_assert!(whole, "{:?}", grown);
                    pages += more;
                } else {
                    let refused = matches!(grown, GrowL2::AboveMaximum { .. });
                    prop_assert!(refused, "{:?}", grown);
                }
            } else {
                prop_assert_eq!(rig.serve(&prompt(kind % 4, size)).wrong_rows, 0);
            }
            assert_stats(&rig, pages.into());
        }
    }
}
