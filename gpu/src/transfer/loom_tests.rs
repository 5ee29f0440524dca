// SPDX-License-Identifier: Apache-2.0
//! The submission protocol under every interleaving of at most three threads with two preemptions,
//! or as many as `LOOM_MAX_PREEMPTIONS` says: [`WorkQueue`] with [`Window`] and [`GateState`], as
//! the engine puts them together.
//!
//! Properties of every model, asked when all threads are joined:
//! - no job is lost: each that was taken in ended once, whole, cancelled, failed or dropped;
//! - what ended whole had all groups submitted once and in order, and nothing is submitted of a job
//!   after its end;
//! - `wait_idle` returns only when every end was entered;
//! - no wake-up is lost and nobody waits for ever, which loom reports as a deadlock.

use loom::model::Builder;
use loom::thread;
use striata_core::OpId;
use striata_core::sync::{Arc, Mutex};

use super::gate_state::GateState;
use super::queue_entry::{JobId, Ticket};
use super::queue_state::{Action, Returned, Turn};
use super::window::{Rooms, Window};
use super::work_queue::{Next, WorkQueue};
use crate::device::Direction;

const GROUPS: u32 = 2;
const CANCELLED: u32 = 1;
const FAILED: u32 = 2;
const DROPPED: u32 = 3;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    // `LOOM_MAX_PREEMPTIONS` wins.
    builder.preemption_bound.get_or_insert(2);
    builder.check(model);
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Cancelled { groups: u32 },
    Failed,
    Dropped,
}

type Log = Arc<Mutex<Vec<(u64, End)>>>;

/// A job with its gate; one that is dropped without an end says so.
struct Job {
    id: u64,
    gate: Arc<GateState<u32>>,
    groups: u32,
    log: Log,
    ended: bool,
}

impl Job {
    fn end(mut self, end: End) {
        match end {
            End::Cancelled { .. } => self.gate.cancel(GROUPS, CANCELLED),
            End::Failed => self.gate.fail(GROUPS, FAILED),
            End::Whole | End::Dropped => {}
        }
        self.ended = true;
        self.log.lock().push((self.id, end));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.ended {
            self.gate.fail(GROUPS, DROPPED);
            self.log.lock().push((self.id, End::Dropped));
        }
    }
}

/// Callers, a submitter and a device whose groups end when the submitter looks the second time.
struct World {
    queue: WorkQueue<Job, u32>,
    log: Log,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: WorkQueue::new(),
            log: Log::default(),
        })
    }

    /// A load whose caller submits nothing.
    fn load(&self, id: u64) -> Arc<GateState<u32>> {
        let gate = self.push(id);
        self.queue.announce();
        gate
    }

    fn push(&self, id: u64) -> Arc<GateState<u32>> {
        let gate = Arc::new(GateState::new());
        let ticket = Ticket {
            id: JobId(id),
            op: OpId::new(id),
            direction: Direction::HostToDevice,
            units: GROUPS,
            first_bytes: 1,
            urgent: false,
            fenced: false,
            cancellable: true,
        };
        let job = Job {
            id,
            gate: gate.clone(),
            groups: 0,
            log: self.log.clone(),
            ended: false,
        };
        drop(self.queue.push(ticket, job));
        gate
    }

    fn cancel(&self, id: u64) -> u32 {
        let given_up = self.queue.cancel(OpId::new(id));
        for job in given_up.jobs {
            self.end(job, |groups| End::Cancelled { groups });
        }
        given_up.units
    }

    fn end(&self, job: Job, end: impl FnOnce(u32) -> End) {
        let (id, groups) = (job.id, job.groups);
        job.end(end(groups));
        self.queue.finish(JobId(id));
    }

    fn perform(&self, turn: Turn<Job, u32>, window: &mut Window<()>) {
        let Turn {
            id,
            mut job,
            action,
        } = turn;
        match action {
            Action::Fail(_) => return self.end(job, |_| End::Failed),
            Action::Begin => assert_eq!(job.groups, 0),
            Action::Unit => {
                job.groups += 1;
                assert!(job.groups <= GROUPS);
                window.push(1, ());
                job.gate.advance(job.groups);
            }
        }
        match self.queue.give_back(id, job, 1) {
            Returned::Kept => {}
            Returned::Ended(job) => self.end(job, |groups| {
                assert_eq!(groups, GROUPS);
                End::Whole
            }),
            Returned::Cancelled(job) => self.end(job, |groups| End::Cancelled { groups }),
        }
    }

    /// What the submission thread does until the queue is closed, with room for two groups.
    fn submit(&self) {
        let mut window = Window::new(0);
        loop {
            let rooms = Rooms {
                loads: window.room(),
                stores: window.room(),
            };
            match self.queue.next(rooms) {
                Next::Turn(turn) => self.perform(turn, &mut window),
                Next::Closed => break,
                // The oldest group ends.
                Next::Blocked if window.oldest().is_some() => {
                    window.retire(|()| true);
                }
                Next::Blocked => thread::yield_now(),
            }
        }
        self.queue.abandon();
    }

    /// How each of `jobs` jobs ended.
    fn ends(&self, jobs: u64) -> Vec<End> {
        assert!(!self.queue.has_work());
        let log = self.log.lock();
        assert_eq!(log.len() as u64, jobs);
        let of = |id| log.iter().filter(move |(ended, _)| *ended == id);
        let once = (1..=jobs).map(|id| {
            assert_eq!(of(id).count(), 1);
            of(id).next().unwrap().1
        });
        once.collect()
    }
}

