// SPDX-License-Identifier: Apache-2.0
//! Behaviours of pages and tiers with their bytes: the stories that `behaviours_c`, `_d` and `_j`
//! tell to the planner, on the whole engine and stepped devices. Every hit is compared with the
//! fingerprint of its prefix on every rank in every layer.

use striata::core::config::WritePolicy;
use striata::gpu::Direction;
use striata::gpu::sim::{Fault, FaultPlan, OpClass};
use striata::{Confirm, Lease, PlannerConfig, Prefix, Reserve, Room};
use striata_tests::model::{contents_of, keys_of};
use striata_tests::stepped::{Sizes, Stepped, namespace};

const SIZES: Sizes = Sizes {
    dcp: 2,
    groups: 1,
    page_rows: 2,
    layers: 3,
    l1_pages: 8,
    l2_pages: 8,
    call_pieces: 4,
    sides: [None; 2],
};

/// An engine and requests on it.
struct Rig(Stepped);

impl Rig {
    fn new(l1_pages: u64, l2_pages: u32, set: impl FnOnce(&mut PlannerConfig)) -> Self {
        let sizes = Sizes {
            l1_pages,
            l2_pages,
            ..SIZES
        };
        Self(Stepped::new(7, sizes, set))
    }

    /// Whole pages, and a token behind them if there is a `tail`.
    fn reserve(&mut self, path: &[u8], tail: bool) -> Lease {
        let keys = keys_of(0, path);
        let tokens = path.len() as u64 * self.0.page_tokens() + u64::from(tail);
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        match self.0.cache.reserve(namespace(0), prefix).unwrap() {
            Reserve::Granted(lease) => lease,
            other => panic!("{path:?}: {other:?}"),
        }
    }

    /// Pages on L1, and after those on L2.
    fn pages(&mut self, path: &[u8]) -> (u64, u64) {
        let keys = keys_of(0, path);
        let w = self.0.page_tokens();
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens: path.len() as u64 * w + 1,
        };
        let found = self.0.cache.lookup(namespace(0), prefix);
        (found.tokens_l1 / w, found.tokens_l2 / w)
    }

    fn hits(&self, lease: &Lease) -> (u64, u64) {
        let w = self.0.page_tokens();
        (lease.hit_tokens_l1() / w, lease.hit_tokens_l2() / w)
    }

    /// Reads what a lease has hit, writes the rest, and lets all copies end; every byte is right.
    fn compute(&mut self, lease: &Lease, path: &[u8]) {
        let (on_l1, on_l2) = self.hits(lease);
        let known = usize::try_from(on_l1 + on_l2).unwrap();
        let mut contents = contents_of(0, 0, path);
        contents.resize(lease.pages().len(), 7);
        self.0.cache.start_loads().unwrap();
        let forward = self.0.forward(lease, &contents, known).unwrap();
        self.0.settle().unwrap();
        assert_eq!(self.0.cache.confirm(lease).unwrap(), Confirm::Done);
        assert_eq!(self.0.differing(&forward).unwrap(), Some(Vec::new()));
        self.0.check();
    }

    /// A request from start to end, its stores included; what it has hit on the tiers.
    fn serve(&mut self, path: &[u8]) -> (u64, u64) {
        let lease = self.reserve(path, true);
        self.compute(&lease, path);
        let tokens = path.len() as u64 * self.0.page_tokens();
        self.0.cache.insert(&lease, tokens).unwrap();
        let hits = self.hits(&lease);
        drop(lease);
        self.0.settle().unwrap();
        hits
    }

    fn evict(&mut self, pages: usize) -> Room {
        let room = self.0.cache.evict(pages).unwrap();
        self.0.check();
        room
    }

    fn empty_l1(&mut self) {
        while self.evict(64).freed > 0 {
            self.0.settle().unwrap();
        }
    }

    /// Copies of a class on rank 1 begin when they are let go.
    fn hold(&self, class: OpClass) {
        let plan = (0..8).fold(FaultPlan::new(), |plan, nth| {
            plan.with(class, nth, Fault::Hold)
        });
        self.0.device(1).arm(&plan);
    }

    /// Runs what can run while something is held.
    fn run_held(&mut self) {
        while self.0.cache.pump() {}
        self.0.scheduler.run().unwrap();
        self.0.cache.poll().unwrap();
        self.0.check();
    }

    fn free(&self) -> (u64, u64) {
        let stats = self.0.cache.stats();
        (stats.free_pages_l1, stats.free_pages_l2)
    }
}

