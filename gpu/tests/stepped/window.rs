// SPDX-License-Identifier: Apache-2.0
//! What is in flight, what goes first, and what is given up.

use striata_core::{LayerId, OpId};
use striata_gpu::sim::{Fault, FaultPlan, OpClass, SimConfig, SimDevice, SimScheduler};
use striata_gpu::transfer::{GateError, JobFailure, LoadGate, Submission, TransferConfig};
use striata_gpu::{Device, GpuError};

use crate::rig::{Rig, config};

/// Three groups, of 1, 2 and 2 layers.
const THREE: [(u32, u32); 3] = [(1, 1), (2, 2), (3, 3)];
const OTHER: [(u32, u32); 3] = [(4, 4), (5, 5), (6, 6)];
/// Bytes of a layer of three pages.
const LAYER: u64 = 3 * 128;

fn narrow(window_bytes: u64) -> (Rig, SimScheduler) {
    let scheduler = SimScheduler::new(3);
    let transfer = TransferConfig {
        submission: Submission::Manual,
        window_bytes,
        ..config()
    };
    let config = SimConfig::stepped(0, &scheduler);
    (Rig::with(config, transfer), scheduler)
}

fn pump_all(rig: &Rig) {
    while rig.engine.pump() {}
}

fn cancelled(op: u64) -> GateError {
    let (op, cause) = (OpId::new(op), JobFailure::Cancelled);
    GateError::Failed { op, cause }
}

#[test]
fn the_window_holds_its_bytes_and_at_least_two_groups() {
    for (window, groups) in [(0, 2), (5 * LAYER - 1, 2), (5 * LAYER, 3)] {
        let (rig, scheduler) = narrow(window);
        let gate = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
        pump_all(&rig);
        assert_eq!(gate.submitted_groups(), Ok(groups), "{window}");
        let stats = rig.engine.stats();
        let submitted = if groups == 2 { 3 * LAYER } else { 5 * LAYER };
        assert_eq!(stats.loads.in_flight_bytes, submitted);
        assert_eq!(stats.queued_bytes(), 5 * LAYER - submitted);
        scheduler.run().unwrap();
        pump_all(&rig);
        assert_eq!(gate.submitted_groups(), Ok(3));
        gate.synchronize().unwrap();
        assert_eq!(rig.poll().len(), 1);
        let loads = rig.engine.stats().loads;
        assert_eq!((loads.in_flight_bytes, loads.queued_bytes), (0, 0));
    }
}

#[test]
fn a_waiter_passes_the_window_and_jobs_that_nobody_waits_for() {
    let (rig, scheduler) = narrow(0);
    let first = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    let second = rig.engine.load(rig.load_job(2, &OTHER)).unwrap();
    pump_all(&rig);
    let reader = rig.device.stream("reader").unwrap();
    let groups = || [&first, &second].map(|gate| gate.submitted_groups().unwrap());
    assert_eq!(groups(), [2, 0]);
    second.wait_layer(LayerId::new(1), &reader).unwrap();
    assert_eq!(groups(), [2, 2]);
    // Nothing was copied for that.
    assert_eq!(scheduler.trace().steps, 0);
    pump_all(&rig);
    assert_eq!(groups(), [2, 2]);
    // Who waits for the end makes nothing faster.
    first.synchronize().unwrap();
    assert_eq!(first.submitted_groups(), Ok(3));
    rig.engine.drain().unwrap();
    let done: Vec<_> = rig.poll().iter().map(|done| done.op.get()).collect();
    assert_eq!(done, [1, 2]);
    assert_eq!(scheduler.bugs(), []);
}

/// Behind the first group of load 1 store 3 goes, then the other groups, then store 2.
fn the_third_goes_first_of_the_stores(rig: &Rig, gate: &LoadGate<SimDevice>) {
    let mut seen = Vec::new();
    while rig.engine.pump() {
        let groups = gate.submitted_groups().unwrap();
        seen.push((groups, rig.engine.stats().stores.queued_jobs));
    }
    assert_eq!(seen, [(1, 2), (1, 1), (2, 1), (3, 1), (3, 1), (3, 0)]);
    rig.engine.drain().unwrap();
    let done: Vec<_> = rig.poll().iter().map(|done| done.op.get()).collect();
    assert_eq!(done, [1, 3, 2]);
}

#[test]
fn an_urgent_store_goes_before_loads_at_the_next_group() {
    let (rig, _) = narrow(1 << 20);
    let gate = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    assert!(rig.engine.pump() && rig.engine.pump());
    rig.engine.store(rig.store_job(2, &[(7, 7)])).unwrap();
    let mut urgent = rig.store_job(3, &[(8, 8)]);
    urgent.urgent = true;
    rig.engine.store(urgent).unwrap();
    the_third_goes_first_of_the_stores(&rig, &gate);
}

/// Seen to fail if a raise reaches no store that is queued.
#[test]
fn a_store_that_is_raised_goes_before_loads_at_the_next_group() {
    let (rig, _) = narrow(1 << 20);
    let gate = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    assert!(rig.engine.pump() && rig.engine.pump());
    rig.engine.store(rig.store_job(2, &[(7, 7)])).unwrap();
    rig.engine.store(rig.store_job(3, &[(8, 8)])).unwrap();
    for op in [3, 1, 9] {
        rig.engine.raise(OpId::new(op));
    }
    the_third_goes_first_of_the_stores(&rig, &gate);
}

