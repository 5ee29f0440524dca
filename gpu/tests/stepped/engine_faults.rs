// SPDX-License-Identifier: Apache-2.0
//! What arrives of a job when a copy fails: leading pages, and nothing else is said to be good.

use striata_core::OpId;
use striata_gpu::sim::{Fault, FaultPlan, OpClass, SimConfig, SimMode, SimScheduler};
use striata_gpu::transfer::{
    Completion, GateError, JobFailure, Submission, TransferConfig, TransferError,
};
use striata_gpu::{Device, Direction, GpuError};

use crate::rig::{Rig, config, pairs};

const FIVE: [(u32, u32); 5] = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)];

fn rigs() -> Vec<Rig> {
    let stepped = |seed| {
        let config = SimConfig::stepped(0, &SimScheduler::new(seed));
        Rig::new(config, Submission::Manual)
    };
    let threaded = |submission| Rig::new(SimConfig::new(0), submission);
    vec![
        stepped(1),
        stepped(2),
        threaded(Submission::Thread),
        threaded(Submission::Manual),
    ]
}

fn fail(class: OpClass, nth: u64, good_pieces: usize) -> FaultPlan {
    FaultPlan::new().with(class, nth, Fault::Fail { good_pieces })
}

fn only(rig: &Rig) -> Completion {
    rig.engine.drain().unwrap();
    let mut done = rig.poll();
    assert_eq!(done.len(), 1);
    done.remove(0)
}

fn cause(operation: &str, good: usize, pieces: usize) -> GpuError {
    GpuError::CopyFailed {
        operation: format!("{operation} of sim0"),
        good,
        pieces,
    }
}

/// Seen to fail if what copy calls did not deliver is not looked at.
#[test]
fn b36_load_of_5_pages_whose_page_3_fails_gives_2_good_pages() {
    for rig in rigs() {
        (0..5).for_each(|page| rig.set_l2(page, 100 + u64::from(page)));
        // Groups of 1, 2 and 2 layers, a piece for each layer and page: the third layer.
        rig.device
            .arm(&fail(OpClass::CopyOf(Direction::HostToDevice), 1, 7));
        let gate = rig.engine.load(rig.load_job(1, &FIVE)).unwrap();
        let done = only(&rig);
        let cause = cause("host-to-device copy 1", 7, 10);
        assert_eq!((done.pages, done.good_pages), (5, 2));
        assert_eq!(done.bytes, 2 * rig.planes.geometry().page().page_bytes());
        assert_eq!(done.error, Some(cause.clone()));
        assert!(rig.l1_holds(1, 100) && rig.l1_holds(2, 101));
        assert!(!rig.l1_holds(3, 102));
        let failed = GateError::Failed {
            op: OpId::new(1),
            cause: JobFailure::Device(cause),
        };
        assert_eq!(gate.is_complete(), Err(failed.clone()));
        assert_eq!(gate.synchronize(), Err(failed));
        let loads = rig.engine.stats().loads;
        assert_eq!((loads.failed_jobs, loads.failed_pages), (1, 3));
        assert_eq!((loads.done_jobs, loads.done_pages), (0, 2));

        // The fault was that of one copy: the engine is not poisoned.
        assert_eq!(rig.engine.poisoned(), None);
        rig.engine.load(rig.load_job(2, &FIVE[2..])).unwrap();
        let again = only(&rig);
        assert_eq!((again.good_pages, again.error), (3, None));
        assert!(rig.l1_holds(3, 102) && rig.l1_holds(5, 104));
    }
}

/// Seen to fail if what copy calls did not deliver is not looked at.
#[test]
fn b36_store_of_5_pages_whose_page_3_fails_gives_2_good_pages() {
    for rig in rigs() {
        (1..6).for_each(|page| rig.fill(page, 200 + u64::from(page)));
        rig.device.arm(&fail(OpClass::Copy, 0, 2));
        let mut job = rig.store_job(1, &FIVE);
        job.after = Some(rig.fence());
        rig.engine.store(job).unwrap();
        let done = only(&rig);
        assert_eq!((done.pages, done.good_pages), (5, 2));
        assert_eq!(done.error, Some(cause("copy 0", 2, 5)));
        assert!(rig.l2_holds(0, 201) && rig.l2_holds(1, 202) && !rig.l2_holds(2, 203));
        assert_eq!(rig.engine.stats().stores.failed_jobs, 1);
    }
}

/// Seen to fail if good pages are counted in the order of the pieces.
#[test]
fn b36_good_pages_are_counted_in_the_order_of_the_job() {
    for rig in rigs() {
        // Pieces go by target: page 5 is the second of the job and the last piece of each layer.
        let list = [(1, 0), (5, 4), (2, 1), (3, 2), (4, 3)];
        for (good_pieces, good_pages) in [(10, 5), (9, 1), (8, 1), (6, 1), (5, 0), (0, 0)] {
            rig.device.arm(&fail(OpClass::Copy, 1, good_pieces));
            rig.engine.load(rig.load_job(1, &list)).unwrap();
            assert_eq!(only(&rig).good_pages, good_pages, "{good_pieces}");
        }
        let plan = fail(OpClass::Copy, 0, 1);
        rig.device.arm(&plan);
        rig.engine.load(rig.load_job(2, &[(2, 0), (1, 1)])).unwrap();
        // Rectangles in the order of the targets: page 2 did not arrive.
        assert_eq!(only(&rig).good_pages, 0);
        rig.device.arm(&plan);
        rig.engine.load(rig.load_job(3, &[(1, 1), (2, 0)])).unwrap();
        assert_eq!(only(&rig).good_pages, 1);
    }
}

