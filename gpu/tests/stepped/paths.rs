// SPDX-License-Identifier: Apache-2.0
//! Slices, staged and mapped jobs, and row lists, step by step: nothing races, whatever the order,
//! and what a fault leaves is told.

use std::sync::Arc;

use striata_core::{LayerId, OpId, Row};
use striata_gpu::sim::{Fault, FaultPlan, OpClass, SimConfig, SimScheduler};
use striata_gpu::transfer::{
    CopyPath, LayerCut, LoadRows, PageRule, RowPair, StoreRows, Submission, TransferConfig,
};
use striata_gpu::{Device, Direction, GpuError};

use crate::rig::{LAYERS, Rig, config};

/// Bytes of a page of the rig in one layer, and of a page.
const CHUNK: u64 = 128;
const PAGE: u64 = CHUNK * LAYERS as u64;

const FIVE: [(u32, u32); 5] = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)];

fn rig(seed: u64, change: impl FnOnce(TransferConfig) -> TransferConfig) -> (Rig, SimScheduler) {
    let scheduler = SimScheduler::new(seed);
    let transfer = change(TransferConfig {
        submission: Submission::Manual,
        ..config()
    });
    (
        Rig::with(SimConfig::stepped(0, &scheduler), transfer),
        scheduler,
    )
}

fn forced(path: CopyPath) -> impl FnOnce(TransferConfig) -> TransferConfig {
    let cut = LayerCut::Growing(200);
    move |mut config| {
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            config.paths = config.paths.forced(direction, PageRule { path, cut });
        }
        // Slots of one page, so that units wait for slots.
        config.staging_bytes = 4 * PAGE.next_multiple_of(256);
        config
    }
}

fn rows(list: &[(u64, u64)]) -> Arc<[RowPair]> {
    let pair = |&(l1, l2): &(u64, u64)| RowPair {
        l1: Row::new(l1),
        l2: Row::new(l2),
    };
    list.iter().map(pair).collect()
}

/// Every row of `FIVE`, in an order of its own.
fn rows_of_five() -> Arc<[RowPair]> {
    let list: Vec<_> = (0..20u64)
        .map(|at| (at * 7) % 20)
        .map(|row| (row + 4, row))
        .collect();
    rows(&list)
}

/// Stores right behind the kernels that write, and loads into what nothing uses: for every path and
/// many orders there is no race, and the bytes are right.
#[test]
fn b25_b26_no_path_races_whatever_the_order() {
    for path in CopyPath::ALL {
        for seed in 0..12 {
            let (rig, scheduler) = rig(seed, forced(path));
            for (l1, _) in FIVE {
                rig.fill(l1, 100 + u64::from(l1));
            }
            let mut job = rig.store_job(1, &FIVE);
            job.after = Some(rig.fence());
            rig.engine.store(job).unwrap();
            while rig.engine.pump() {}
            rig.engine.drain().unwrap();
            assert!(
                FIVE.iter()
                    .all(|&(l1, l2)| rig.l2_holds(l2, 100 + u64::from(l1)))
            );
            // The targets are read until the fence.
            let log = rig.log();
            let busy = rig.device.stream("busy").unwrap();
            rig.verify(&busy, 0, 7, &log);
            let mut job = rig.load_job(2, &FIVE.map(|(l1, l2)| (l1 + 6, l2)));
            job.after = Some(rig.mark(&busy));
            let gate = rig.engine.load(job).unwrap();
            let reader = rig.device.stream("reader").unwrap();
            for layer in 0..LAYERS {
                gate.wait_layer(LayerId::new(layer), &reader).unwrap();
                rig.verify(&reader, layer, 9, &log);
            }
            rig.device.synchronize(&rig.mark(&reader)).unwrap();
            rig.engine.drain().unwrap();
            assert!(
                FIVE.iter()
                    .all(|&(l1, _)| rig.l1_holds(l1 + 6, 100 + u64::from(l1)))
            );
            assert_eq!(scheduler.bugs(), [], "{path:?} {seed}");
            let stats = rig.engine.stats();
            assert_eq!(
                (
                    stats.loads.by_path.jobs(path),
                    stats.stores.by_path.jobs(path)
                ),
                (1, 1)
            );
        }
    }
}

