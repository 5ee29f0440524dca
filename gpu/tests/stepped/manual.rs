// SPDX-License-Identifier: Apache-2.0
//! The engine without a thread: nothing is submitted but by who pumps or waits.

use std::sync::Arc;

use striata_core::{LayerId, OpId};
use striata_gpu::sim::{Fault, FaultPlan, OpClass, SimConfig, Step};
use striata_gpu::transfer::{GateError, JobFailure, Submission, TransferError};
use striata_gpu::{Device, Direction, GpuError};

use crate::rig::{Rig, pairs};

const THREE: [(u32, u32); 3] = [(1, 1), (2, 2), (3, 3)];

#[test]
fn a_unit_is_the_begin_of_a_job_or_a_group() {
    let (rig, scheduler) = Rig::stepped(0);
    assert!(!rig.engine.pump());
    let gate = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    rig.engine.store(rig.store_job(2, &[(5, 5)])).unwrap();
    let submitted: Vec<_> = (0..6)
        .map(|_| (rig.engine.pump(), gate.submitted_groups().unwrap()))
        .collect();
    let units = [0, 1, 2, 3, 3, 3].map(|groups| (true, groups));
    assert_eq!(submitted, units);
    assert!(!rig.engine.pump());
    assert_eq!(rig.engine.stats().stores.queued_jobs, 0);
    assert_eq!(scheduler.trace().steps, 0);
    assert_eq!(scheduler.run(), Ok(Step::Idle));
    assert_eq!(rig.poll().len(), 2);
}

#[test]
fn a_gate_that_is_asked_submits_what_it_needs_and_no_more() {
    let (rig, _) = Rig::stepped(0);
    let before = rig.engine.load(rig.load_job(1, &[(5, 5)])).unwrap();
    let gate = rig.engine.load(rig.load_job(2, &THREE)).unwrap();
    let behind = rig.engine.load(rig.load_job(3, &[(6, 6)])).unwrap();
    let reader = rig.device.stream("reader").unwrap();
    gate.wait_layer(LayerId::new(1), &reader).unwrap();
    let groups = [&before, &gate, &behind].map(|gate| gate.submitted_groups().unwrap());
    // What is waited for passes what nobody waits for.
    assert_eq!(groups, [0, 2, 0]);
    gate.wait_all(&reader).unwrap();
    assert_eq!(gate.submitted_groups(), Ok(3));
    behind.synchronize().unwrap();
    assert_eq!(rig.poll().len(), 3);
}

#[test]
fn a_gate_of_a_parked_load_waits_for_its_fence_and_says_what_holds_it() {
    let (rig, scheduler) = Rig::stepped(0);
    let hold = rig.device.hold(&rig.compute).unwrap();
    let mut job = rig.load_job(1, &THREE);
    job.after = Some(rig.fence());
    let gate = rig.engine.load(job).unwrap();
    let reader = rig.device.stream("reader").unwrap();
    let stuck = gate.wait_layer(LayerId::new(0), &reader).unwrap_err();
    let GateError::Device(GpuError::Deadlock { blocked, .. }) = &stuck else {
        panic!("{stuck}");
    };
    assert_eq!(
        blocked,
        "hold 0 of stream compute of sim0 waits for its release"
    );
    hold.release();
    gate.wait_layer(LayerId::new(0), &reader).unwrap();
    gate.synchronize().unwrap();
    assert_eq!(scheduler.bugs(), []);
}

#[test]
fn a_poisoned_engine_fails_what_waits_for_it() {
    let (rig, _) = Rig::stepped(0);
    let _hold = rig.device.hold(&rig.compute).unwrap();
    let mut job = rig.load_job(1, &THREE);
    job.after = Some(rig.fence());
    let gate = rig.engine.load(job).unwrap();
    rig.device.kill("it fell over");
    let cause = GpuError::Lost {
        cause: "it fell over".to_owned(),
    };
    let failed = GateError::Failed {
        op: OpId::new(1),
        cause: JobFailure::Device(cause),
    };
    assert_eq!(gate.synchronize(), Err(failed));
    assert!(rig.engine.drain().is_err());
    assert_eq!(rig.poll().len(), 1);
}

