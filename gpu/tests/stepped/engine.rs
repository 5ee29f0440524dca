// SPDX-License-Identifier: Apache-2.0
//! The transfer engine's orders under every schedule: what its fences and gates are there for.

use striata_core::LayerId;
use striata_gpu::sim::{SimScheduler, Step};
use striata_gpu::transfer::TransferError;
use striata_gpu::{Device, GpuError};

use crate::rig::{LAYERS, Rig};

/// A kernel that takes 20 ms writes a page, and its store is queued right behind the launch.
fn store_behind_a_slow_write(rig: &Rig, page: u32, content: u64, fenced: bool) {
    rig.device.occupy(&rig.compute, 20_000_000).unwrap();
    rig.fill(page, content);
    let after = fenced.then(|| rig.fence());
    let mut job = rig.store_job(content, &[(page, page)]);
    job.after = after;
    rig.engine.store(job).unwrap();
}

fn is_hazard(error: &GpuError, words: &[&str]) -> bool {
    let text = error.to_string();
    matches!(error, GpuError::Hazard { .. }) && words.iter().all(|word| text.contains(word))
}

/// The first bug that running everything shows.
fn first_bug(rig: &Rig, scheduler: &SimScheduler) -> Option<GpuError> {
    while rig.engine.pump() {}
    let result = scheduler.run();
    let bug = scheduler.bugs().into_iter().next();
    assert_eq!(result.err(), bug);
    bug
}

/// Seen to fail if a store does not wait for its fence.
#[test]
fn b25_stream_order_of_a_store_behind_the_kernel_that_writes_its_rows() {
    for seed in 0..20 {
        let (rig, scheduler) = Rig::stepped(seed);
        for round in 0..50 {
            let content = seed * 50 + round;
            let page = 1 + (round % 11) as u32;
            store_behind_a_slow_write(&rig, page, content, true);
            rig.engine.drain().unwrap();
            let done = rig.poll();
            assert_eq!((done.len(), done[0].good_pages), (1, 1));
            assert!(done[0].finished.since(done[0].issued) > 20_000_000);
            assert!(rig.l2_holds(page, content));
        }
        assert_eq!(scheduler.bugs(), []);
    }
}

/// Seen to fail if races are not looked for.
#[test]
fn b25_stream_order_without_the_fence_is_reported() {
    for seed in 0..20 {
        let (rig, scheduler) = Rig::stepped(seed);
        store_behind_a_slow_write(&rig, 1, 1, false);
        let bug = first_bug(&rig, &scheduler).unwrap();
        let words = [
            "row fill",
            "of stream compute of sim0",
            "device-to-host copy",
        ];
        assert!(is_hazard(&bug, &words), "{bug}");
        // The engine says so too, and takes nothing more.
        assert!(rig.engine.drain().is_err());
        let done = rig.poll();
        assert_eq!((done.len(), done[0].good_pages), (1, 0));
        let refused = rig.engine.store(rig.store_job(2, &[(2, 2)]));
        assert!(matches!(refused, Err(TransferError::Poisoned { .. })));
    }
}

/// Compute reads page 1 while a load into it is asked for.
fn load_into_a_page_that_is_read(rig: &Rig, fenced: bool) {
    let log = rig.log();
    rig.verify(&rig.compute, 0, 1, &log);
    let mut job = rig.load_job(1, &[(1, 1)]);
    job.after = fenced.then(|| rig.fence());
    rig.engine.load(job).unwrap();
}

#[test]
fn a_load_into_pages_that_compute_reads_is_reported_without_its_fence() {
    let words = [
        "row verification",
        "host-to-device copy",
        "of memory 0 of sim0",
    ];
    let mut both = 0;
    for seed in 0..20 {
        let (rig, scheduler) = Rig::stepped(seed);
        load_into_a_page_that_is_read(&rig, false);
        let bug = first_bug(&rig, &scheduler).unwrap();
        assert!(is_hazard(&bug, &words), "{bug}");
        both |= if bug.to_string().starts_with("row") {
            1
        } else {
            2
        };

        let (rig, scheduler) = Rig::stepped(seed);
        load_into_a_page_that_is_read(&rig, true);
        assert!(!rig.engine.pump());
        rig.engine.drain().unwrap();
        assert_eq!(scheduler.bugs(), []);
        assert_eq!(rig.poll()[0].good_pages, 1);
    }
    assert_eq!(both, 3);
}

