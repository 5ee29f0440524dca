// SPDX-License-Identifier: Apache-2.0
//! What a stream is while it runs: its clock, and the copies that failed since its last event.

use crate::device::{CopyFailure, Piece};
use crate::sim::op::{Copy, Op};
use crate::sim::shared::Shared;
use crate::sim::time::StreamClock;

#[derive(Debug, Default)]
pub(crate) struct Lane {
    clock: StreamClock,
    /// Copy calls since the last event.
    calls: usize,
    failures: Vec<CopyFailure>,
}

impl Lane {
    /// Runs an operation of a stream of `owner`. Of a wait, the event ends it; a hold is the
    /// business of the caller.
    pub(crate) fn run(&mut self, owner: &Shared, op: &Op, pieces: &[Piece]) {
        let clock = &mut self.clock;
        match op {
            Op::Record(event) => {
                self.calls = 0;
                event.complete(clock.now(), core::mem::take(&mut self.failures));
            }
            // A lost device does nothing but complete events, so that nobody waits for ever.
            _ if !owner.is_alive() => {}
            Op::Wait(event) => clock.wait(event.wait()),
            Op::Copy(copy) => self.copy(copy, pieces),
            Op::Fill(work, nanos) => work.fill(clock, *nanos),
            Op::Verify(work, log, nanos) => work.verify(log, clock, *nanos),
            Op::Occupy(nanos) => clock.run(*nanos),
            Op::NotBefore(time) => clock.not_before(*time),
            Op::Hold(_) => {}
            Op::Die(cause) => owner.lose(cause.clone()),
        }
    }

    fn copy(&mut self, copy: &Copy, pieces: &[Piece]) {
        let pieces = pieces.get(copy.pieces.clone()).unwrap_or_default();
        copy.run(pieces, &mut self.clock);
        if let Some(fault) = &copy.fault {
            self.failures.push(CopyFailure {
                call: self.calls,
                good_pieces: fault.good_pieces,
                cause: fault.cause.clone(),
            });
        }
        self.calls += 1;
    }
}
