// SPDX-License-Identifier: Apache-2.0
//! Races between operations, and between the host and operations.

use core::ops::Range;
use std::sync::Arc;

use super::access::{Place, Touch, visit};
use super::clock::{Agent, VectorClock};
use super::scheduler::{Queued, State};
use super::shadow::{Access, Mode};
use crate::error::GpuError;
use crate::sim::names::{OpKind, OpName};
use crate::sim::shared::Shared;

impl State {
    /// Enters what an operation that is about to run touches. If that is a race, its device is
    /// lost, so that it does nothing.
    pub(super) fn check(
        &mut self,
        index: usize,
        queued: &Queued,
        name: &OpName,
        clock: &VectorClock,
    ) -> Result<(), GpuError> {
        if !queued.owner.is_alive() {
            return Ok(());
        }
        let memories = &mut self.memories;
        let found = visit(&queued.op, &queued.pieces, &mut |touch| {
            let access = Access {
                agent: Agent::stream(index),
                count: name.index + 1,
                kind: name.kind,
                mode: touch.mode,
            };
            let clash = memories.touch(&touch, access, clock);
            clash.map_err(|clash| (touch.place, clash))
        });
        let Err((place, clash)) = found else {
            return Ok(());
        };
        let first = self.name_of(&clash.first);
        Err(self.hazard(Some(&queued.owner), &first, name, place, &clash.bytes))
    }

    /// An access by the host, which may race with what ran and with what is still queued.
    pub(super) fn host_access(
        &mut self,
        owner: Option<&Arc<Shared>>,
        touch: &Touch<'_>,
    ) -> Result<(), GpuError> {
        let kind = match touch.mode {
            Mode::Read => OpKind::HostRead,
            Mode::Write | Mode::Append => OpKind::HostWrite,
        };
        let name = host_name(self.host_accesses, kind);
        self.host_accesses += 1;
        let access = Access {
            agent: Agent::HOST,
            count: self.host_accesses,
            kind,
            mode: touch.mode,
        };
        Arc::make_mut(&mut self.host).advance(Agent::HOST, self.host_accesses);
        let host = Arc::clone(&self.host);
        if let Some((first, bytes)) = self.pending(touch) {
            return Err(self.hazard(owner, &first, &name, touch.place, &bytes));
        }
        let touched = self.memories.touch(touch, access, &host);
        touched.map_err(|clash| {
            let first = self.name_of(&clash.first);
            self.hazard(owner, &first, &name, touch.place, &clash.bytes)
        })
    }

    /// An operation that is still queued and races with an access by the host. Nothing can have
    /// ordered the host behind what has not run.
    fn pending(&self, touch: &Touch<'_>) -> Option<(OpName, Range<u64>)> {
        for stream in &self.streams {
            for (ahead, queued) in stream.queue.iter().enumerate() {
                if !queued.owner.is_alive() {
                    continue;
                }
                let races = visit(&queued.op, &queued.pieces, &mut |other| {
                    let start = other.bytes.start.max(touch.bytes.start);
                    let end = other.bytes.end.min(touch.bytes.end);
                    let races = other.place.key() == touch.place.key()
                        && start < end
                        && other.mode.conflicts(touch.mode);
                    if races { Err(start..end) } else { Ok(()) }
                });
                if let Err(bytes) = races {
                    return Some((stream.name(ahead, queued.op.kind()), bytes));
                }
            }
        }
        None
    }

    /// Notes a race and loses the device of the second operation.
    fn hazard(
        &mut self,
        owner: Option<&Arc<Shared>>,
        first: &OpName,
        second: &OpName,
        place: Place<'_>,
        bytes: &Range<u64>,
    ) -> GpuError {
        let bug = GpuError::Hazard {
            first: first.to_string().into(),
            second: second.to_string().into(),
            range: self.memories.describe(place, bytes).into(),
        };
        self.bugs.push(bug.clone());
        if let Some(owner) = owner {
            owner.lose(bug.to_string());
        }
        bug
    }

    fn name_of(&self, access: &Access) -> OpName {
        let index = access.count - 1;
        match access.agent.index() {
            None => host_name(index, access.kind),
            Some(stream) => OpName {
                place: self
                    .streams
                    .get(stream)
                    .map_or_else(|| "a stream".into(), |s| Arc::clone(&s.place)),
                index,
                kind: access.kind,
            },
        }
    }
}

fn host_name(index: u64, kind: OpKind) -> OpName {
    OpName {
        place: "the host".into(),
        index,
        kind,
    }
}
