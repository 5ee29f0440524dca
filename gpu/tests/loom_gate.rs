// SPDX-License-Identifier: Apache-2.0
//! The host side of a gate under every interleaving of one submitter and two consumers.
//!
//! Without the release of the counter a consumer would enqueue a wait for an event that it does not
//! see as recorded; without the lock around the change, or with one waiter woken instead of all, a
//! consumer would sleep for ever, which loom reports as a deadlock.
#![cfg(loom)]

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use striata_gpu::transfer::GateState;

const CAUSE: u32 = 7;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// A gate, and a plain word for what the submitter did before each announcement.
#[derive(Default)]
struct Job {
    gate: GateState<u32>,
    recorded: AtomicU32,
}

impl Job {
    fn submit(&self, groups: u32) {
        self.recorded.store(groups, Ordering::Relaxed);
        self.gate.advance(groups);
    }

    /// A passed gate means that the group's event is seen as recorded.
    fn consume(&self, groups: u32) -> Result<(), u32> {
        let result = self.gate.wait(groups);
        if result.is_ok() {
            assert!(self.recorded.load(Ordering::Relaxed) >= groups);
        }
        result
    }
}

fn consumers(job: &Arc<Job>, groups: [u32; 2]) -> [thread::JoinHandle<Result<(), u32>>; 2] {
    groups.map(|group| {
        let job = job.clone();
        thread::spawn(move || job.consume(group))
    })
}

#[test]
fn a_waiter_passes_only_after_its_group_was_submitted() {
    check(|| {
        let job = Arc::new(Job::default());
        let waiting = consumers(&job, [1, 2]);
        job.submit(1);
        job.submit(2);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn a_failure_reaches_every_waiter() {
    check(|| {
        let job = Arc::new(Job::default());
        let waiting = consumers(&job, [2, 2]);
        job.submit(1);
        job.gate.fail(2, CAUSE);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Err(CAUSE));
        }
        assert_eq!(job.gate.submitted(), Err(CAUSE));
    });
}

#[test]
fn a_failure_and_a_submitted_group_leave_no_waiter_behind() {
    check(|| {
        let job = Arc::new(Job::default());
        let waiting = consumers(&job, [1, 2]);
        job.submit(1);
        job.gate.fail(2, CAUSE);
        let [first, second] = waiting.map(|thread| thread.join().unwrap());
        assert!(first.is_ok() || first == Err(CAUSE));
        assert_eq!(second, Err(CAUSE));
    });
}

#[test]
fn a_job_submitted_to_its_end_does_not_fail_any_more() {
    check(|| {
        let job = Arc::new(Job::default());
        let waiting = consumers(&job, [1, 2]);
        job.submit(2);
        job.gate.fail(2, CAUSE);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
        assert_eq!(job.gate.submitted(), Ok(2));
    });
}

#[test]
fn two_ends_of_one_job_give_one_cause() {
    check(|| {
        let job = Arc::new(Job::default());
        let ends = [1, 2].map(|cause| {
            let job = job.clone();
            thread::spawn(move || job.gate.fail(1, cause))
        });
        let seen = job.consume(1).unwrap_err();
        for end in ends {
            end.join().unwrap();
        }
        assert_eq!(job.gate.wait(1), Err(seen));
    });
}

/// One submitter, a canceller and a consumer: the group that was submitted can be passed, whenever
/// the cancellation comes; the other cannot unless it was submitted first.
#[test]
fn a_cancellation_keeps_what_was_submitted() {
    check(|| {
        let job = Arc::new(Job::default());
        let waiting = consumers(&job, [1, 2]);
        job.submit(1);
        job.gate.cancel(2, CAUSE);
        let [first, second] = waiting.map(|thread| thread.join().unwrap());
        assert_eq!((first, second), (Ok(()), Err(CAUSE)));
        assert_eq!(job.gate.submitted(), Err(CAUSE));
    });
}

/// A cancellation against a failure: one cause, the same for all; what a failure has spoiled is not
/// passed afterwards.
#[test]
fn a_cancellation_and_a_failure_give_one_end() {
    check(|| {
        let job = Arc::new(Job::default());
        job.submit(1);
        let failer = {
            let job = job.clone();
            thread::spawn(move || job.gate.fail(2, CAUSE + 1))
        };
        job.gate.cancel(2, CAUSE);
        let seen = job.consume(2).unwrap_err();
        failer.join().unwrap();
        assert_eq!(job.gate.submitted(), Err(seen));
        let first = if seen == CAUSE { Ok(()) } else { Err(seen) };
        assert_eq!(job.gate.wait(1), first);
    });
}
