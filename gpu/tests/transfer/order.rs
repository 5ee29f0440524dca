// SPDX-License-Identifier: Apache-2.0
//! In which order jobs are submitted and reported.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use striata_core::LayerId;
use striata_gpu::{Device, DeviceTime, Direction};

use crate::support::{Rig, ops};

/// Long enough for a thread to do what it must not do.
const MEANWHILE: Duration = Duration::from_millis(20);

#[test]
fn a_consumer_that_asks_before_the_submission_waits_for_it() {
    let rig = Rig::with_defaults();
    let filled = rig.fill(&[(1, 7)]);
    rig.engine
        .store(rig.store(1, &[(1, 1)], Some(filled)))
        .unwrap();
    rig.finish();
    let hold = rig.device.sim().hold(&rig.compute).unwrap();
    let busy = rig.fill(&[(2, 0)]);
    let gate = rig.engine.load(rig.load(2, &[(2, 1)], Some(busy))).unwrap();
    let reader = rig.device.stream("reader").unwrap();
    let log = rig.log();
    thread::scope(|scope| {
        let asked = scope.spawn(|| {
            gate.wait_layer(LayerId::new(4), &reader).unwrap();
            rig.verify(&reader, 4, &[(2, 7)], &log)
        });
        thread::sleep(MEANWHILE);
        assert!(!asked.is_finished());
        assert_eq!(gate.submitted_groups(), Ok(0));
        assert!(!gate.is_complete().unwrap());
        hold.release();
        rig.device.synchronize(&asked.join().unwrap()).unwrap();
    });
    assert_eq!(rig.mismatches(&log), 0);
    assert_eq!(gate.submitted_groups(), Ok(2));
}

/// Seen to hang if loads behind one whose fence is open wait with it.
#[test]
fn b53_a_load_whose_targets_are_busy_is_passed_and_reported_when_it_ends() {
    let rig = Rig::with_defaults();
    let hold = rig.device.sim().hold(&rig.compute).unwrap();
    let busy = rig.fence();
    rig.engine
        .load(rig.load(1, &[(1, 1)], Some(busy.clone())))
        .unwrap();
    rig.engine.load(rig.load(2, &[(2, 2)], Some(busy))).unwrap();
    rig.engine
        .load(rig.load(3, &[(3, 3)], None))
        .unwrap()
        .synchronize()
        .unwrap();
    let free = rig.engine.load(rig.load(4, &[(4, 4)], None)).unwrap();
    rig.engine.store(rig.store(5, &[(5, 5)], None)).unwrap();
    free.synchronize().unwrap();
    // The store's submission comes before its event can be asked for.
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(ops(&rig.poll()));
        thread::yield_now();
    }
    seen.sort_unstable();
    assert_eq!(seen, [3, 4, 5]);
    assert_eq!(rig.engine.stats().loads.queued_jobs, 2);
    hold.release();
    assert_eq!(ops(&rig.finish()), [1, 2]);
}

#[test]
fn waiting_loads_go_before_waiting_stores() {
    let rig = Rig::with_defaults();
    rig.device.stop();
    rig.engine.store(rig.store(1, &[(1, 1)], None)).unwrap();
    rig.device.await_caller();
    rig.engine.store(rig.store(2, &[(2, 2)], None)).unwrap();
    rig.engine.load(rig.load(3, &[(3, 3)], None)).unwrap();
    rig.device.go_on();
    rig.engine.drain().unwrap();
    let order: Vec<_> = rig
        .device
        .calls()
        .iter()
        .map(|call| call.direction)
        .collect();
    let (load, store) = (Direction::HostToDevice, Direction::DeviceToHost);
    assert_eq!(order, [store, load, load, store]);
}

#[test]
fn completions_come_in_the_order_of_submission_and_once() {
    let rig = Rig::with_defaults();
    rig.device.hold_copies();
    for op in 0..4 {
        let page = u32::try_from(op).unwrap() + 1;
        rig.engine
            .load(rig.load(op, &[(page, page)], None))
            .unwrap();
        rig.engine
            .store(rig.store(10 + op, &[(page + 4, page + 4)], None))
            .unwrap();
    }
    thread::sleep(MEANWHILE);
    assert_eq!(rig.poll(), []);
    rig.device.release_all();
    let done = rig.finish();
    let of = |direction| {
        let chosen = done.iter().filter(move |c| c.direction == direction);
        chosen.map(|c| c.op.get()).collect::<Vec<_>>()
    };
    assert_eq!(of(Direction::HostToDevice), [0, 1, 2, 3]);
    assert_eq!(of(Direction::DeviceToHost), [10, 11, 12, 13]);
    assert!(done.iter().all(|c| c.error.is_none() && c.good_pages == 1));
    assert_eq!(rig.poll(), []);
}

