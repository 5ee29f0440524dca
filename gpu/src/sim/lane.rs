// SPDX-License-Identifier: Apache-2.0
//! What a stream is while it runs: its clock, and the copies that failed since its last event.

use crate::device::{CopyFailure, Piece};
use crate::sim::op::Op;
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
            Op::Copy(copy) => {
                copy.run(pieces, usize::MAX, clock);
                self.calls += 1;
            }
            Op::FailingCopy(failing) => {
                failing.copy.run(pieces, failing.good_pieces, clock);
                self.failures.push(CopyFailure {
                    call: self.calls,
                    good_pieces: failing.good_pieces,
                    cause: failing.cause.clone(),
                });
                self.calls += 1;
            }
            Op::Fill(work, nanos) => work.fill(clock, *nanos),
            Op::Verify(work, log, nanos) => work.verify(log, clock, *nanos),
            Op::Decode(op, nanos) => {
                op.run();
                clock.run(*nanos);
            }
            Op::Cells(work) => work.run(clock),
            Op::Occupy(nanos) => clock.run(*nanos),
            Op::NotBefore(time) => clock.not_before(*time),
            Op::Hold(_) => {}
            Op::Die(cause) => owner.lose(cause.to_string()),
        }
    }
}
