// SPDX-License-Identifier: Apache-2.0
//! Who runs when: deadlocks, questions that run nothing, orders by seed.

use std::collections::BTreeSet;

use striata_gpu::sim::{SimConfig, SimDevice, Step};
use striata_gpu::{Device, DeviceTime};

use crate::bench::Bench;

#[test]
fn a_deadlock_names_what_every_stream_waits_for() {
    let bench = Bench::new(0);
    let (a, b) = (bench.stream("a"), bench.stream("b"));
    let hold = bench.device.hold(&a).unwrap();
    bench.device.wait(&b, &bench.mark(&a)).unwrap();
    let end = bench.mark(&b);
    assert!(!bench.device.is_complete(&end).unwrap());
    let stuck = bench.device.synchronize(&end).unwrap_err();
    assert_eq!(
        stuck.to_string(),
        "synchronize of event record 1 of stream b of sim0 would wait for ever: hold 0 of stream a \
         of sim0 waits for its release; event wait 0 of stream b of sim0 waits for event record 1 \
         of stream a of sim0"
    );
    // Nothing is broken by it.
    hold.release();
    assert_eq!(bench.device.synchronize(&end), Ok(DeviceTime::default()));
    assert_eq!(bench.scheduler.bugs(), []);
}

#[test]
fn asking_runs_nothing() {
    let bench = Bench::new(0);
    let stream = bench.stream("a");
    bench.load(&stream, 0, 0);
    let event = bench.mark(&stream);
    for _ in 0..100 {
        assert_eq!(bench.device.is_complete(&event), Ok(false));
        assert_eq!(bench.device.event_time(&event), Ok(None));
    }
    assert_eq!(bench.scheduler.trace().steps, 0);
    bench.device.synchronize(&event).unwrap();
    assert_eq!(bench.device.is_complete(&event), Ok(true));
}

#[test]
fn a_stream_without_handles_is_finished_and_its_holds_end() {
    let bench = Bench::new(0);
    let stream = bench.stream("a");
    let _hold = bench.device.hold(&stream).unwrap();
    bench.load(&stream, 0, 0);
    let event = bench.mark(&stream);
    drop(stream);
    bench.device.synchronize(&event).unwrap();
}

/// Several streams of independent work, and what became of it.
fn many_streams(seed: u64) -> (String, u64) {
    let bench = Bench::new(seed);
    let other = SimDevice::new(SimConfig::stepped(1, &bench.scheduler));
    let streams: Vec<_> = (0..4).map(|i| bench.stream(&i.to_string())).collect();
    for (i, stream) in (0..).zip(&streams) {
        bench.load(stream, i, i);
        other.occupy(stream, 5).unwrap();
        bench.store(stream, i, i);
    }
    assert_eq!(bench.scheduler.run(), Ok(Step::Idle));
    let trace = bench.scheduler.trace();
    assert_eq!((trace.seed, trace.steps), (seed, 12));
    (trace.to_string(), trace.digest)
}

#[test]
fn a_seed_gives_one_order_and_seeds_give_many() {
    let mut orders = BTreeSet::new();
    for seed in 0..50 {
        let run = many_streams(seed);
        assert_eq!(run, many_streams(seed));
        assert!(run.0.contains("of stream 3 of sim0"), "{}", run.0);
        orders.insert(run.1);
    }
    assert!(orders.len() > 45);
}