/// Fails every copy call of a load after every number of pieces; how many calls there were.
fn fail_at_every_piece(call_pieces: usize) -> u64 {
    let scheduler = SimScheduler::new(5);
    let transfer = TransferConfig {
        call_pieces,
        submission: Submission::Manual,
        ..config()
    };
    let rig = Rig::with(SimConfig::stepped(0, &scheduler), transfer);
    (0..5).for_each(|page| rig.set_l2(page, 300 + u64::from(page)));
    for call in 0.. {
        for good_pieces in 0..call_pieces.min(10) {
            // Other content first, so that what does not arrive is seen.
            (1..6).for_each(|page| rig.fill(page, 1));
            rig.device.synchronize(&rig.fence()).unwrap();
            rig.device.arm(&fail(OpClass::Copy, call, good_pieces));
            rig.engine.load(rig.load_job(call, &FIVE)).unwrap();
            let done = only(&rig);
            let whole = (0..5).take_while(|&page| rig.l1_holds(page + 1, 300 + u64::from(page)));
            assert_eq!(done.good_pages, whole.count(), "{call} {good_pieces}");
            if done.error.is_none() {
                assert_eq!(scheduler.bugs(), []);
                return call;
            }
        }
    }
    0
}

/// Seen to fail if what copy calls did not deliver is not looked at.
#[test]
fn b36_a_fault_at_every_piece_of_every_call_never_says_too_much() {
    // Groups of 5, 10 and 10 pieces.
    for (call_pieces, calls) in [(512, 3), (4, 8), (3, 10), (1, 25)] {
        assert_eq!(fail_at_every_piece(call_pieces), calls);
    }
}

/// Seen to fail if what copy calls did not deliver is not looked at.
#[test]
fn b36_the_copy_call_says_how_far_it_came() {
    for rig in rigs() {
        rig.device.arm(&fail(OpClass::Copy, 0, 3));
        let copied = rig
            .engine
            .copy_pages(Direction::DeviceToHost, OpId::new(1), &pairs(&FIVE));
        let partial = TransferError::Partial {
            op: OpId::new(1),
            good_pages: 3,
            pages: 5,
            cause: cause("copy 0", 3, 5),
        };
        assert_eq!(copied, Err(partial));
        assert_eq!(rig.engine.stats().stores.failed_pages, 2);
        let again = rig
            .engine
            .copy_pages(Direction::DeviceToHost, OpId::new(1), &pairs(&FIVE));
        assert_eq!(again.unwrap().good_pages, 5);
    }
}

#[test]
fn a_refused_copy_poisons_and_a_death_does_too() {
    for fault in [Fault::Refuse, Fault::Die] {
        for rig in rigs() {
            rig.device
                .arm(&FaultPlan::new().with(OpClass::Copy, 2, fault));
            rig.engine.load(rig.load_job(1, &FIVE)).unwrap();
            // A thread may have met the fault by now.
            let store = rig.engine.store(rig.store_job(2, &[(7, 7)]));
            assert!(rig.engine.drain().is_err());
            let done = rig.poll();
            assert_eq!(done.len(), 1 + usize::from(store.is_ok()));
            assert_eq!((done[0].good_pages, done[0].error.is_some()), (0, true));
            assert!(rig.engine.poisoned().is_some());
        }
    }
}

#[test]
fn a_held_copy_leaves_the_load_open_and_other_streams_going() {
    let scheduler = SimScheduler::new(0);
    let config = SimConfig {
        mode: SimMode::Stepped(scheduler.clone()),
        faults: FaultPlan::new().with(OpClass::Copy, 1, Fault::Hold),
        ..SimConfig::new(0)
    };
    let rig = Rig::new(config, Submission::Manual);
    let gate = rig.engine.load(rig.load_job(1, &FIVE)).unwrap();
    rig.engine.store(rig.store_job(2, &[(7, 7)])).unwrap();
    while rig.engine.pump() {}
    let step = scheduler.run().unwrap();
    assert!(matches!(step, striata_gpu::sim::Step::Blocked(heads) if heads.len() == 1));
    assert_eq!(gate.is_complete(), Ok(false));
    let done = rig.poll();
    assert_eq!((done.len(), done[0].op), (1, OpId::new(2)));
    let stuck = rig.engine.drain().unwrap_err();
    assert!(
        matches!(stuck, TransferError::Device(GpuError::Deadlock { .. })),
        "{stuck}"
    );
    rig.device.release_faults();
    assert_eq!(only(&rig).good_pages, 5);
}
