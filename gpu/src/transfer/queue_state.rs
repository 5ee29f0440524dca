// SPDX-License-Identifier: Apache-2.0
//! Jobs that are not submitted to their end, and which unit of which of them is the next.
//!
//! No lock, no device: `work_queue` puts a lock around it. A job is either here or *in hand*: of
//! who submits one unit of it, or of who ends it after a cancellation. Whoever ends it says
//! [`QueueState::finish`]; until then the job counts as unsubmitted.
//!
//! Of the jobs that may start, the most urgent goes first: one whose next unit somebody waits for,
//! then a store that an allocation waits for, then loads, then stores; in the order of the calls
//! among equals. A job that nobody waits for must fit into its direction's window ([`super::window::Room`]), and a
//! lesser one of its direction never passes it.

use std::collections::VecDeque;

use striata_core::OpId;

use super::queue_entry::{Class, Entry, JobId, Ticket};
use super::window::Rooms;
use crate::device::Direction;

/// One unit of submission, and the job it is of.
#[derive(Debug)]
pub(super) struct Turn<J, E> {
    pub(super) id: JobId,
    pub(super) job: J,
    pub(super) action: Action<E>,
}

/// What is to be done with a job in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action<E> {
    Begin,
    /// Submit its next unit.
    Unit,
    /// End it: the queue has failed.
    Fail(E),
}

/// What becomes of a job whose unit was submitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Returned<J> {
    /// It has more units.
    Kept,
    /// It was submitted to its end; the caller ends it.
    Ended(J),
    /// The rest of it was given up; the caller ends it.
    Cancelled(J),
}

/// Jobs that were given up: those that nobody had in hand are the caller's to end.
#[derive(Debug)]
pub(super) struct GivenUp<J> {
    pub(super) jobs: Vec<J>,
    pub(super) units: u32,
}

#[derive(Debug)]
pub(super) struct QueueState<J, E> {
    loads: VecDeque<Entry<J>>,
    stores: VecDeque<Entry<J>>,
    fenced: usize,
    open: bool,
    failed: Option<E>,
}

impl<J, E: Clone> QueueState<J, E> {
    pub(super) const fn new() -> Self {
        Self {
            loads: VecDeque::new(),
            stores: VecDeque::new(),
            fenced: 0,
            open: true,
            failed: None,
        }
    }

    /// Appends a job; gives it back once the queue is closed or has failed.
    pub(super) fn push(&mut self, ticket: Ticket, job: J) -> Result<(), J> {
        if !self.open || self.failed.is_some() {
            return Err(job);
        }
        self.fenced += usize::from(ticket.fenced);
        self.lane_mut(ticket.direction)
            .push_back(Entry::new(ticket, job));
        Ok(())
    }

    /// Takes the job whose unit is to be submitted next; none if nothing may be.
    pub(super) fn next(&mut self, rooms: Rooms) -> Option<Turn<J, E>> {
        if let Some(cause) = self.failed.clone() {
            return self.next_to_fail(cause);
        }
        let candidates = [Direction::HostToDevice, Direction::DeviceToHost].map(|direction| {
            let (class, at) = self.best(direction)?;
            let fits = !self.open || self.lane(direction).get(at)?.fits(rooms.of(direction));
            fits.then_some((class, direction, at))
        });
        let chosen = candidates.into_iter().flatten();
        let (_, direction, at) = chosen.min_by_key(|(class, ..)| *class)?;
        let entry = self.lane_mut(direction).get_mut(at)?;
        let job = entry.job.take()?;
        let action = if entry.begun {
            entry.reached += 1;
            Action::Unit
        } else {
            entry.begun = true;
            Action::Begin
        };
        let id = entry.ticket.id;
        Some(Turn { id, job, action })
    }

    /// Takes a job in hand back, whose next unit has `next_bytes`.
    pub(super) fn give_back(&mut self, id: JobId, job: J, next_bytes: u64) -> Returned<J> {
        match self.entry(id) {
            Some(entry) if entry.cancelled => Returned::Cancelled(job),
            Some(entry) if entry.reached < entry.ticket.units => {
                entry.job = Some(job);
                entry.next_bytes = next_bytes;
                Returned::Kept
            }
            _ => Returned::Ended(job),
        }
    }

