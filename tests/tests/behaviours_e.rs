// SPDX-License-Identifier: Apache-2.0
//! Section E of the required behaviours on the ranks of a replica, and 26: what no rank waits for,
//! what all ranks agree on, and what a copy in flight holds.
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of these tests"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use striata::core::{
    FenceId, L1Page, L2Page, LayerId, OpId, PageGeometry, PagePair, PoolGeometry, PoolKind, Stripe,
};
use striata::gpu::sim::{Fault, FaultPlan, OpClass, SimConfig, SimDevice, SimScheduler, SimStream};
use striata::gpu::transfer::{CopyPath, LayerCut, PageRule, Submission, TransferConfig};
use striata::gpu::{Device, Direction, L1Planes};
use striata::host::{HostPool, HostPoolConfig, HugePages};
use striata::{Ack, Confirm, Error, Order, OrderKind, Prefix, Reserve, ShardGroup};
use striata_tests::model::{contents_of, keys_of};
use striata_tests::stepped::{Sizes, Stepped, namespace};

const RANKS: u32 = 4;
const PAGES: u32 = 40;

fn geometry(dcp: u32, layers: u32, page_rows: u32) -> (PoolGeometry, PageGeometry) {
    let stripe = Stripe::new(dcp, page_rows).unwrap();
    let page = PageGeometry::new(page_rows, 64, layers).unwrap();
    let rows = u64::from(PAGES) * u64::from(page_rows);
    (
        PoolGeometry::owned(PoolKind::Striped, stripe, page, rows).unwrap(),
        page,
    )
}

fn host(page: PageGeometry) -> Arc<HostPool> {
    let config = HostPoolConfig {
        reserve_bytes: 0,
        prefault: false,
        huge_pages: HugePages::Off,
        ..HostPoolConfig::new(page, PAGES)
    };
    Arc::new(HostPool::new(&config).unwrap())
}

/// Four ranks whose copies run when the scheduler says so, submitted by who pumps.
struct Replica {
    shards: ShardGroup<SimDevice>,
    devices: Vec<SimDevice>,
    streams: Vec<SimStream>,
    scheduler: SimScheduler,
    acks: Vec<Ack>,
}

impl Replica {
    /// Ranks with room for all that these tests load.
    fn new(seed: u64) -> Self {
        Self::with_window(seed, 1 << 20)
    }

    fn with_window(seed: u64, window_bytes: u64) -> Self {
        let (pool, page) = geometry(RANKS, 6, 4);
        let scheduler = SimScheduler::new(seed);
        let device = |rank| SimDevice::new(SimConfig::stepped(rank, &scheduler));
        let devices: Vec<_> = (0..RANKS).map(device).collect();
        let planes = devices
            .iter()
            .map(|d| Arc::new(L1Planes::alloc(d, pool).unwrap()));
        let hosts = devices.iter().map(|_| Some(host(page))).collect();
        let full = TransferConfig::default();
        // Small pages go the way of large ones: groups of 1, 2 and 3 layers.
        let rule = PageRule {
            path: CopyPath::Runs,
            cut: LayerCut::Growing(200),
        };
        let config = TransferConfig {
            submission: Submission::Manual,
            window_bytes,
            paths: full.paths.forced(Direction::HostToDevice, rule),
            ..full
        };
        let planes = planes.collect();
        let shards = ShardGroup::new(pool, devices.clone(), planes, hosts, &config).unwrap();
        let streams = devices
            .iter()
            .map(|d| d.stream("compute").unwrap())
            .collect();
        Self {
            shards,
            devices,
            streams,
            scheduler,
            acks: Vec::new(),
        }
    }

    fn submit(&mut self, op: u64, kind: OrderKind, pages: std::ops::Range<u32>) {
        let order = Order {
            op: OpId::new(op),
            kind,
            pages: pairs(pages),
            after: None,
            urgent: false,
        };
        self.shards.submit(order).unwrap();
    }

