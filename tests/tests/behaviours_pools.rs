// SPDX-License-Identifier: Apache-2.0
//! Required behaviours of an engine with several pools: a striped one and a replicated one beside
//! it, of other rows and layers.

use striata::core::plan::{CopyDirection, CopyPlan};
use striata::core::{LayerId, PagePair, PoolKind, Rank};
use striata::gpu::Direction;
use striata::gpu::sim::{Fault, FaultPlan, OpClass};
use striata::{Confirm, Error, Lease, PoolId, Prefix, Reserve};
use striata_tests::model::{contents_of, keys_of};
use striata_tests::stepped::{Forward, Side, Sizes, Stepped, namespace};

const SIDE: PoolId = PoolId::side(0);
const RANKS: usize = 4;
/// Layers of the side pool, more than the main pool has.
const SIDE_LAYERS: u32 = 4;
/// Whole pages of the prompt that is cached.
const PAGES: usize = 6;
const PATH: [u8; PAGES] = [0, 1, 1, 0, 1, 0];
/// The prompt, and a page that nobody has computed.
const LONGER: [u8; PAGES + 1] = [0, 1, 1, 0, 1, 0, 1];

const SIZES: Sizes = Sizes {
    dcp: 4,
    groups: 1,
    page_rows: 2,
    layers: 3,
    l1_pages: 10,
    l2_pages: 12,
    call_pieces: 512,
    sides: [
        Some(Side {
            kind: PoolKind::Replicated,
            row_words: 3,
            layers: SIDE_LAYERS,
        }),
        None,
    ],
};

/// Bytes of a page of each pool on a rank: rows, bytes of a row, layers.
const MAIN_BYTES: u64 = 2 * 8 * 3;
const SIDE_BYTES: u64 = 8 * 12 * SIDE_LAYERS as u64;

fn reserve(engine: &mut Stepped, path: &[u8]) -> Lease {
    let keys = keys_of(0, path);
    let tokens = path.len() as u64 * engine.page_tokens() + 1;
    let prefix = Prefix::Keys {
        keys: &keys,
        tokens,
    };
    match engine.cache.reserve(namespace(0), prefix).unwrap() {
        Reserve::Granted(lease) => lease,
        refused => panic!("{refused:?}"),
    }
}

fn forward(engine: &Stepped, lease: &Lease, path: &[u8]) -> Forward {
    let mut contents = contents_of(0, 0, path);
    contents.resize(lease.pages().len(), 7);
    let known = usize::try_from(lease.hit_tokens() / engine.page_tokens()).unwrap();
    engine.forward(lease, &contents, known).unwrap()
}

/// A request from start to end, every hit compared in every pool.
fn serve(engine: &mut Stepped, path: &[u8]) {
    let lease = reserve(engine, path);
    engine.cache.start_loads().unwrap();
    let forward = forward(engine, &lease, path);
    engine.settle().unwrap();
    assert_eq!(engine.cache.confirm(&lease).unwrap(), Confirm::Done);
    assert_eq!(engine.differing(&forward).unwrap(), Some(vec![]));
    let tokens = path.len() as u64 * engine.page_tokens();
    engine.cache.insert(&lease, tokens).unwrap();
    drop(lease);
    engine.settle().unwrap();
    engine.check();
}

/// An engine whose prompt is on L2 only.
fn on_l2(seed: u64) -> Stepped {
    let mut engine = Stepped::new(seed, SIZES, |_| ());
    serve(&mut engine, &PATH);
    engine.cache.evict(16).unwrap();
    engine.cache.take_reports().count();
    engine
}

/// Submits every layer of the side pool on every rank before any copy of the main pool.
fn wait_for_side(engine: &Stepped, lease: &Lease) {
    for rank in 0..RANKS {
        for layer in (0..SIDE_LAYERS).map(LayerId::new) {
            let stream = engine.stream(rank);
            let waited = engine.cache.wait_layer_of(SIDE, lease, rank, layer, stream);
            waited.unwrap();
        }
    }
}

/// Copies of a load of the whole prompt in the side pool of a rank.
fn side_copies() -> u64 {
    let mut engine = on_l2(0);
    let lease = reserve(&mut engine, &LONGER);
    engine.cache.start_loads().unwrap();
    wait_for_side(&engine, &lease);
    engine.settle().unwrap();
    let shard = engine.cache.shards().shard(0).unwrap();
    shard.pool(SIDE).unwrap().transfer_stats().loads.calls
}