#[test]
fn b25_row_lists_do_not_race_whatever_the_order() {
    for seed in 0..24 {
        let staged = seed & 1 == 1;
        let (rig, scheduler) = rig(seed, |config| TransferConfig {
            paths: config.paths.forced_rows(staged),
            staging_bytes: 4 * 256,
            ..config
        });
        rig.engine.reserve_staging(Direction::HostToDevice).unwrap();
        rig.engine.reserve_staging(Direction::DeviceToHost).unwrap();
        for (l1, _) in FIVE {
            rig.fill(l1, 100 + u64::from(l1));
        }
        let after = Some(rig.fence());
        let job = StoreRows {
            op: OpId::new(1),
            rows: rows_of_five(),
            layers: 0..LAYERS,
            after,
            urgent: false,
        };
        rig.engine.store_rows(job).unwrap();
        while rig.engine.pump() {}
        // The source may be written once the store has ended.
        rig.engine.drain().unwrap();
        rig.fill(1, 1);
        assert!(
            FIVE.iter()
                .all(|&(l1, l2)| rig.l2_holds(l2, 100 + u64::from(l1)))
        );
        let job = LoadRows {
            op: OpId::new(2),
            rows: rows_of_five(),
            layers: 0..LAYERS,
            after: Some(rig.fence()),
        };
        let gate = rig.engine.load_rows(job).unwrap();
        let reader = rig.device.stream("reader").unwrap();
        let log = rig.log();
        for layer in 0..LAYERS {
            gate.wait_layer(LayerId::new(layer), &reader).unwrap();
            rig.verify(&reader, layer, 1, &log);
        }
        rig.engine.drain().unwrap();
        assert!(
            FIVE.iter()
                .all(|&(l1, _)| rig.l1_holds(l1, 100 + u64::from(l1)))
        );
        assert_eq!(scheduler.bugs(), [], "{seed}");
        let done = rig.poll();
        assert_eq!(
            done.iter().map(|done| done.good_pages).collect::<Vec<_>>(),
            [20, 20]
        );
    }
}

/// Two layers of five pages are more than a call may have.
fn sliced(mut config: TransferConfig) -> TransferConfig {
    config.slice_bytes = 2 * CHUNK;
    config
}

/// The same of loads by runs, layer by layer.
fn sliced_runs(config: TransferConfig) -> TransferConfig {
    sliced(forced(CopyPath::Runs)(config))
}

#[test]
fn a_group_in_slices_opens_behind_the_last_and_another_job_goes_between() {
    let (rig, _) = rig(0, sliced_runs);
    let gate = rig.engine.load(rig.load_job(1, &FIVE)).unwrap();
    assert_eq!(gate.groups().len(), 5);
    // Begun, and two of the three slices of the first layer.
    (0..3).for_each(|_| assert!(rig.engine.pump()));
    assert_eq!(gate.submitted_groups(), Ok(0));
    let mut urgent = rig.store_job(2, &[(7, 7)]);
    urgent.urgent = true;
    rig.engine.store(urgent).unwrap();
    (0..2).for_each(|_| assert!(rig.engine.pump()));
    assert_eq!(
        (
            gate.submitted_groups(),
            rig.engine.stats().stores.queued_jobs
        ),
        (Ok(0), 0)
    );
    assert!(rig.engine.pump());
    assert_eq!(gate.submitted_groups(), Ok(1));
    rig.engine.drain().unwrap();
    let done = rig.poll();
    let load = done.iter().find(|done| done.op == OpId::new(1)).unwrap();
    // The first layer has ended with its last slice.
    assert_eq!(load.first_layer.unwrap(), gate.synchronize().unwrap().first);
    assert_eq!(rig.engine.stats().loads.calls, 15);
}

#[test]
fn b26_a_load_that_is_cancelled_between_slices_opens_whole_groups_only() {
    for pumped in 0..=15 {
        let (rig, scheduler) = rig(pumped, |config| TransferConfig {
            window_bytes: 1 << 20,
            ..sliced_runs(config)
        });
        let gate = rig.engine.load(rig.load_job(1, &FIVE)).unwrap();
        (0..=pumped).for_each(|_| assert!(rig.engine.pump()));
        assert_eq!(u64::from(rig.engine.cancel(OpId::new(1))), 15 - pumped);
        let reader = rig.device.stream("reader").unwrap();
        for layer in 0..LAYERS {
            let passed = gate.wait_layer(LayerId::new(layer), &reader).is_ok();
            assert_eq!(passed, u64::from(layer) < pumped / 3, "{pumped} {layer}");
        }
        scheduler.run().unwrap();
        let done = rig.poll();
        assert_eq!((done.len(), done[0].cancelled), (1, pumped < 15));
        assert_eq!(rig.engine.stats().queued_bytes(), 0);
        assert_eq!(rig.engine.stats().loads.in_flight_bytes, 0);
        assert_eq!(
            (rig.engine.poisoned(), scheduler.bugs()),
            (None, Vec::new())
        );
    }
}