#[test]
fn compute_that_passes_its_gates_is_clean_and_compute_that_skips_one_is_not() {
    let words = ["row verification", "host-to-device copy"];
    for seed in 0..10 {
        for skipped in (0..LAYERS).map(Some).chain([None]) {
            let (rig, scheduler) = Rig::stepped(seed);
            for page in 0..4 {
                rig.set_l2(page, 0);
            }
            let list = [(1, 0), (2, 1), (3, 2), (4, 3)];
            let gate = rig.engine.load(rig.load_job(1, &list)).unwrap();
            let log = rig.log();
            // From the last layer on: a gate also opens all layers before it.
            let reader = rig.device.stream("reader").unwrap();
            let layers = skipped.map_or(LAYERS - 1, |layer| layer);
            for layer in 0..=layers {
                if skipped != Some(layer) {
                    gate.wait_layer(LayerId::new(layer), &reader).unwrap();
                }
                rig.verify(&reader, layer, 2, &log);
            }
            while rig.engine.pump() {}
            // Layers of one group share a gate.
            let group = |layer| gate.groups().group_of(LayerId::new(layer));
            let covered = skipped.is_none_or(|layer| layer > 0 && group(layer - 1) == group(layer));
            let result = scheduler.run();
            if covered {
                assert_eq!(result, Ok(Step::Idle), "{skipped:?}");
                rig.device.synchronize(&rig.mark(&reader)).unwrap();
                assert_eq!(rig.mismatches(&log), Ok(0));
            } else {
                assert!(is_hazard(&result.unwrap_err(), &words), "{skipped:?}");
            }
        }
    }
}

/// Seen to fail if a load goes in one group of all layers.
#[test]
fn b53_layer_0_may_start_before_layer_60_is_copied_and_small_copies_pass_the_burst() {
    for seed in 0..20 {
        let (rig, scheduler) = Rig::stepped(seed);
        let pages: Vec<_> = (1..9).map(|page| (page, page)).collect();
        let gate = rig.engine.load(rig.load_job(1, &pages)).unwrap();
        let (reader, small) = (
            rig.device.stream("reader").unwrap(),
            rig.device.stream("small").unwrap(),
        );
        // Submitted only as far as it was asked for.
        gate.wait_layer(LayerId::new(0), &reader).unwrap();
        assert_eq!(gate.submitted_groups(), Ok(1));
        let first = rig.mark(&reader);
        while rig.engine.pump() {}
        let begun = rig.device.now();
        rig.device.occupy(&small, 1_000).unwrap();
        let step = rig.device.synchronize(&rig.mark(&small)).unwrap();
        assert!(step.since(begun) <= 1_000_000);
        let ready = rig.device.synchronize(&first).unwrap();
        let times = gate.synchronize().unwrap();
        assert!(ready <= times.first && times.first < times.last);
        assert_eq!(scheduler.bugs(), []);
    }
}

/// Seen to fail if a load goes in one group of all layers.
#[test]
fn b53_layer_0_is_seen_ready_while_later_layers_are_still_queued() {
    let mut seen = 0;
    for seed in 0..50 {
        let (rig, scheduler) = Rig::stepped(seed);
        let pages: Vec<_> = (1..9).map(|page| (page, page)).collect();
        let gate = rig.engine.load(rig.load_job(1, &pages)).unwrap();
        let reader = rig.device.stream("reader").unwrap();
        gate.wait_layer(LayerId::new(0), &reader).unwrap();
        let first = rig.mark(&reader);
        while rig.engine.pump() {}
        while !rig.device.is_complete(&first).unwrap() {
            scheduler.step().unwrap();
        }
        seen += u32::from(!gate.is_complete().unwrap());
    }
    assert!(seen > 25, "{seen}");
}

/// Seen to fail if loads behind one whose fence is open wait with it.
#[test]
fn b53_the_last_load_is_visible_at_the_next_poll_whatever_waits_before_it() {
    for seed in 0..20 {
        let (rig, scheduler) = Rig::stepped(seed);
        let hold = rig.device.hold(&rig.compute).unwrap();
        let busy = rig.fence();
        for op in 1..4 {
            let mut job = rig.load_job(op, &[(op as u32, 1)]);
            job.after = Some(busy.clone());
            rig.engine.load(job).unwrap();
        }
        let last = rig.engine.load(rig.load_job(9, &[(9, 9)])).unwrap();
        last.synchronize().unwrap();
        let done: Vec<u64> = rig.poll().iter().map(|done| done.op.get()).collect();
        assert_eq!(done, [9]);
        hold.release();
        rig.engine.drain().unwrap();
        assert_eq!(rig.poll().len(), 3);
        assert_eq!(scheduler.bugs(), []);
    }
}