/// Jobs of loads that failed in a pool of a rank.
fn failed_loads(engine: &Stepped, rank: usize, pool: PoolId) -> u64 {
    let shard = engine.cache.shards().shard(rank).unwrap();
    shard.pool(pool).unwrap().transfer_stats().loads.failed_jobs
}

/// A load of `LONGER` in which a copy of the side pool of `rank` goes wrong, and what stands of it.
fn failing_load(engine: &mut Stepped, rank: usize, nth: u64, good_pieces: usize) -> Confirm {
    let lease = reserve(engine, &LONGER);
    engine.cache.start_loads().unwrap();
    let loads = OpClass::CopyOf(Direction::HostToDevice);
    let plan = FaultPlan::new().with(loads, nth, Fault::Fail { good_pieces });
    engine.device(rank).arm(&plan);
    wait_for_side(engine, &lease);
    let read = forward(engine, &lease, &LONGER);
    engine.settle().unwrap();
    let confirmed = engine.cache.confirm(&lease).unwrap();
    let stand = match confirmed {
        Confirm::LoadFailed { valid_tokens } => valid_tokens / engine.page_tokens(),
        _ => u64::MAX,
    };
    let wrong = engine.differing(&read).unwrap().unwrap();
    assert!(wrong.iter().all(|page| *page as u64 >= stand), "{wrong:?}");
    let tokens = LONGER.len() as u64 * engine.page_tokens();
    let inserted = engine.cache.insert(&lease, tokens);
    assert_eq!(inserted.is_ok(), confirmed == Confirm::Done);
    engine.check();
    drop(lease);
    engine.device(rank).arm(&FaultPlan::new());
    engine.settle().unwrap();
    engine.check();
    confirmed
}

/// 36: A load that fails in the side pool alone, in any group of its layers on any rank: what stands
/// is the least of all pools and ranks, `confirm` says how much, and nothing of the rest, nor of what
/// was computed over it, is ever matched.
///
/// Seen to fail if an operation is acknowledged with the end of its main pool.
#[test]
fn b36_a_load_that_fails_in_the_side_pool_alone() {
    let w = 2 * RANKS as u64;
    let copies = side_copies();
    let pieces = [0, 1, 2, 3, 5, 8, 13, 21];
    let faults = (0..copies).flat_map(|nth| pieces.map(|good_pieces| (nth, good_pieces)));
    let faults: Vec<_> = faults.collect();
    let (mut stands, mut struck) = ([false; PAGES], 0);
    for rank in 0..RANKS {
        for &(nth, good_pieces) in &faults {
            let mut engine = on_l2(nth);
            let confirmed = failing_load(&mut engine, rank, nth, good_pieces);
            let reports: Vec<_> = engine.cache.take_reports().collect();
            let load = reports
                .iter()
                .find(|report| report.direction == Direction::HostToDevice)
                .unwrap();
            let good = u64::from(load.good_pages);
            if good == PAGES as u64 {
                // Fewer pieces than the fault lets through.
                assert_eq!(confirmed, Confirm::Done);
                continue;
            }
            struck += 1;
            assert_eq!(
                confirmed,
                Confirm::LoadFailed {
                    valid_tokens: good * w
                }
            );
            stands[usize::try_from(good).unwrap()] = true;
            for other in 0..RANKS {
                assert_eq!(failed_loads(&engine, other, PoolId::MAIN), 0);
                let here = u64::from(other == rank);
                assert_eq!(failed_loads(&engine, other, SIDE), here);
            }
            let cause = load.cause.as_deref().unwrap();
            assert!(
                cause.contains(&format!("rank {rank}, side pool 0")),
                "{cause}"
            );
            let keys = keys_of(0, &LONGER);
            let prefix = Prefix::Keys {
                keys: &keys,
                tokens: 7 * w + 1,
            };
            let found = engine.cache.lookup(namespace(0), prefix);
            assert_eq!(found.tokens_l1, good * w);
            assert_eq!(
                found.tokens_l1 + found.tokens_l2,
                6 * w,
                "never the seventh"
            );
            // The rest comes, and everything is what it was.
            serve(&mut engine, &LONGER);
            engine.empty(1).unwrap();
        }
    }
    let seen = stands.iter().filter(|seen| **seen).count();
    assert!(seen > 2 && struck > 4 * RANKS, "{stands:?}, {struck}");
}