    fn cancel(&mut self, op: u64) {
        self.submit(op, OrderKind::Cancel, 0..0);
    }

    fn pump(&self) {
        while self.shards.pump() {}
    }

    /// What ended since the last time.
    fn poll(&mut self) -> Vec<(u64, u32)> {
        let mut reports = Vec::new();
        self.acks.clear();
        self.shards.poll(&mut self.acks, &mut reports).unwrap();
        self.acks
            .iter()
            .map(|ack| (ack.op.get(), ack.good_pages))
            .collect()
    }

    fn finish(&mut self) -> Vec<(u64, u32)> {
        self.shards.drain().unwrap();
        self.poll()
    }
}

fn pairs(pages: std::ops::Range<u32>) -> Vec<PagePair> {
    let pair = |page| PagePair {
        l1: L1Page::new(page + 1),
        l2: L2Page::new(page),
    };
    pages.map(pair).collect()
}

/// 34: Every rank's copies are late by 0 to 50 ms at random, and the scheduler runs them at random
/// moments: 10,000 steps of an engine, none of which makes a copy of any rank run.
///
/// Seen to fail if the poll waits for the copies of each rank, or if the last rank but one
/// acknowledges for all.
#[test]
fn b34_rank_hang_no_step_waits_for_the_copy_of_another_rank() {
    let mut state = 34_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut replica = Replica::with_window(34, 4096);
    for device in &replica.devices {
        let late = (0..4000).map(|nth| {
            (
                nth,
                Fault::Delay {
                    nanos: random(50_000_001),
                },
            )
        });
        let plan = late.fold(FaultPlan::new(), |plan, (nth, fault)| {
            plan.with(OpClass::Copy, nth, fault)
        });
        device.arm(&plan);
    }
    let mut open = BTreeMap::new();
    let (mut next, mut ended) = (1, 0);
    for step in 0..10_000_u64 {
        let before = replica.scheduler.trace().steps;
        // Ten lots of four pages; an operation has its lot for itself.
        let lot = random(10) as u32;
        if !open.values().any(|&(taken, _)| taken == lot) && random(4) == 0 {
            let kind = [OrderKind::Load, OrderKind::Store][random(2) as usize];
            replica.submit(next, kind, 4 * lot..4 * lot + 4);
            open.insert(next, (lot, kind));
            next += 1;
        }
        if random(50) == 0
            && let Some((&op, _)) = open.iter().next()
        {
            replica.cancel(op);
        }
        if random(3) == 0 {
            let (fence, streams) = (FenceId::new(step + 1), replica.streams.clone());
            replica.shards.record_fence(fence, &streams).unwrap();
        }
        replica.pump();
        for (op, good) in replica.poll() {
            let (_, kind) = open.remove(&op).unwrap();
            assert!(good == 4 || (good == 0 && kind == OrderKind::Load));
            ended += 1;
        }
        assert_eq!(
            replica.scheduler.trace().steps,
            before,
            "step {step} ran a copy"
        );
        for _ in 0..random(6) {
            replica.scheduler.step().unwrap();
        }
    }
    for (op, _) in replica.finish() {
        assert!(open.remove(&op).is_some());
        ended += 1;
    }
    assert!(
        open.is_empty() && ended + 1 == next && ended > 500,
        "{ended}"
    );
    assert_eq!(replica.scheduler.bugs(), []);
}

