// SPDX-License-Identifier: Apache-2.0
//! The host side of a gate under every interleaving of at most three threads: who submits, who
//! consumes, who ends the job early, and the device that completes what was submitted. Each model
//! says what it asks and for how many threads and groups; all run with two preemptions unless
//! `LOOM_MAX_PREEMPTIONS` says otherwise.
//!
//! In each of them a consumer that passed for k groups sees what the submitter did before it
//! announced them, and nobody waits for ever, which loom reports as a deadlock.
#![cfg(loom)]

use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use striata_gpu::transfer::GateState;

const CAUSE: u32 = 7;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    // `LOOM_MAX_PREEMPTIONS` wins.
    builder.preemption_bound.get_or_insert(2);
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

/// Submit. A consumer passes once its group was submitted, not before; both do.
/// Bounds: 3 threads, 2 groups.
// Seen to fail if the counter is stored with relaxed order, and if `advance` wakes one waiter.
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

/// Fail. Both consumers of a group that never comes are told, as is who asks later.
/// Bounds: 3 threads, 2 groups.
// Seen to fail if `end` wakes nobody, and if it wakes one waiter.
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

/// Fail. Who waits for what was submitted passes or is told, who waits for the rest is told.
/// Bounds: 3 threads, 2 groups.
// Seen to fail if `end` wakes nobody.
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

/// Drop. The submitter lets its side go, which fails the job, after the last group: everybody
/// passes. Bounds: 3 threads, 2 groups.
// Seen to fail if `end` does not look at what was submitted.
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

/// Fail, twice. Everybody is told the first cause. Bounds: 3 threads, 1 group.
// Seen to fail if `end` replaces a cause.
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

/// Cancel. The group that was submitted can be passed, whenever the cancellation comes; the other
/// cannot. Bounds: 3 threads, 2 groups.
// Seen to fail if a cancellation keeps nothing of what was submitted.
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

/// Cancel against fail: one cause, the same for all; what a failure has spoiled is not passed
/// afterwards. Bounds: 2 threads, 2 groups.
// Seen to fail if a failure keeps what was submitted, and if `end` replaces a cause.
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

/// A device event as a consumer sees it: recorded by the submitter, completed by the device.
#[derive(Default)]
struct Event {
    recorded: AtomicU32,
    complete: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn complete(&self) {
        *self.complete.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Nobody may wait for what was not recorded.
    fn synchronize(&self) {
        assert_eq!(self.recorded.load(Ordering::Relaxed), 1);
        let mut complete = self.complete.lock().unwrap();
        while !*complete {
            complete = self.changed.wait(complete).unwrap();
        }
    }
}

/// Complete. A consumer passes the gate, which never waits for the copy, and then waits for the
/// event, as `LoadGate::synchronize` does: the event is recorded by then, and behind it the
/// consumer sees what the copy wrote. The device works through its stream on a thread of its own.
/// Bounds: 3 threads, 2 groups.
// Seen to fail if `wait` does not ask for its own group, and if the counter is stored with relaxed
// order.
#[test]
fn who_waits_for_the_event_behind_a_gate_sees_what_was_copied() {
    check(|| {
        let gate = Arc::new(GateState::<u32>::new());
        let events: Arc<[Event; 2]> = Arc::default();
        let copied = Arc::new(AtomicU32::new(0));
        let device = {
            let (gate, events, copied) = (gate.clone(), events.clone(), copied.clone());
            thread::spawn(move || {
                for group in 0..2 {
                    // What is in the stream is what was submitted.
                    gate.wait(group + 1).unwrap();
                    copied.store(group + 1, Ordering::Relaxed);
                    events[group as usize].complete();
                }
            })
        };
        let consumer = {
            let (gate, events, copied) = (gate.clone(), events.clone(), copied.clone());
            thread::spawn(move || {
                gate.wait(2).unwrap();
                assert_eq!(gate.submitted(), Ok(2));
                events[1].synchronize();
                assert_eq!(copied.load(Ordering::Relaxed), 2);
            })
        };
        for group in 0..2 {
            events[group as usize].recorded.store(1, Ordering::Relaxed);
            gate.advance(group + 1);
        }
        consumer.join().unwrap();
        device.join().unwrap();
    });
}

/// Complete, with a failure in the middle. Who passed the gate of the first group waits for its
/// event and ends; who waits for the second is told, and waits for no event, since none was
/// recorded. Bounds: 3 threads, 2 groups.
// Seen to fail if `end` wakes nobody, and if `wait` does not ask for its own group.
#[test]
fn a_failure_in_the_middle_leaves_nobody_at_an_event() {
    check(|| {
        let gate = Arc::new(GateState::<u32>::new());
        let events: Arc<[Event; 2]> = Arc::default();
        let consumers = [1, 2].map(|groups| {
            let (gate, events) = (gate.clone(), events.clone());
            thread::spawn(move || {
                let passed = gate.wait(groups);
                if passed.is_ok() {
                    events[groups as usize - 1].synchronize();
                }
                passed
            })
        });
        events[0].recorded.store(1, Ordering::Relaxed);
        gate.advance(1);
        gate.fail(2, CAUSE);
        events[0].complete();
        let [first, second] = consumers.map(|thread| thread.join().unwrap());
        assert!(first.is_ok() || first == Err(CAUSE));
        assert_eq!(second, Err(CAUSE));
    });
}