#[test]
fn the_copy_call_and_drain_do_all_that_is_queued() {
    let (rig, scheduler) = Rig::stepped(0);
    rig.set_l2(1, 7);
    rig.engine.load(rig.load_job(1, &[(4, 1)])).unwrap();
    let done = rig
        .engine
        .copy_pages(Direction::HostToDevice, OpId::new(2), &pairs(&THREE));
    assert_eq!(done.unwrap().good_pages, 3);
    assert!(rig.l1_holds(1, 7));
    rig.engine.store(rig.store_job(3, &[(6, 6)])).unwrap();
    rig.engine.drain().unwrap();
    assert_eq!(rig.poll().len(), 2);
    assert!(rig.l1_holds(4, 7));
    assert_eq!(scheduler.bugs(), []);
}

#[test]
fn a_copy_call_that_cannot_end_says_so_and_breaks_nothing() {
    let (rig, _) = Rig::stepped(0);
    let held = FaultPlan::new().with(OpClass::Copy, 0, Fault::Hold);
    rig.device.arm(&held);
    let copied = rig
        .engine
        .copy_pages(Direction::DeviceToHost, OpId::new(1), &pairs(&THREE));
    let stuck = copied.unwrap_err();
    assert!(
        matches!(stuck, TransferError::Device(GpuError::Deadlock { .. })),
        "{stuck}"
    );
    rig.device.release_faults();
    assert_eq!(rig.engine.drain(), Ok(()));
    assert_eq!(rig.engine.stats().stores.failed_jobs, 0);
}

#[test]
fn dropping_finishes_what_was_begun_and_fails_the_rest() {
    let (rig, scheduler) = Rig::stepped(0);
    let begun = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    let waiting = rig.engine.load(rig.load_job(2, &[(5, 5)])).unwrap();
    assert!(rig.engine.pump() && rig.engine.pump());
    let Rig {
        engine,
        planes,
        host,
        ..
    } = rig;
    drop(engine);
    assert_eq!(begun.is_complete(), Ok(true));
    let stopped = GateError::Failed {
        op: OpId::new(2),
        cause: JobFailure::Stopped,
    };
    assert_eq!(waiting.synchronize(), Err(stopped));
    assert_eq!(scheduler.run(), Ok(Step::Idle));
    assert_eq!(
        (Arc::strong_count(&planes), Arc::strong_count(&host)),
        (1, 1)
    );
}

#[test]
fn a_program_and_a_seed_give_one_order_of_jobs_and_copies() {
    let run = |seed| {
        let (rig, scheduler) = Rig::stepped(seed);
        rig.fill(1, 1);
        let mut store = rig.store_job(1, &[(1, 1)]);
        store.after = Some(rig.fence());
        rig.engine.store(store).unwrap();
        rig.engine.load(rig.load_job(2, &[(2, 2), (3, 3)])).unwrap();
        rig.engine.drain().unwrap();
        (rig.poll(), scheduler.trace())
    };
    let orders: std::collections::BTreeSet<u64> = (0..20)
        .map(|seed| {
            let first = run(seed);
            assert_eq!(first, run(seed));
            first.1.digest
        })
        .collect();
    assert!(orders.len() > 10);
}

#[test]
fn threads_and_manual_submission_go_together() {
    let rig = Rig::new(SimConfig::new(0), Submission::Manual);
    rig.set_l2(2, 9);
    let gate = rig.engine.load(rig.load_job(1, &THREE)).unwrap();
    gate.synchronize().unwrap();
    assert!(rig.l1_holds(2, 9));
    assert_eq!(rig.poll().len(), 1);
}