#[test]
fn two_pollers_lose_and_repeat_nothing() {
    let rig = Rig::with_defaults();
    let seen: Vec<u64> = thread::scope(|scope| {
        let pollers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while rig.engine.stats().stores.done_jobs < 200 {
                    mine.extend(ops(&rig.poll()));
                }
                mine
            })
        });
        for op in 0..200 {
            rig.engine.store(rig.store(op, &[(1, 1)], None)).unwrap();
        }
        pollers
            .into_iter()
            .flat_map(|poller| poller.join().unwrap())
            .collect()
    });
    let mut sorted = seen;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_job_without_pages_ends_at_once() {
    let rig = Rig::with_defaults();
    rig.device.hold_copies();
    rig.engine.load(rig.load(1, &[(1, 1)], None)).unwrap();
    rig.device.advance_to(DeviceTime::from_nanos(77));
    let gate = rig.engine.load(rig.load(2, &[], None)).unwrap();
    rig.engine.store(rig.store(3, &[], None)).unwrap();
    let reader = rig.device.stream("reader").unwrap();
    gate.wait_layer(LayerId::new(4), &reader).unwrap();
    gate.wait_all(&reader).unwrap();
    assert!(gate.is_complete().unwrap());
    assert_eq!(gate.synchronize().unwrap().last, DeviceTime::from_nanos(77));
    let done = rig.poll();
    assert_eq!(ops(&done), [2, 3]);
    assert_eq!((done[0].bytes, done[0].finished.as_nanos()), (0, 77));
    rig.device.release_all();
    assert_eq!(ops(&rig.finish()), [1]);
}

#[test]
fn modelled_time_begins_at_the_call_and_behind_the_fence() {
    let rig = Rig::with_defaults();
    rig.device.advance_to(DeviceTime::from_nanos(1_000_000));
    rig.engine.load(rig.load(1, &[(1, 1)], None)).unwrap();
    rig.engine.drain().unwrap();
    rig.device.occupy(&rig.compute, 5_000_000).unwrap();
    let fence = rig.fence();
    rig.engine
        .load(rig.load(2, &[(2, 2)], Some(fence.clone())))
        .unwrap();
    rig.engine
        .store(rig.store(3, &[(3, 3)], Some(fence)))
        .unwrap();
    let done = rig.finish();
    let times = |at: usize| (done[at].issued.as_nanos(), done[at].finished.as_nanos());
    assert_eq!(ops(&done), [1, 2, 3]);
    assert!(done.iter().all(|c| c.issued.as_nanos() == 1_000_000));
    assert!((1_000_001..2_000_000).contains(&times(0).1));
    assert!((5_000_001..6_000_000).contains(&times(1).1));
    assert!((5_000_001..6_000_000).contains(&times(2).1));
    let first = done[1].first_layer.unwrap().as_nanos();
    assert!(5_000_000 < first && first < times(1).1);
    // The store stream waits by itself; only the load was kept until its fence.
    let told: Vec<_> = rig
        .device
        .fences()
        .iter()
        .map(|time| time.as_nanos())
        .collect();
    assert_eq!(told.iter().max(), Some(&5_000_000));
}

#[test]
fn many_threads_may_ask_one_gate() {
    let rig = Rig::with_defaults();
    let hold = rig.device.sim().hold(&rig.compute).unwrap();
    let busy = rig.fence();
    let gate = rig.engine.load(rig.load(1, &[(1, 1)], Some(busy))).unwrap();
    thread::scope(|scope| {
        for layer in 0..5 {
            let gate = Arc::clone(&gate);
            let stream = rig.device.stream("reader").unwrap();
            scope.spawn(move || gate.wait_layer(LayerId::new(layer), &stream).unwrap());
        }
        hold.release();
    });
    gate.synchronize().unwrap();
}