#[test]
fn a_load_that_was_not_begun_is_given_up_whole_and_at_once() {
    let (rig, scheduler) = narrow(0);
    let running = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    let waiting = rig.engine.load(rig.load_job(2, &OTHER)).unwrap();
    pump_all(&rig);
    assert_eq!(rig.engine.cancel(OpId::new(2)), 3);
    assert_eq!(rig.engine.cancel(OpId::new(2)), 0);
    // Nothing of it is in flight, so it does not wait for what is.
    let done = rig.poll();
    assert_eq!((done.len(), done[0].op), (1, OpId::new(2)));
    let (cancel, good, error) = (done[0].cancelled, done[0].good_pages, &done[0].error);
    assert_eq!((cancel, good, error), (true, 0, &None));
    assert_eq!(waiting.synchronize(), Err(cancelled(2)));
    let loads = rig.engine.stats().loads;
    assert_eq!((loads.cancelled_jobs, loads.failed_jobs), (1, 0));
    assert_eq!(loads.queued_bytes, 2 * LAYER);
    running.synchronize().unwrap();
    rig.engine.load(rig.load_job(3, &OTHER)).unwrap();
    rig.engine.drain().unwrap();
    assert_eq!(rig.poll().len(), 2);
    assert_eq!(rig.engine.poisoned(), None);
    assert_eq!(scheduler.bugs(), []);
}

/// Seen to fail if a job counts as ended while its last group runs.
#[test]
fn b26_a_cancelled_load_is_reported_once_what_was_submitted_has_ended() {
    for submitted in 0..=3 {
        let (rig, scheduler) = narrow(1 << 20);
        let gate = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
        (0..=submitted).for_each(|_| assert!(rig.engine.pump()));
        assert_eq!(rig.engine.cancel(OpId::new(1)), 3 - submitted);
        let whole = submitted == 3;
        // The pages are in use as long as a copy into them is queued.
        assert_eq!(rig.poll().len(), usize::from(submitted == 0));
        let reader = rig.device.stream("reader").unwrap();
        for (layer, group) in [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3)] {
            let passed = gate.wait_layer(LayerId::new(layer), &reader);
            let expected = if group <= submitted {
                Ok(())
            } else {
                Err(cancelled(1))
            };
            assert_eq!(passed, expected, "{submitted} {layer}");
        }
        if submitted > 0 {
            scheduler.run().unwrap();
            let done = rig.poll();
            assert_eq!((done.len(), done[0].cancelled), (1, !whole));
            assert_eq!(done[0].good_pages, if whole { 3 } else { 0 });
        }
        assert!(!rig.engine.pump());
        assert_eq!(rig.engine.stats().queued_bytes(), 0);
        assert_eq!(rig.engine.stats().loads.in_flight_bytes, 0);
        rig.engine.drain().unwrap();
        assert_eq!((rig.poll(), rig.engine.poisoned()), (Vec::new(), None));
        assert_eq!(scheduler.bugs(), []);
    }
}

#[test]
fn a_parked_load_can_be_given_up_and_a_store_cannot() {
    let (rig, _) = narrow(0);
    let hold = rig.device.hold(&rig.compute).unwrap();
    let mut job = rig.load_job(1, &THREE);
    job.after = Some(rig.fence());
    rig.engine.load(job).unwrap();
    rig.engine.store(rig.store_job(2, &[(7, 7)])).unwrap();
    assert_eq!(rig.engine.cancel(OpId::new(2)), 0);
    assert_eq!(rig.engine.cancel(OpId::new(1)), 3);
    rig.engine.drain().unwrap();
    let done = rig.poll();
    let ended: Vec<_> = done
        .iter()
        .map(|done| (done.op.get(), done.cancelled))
        .collect();
    assert_eq!(ended, [(1, true), (2, false)]);
    hold.release();
}

#[test]
fn a_copy_of_a_cancelled_load_that_failed_is_named() {
    let (rig, _) = narrow(1 << 20);
    let fault = Fault::Fail { good_pieces: 1 };
    rig.device
        .arm(&FaultPlan::new().with(OpClass::Copy, 1, fault));
    rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    (0..3).for_each(|_| assert!(rig.engine.pump()));
    assert_eq!(rig.engine.cancel(OpId::new(1)), 1);
    rig.engine.drain().unwrap();
    let done = rig.poll();
    assert_eq!((done[0].cancelled, done[0].good_pages), (true, 0));
    assert!(matches!(done[0].error, Some(GpuError::CopyFailed { .. })));
    assert_eq!(rig.engine.stats().loads.failed_jobs, 1);
}

/// Seen to fail if what copy calls did not deliver is not looked at.
#[test]
fn b36_a_store_goes_in_groups_of_pages_and_counts_its_leading_ones() {
    let scheduler = SimScheduler::new(1);
    let transfer = TransferConfig {
        submission: Submission::Manual,
        store_group_bytes: 2 * 640,
        ..config()
    };
    let rig = Rig::with(SimConfig::stepped(0, &scheduler), transfer);
    (1..6).for_each(|page| rig.fill(page, 200 + u64::from(page)));
    let list: Vec<_> = (1..6).map(|page| (page, page)).collect();
    for (call, good) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 0)] {
        let fault = Fault::Fail { good_pieces: good };
        rig.device
            .arm(&FaultPlan::new().with(OpClass::Copy, call, fault));
        let mut job = rig.store_job(call, &list);
        job.after = Some(rig.fence());
        rig.engine.store(job).unwrap();
        rig.engine.drain().unwrap();
        let done = rig.poll();
        let whole = (2 * call as usize + good).min(5);
        assert_eq!((done.len(), done[0].good_pages), (1, whole));
    }
    assert!((1..6).all(|page| rig.l2_holds(page, 200 + u64::from(page))));
    assert_eq!(rig.engine.stats().stores.calls, 6 * 3);
}