/// 21: L2 has room for four pages and holds A and X; while the load of A is held, the store of B
/// takes X's pages and never A's, and C is not stored. Then A's bytes are A's.
///
/// Seen to fail if a grant does not pin the sources of its load.
#[test]
fn b21_the_sources_of_a_held_load_keep_their_bytes() {
    let mut rig = Rig::new(8, 4, |_| {});
    let (a, x, b, c) = ([1, 0], [2, 0], [3, 0], [4, 0]);
    rig.serve(&a);
    rig.serve(&x);
    rig.empty_l1();
    let lease = rig.reserve(&a, true);
    assert_eq!(rig.hits(&lease), (0, 2));
    rig.hold(OpClass::CopyOf(Direction::HostToDevice));
    rig.0.cache.start_loads().unwrap();
    rig.run_held();
    for path in [b, c] {
        let other = rig.reserve(&path, false);
        rig.0.forward(&other, &contents_of(0, 0, &path), 0).unwrap();
        rig.0.step_end().unwrap();
        let tokens = 2 * rig.0.page_tokens();
        rig.0.cache.insert(&other, tokens).unwrap();
        drop(other);
        rig.0.cache.start_loads().unwrap();
        // B's store ends or not; C's pages find only A's and B's.
        rig.0.cache.poll().unwrap();
    }
    assert_eq!(rig.pages(&x), (0, 0), "X made room");
    assert_eq!(rig.0.cache.stats().skipped_store_pages, 2);
    rig.compute(&lease, &a);
    drop(lease);
    rig.empty_l1();
    assert_eq!((rig.pages(&a), rig.pages(&b)), ((0, 2), (0, 2)));
    assert_eq!(rig.serve(&b), (0, 2));
    rig.0.empty(1).unwrap();
}

/// 22: Two pages of L2, copies held, three evictions in one call: the third page is dropped, and
/// the others come back with their own bytes.
///
/// Seen to fail if what finds no room on L2 is not dropped.
#[test]
fn b22_held_stores_keep_their_targets() {
    let mut rig = Rig::new(4, 2, |config| config.write_policy = WritePolicy::WriteBack);
    let paths = [[1], [2], [3]];
    for path in paths {
        rig.serve(&path);
    }
    rig.hold(OpClass::CopyOf(Direction::DeviceToHost));
    let room = rig.evict(3);
    assert_eq!((room.freeing, room.freed), (2, 1));
    rig.run_held();
    assert_eq!(rig.free().1, 0, "both targets are pinned");
    rig.0.settle().unwrap();
    rig.evict(2);
    let mut found: Vec<_> = paths.iter().map(|path| rig.pages(path)).collect();
    let kept: Vec<_> = (0..3).filter(|at| found[*at] == (0, 1)).collect();
    assert_eq!(kept.len(), 2, "{found:?}");
    for at in kept {
        assert_eq!(rig.serve(&paths[at]), (0, 1));
    }
    found.sort_unstable();
    assert_eq!(found[0], (0, 0));
}