fn submitter(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || world.submit())
}

/// Bounds: 2 threads, 2 jobs of 2 groups, a window of 2 groups. The window is refilled as groups
/// end, and everything is submitted whole.
// Seen to fail if `announce` wakes nobody, and if `finish` does not.
#[test]
fn what_is_pushed_is_submitted_whole_through_a_full_window() {
    check(|| {
        let world = World::new();
        let thread = submitter(&world);
        let gates = [world.load(1), world.load(2)];
        world.queue.wait_idle();
        assert_eq!(world.ends(2), [End::Whole, End::Whole]);
        for gate in gates {
            assert_eq!(gate.submitted(), Ok(GROUPS));
        }
        world.queue.close();
        thread.join().unwrap();
    });
}

/// Bounds: 2 threads, 1 job of 2 groups, of which its caller submits nothing, its beginning and a
/// group, or everything before the thread hears of it. The thread submits what is left.
// Seen to fail if `announce` wakes nobody.
#[test]
fn what_a_caller_leaves_is_submitted_by_the_thread() {
    for steps in [0, 2, 3] {
        check(move || {
            let world = World::new();
            let thread = submitter(&world);
            let gate = world.push(1);
            let mut window = Window::new(0);
            for _ in 0..steps {
                let rooms = Rooms {
                    loads: window.room(),
                    stores: window.room(),
                };
                if let Some(turn) = world.queue.try_next(rooms) {
                    world.perform(turn, &mut window);
                }
            }
            world.queue.announce();
            world.queue.wait_idle();
            assert_eq!(world.ends(1), [End::Whole]);
            assert_eq!(gate.submitted(), Ok(GROUPS));
            world.queue.close();
            thread.join().unwrap();
        });
    }
}

/// Bounds: 3 threads, 1 job of 2 groups; cancellation at any point of submission. The number that
/// `cancel` returns, the end and the gate agree; what was submitted can be passed.
// Seen to fail if a job in hand does not hear of its cancellation, and if one that is not in hand is
// left in the queue.
#[test]
fn a_cancellation_ends_a_job_once_and_says_what_it_dropped() {
    check(|| {
        let world = World::new();
        let gate = world.load(1);
        let thread = submitter(&world);
        let canceller = {
            let world = world.clone();
            thread::spawn(move || world.cancel(1))
        };
        let first = gate.wait(1);
        let dropped = canceller.join().unwrap();
        world.queue.wait_idle();
        match world.ends(1)[0] {
            End::Whole => assert_eq!((dropped, first), (0, Ok(()))),
            End::Cancelled { groups } => {
                assert_eq!(dropped + groups, GROUPS);
                assert_eq!(first.is_ok(), groups >= 1);
                assert_eq!(gate.wait(GROUPS), Err(CANCELLED));
            }
            end => panic!("{end:?}"),
        }
        world.queue.close();
        thread.join().unwrap();
    });
}

