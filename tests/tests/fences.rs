// SPDX-License-Identifier: Apache-2.0
//! The end of a step that a rank does not record, and an engine that a lost device has stopped.

use striata::core::config::WritePolicy;
use striata::gpu::Device;
use striata::gpu::sim::{Fault, FaultPlan, OpClass};
use striata::{Error, Lease, PlannerConfig, Prefix, Reserve};
use striata_tests::model::{contents_of, keys_of};
use striata_tests::stepped::{Sizes, Stepped, namespace};

const SIZES: Sizes = Sizes {
    dcp: 2,
    groups: 1,
    page_rows: 2,
    layers: 3,
    l1_pages: 4,
    l2_pages: 6,
    call_pieces: 4,
    sides: [None; 2],
};

fn reserve(engine: &mut Stepped, path: &[u8]) -> Result<Reserve, Error> {
    let tokens = path.len() as u64 * engine.page_tokens();
    let prefix = Prefix::Keys {
        keys: &keys_of(0, path),
        tokens,
    };
    engine.cache.reserve(namespace(0), prefix)
}

fn granted(engine: &mut Stepped, path: &[u8]) -> Lease {
    match reserve(engine, path).unwrap() {
        Reserve::Granted(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// A forward of a request, whose store waits for the end of the step.
fn written(engine: &mut Stepped, path: &[u8]) -> Lease {
    let lease = granted(engine, path);
    engine.cache.start_loads().unwrap();
    let contents = contents_of(0, 0, path);
    engine.forward(&lease, &contents, 0).unwrap();
    let tokens = path.len() as u64 * engine.page_tokens();
    engine.cache.insert(&lease, tokens).unwrap();
    lease
}

/// A rank refuses to record the end of a step: the store of what the step wrote goes on waiting, and
/// so does the load into pages that the step let go; the next call settles both.
///
/// Seen to fail if a rank that did not record the end is passed over.
#[test]
fn a_step_whose_end_was_not_recorded_goes_on() {
    for seed in 0..20 {
        for rank in 0..2 {
            let mut engine = Stepped::new(seed, SIZES, |_| {});
            // Three pages on L2 alone.
            let old = [1, 0, 0];
            drop(written(&mut engine, &old));
            engine.settle().unwrap();
            engine.cache.evict(4).unwrap();
            // A request of four pages, written in the step that is to fail; one page is not whole.
            let path = [0, 1, 0, 1];
            let lease = granted(&mut engine, &path);
            engine.cache.start_loads().unwrap();
            let contents = contents_of(0, 0, &path);
            engine.forward(&lease, &contents, 0).unwrap();
            let w = engine.page_tokens();
            engine.cache.insert(&lease, w).unwrap();
            // Three of its pages are free again, and a load takes them.
            drop(lease);
            let load = granted(&mut engine, &[1, 0, 0, 0][..3]);
            engine.cache.start_loads().unwrap();
            let refuse = FaultPlan::new().with(OpClass::Any, 0, Fault::Refuse);
            engine.device(rank).arm(&refuse);
            let refused = engine.step_end().unwrap_err();
            assert!(
                matches!(refused, Error::Fence { rank: at, .. } if at == rank),
                "{refused}"
            );
            engine.device(rank).arm(&FaultPlan::new());
            assert_eq!(engine.cache.poisoned(), None);
            // Nothing of either is submitted.
            engine.cache.drain().unwrap();
            let copies = |engine: &Stepped| engine.device(0).stats().copies;
            let before = copies(&engine);
            assert_eq!(engine.cache.stats().operations_in_flight, 2);
            while engine.cache.pump() {}
            assert_eq!(copies(&engine), before);
            engine.settle().unwrap();
            engine.check();
            let forward = engine.forward(&load, &contents_of(0, 0, &old), 2).unwrap();
            engine.settle().unwrap();
            assert_eq!(engine.differing(&forward).unwrap(), Some(vec![]));
            drop(load);
            // What the store has brought is what the step wrote.
            engine.settle().unwrap();
            engine.cache.evict(4).unwrap();
            let again = granted(&mut engine, &path);
            assert_eq!(again.hit_tokens_l2(), w);
            engine.cache.start_loads().unwrap();
            let forward = engine.forward(&again, &contents, 1).unwrap();
            engine.settle().unwrap();
            assert_eq!(engine.differing(&forward).unwrap(), Some(vec![]));
            engine.check();
        }
    }
}

/// A lost device will never record it: the engine is poisoned by name, and what waited has ended.
///
/// Seen to fail if what waits for the end is kept, and if the lost rank is passed over.
#[test]
fn a_lost_device_ends_what_waits_for_the_end_of_a_step() {
    let mut engine = Stepped::new(1, SIZES, |_| {});
    let lease = written(&mut engine, &[0, 1, 0]);
    assert_eq!(engine.cache.stats().operations_in_flight, 1);
    engine.device(1).kill("the test took it away");
    let lost = engine.step_end().unwrap_err().to_string();
    assert!(
        lost.contains("rank 1") && lost.contains("the test took it away"),
        "{lost}"
    );
    assert!(
        engine
            .cache
            .poisoned()
            .is_some_and(|cause| cause.contains("rank 1"))
    );
    drop(lease);
    engine.cache.poll().unwrap();
    let stats = engine.cache.stats();
    assert_eq!((stats.leases, stats.operations_in_flight), (0, 0));
    assert_eq!((stats.stored_pages, stats.free_pages_l2), (0, 6));
    assert!(matches!(
        reserve(&mut engine, &[1]),
        Err(Error::Poisoned { .. })
    ));
}

/// An engine that is poisoned begins nothing by itself: each call names the first cause, and a
/// namespace can be forgotten.
///
/// Seen to fail if `poll` maintains a poisoned engine.
#[test]
fn a_poisoned_engine_plans_no_store() {
    let set = |config: &mut PlannerConfig| {
        config.write_policy = WritePolicy::WriteBack;
        config.free_watermark = 2;
    };
    let mut engine = Stepped::new(1, SIZES, set);
    let lease = written(&mut engine, &[0, 1, 0, 1]);
    engine.settle().unwrap();
    engine.device(0).kill("the test took it away");
    drop(lease);
    // The first of these may find it out by a store that is refused.
    let _ = engine.cache.poll();
    let planned = engine.cache.stats().store_pages;
    for _ in 0..3 {
        engine.cache.poll().unwrap();
        assert!(matches!(
            reserve(&mut engine, &[1]),
            Err(Error::Poisoned { .. })
        ));
    }
    assert_eq!(engine.cache.stats().store_pages, planned);
    // The other rank ends what it took.
    let _ = engine.cache.drain();
    let _ = engine.scheduler.run();
    engine.cache.reset(namespace(0)).unwrap();
    engine.cache.poll().unwrap();
    let stats = engine.cache.stats();
    assert_eq!((stats.free_pages_l1, stats.operations_in_flight), (4, 0));
}