/// 34: One rank hangs: the others end everything, and what all must have ended is said of nothing.
///
/// Seen to fail if the last rank but one acknowledges for all.
#[test]
fn b34_rank_hang_a_rank_that_hangs_keeps_no_other_rank_back() {
    let mut replica = Replica::new(1);
    replica.devices[2].arm(&FaultPlan::new().with(OpClass::Any, 0, Fault::Hold));
    for op in 0..5 {
        let first = 4 * op as u32;
        replica.submit(op, OrderKind::Load, first..first + 4);
    }
    for _ in 0..10 {
        replica.pump();
        replica.scheduler.run().unwrap();
        assert_eq!(replica.poll(), []);
    }
    let done = |rank: usize| {
        let shard = replica.shards.shard(rank).unwrap();
        shard.transfer_stats().loads.done_jobs
    };
    assert_eq!([0, 1, 2, 3].map(done), [5, 5, 0, 5]);
    replica.devices[2].release_faults();
    let all: Vec<_> = (0..5).map(|op| (op, 4)).collect();
    assert_eq!(replica.finish(), all);
    assert_eq!(replica.scheduler.bugs(), []);
}

/// 35: Rank 2 does not take the tenth page: on no rank is more than nine pages stored or loaded.
/// Every rank and every page of the failure gives one outcome for all.
///
/// Seen to fail if the outcome is that of the rank which ends last.
#[test]
fn b35_rank_consensus_the_failure_of_one_rank_is_the_outcome_of_all() {
    for rank in 0..RANKS as usize {
        for page in [0, 1, 9, 11] {
            let mut replica = Replica::new(35);
            let fault = Fault::Fail { good_pieces: page };
            replica.devices[rank].arm(&FaultPlan::new().with(OpClass::Copy, 0, fault));
            replica.submit(1, OrderKind::Store, 0..12);
            assert_eq!(replica.finish(), [(1, page as u32)]);
            // In the third layer of a load, the second of its group.
            let fault = Fault::Fail {
                good_pieces: 12 + page,
            };
            replica.devices[rank].arm(&FaultPlan::new().with(OpClass::Copy, 1, fault));
            replica.submit(2, OrderKind::Load, 0..12);
            assert_eq!(replica.finish(), [(2, page as u32)]);
            let named = replica.shards.fault().unwrap();
            assert!(
                named.starts_with(&format!("operation 1 on rank {rank}: ")),
                "{named}"
            );
            // Nobody is poisoned: the next operation is whole on all ranks.
            replica.submit(3, OrderKind::Store, 0..12);
            assert_eq!(replica.finish(), [(3, 12)]);
            assert_eq!(replica.scheduler.bugs(), []);
        }
    }
}

/// A request of `path` from start to end on all ranks, of which the first `known` pages are read and
/// the others are computed. Returns its pages that hit on L1 and on L2.
fn serve(engine: &mut Stepped, path: &[u8], known: usize) -> (u64, u64) {
    let (keys, w) = (keys_of(0, path), engine.page_tokens());
    let tokens = path.len() as u64 * w;
    let prefix = Prefix::Keys {
        keys: &keys,
        tokens,
    };
    let outcome = engine.cache.reserve(namespace(0), prefix).unwrap();
    let Reserve::Granted(lease) = outcome else {
        panic!("{outcome:?}");
    };
    engine.cache.start_loads().unwrap();
    let contents = contents_of(0, 0, path);
    let forward = engine.forward(&lease, &contents, known).unwrap();
    engine.settle().unwrap();
    assert_eq!(engine.cache.confirm(&lease).unwrap(), Confirm::Done);
    assert_eq!(engine.differing(&forward).unwrap(), Some(vec![]));
    engine.cache.insert(&lease, tokens).unwrap();
    let hits = (lease.hit_tokens_l1() / w, lease.hit_tokens_l2() / w);
    drop(lease);
    engine.settle().unwrap();
    engine.check();
    hits
}

