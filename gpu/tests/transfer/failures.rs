// SPDX-License-Identifier: Apache-2.0
//! What failed device calls and an early end leave behind.

use std::thread;
use std::time::Duration;

use striata_core::{LayerId, OpId};
use striata_gpu::transfer::{GateError, JobFailure, TransferConfig, TransferError};
use striata_gpu::{Device, Direction, GpuError};

use crate::support::{Layout, Rig, config, ops, pairs};

/// Long enough for a thread to do what it must not do.
const MEANWHILE: Duration = Duration::from_millis(20);

fn lost(cause: &str) -> GpuError {
    let cause = cause.to_owned();
    GpuError::Lost { cause }
}

/// Three groups a load, whatever the number of pages.
fn spread() -> Rig {
    let layout = Layout {
        uniform: false,
        ..Layout::default()
    };
    Rig::new(layout, config())
}

/// Seen to fail if jobs that are queued go on after a failure.
#[test]
fn b36_a_failed_group_fails_the_load_and_all_behind_it() {
    let rig = spread();
    rig.device.fail_after(1);
    rig.device.stop();
    let broken = rig.engine.load(rig.load(1, &[(1, 1)], None)).unwrap();
    rig.device.await_caller();
    let behind = rig.engine.load(rig.load(2, &[(2, 2)], None)).unwrap();
    rig.engine.store(rig.store(3, &[(3, 3)], None)).unwrap();
    rig.device.go_on();

    let cause = lost("this copy was to fail");
    let failed = |op| {
        let (op, cause) = (OpId::new(op), JobFailure::Device(cause.clone()));
        GateError::Failed { op, cause }
    };
    assert_eq!(broken.synchronize(), Err(failed(1)));
    assert_eq!(behind.synchronize(), Err(failed(2)));
    let reader = rig.device.stream("reader").unwrap();
    // The first group was submitted; the load as a whole is not to be relied on.
    assert_eq!(broken.wait_layer(LayerId::new(0), &reader), Err(failed(1)));
    assert_eq!(broken.is_complete(), Err(failed(1)));
    let poisoned = TransferError::Poisoned {
        cause: cause.clone(),
    };
    assert_eq!(rig.engine.drain(), Err(poisoned.clone()));
    let done = rig.poll();
    assert_eq!(ops(&done), [1, 2, 3]);
    for completion in &done {
        assert_eq!(
            (completion.pages, completion.good_pages, completion.bytes),
            (1, 0, 0)
        );
        assert_eq!(completion.error, Some(cause.clone()));
    }
    assert_eq!(
        rig.engine.load(rig.load(4, &[(1, 1)], None)).unwrap_err(),
        poisoned
    );
    assert_eq!(
        rig.engine.store(rig.store(5, &[], None)).unwrap_err(),
        poisoned
    );
    assert_eq!(rig.engine.poisoned(), Some(cause));
    let stats = rig.engine.stats();
    assert_eq!((stats.loads.failed_jobs, stats.loads.failed_pages), (2, 2));
    assert_eq!((stats.stores.failed_jobs, stats.loads.queued_jobs), (1, 0));
}

/// Seen to fail if a job counts as ended while its last group runs.
#[test]
fn b26_a_failed_load_is_reported_only_when_its_copies_have_ended() {
    let rig = spread();
    rig.device.hold_copies();
    rig.device.fail_after(2);
    let gate = rig.engine.load(rig.load(1, &[(1, 1)], None)).unwrap();
    gate.synchronize().unwrap_err();
    thread::sleep(MEANWHILE);
    assert_eq!(rig.poll(), []);
    rig.device.release_all();
    assert_eq!(ops(&rig.finish()), [1]);
}

/// Seen to fail if a job counts as ended while its last group runs.
#[test]
fn b26_a_load_that_is_cancelled_under_the_thread_ends_when_its_copies_have() {
    let layout = Layout {
        uniform: false,
        ..Layout::default()
    };
    let config = TransferConfig {
        window_bytes: 0,
        ..config()
    };
    let rig = Rig::new(layout, config);
    rig.device.hold_copies();
    let gate = rig.engine.load(rig.load(1, &[(1, 1)], None)).unwrap();
    while gate.submitted_groups() != Ok(2) {
        thread::yield_now();
    }
    thread::sleep(MEANWHILE);
    // The window is full: the third group was not submitted.
    assert_eq!(rig.engine.cancel(OpId::new(1)), 1);
    let reader = rig.device.stream("reader").unwrap();
    gate.wait_layer(LayerId::new(0), &reader).unwrap();
    let (op, cause) = (OpId::new(1), JobFailure::Cancelled);
    let given_up = Err(GateError::Failed { op, cause });
    assert_eq!(gate.wait_layer(LayerId::new(4), &reader), given_up);
    assert_eq!(rig.poll(), []);
    rig.device.release_all();
    let done = rig.finish();
    assert_eq!((ops(&done), done[0].good_pages), (vec![1], 0));
    assert!(done[0].cancelled && done[0].error.is_none());
    assert_eq!(rig.engine.poisoned(), None);
}