/// 39: A load that brought two pages is resumed at the third in every pool: at row 2 P of the
/// striped pages and at row 2 W of the replicated ones.
#[test]
fn b39_a_load_resumes_at_the_page_of_each_pool() {
    let mut engine = on_l2(39);
    let confirmed = failing_load(&mut engine, 1, 0, 2);
    let Confirm::LoadFailed { valid_tokens } = confirmed else {
        panic!("{confirmed:?}")
    };
    assert_eq!(valid_tokens, 2 * engine.page_tokens());
    let lease = reserve(&mut engine, &LONGER);
    let order = engine.cache.planned_loads()[0].clone();
    assert_eq!(
        (lease.hit_tokens_l1(), order.pages.len()),
        (valid_tokens, 4)
    );
    let all: Vec<_> = (0..6).map(|page| pair(page + 1, page)).collect();
    let shards = engine.cache.shards();
    for (pool, geometry) in shards.pools() {
        let (kind, stripe) = (geometry.kind(), geometry.stripe());
        let load = CopyDirection::HostToDevice;
        let plan = CopyPlan::from_pages(kind, stripe, load, &all, 11, 12).unwrap();
        let rest = plan.resume_at(valid_tokens);
        let run = rest.runs(Rank::new(3)).next().unwrap();
        let rows = if pool == SIDE { 8 } else { 2 };
        let rows = (run.host_row.get(), run.rows) == (2 * rows, 4 * rows);
        assert!(rows, "{run:?}");
    }
    let before = loaded_bytes(&engine);
    engine.cache.start_loads().unwrap();
    let read = forward(&engine, &lease, &LONGER);
    engine.settle().unwrap();
    assert_eq!(engine.cache.confirm(&lease).unwrap(), Confirm::Done);
    assert_eq!(engine.differing(&read).unwrap(), Some(vec![]));
    for (before, after) in before.into_iter().zip(loaded_bytes(&engine)) {
        let new = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(new, [4 * MAIN_BYTES, 4 * SIDE_BYTES]);
    }
    drop(lease);
    engine.empty(1).unwrap();
}

fn pair(l1: u32, l2: u32) -> PagePair {
    PagePair {
        l1: striata::core::L1Page::new(l1),
        l2: striata::core::L2Page::new(l2),
    }
}

/// Bytes that each rank has loaded in the main and in the side pool.
fn loaded_bytes(engine: &Stepped) -> Vec<[u64; 2]> {
    let shards = engine.cache.shards().shards().iter();
    let of = |pool| {
        move |shard: &striata::Shard<_>| -> u64 {
            shard.pool(pool).unwrap().transfer_stats().loads.done_bytes
        }
    };
    shards
        .map(|shard| [of(PoolId::MAIN)(shard), of(SIDE)(shard)])
        .collect()
}

/// 53: Every pool has gates of its own: a layer of the side pool is passed while nothing of the
/// main pool was submitted, a pool or a layer that is not there is refused, and one operation
/// reports the bytes of all pools.
///
/// Seen to fail if the gate of another pool is waited for.
#[test]
fn b53_gates_of_a_pool_wait_for_that_pool() {
    let mut engine = on_l2(53);
    let lease = reserve(&mut engine, &LONGER);
    engine.cache.start_loads().unwrap();
    let stream = engine.stream(0);
    let layer = LayerId::new(0);
    let wait = |pool, layer| engine.cache.wait_layer_of(pool, &lease, 0, layer, stream);
    wait(SIDE, layer).unwrap();
    let loads = |pool| {
        let shard = engine.cache.shards().shard(0).unwrap();
        shard.pool(pool).unwrap().transfer_stats().loads
    };
    assert_eq!(loads(PoolId::MAIN).in_flight_bytes, 0);
    assert!(loads(SIDE).in_flight_bytes > 0);
    assert_eq!(loads(PoolId::MAIN).queued_bytes, 6 * MAIN_BYTES);
    // The fourth layer is there in the side pool only.
    wait(SIDE, LayerId::new(3)).unwrap();
    let refused = wait(PoolId::MAIN, LayerId::new(3)).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Gate {
                pool: PoolId::MAIN,
                ..
            }
        ),
        "{refused}"
    );
    let refused = wait(PoolId::side(1), layer).unwrap_err();
    assert!(
        refused.to_string().contains("side pool 1 is not one of"),
        "{refused}"
    );
    engine.settle().unwrap();
    let load = engine.cache.take_reports().next().unwrap();
    assert_eq!(load.bytes_per_rank, 6 * (MAIN_BYTES + SIDE_BYTES));
    let shard = engine.cache.shards().shard(0).unwrap();
    let all = shard.transfer_stats().loads;
    assert_eq!((all.done_jobs, all.done_bytes), (2, load.bytes_per_rank));
    drop(lease);
    engine.empty(1).unwrap();
}

