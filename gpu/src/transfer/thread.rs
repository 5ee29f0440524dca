// SPDX-License-Identifier: Apache-2.0
//! The thread that submits, and callers that submit the first pieces of their own jobs.

use core::hint::spin_loop;
use std::time::{Duration, Instant};

use striata_core::sync::MutexGuard;

use super::shared::Core;
use super::submit::{Obstruction, Submitter};
use super::work_queue::Next;
use crate::device::Device;
use crate::error::GpuError;

/// How long the thread sleeps between two looks at fences and windows, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);
/// At most while a window is full and the next unit should have ended.
const WINDOW_PAUSE: Duration = Duration::from_micros(80);

/// How long the thread spins for a job that a caller has in hand: to sleep, and to be woken when the
/// caller leaves the rest to it, takes about 0.1 ms, and the link would wait for it.
const HAND_OVER: Duration = Duration::from_micros(150);

/// Runs until the queue is closed. What was not begun then is dropped, which fails the gates.
pub(super) fn run<D: Device>(core: &Core<D>) {
    let _gone = Gone(core);
    if let Err(cause) = core.device.enter_thread() {
        core.poison(cause);
    }
    let mut pause = SHORTEST_PAUSE;
    while core.advance(&mut pause) {}
}

/// Whatever ends the thread, nobody waits for it afterwards.
struct Gone<'a, D: Device>(&'a Core<D>);

impl<D: Device> Drop for Gone<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(GpuError::Lost {
                cause: "the submission thread of the transfer engine panicked".to_owned(),
            });
        }
        self.0.work.close();
        self.0.work.abandon();
    }
}

impl<D: Device> Core<D> {
    /// Submits one unit, or waits for one to come or to be allowed; false once the queue is closed
    /// and everything that was begun is submitted.
    fn advance(&self, pause: &mut Duration) -> bool {
        let since = Instant::now();
        let (rooms, obstruction) = loop {
            let mut submitter = self.submitter(since);
            if submitter.pump(self) {
                *pause = SHORTEST_PAUSE;
                return true;
            }
            let found = (submitter.rooms(), submitter.obstruction(self));
            // Callers may submit meanwhile; no lock is held while the thread sleeps.
            drop(submitter);
            let in_hand = matches!(found.1, Obstruction::Fences) && self.work.has_work();
            if !in_hand || *pause > SHORTEST_PAUSE || since.elapsed() > HAND_OVER {
                break found;
            }
            spin_loop();
        };
        let (least, most) = match obstruction {
            Obstruction::Fences => (Duration::ZERO, LONGEST_PAUSE),
            Obstruction::Window(foretold) => (foretold.unwrap_or_default(), WINDOW_PAUSE),
        };
        let patience = least.max((*pause).min(most));
        match self.work.next(rooms, patience) {
            Next::Turn(turn) => {
                // The fence of a job that has just come is looked at on the way round.
                self.submitter(Instant::now()).perform(self, turn);
                *pause = SHORTEST_PAUSE;
            }
            Next::Woken => *pause = SHORTEST_PAUSE,
            // What was foretold is over at the next look, or nearly.
            Next::Blocked if least > *pause => *pause = SHORTEST_PAUSE,
            Next::Blocked => *pause = (*pause * 2).min(most),
            Next::Closed => return false,
        }
        true
    }

    /// The submitter. Until [`HAND_OVER`] after `since` the thread does not sleep for it: a caller
    /// has it for a unit or two.
    fn submitter(&self, since: Instant) -> MutexGuard<'_, Submitter<D>> {
        loop {
            match self.submitter.try_lock() {
                Some(submitter) => return submitter,
                None if since.elapsed() > HAND_OVER => return self.submitter.lock(),
                None => spin_loop(),
            }
        }
    }

    /// Submits `steps` beginnings and units for a caller who found the engine idle, unless somebody
    /// else submits already.
    pub(super) fn submit_some(&self, steps: u32) {
        for _ in 0..steps {
            let Some(mut submitter) = self.submitter.try_lock() else {
                return;
            };
            if !submitter.pump(self) {
                return;
            }
        }
    }
}