#[test]
fn a_lost_device_fails_what_runs_and_what_comes() {
    let rig = Rig::with_defaults();
    rig.device.hold_copies();
    let gate = rig.engine.load(rig.load(1, &[(1, 1)], None)).unwrap();
    rig.engine.store(rig.store(2, &[(2, 2)], None)).unwrap();
    while rig.engine.stats().loads.queued_jobs + rig.engine.stats().stores.queued_jobs > 0 {
        thread::yield_now();
    }
    rig.device.sim().kill("it fell over");
    rig.device.release_all();
    let cause = lost("it fell over");
    assert!(rig.engine.drain().is_err());
    let done = rig.poll();
    assert_eq!(ops(&done), [1, 2]);
    assert!(
        done.iter()
            .all(|c| c.error == Some(cause.clone()) && c.good_pages == 0)
    );
    assert_eq!(gate.synchronize(), Err(GateError::Device(cause.clone())));
    let copied = rig
        .engine
        .copy_pages(Direction::DeviceToHost, OpId::new(3), &pairs(&[(1, 1)]));
    assert_eq!(copied, Err(TransferError::Poisoned { cause }));
}

#[test]
fn a_lost_device_ends_a_load_that_waits_for_its_targets() {
    let rig = Rig::with_defaults();
    let _hold = rig.device.sim().hold(&rig.compute).unwrap();
    let busy = rig.fence();
    let gate = rig.engine.load(rig.load(1, &[(1, 1)], Some(busy))).unwrap();
    rig.device.sim().kill("it fell over");
    let cause = JobFailure::Device(lost("it fell over"));
    let op = OpId::new(1);
    assert_eq!(gate.synchronize(), Err(GateError::Failed { op, cause }));
}

#[test]
fn the_copy_call_names_a_failure() {
    let rig = Rig::with_defaults();
    rig.device.fail_after(0);
    let copied = rig
        .engine
        .copy_pages(Direction::HostToDevice, OpId::new(1), &pairs(&[(1, 1)]));
    let cause = lost("this copy was to fail");
    assert_eq!(copied, Err(TransferError::Poisoned { cause }));
    assert_eq!(rig.engine.stats().loads.failed_jobs, 1);
}

#[test]
fn dropping_the_engine_fails_what_waits_and_wakes_its_consumers() {
    let Rig {
        engine,
        device,
        compute,
        planes,
        host,
        ..
    } = Rig::with_defaults();
    let hold = device.sim().hold(&compute).unwrap();
    let busy = device.event().unwrap();
    device.record(&busy, &compute).unwrap();
    let load = |op, page, after| striata_gpu::transfer::LoadJob {
        op: OpId::new(op),
        pages: pairs(&[(page, page)]),
        after,
    };
    let parked = engine.load(load(1, 1, Some(busy))).unwrap();
    device.stop();
    let running = engine.load(load(2, 2, None)).unwrap();
    device.await_caller();
    let queued = engine.load(load(3, 3, None)).unwrap();
    let stopped = |op| {
        let (op, cause) = (OpId::new(op), JobFailure::Stopped);
        GateError::Failed { op, cause }
    };
    let reader = device.stream("reader").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| parked.wait_all(&reader));
        let dropper = scope.spawn(|| drop(engine));
        // The queue is closed once this fails; the thread is still inside a copy call.
        assert_eq!(queued.synchronize(), Err(stopped(3)));
        device.go_on();
        dropper.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Err(stopped(1)));
    });
    // What had begun was finished.
    assert!(running.is_complete().unwrap());
    hold.release();
    assert_eq!(std::sync::Arc::strong_count(&host), 1);
    assert_eq!(std::sync::Arc::strong_count(&planes), 1);
}

#[test]
fn dropping_waits_for_copies_that_run() {
    let Rig { engine, device, .. } = Rig::with_defaults();
    device.hold_copies();
    let gate = engine
        .load(striata_gpu::transfer::LoadJob {
            op: OpId::new(1),
            pages: pairs(&[(1, 1)]),
            after: None,
        })
        .unwrap();
    while gate.submitted_groups() != Ok(2) {
        thread::yield_now();
    }
    thread::scope(|scope| {
        let dropper = scope.spawn(|| drop(engine));
        thread::sleep(MEANWHILE);
        assert!(!dropper.is_finished());
        device.release_all();
        dropper.join().unwrap();
    });
    assert!(gate.is_complete().unwrap());
}