    /// Forgets a job that was in hand and has been ended.
    pub(super) fn finish(&mut self, id: JobId) {
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            let lane = self.lane_mut(direction);
            let Some(at) = lane.iter().position(|entry| entry.ticket.id == id) else {
                continue;
            };
            let entry = lane.remove(at);
            self.fenced -= usize::from(entry.is_some_and(|entry| entry.ticket.fenced));
        }
    }

    /// Somebody waits for the first `units` units of a job.
    pub(super) fn promote(&mut self, id: JobId, units: u32) {
        if let Some(entry) = self.entry(id) {
            entry.promoted = entry.promoted.max(units);
        }
    }

    /// Lets the stores of `op` go before loads from now on.
    pub(super) fn raise(&mut self, op: OpId) {
        for entry in self.stores.iter_mut().filter(|entry| entry.ticket.op == op) {
            entry.ticket.urgent = true;
        }
    }

    /// Gives up what is not submitted of the loads of `op`; a unit in hand is still submitted.
    pub(super) fn cancel(&mut self, op: OpId) -> GivenUp<J> {
        let (mut jobs, mut units) = (Vec::new(), 0);
        let failed = self.failed.is_some();
        let meant = |entry: &&mut Entry<J>| entry.ticket.op == op && entry.ticket.cancellable;
        for entry in self.loads.iter_mut().filter(meant) {
            let rest = entry.ticket.units - entry.reached;
            if rest == 0 || entry.cancelled || failed {
                continue;
            }
            entry.cancelled = true;
            units += rest;
            jobs.extend(entry.job.take());
        }
        GivenUp { jobs, units }
    }

    /// Says that a job may start.
    pub(super) fn unfence(&mut self, id: JobId) {
        let entry = self.entry(id).filter(|entry| entry.ticket.fenced);
        let was_fenced = entry.map(|entry| entry.ticket.fenced = false);
        self.fenced -= usize::from(was_fenced.is_some());
    }

    /// The jobs that may not start yet.
    pub(super) fn fenced(&self) -> impl Iterator<Item = (JobId, &J)> {
        let most = if self.fenced == 0 { 0 } else { usize::MAX };
        let fenced = self.loads.iter().take(most);
        let fenced = fenced.filter(|entry| entry.ticket.fenced);
        fenced.filter_map(|entry| Some((entry.ticket.id, entry.job.as_ref()?)))
    }

    /// A direction in which only the window keeps a job back.
    pub(super) fn blocked(&self, rooms: Rooms) -> Option<Direction> {
        let mut both = [Direction::HostToDevice, Direction::DeviceToHost].into_iter();
        both.find(|&direction| {
            let best = self.best(direction);
            let entry = best.and_then(|(_, at)| self.lane(direction).get(at));
            entry.is_some_and(|entry| !entry.fits(rooms.of(direction)))
        })
    }

    /// Every job that comes, and every one that is here, fails from now on; the first cause stays.
    /// False if there was one.
    pub(super) fn fail(&mut self, cause: E) -> bool {
        let first = self.failed.is_none();
        self.failed.get_or_insert(cause);
        first
    }

    pub(super) const fn failed(&self) -> Option<&E> {
        self.failed.as_ref()
    }

    /// Takes no further job, and gives back those that were not begun. What was begun is submitted
    /// to its end, whatever the window.
    pub(super) fn close(&mut self) -> Vec<J> {
        self.open = false;
        self.remove(|entry| !entry.begun && entry.job.is_some())
    }

    /// Gives back every job that is here and forgets those in hand.
    pub(super) fn abandon(&mut self) -> Vec<J> {
        self.open = false;
        self.remove(|_| true)
    }

    /// Whether a job is here or in hand.
    pub(super) fn has_work(&self) -> bool {
        !self.loads.is_empty() || !self.stores.is_empty()
    }

    /// Whether it was closed and nothing is left to submit.
    pub(super) fn is_over(&self) -> bool {
        let mut entries = self.loads.iter().chain(&self.stores);
        !self.open && entries.all(|entry| entry.job.is_none())
    }

    fn remove(&mut self, chosen: impl Fn(&Entry<J>) -> bool) -> Vec<J> {
        let mut removed = Vec::new();
        for lane in [&mut self.loads, &mut self.stores] {
            lane.retain_mut(|entry| {
                let stays = !chosen(entry);
                if !stays {
                    self.fenced -= usize::from(entry.ticket.fenced);
                    removed.extend(entry.job.take());
                }
                stays
            });
        }
        removed
    }

    fn next_to_fail(&mut self, cause: E) -> Option<Turn<J, E>> {
        let entries = self.loads.iter_mut().chain(&mut self.stores);
        entries.into_iter().find_map(|entry| {
            Some(Turn {
                id: entry.ticket.id,
                job: entry.job.take()?,
                action: Action::Fail(cause.clone()),
            })
        })
    }

    /// The most urgent job of a direction that may start.
    fn best(&self, direction: Direction) -> Option<(Class, usize)> {
        let entries = self.lane(direction).iter().enumerate();
        let ready = entries.filter(|(_, entry)| entry.may_start());
        ready.map(|(at, entry)| (entry.class(), at)).min()
    }

    fn entry(&mut self, id: JobId) -> Option<&mut Entry<J>> {
        let mut entries = self.loads.iter_mut().chain(&mut self.stores);
        entries.find(|entry| entry.ticket.id == id)
    }

    const fn lane(&self, direction: Direction) -> &VecDeque<Entry<J>> {
        match direction {
            Direction::HostToDevice => &self.loads,
            Direction::DeviceToHost => &self.stores,
        }
    }

    const fn lane_mut(&mut self, direction: Direction) -> &mut VecDeque<Entry<J>> {
        match direction {
            Direction::HostToDevice => &mut self.loads,
            Direction::DeviceToHost => &mut self.stores,
        }
    }
}