/// 35, decided once for all ranks: rank 2 does not take the tenth page of a store. No rank keeps it:
/// L2 has nine pages, the lookup gives nine, their bytes come back on every rank, and the room of
/// the others is free again.
///
/// Seen to fail if the outcome is that of the rank which ends last, if pages that a store did not
/// bring count as copies, or if their room on L2 is not given back.
#[test]
fn b35_rank_consensus_no_rank_keeps_the_page_that_one_refused() {
    for refusing in 0..RANKS as usize {
        let sizes = Sizes {
            dcp: RANKS,
            groups: 1,
            page_rows: 2,
            layers: 3,
            l1_pages: 16,
            l2_pages: 16,
            sides: [None; 2],
            call_pieces: 512,
        };
        let mut engine = Stepped::new(35, sizes, |_| {});
        let fault = Fault::Fail { good_pieces: 9 };
        let plan = FaultPlan::new().with(OpClass::Copy, 0, fault);
        engine.device(refusing).arm(&plan);
        let path = [0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0];
        assert_eq!(serve(&mut engine, &path[..12], 0), (0, 0));
        let (keys, w) = (keys_of(0, &path), engine.page_tokens());
        let whole = Prefix::Keys {
            keys: &keys,
            tokens: 13 * w,
        };
        let found = engine.cache.lookup(namespace(0), whole);
        assert_eq!((found.tokens_l1, found.tokens_l2), (12 * w, 0));
        let stats = engine.cache.stats();
        assert_eq!((stats.stored_pages, stats.failed_store_pages), (9, 3));
        assert_eq!((stats.resident_pages_l2, stats.free_pages_l2), (9, 16 - 9));
        let named = engine.cache.shards().fault().unwrap().to_owned();
        assert!(named.contains(&format!("on rank {refusing}: ")), "{named}");

        engine.cache.evict(12).unwrap();
        let found = engine.cache.lookup(namespace(0), whole);
        assert_eq!((found.tokens_l1, found.tokens_l2), (0, 9 * w));
        // Nine pages are read on all ranks, and the others are computed again and stored: what was
        // reserved for them can be had.
        assert_eq!(serve(&mut engine, &path, 9), (0, 9));
        let stats = engine.cache.stats();
        assert_eq!((stats.resident_pages_l2, stats.free_pages_l2), (13, 3));
        engine.cache.evict(13).unwrap();
        assert_eq!(serve(&mut engine, &path, 12), (0, 12));
        engine.empty(1).unwrap();
    }
}

/// 26: A load that is cancelled after k units of submission on every rank is acknowledged once, when
/// its copies have ended everywhere; so is one that a rank had submitted to its end.
///
/// Seen to fail if a job counts as ended while its last group runs.
#[test]
fn b26_abort_quarantine_a_cancelled_load_is_acknowledged_when_its_copies_have_ended() {
    for units in 0..6 {
        let mut replica = Replica::new(units);
        replica.submit(1, OrderKind::Load, 0..8);
        for _ in 0..units {
            replica.shards.pump();
        }
        replica.cancel(1);
        replica.cancel(1);
        // Groups of 1, 2 and 3 layers, and the begin.
        let (copies, whole) = (units > 1, units > 3);
        let ended = [(1, if whole { 8 } else { 0 })];
        replica.pump();
        let at_once = replica.poll();
        assert_eq!(at_once, if copies { &[][..] } else { &ended[..] });
        let waiting = replica.shards.gates(3, &[OpId::new(1)]).unwrap();
        assert_eq!(waiting.is_open(), !copies);
        if copies {
            let first = waiting.wait_layer(LayerId::new(0), &replica.streams[3]);
            first.unwrap();
            let last = waiting.wait_layer(LayerId::new(5), &replica.streams[3]);
            assert_eq!(matches!(last, Err(Error::Gate { rank: 3, .. })), !whole);
            replica.scheduler.run().unwrap();
            assert_eq!(replica.poll(), ended);
        }
        replica.cancel(1);
        assert_eq!(
            (replica.finish(), replica.shards.fault()),
            (Vec::new(), None)
        );
        replica.submit(2, OrderKind::Load, 0..8);
        assert_eq!(replica.finish(), [(2, 8)]);
        assert_eq!(replica.scheduler.bugs(), []);
    }
}