/// 26: A load that is given up when the side pool was submitted to its end and the main pool not
/// at all: it brings nothing, and its pages are in use until the side pool's copies have ended.
///
/// Seen to fail if the load ends with its main pool, or is given up in one of the pools only.
#[test]
fn b26_a_load_that_is_given_up_holds_its_pages_until_all_pools_have_ended() {
    let mut engine = on_l2(26);
    let free = engine.cache.stats().free_pages_l1;
    let lease = reserve(&mut engine, &LONGER);
    let targets = engine.cache.planned_loads()[0].pages.len() as u64;
    engine.cache.start_loads().unwrap();
    wait_for_side(&engine, &lease);
    drop(lease);
    engine.cache.poll().unwrap();
    while engine.cache.pump() {}
    engine.cache.poll().unwrap();
    assert_eq!(engine.cache.stats().cancelled_loads, 1);
    assert_eq!(engine.cache.stats().free_pages_l1, free - targets);
    engine.check();
    engine.settle().unwrap();
    assert_eq!(engine.cache.stats().free_pages_l1, free);
    let load = engine.cache.take_reports().next().unwrap();
    assert_eq!((load.good_pages, load.cause), (0, None));
    for rank in 0..RANKS {
        let shard = engine.cache.shards().shard(rank).unwrap();
        let loads = |pool| shard.pool(pool).unwrap().transfer_stats().loads;
        let (main, side) = (loads(PoolId::MAIN), loads(SIDE));
        assert_eq!((main.cancelled_jobs, main.calls), (1, 0));
        assert_eq!((side.cancelled_jobs, side.done_jobs), (0, 1));
    }
    // Given up before anything of it was submitted, it copies nothing in any pool.
    let lease = reserve(&mut engine, &LONGER);
    engine.cache.start_loads().unwrap();
    drop(lease);
    engine.cache.poll().unwrap();
    engine.settle().unwrap();
    for rank in 0..RANKS {
        let shard = engine.cache.shards().shard(rank).unwrap();
        let loads = |pool| shard.pool(pool).unwrap().transfer_stats().loads;
        let (main, side) = (loads(PoolId::MAIN), loads(SIDE));
        assert_eq!((main.cancelled_jobs, main.calls), (2, 0));
        assert_eq!((side.cancelled_jobs, side.done_jobs), (1, 1));
    }
    serve(&mut engine, &LONGER);
    engine.empty(1).unwrap();
}

/// A pool beside the main one that cannot go on ends the engine, and every later call says which.
#[test]
fn a_refused_copy_of_a_side_pool_poisons_the_engine_by_name() {
    let mut engine = on_l2(7);
    let lease = reserve(&mut engine, &LONGER);
    engine.cache.start_loads().unwrap();
    engine
        .device(2)
        .arm(&FaultPlan::new().with(OpClass::Copy, 0, Fault::Refuse));
    let (layer, stream) = (LayerId::new(0), engine.stream(2));
    let refused = engine.cache.wait_layer_of(SIDE, &lease, 2, layer, stream);
    assert!(refused.is_err());
    let keys = keys_of(0, &PATH);
    let prefix = Prefix::Keys {
        keys: &keys,
        tokens: 49,
    };
    let refused = engine.cache.reserve(namespace(0), prefix).unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("rank 2, side pool 0") && text.contains("copy 0 of sim2"),
        "{text}"
    );
    drop(lease);
    while engine.cache.pump() {}
    engine.scheduler.run().unwrap();
    engine.cache.poll().unwrap();
    let stats = engine.cache.stats();
    assert_eq!((stats.leases, stats.operations_in_flight), (0, 0));
    assert_eq!(stats.loaded_pages, 0);
    engine.check();
}