/// 30: Abort of a load of eight pages at every stage: before it starts, after any number of
/// operations of its copies, at their end before anybody looked, and of two leases on one load. Both
/// tiers are what they were, round after round, and in the end the bytes are right.
///
/// Seen to fail if the pages of a load that nobody holds are not freed at its end.
#[test]
fn b30_abort_at_any_stage_of_the_copies_leaks_nothing() {
    let mut rig = Rig::new(10, 12, |_| {});
    let path = [1, 0, 1, 1, 0, 0, 1, 0];
    rig.serve(&path);
    rig.empty_l1();
    let start = rig.free();
    assert_eq!(start, (10, 4));
    for round in 0..10_000 {
        let first = rig.reserve(&path, true);
        let stage = round % 40;
        if stage > 0 {
            rig.0.cache.start_loads().unwrap();
            while rig.0.cache.pump() {}
        }
        // Who shares the load is aborted as well, before or after.
        let second = (round % 3 == 0).then(|| rig.reserve(&path[..4], false));
        match stage {
            39 => drop(rig.0.scheduler.run().unwrap()),
            _ => (0..stage).for_each(|_| drop(rig.0.scheduler.step().unwrap())),
        }
        drop(first);
        rig.0.cache.poll().unwrap();
        drop(second);
        rig.0.settle().unwrap();
        rig.empty_l1();
        assert_eq!(rig.free(), start, "round {round}");
        assert_eq!(rig.pages(&path), (0, 8), "round {round}");
    }
    let stats = rig.0.cache.stats();
    assert_eq!((stats.leases, stats.operations_in_flight), (0, 0));
    assert_eq!(rig.serve(&path), (0, 8));
    rig.0.empty(1).unwrap();
}

/// 37: A load of four pages with room for 0 to 4 of them: what it reports has the right bytes, and
/// the rest is where it was.
///
/// Seen to fail if a load takes no notice of how much room was made.
#[test]
fn b37_what_a_partial_load_reports_has_its_bytes() {
    for room in 0..=4usize {
        let mut rig = Rig::new(8, 8, |_| {});
        let path = [1, 0, 0, 1];
        rig.serve(&path);
        rig.empty_l1();
        let held = rig.reserve(&[2; 8][room..], false);
        let keys = keys_of(0, &path);
        let tokens = 4 * rig.0.page_tokens() + 1;
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let outcome = rig.0.cache.load(namespace(0), prefix).unwrap().unwrap();
        assert_eq!(matches!(outcome, Reserve::Granted(_)), room > 0);
        if let Reserve::Granted(lease) = outcome {
            assert_eq!(rig.hits(&lease), (0, room as u64));
            rig.compute(&lease, &path[..room]);
        }
        assert_eq!(rig.pages(&path), (room as u64, 4 - room as u64));
        drop(held);
        rig.empty_l1();
        assert_eq!(rig.free(), (8, 4));
    }
}

/// 38: Loaded pages go where the prefix stands in the table: both of two, or the second alone.
///
/// Seen to fail if the targets of a load are handed over in reverse.
#[test]
fn b38_every_position_of_a_loaded_table_has_its_bytes() {
    let mut rig = Rig::new(8, 8, |_| {});
    let path = [1, 0];
    rig.serve(&path);
    rig.empty_l1();
    for hits in [(0, 2), (1, 1)] {
        let lease = rig.reserve(&path, true);
        assert_eq!((rig.hits(&lease), lease.pages().len()), (hits, 3));
        rig.compute(&lease, &path);
        drop(lease);
        rig.0.settle().unwrap();
        rig.evict(1);
    }
}

/// 50: What leaves L1 with an acknowledged copy is a hit on L2; a load brings it back, L2 keeps its
/// copy, the bytes are the same, and the hit counters of the tiers move by 0 and 3 pages, then by 3
/// and 0.
///
/// Seen to fail if the hits of the tiers are counted the other way round.
#[test]
fn b50_a_hit_that_left_l1_comes_back_with_its_bytes() {
    let mut rig = Rig::new(8, 8, |_| {});
    let path = [1, 0, 1];
    rig.serve(&path);
    rig.empty_l1();
    assert_eq!(rig.pages(&path), (0, 3));
    for (hits, after) in [((0, 3), (3, 0)), ((3, 0), (3, 0))] {
        let before = rig.0.cache.stats();
        assert_eq!(rig.serve(&path), hits);
        let now = rig.0.cache.stats();
        let moved = (
            (now.hit_tokens_l1 - before.hit_tokens_l1) / rig.0.page_tokens(),
            (now.hit_tokens_l2 - before.hit_tokens_l2) / rig.0.page_tokens(),
        );
        assert_eq!(moved, hits);
        assert_eq!(rig.pages(&path), after);
        assert_eq!(rig.free(), (5, 5), "L2 keeps its copies");
    }
}
