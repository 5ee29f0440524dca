// SPDX-License-Identifier: Apache-2.0
//! The state of a scheduler: queues, clocks, shadows; and how one operation is chosen and run.

use std::collections::VecDeque;
use std::sync::Arc;

use striata_core::sync::Ordering;

use super::clock::{Agent, VectorClock};
use super::memories::Memories;
use super::trace::{Choices, ScheduleTrace};
use super::{BlockedHead, Past, Step};
use crate::device::Piece;
use crate::error::GpuError;
use crate::sim::event::SimEvent;
use crate::sim::lane::Lane;
use crate::sim::names::{OpKind, OpName};
use crate::sim::op::Op;
use crate::sim::shared::Shared;

#[derive(Debug)]
pub(super) struct State {
    /// Whose clocks the pasts of events are.
    identity: Arc<()>,
    choices: Choices,
    pub(super) streams: Vec<Stream>,
    /// What the host knows, shared with all that it submits until it learns more.
    pub(super) host: Arc<VectorClock>,
    /// Accesses by the host.
    pub(super) host_accesses: u64,
    pub(super) memories: Memories,
    pub(super) trace: ScheduleTrace,
    pub(super) bugs: Vec<GpuError>,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) place: Arc<str>,
    pub(super) queue: VecDeque<Queued>,
    lane: Lane,
    clock: VectorClock,
    /// Operations that ran.
    done: u64,
    /// No handle is left.
    closed: bool,
}

/// An operation in a queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) owner: Arc<Shared>,
    pub(super) op: Op,
    pub(super) pieces: Box<[Piece]>,
    /// What the host knew when it was submitted.
    past: Arc<VectorClock>,
}

impl Queued {
    fn is_ready(&self, closed: bool) -> bool {
        match &self.op {
            _ if !self.owner.is_alive() => true,
            Op::Wait(event) => event.is_complete(),
            Op::Hold(released) => closed || released.load(Ordering::Acquire),
            _ => true,
        }
    }
}

impl Stream {
    /// The name of the operation that is `ahead` others away from running.
    pub(super) fn name(&self, ahead: usize, kind: OpKind) -> OpName {
        OpName {
            place: Arc::clone(&self.place),
            index: self.done + ahead as u64,
            kind,
        }
    }
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            identity: Arc::default(),
            choices: Choices::new(seed),
            streams: Vec::new(),
            host: Arc::default(),
            host_accesses: 0,
            memories: Memories::default(),
            trace: ScheduleTrace::new(seed),
            bugs: Vec::new(),
        }
    }

    /// Makes a stream; its index.
    pub(super) fn open(&mut self, device: &str, name: &str) -> usize {
        self.streams.push(Stream {
            place: format!("stream {name} of {device}").into(),
            queue: VecDeque::new(),
            lane: Lane::default(),
            clock: VectorClock::default(),
            done: 0,
            closed: false,
        });
        self.streams.len() - 1
    }

    /// No handle of stream `index` is left.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(stream) = self.streams.get_mut(index) {
            stream.closed = true;
        }
    }

    pub(super) fn submit(&mut self, index: usize, owner: &Arc<Shared>, op: Op, pieces: &[Piece]) {
        let past = Arc::clone(&self.host);
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        if let Op::Record(event) = &op {
            event.set_recorded(stream.name(stream.queue.len(), OpKind::Record));
        }
        stream.queue.push_back(Queued {
            owner: Arc::clone(owner),
            op,
            pieces: pieces.into(),
            past,
        });
    }

    /// Names what would be submitted to stream `index` next.
    pub(super) fn next_name(&self, index: usize, kind: OpKind) -> Option<OpName> {
        let stream = self.streams.get(index)?;
        Some(stream.name(stream.queue.len(), kind))
    }

    /// The host learns of everything before a complete event.
    pub(super) fn observe(&mut self, event: &SimEvent) {
        if let Some(past) = self.past_of(event)
            && !self.host.covers(&past)
        {
            Arc::make_mut(&mut self.host).join(&past);
        }
    }

    fn past_of(&self, event: &SimEvent) -> Option<Arc<VectorClock>> {
        let past = event.past()?;
        Arc::ptr_eq(&past.scheduler, &self.identity).then_some(past.clock)
    }

    /// Runs one operation. The operation is handed out to be dropped without the lock.
    pub(super) fn step(&mut self) -> (Result<Step, GpuError>, Option<Queued>) {
        let ready: Vec<usize> = (0..self.streams.len())
            .filter(|&index| self.is_ready(index))
            .collect();
        match ready.get(self.choices.below(ready.len())) {
            Some(&index) => self.run(index),
            None => {
                let heads = self.blocked();
                let step = if heads.is_empty() {
                    Step::Idle
                } else {
                    Step::Blocked(heads)
                };
                (Ok(step), None)
            }
        }
    }

    fn is_ready(&self, index: usize) -> bool {
        let stream = self.streams.get(index);
        stream.is_some_and(|s| s.queue.front().is_some_and(|head| head.is_ready(s.closed)))
    }

    fn blocked(&self) -> Vec<BlockedHead> {
        let heads = self.streams.iter().filter_map(|stream| {
            let head = stream.queue.front()?;
            Some(BlockedHead {
                operation: stream.name(0, head.op.kind()),
                waits_for: match &head.op {
                    Op::Wait(event) => event.recorded().map(|name| name.to_string()),
                    _ => None,
                }
                .unwrap_or_else(|| "its release".to_owned()),
            })
        });
        heads.collect()
    }

    fn run(&mut self, index: usize) -> (Result<Step, GpuError>, Option<Queued>) {
        let Some(stream) = self.streams.get_mut(index) else {
            return (Ok(Step::Idle), None);
        };
        let Some(queued) = stream.queue.pop_front() else {
            return (Ok(Step::Idle), None);
        };
        let name = stream.name(0, queued.op.kind());
        stream.done += 1;
        let done = stream.done;
        let mut clock = core::mem::take(&mut stream.clock);
        clock.join(&queued.past);
        if let Op::Wait(event) = &queued.op
            && let Some(past) = self.past_of(event)
        {
            clock.join(&past);
        }
        clock.advance(Agent::stream(index), done);
        let checked = self.check(index, &queued, &name, &clock);
        if let Op::Record(event) = &queued.op {
            event.set_past(Past {
                scheduler: Arc::clone(&self.identity),
                clock: Arc::new(clock.clone()),
            });
        }
        if let Some(stream) = self.streams.get_mut(index) {
            stream.clock = clock;
            stream.lane.run(&queued.owner, &queued.op, &queued.pieces);
        }
        self.trace.push(index, name.clone());
        (checked.map(|()| Step::Ran(name)), Some(queued))
    }
}
