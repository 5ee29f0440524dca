// SPDX-License-Identifier: Apache-2.0
//! [`QueueState`] between callers, who push, promote and cancel, and the one who submits.
//!
//! One mutex, held for moves of values only: never across a device call, never while a gate's
//! mutex is taken. What loom checks (`loom_tests`): every job that was taken in is ended once, by
//! the submitter, a canceller or the closing; no wake-up is lost; after [`WorkQueue::wait_idle`]
//! every end was entered.

#[cfg(not(loom))]
use std::time::Duration;

use striata_core::OpId;
use striata_core::sync::{Condvar, Mutex, lock_while};

use super::queue_entry::{JobId, Ticket};
use super::queue_state::{GivenUp, QueueState, Returned, Turn};
use super::window::Rooms;
use crate::device::Direction;

#[derive(Debug)]
pub(super) struct WorkQueue<J, E> {
    state: Mutex<QueueState<J, E>>,
    /// Something changed for who submits.
    work: Condvar,
    /// The last job was ended.
    idle: Condvar,
}

/// What the submitter gets.
#[derive(Debug)]
pub(super) enum Next<J, E> {
    Turn(Turn<J, E>),
    /// Jobs are there, but fences or the windows keep them back, or somebody else submits.
    Blocked,
    /// As above, and the thread slept until now, because there were none.
    #[cfg(not(loom))]
    Woken,
    Closed,
}

impl<J, E: Clone> WorkQueue<J, E> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(QueueState::new()),
            work: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Appends a job; gives it back once the queue is closed or has failed. The thread that submits
    /// may sleep on until [`WorkQueue::announce`].
    pub(super) fn push(&self, ticket: Ticket, job: J) -> Result<(), J> {
        self.state.lock().push(ticket, job)
    }

    /// Wakes the thread that submits, if it sleeps and anything is left for it.
    pub(super) fn announce(&self) {
        if self.has_work() {
            self.work.notify_one();
        }
    }

    /// The next unit, if one may be submitted now.
    pub(super) fn try_next(&self, rooms: Rooms) -> Option<Turn<J, E>> {
        self.state.lock().next(rooms)
    }

    /// The next unit. Waits for a job; waits no longer than `patience` if there are jobs that may
    /// not be submitted.
    #[cfg(not(loom))]
    pub(super) fn next(&self, rooms: Rooms, patience: Duration) -> Next<J, E> {
        let mut state = self.state.lock();
        let mut slept = false;
        loop {
            if let Some(next) = look(&mut state, rooms) {
                return next;
            }
            if !state.has_work() {
                self.work.wait(&mut state);
                slept = true;
            } else if slept {
                return Next::Woken;
            } else if self.work.wait_for(&mut state, patience).timed_out() {
                return look(&mut state, rooms).unwrap_or(Next::Blocked);
            }
        }
    }

    /// As above; loom's waits never time out, so jobs that may not be submitted are no wait here.
    #[cfg(loom)]
    pub(super) fn next(&self, rooms: Rooms) -> Next<J, E> {
        let waits = |state: &mut QueueState<J, E>| !state.has_work() && !state.is_over();
        let mut state = lock_while(&self.state, &self.work, waits);
        look(&mut state, rooms).unwrap_or(Next::Blocked)
    }

    /// Takes a job in hand back, whose next unit has `next_bytes`.
    pub(super) fn give_back(&self, id: JobId, job: J, next_bytes: u64) -> Returned<J> {
        self.state.lock().give_back(id, job, next_bytes)
    }

    /// Says that a job in hand was ended, and that this was entered where it is looked for.
    pub(super) fn finish(&self, id: JobId) {
        let mut state = self.state.lock();
        state.finish(id);
        let idle = !state.has_work();
        drop(state);
        if idle {
            self.idle.notify_all();
        }
    }

    /// Somebody waits for the first `units` units of a job.
    pub(super) fn promote(&self, id: JobId, units: u32) {
        self.state.lock().promote(id, units);
        self.work.notify_one();
    }

    /// Lets the stores of `op` go before loads from now on.
    pub(super) fn raise(&self, op: OpId) {
        self.state.lock().raise(op);
        self.work.notify_one();
    }

    /// Gives up what is not submitted of the loads of `op`.
    pub(super) fn cancel(&self, op: OpId) -> GivenUp<J> {
        self.state.lock().cancel(op)
    }

    /// What `look` says of the jobs that may not start yet.
    pub(super) fn fenced<R>(&self, out: &mut Vec<(JobId, R)>, look: impl Fn(&J) -> Option<R>) {
        let state = self.state.lock();
        let fenced = state.fenced();
        out.extend(fenced.filter_map(|(id, job)| Some((id, look(job)?))));
    }

    /// Says that a job may start.
    pub(super) fn unfence(&self, id: JobId) {
        self.state.lock().unfence(id);
    }

    /// A direction in which only the window keeps a job back.
    pub(super) fn blocked(&self, rooms: Rooms) -> Option<Direction> {
        self.state.lock().blocked(rooms)
    }

    /// Whether jobs wait for submission or for their end to be entered.
    pub(super) fn has_work(&self) -> bool {
        self.state.lock().has_work()
    }

    /// Blocks until no job does.
    pub(super) fn wait_idle(&self) {
        drop(lock_while(&self.state, &self.idle, |state| {
            state.has_work()
        }));
    }

    /// Keeps the first failure, and lets every job fail. False if there was one.
    pub(super) fn fail(&self, cause: E) -> bool {
        let first = self.state.lock().fail(cause);
        self.work.notify_one();
        first
    }

    /// The first failure.
    pub(super) fn failed(&self) -> Option<E> {
        self.state.lock().failed().cloned()
    }

    /// Lets the submitter end once it has submitted what was begun. The others are dropped.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let dropped = state.close();
        let idle = !state.has_work();
        drop(state);
        self.work.notify_all();
        if idle {
            self.idle.notify_all();
        }
        drop(dropped);
    }

    /// Says that nobody submits any more. Every job is dropped.
    pub(super) fn abandon(&self) {
        let dropped = self.state.lock().abandon();
        self.idle.notify_all();
        drop(dropped);
    }
}

fn look<J, E: Clone>(state: &mut QueueState<J, E>, rooms: Rooms) -> Option<Next<J, E>> {
    match state.next(rooms) {
        Some(turn) => Some(Next::Turn(turn)),
        None => state.is_over().then_some(Next::Closed),
    }
}