#[test]
fn b36_a_fault_in_any_slice_or_staged_copy_never_says_too_much() {
    for path in [CopyPath::Runs, CopyPath::Staged, CopyPath::Rectangles] {
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            let mut faults = 0;
            for call in 0..40 {
                let (rig, scheduler) = rig(call, |config| TransferConfig {
                    store_group_bytes: 2 * PAGE,
                    ..sliced(forced(path)(config))
                });
                for (l1, l2) in FIVE {
                    rig.set_l2(l2, 300 + u64::from(l1));
                    let content = if direction == Direction::DeviceToHost {
                        300
                    } else {
                        1
                    };
                    rig.fill(l1, content + u64::from(l1));
                }
                let fault = Fault::Fail { good_pieces: 0 };
                rig.device
                    .arm(&FaultPlan::new().with(OpClass::Copy, call, fault));
                match direction {
                    Direction::HostToDevice => {
                        let mut job = rig.load_job(1, &FIVE);
                        job.after = Some(rig.fence());
                        rig.engine.load(job).map(drop).unwrap();
                    }
                    Direction::DeviceToHost => {
                        // Zeroes, so that what does not arrive is seen.
                        FIVE.iter().for_each(|&(_, l2)| rig.set_l2(l2, 5));
                        let mut job = rig.store_job(1, &FIVE);
                        job.after = Some(rig.fence());
                        rig.engine.store(job).unwrap();
                    }
                }
                rig.engine.drain().unwrap();
                let done = rig.poll();
                let good = |&&(l1, l2): &&(u32, u32)| match direction {
                    Direction::HostToDevice => rig.l1_holds(l1, 300 + u64::from(l1)),
                    Direction::DeviceToHost => rig.l2_holds(l2, 300 + u64::from(l1)),
                };
                let arrived = FIVE.iter().take_while(good).count();
                assert_eq!(done[0].good_pages, arrived, "{path:?} {direction:?} {call}");
                assert_eq!(scheduler.bugs(), []);
                match &done[0].error {
                    Some(GpuError::CopyFailed { .. }) => faults += 1,
                    None => break,
                    other => panic!("{other:?}"),
                }
            }
            assert!(faults >= 3, "{path:?} {direction:?}: {faults}");
        }
    }
}

#[test]
fn a_kernel_that_fails_poisons_and_leaves_nothing_good() {
    for path in [CopyPath::Staged, CopyPath::Mapped] {
        let (rig, _) = rig(0, forced(path));
        (1..6).for_each(|page| rig.fill(page, 7));
        rig.device.synchronize(&rig.fence()).unwrap();
        let fault = Fault::Fail { good_pieces: 0 };
        rig.device
            .arm(&FaultPlan::new().with(OpClass::Kernel, 0, fault));
        rig.engine.store(rig.store_job(1, &FIVE)).unwrap();
        let drained = rig.engine.drain();
        let done = rig.poll();
        assert!(
            drained.is_err(),
            "{path:?} {done:?} {:?}",
            rig.engine.stats()
        );
        assert_eq!((done.len(), done[0].good_pages), (1, 0), "{path:?}");
        assert!(matches!(rig.engine.poisoned(), Some(GpuError::Lost { .. })));
    }
}

#[test]
fn a_refused_kernel_in_the_middle_fails_the_job_when_its_copies_have_ended() {
    for path in [CopyPath::Staged, CopyPath::Mapped] {
        let (rig, scheduler) = rig(0, forced(path));
        let fault = Fault::Refuse;
        rig.device
            .arm(&FaultPlan::new().with(OpClass::Kernel, 2, fault));
        rig.engine.load(rig.load_job(1, &FIVE)).unwrap();
        while rig.engine.pump() {}
        assert_eq!(rig.poll().len(), 0, "{path:?}");
        scheduler.run().unwrap();
        let done = rig.poll();
        assert_eq!((done.len(), done[0].good_pages), (1, 0));
        assert!(matches!(done[0].error, Some(GpuError::Refused { .. })));
        assert_eq!(scheduler.bugs(), []);
    }
}

/// The guard against a rig that proves nothing: without the fence the race is seen.
#[test]
fn a_store_of_rows_without_its_fence_is_a_race_that_is_seen() {
    let seen = (0..20).any(|seed| {
        let (rig, scheduler) = rig(seed, |config| config);
        rig.fill(1, 1);
        let job = StoreRows {
            op: OpId::new(1),
            rows: rows(&[(4, 0)]),
            layers: 0..LAYERS,
            after: None,
            urgent: false,
        };
        rig.engine.store_rows(job).unwrap();
        while rig.engine.pump() {}
        let _ = scheduler.run();
        let bugs = scheduler.bugs();
        bugs.iter()
            .any(|bug| matches!(bug, GpuError::Hazard { .. }))
    });
    assert!(seen);
}