/// Bounds: 3 threads, 2 cancellers of 1 job of 2 groups. One of them, at most, drops groups.
// Seen to fail if a job is cancelled that is cancelled already.
#[test]
fn two_cancellations_end_a_job_once() {
    check(|| {
        let world = World::new();
        let gate = world.load(1);
        let thread = submitter(&world);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.cancel(1))
        };
        let dropped = [world.cancel(1), other.join().unwrap()];
        world.queue.wait_idle();
        let end = world.ends(1)[0];
        assert!(dropped.contains(&0));
        assert_eq!(dropped == [0, 0], end == End::Whole);
        assert_eq!(gate.wait(GROUPS).is_ok(), end == End::Whole);
        world.queue.close();
        thread.join().unwrap();
    });
}

/// Bounds: 3 threads, 2 jobs of 2 groups, nothing in the window ends. The job that is waited for is
/// submitted past the full window, and the waiter goes on.
// Seen to fail if `promote` changes nothing.
#[test]
fn a_waiter_promotes_its_job_past_a_full_window() {
    check(|| {
        let world = World::new();
        let gates = [world.load(1), world.load(2)];
        let thread = {
            let world = world.clone();
            thread::spawn(move || {
                let mut window = Window::new(0);
                while !world.log.lock().contains(&(2, End::Whole)) {
                    let rooms = Rooms {
                        loads: window.room(),
                        stores: window.room(),
                    };
                    match world.queue.next(rooms) {
                        Next::Turn(turn) => world.perform(turn, &mut window),
                        _ => thread::yield_now(),
                    }
                }
            })
        };
        world.queue.promote(JobId(2), GROUPS);
        assert_eq!(gates[1].wait(GROUPS), Ok(()));
        thread.join().unwrap();
        world.queue.abandon();
        assert_eq!(world.ends(2)[1], End::Whole);
    });
}

/// Bounds: 3 threads, 2 jobs of 2 groups, one cancelled, the queue closed in the middle. What was
/// begun is submitted whole, what was not is dropped, and every waiter gets an answer.
// Seen to fail if closing drops jobs in hand, and if it wakes nobody.
#[test]
fn closing_in_the_middle_ends_every_job_once() {
    check(|| {
        let world = World::new();
        let gates = [world.load(1), world.load(2)];
        let thread = submitter(&world);
        let closer = {
            let world = world.clone();
            thread::spawn(move || world.queue.close())
        };
        world.cancel(2);
        let answers = gates.map(|gate| gate.wait(GROUPS));
        closer.join().unwrap();
        thread.join().unwrap();
        world.queue.wait_idle();
        for (end, answer) in world.ends(2).into_iter().zip(answers) {
            let expected = match end {
                End::Whole => Ok(()),
                End::Cancelled { .. } => Err(CANCELLED),
                End::Failed => Err(FAILED),
                End::Dropped => Err(DROPPED),
            };
            assert_eq!(answer, expected);
        }
    });
}

/// Bounds: 3 threads, a push against a failure and a closing. A job is refused, failed, dropped or
/// whole, never lost, and its gate answers.
// Seen to fail if closing drops jobs in hand, and if it wakes nobody.
#[test]
fn a_failure_and_a_closing_lose_no_job_that_comes_meanwhile() {
    check(|| {
        let world = World::new();
        let thread = submitter(&world);
        let caller = {
            let world = world.clone();
            thread::spawn(move || world.load(1).wait(GROUPS))
        };
        assert!(world.queue.fail(FAILED));
        world.queue.close();
        thread.join().unwrap();
        let answer = caller.join().unwrap();
        let end = world.ends(1)[0];
        assert_eq!(answer.is_ok(), end == End::Whole);
        assert_eq!(answer == Err(FAILED), end == End::Failed);
        assert!(!matches!(end, End::Cancelled { .. }));
    });
}
