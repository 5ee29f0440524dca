// SPDX-License-Identifier: Apache-2.0
//! Steps that several threads take in order, and how far they have come without a gap.
//!
//! What is made present by several threads is registered by another behind them, so registration
//! waits for a step to have ended and for all before it: the frontier.

use striata_core::sync::{Condvar, Mutex, lock_while};

/// Steps 0, 1, 2, ... of one piece of work. `E` is why a step failed; the first failure ends it all.
#[derive(Debug)]
pub(crate) struct Frontier<E> {
    state: Mutex<State<E>>,
    moved: Condvar,
}

#[derive(Debug)]
struct State<E> {
    /// The step that is taken next.
    next: usize,
    /// Whether a step has ended, by step.
    ended: Vec<bool>,
    /// Steps that have ended, counted from the first without a gap.
    leading: usize,
    /// Why the work ended early, until it is told.
    failed: Option<E>,
    /// No further step is taken.
    stopped: bool,
}

impl<E> Frontier<E> {
    /// `steps` steps, none taken.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            state: Mutex::new(State {
                next: 0,
                ended: vec![false; steps],
                leading: 0,
                failed: None,
                stopped: false,
            }),
            moved: Condvar::new(),
        }
    }

    /// The lowest step that nobody has taken; none if there is none, or the work was stopped.
    pub(crate) fn take(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.stopped || state.next == state.ended.len() {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    /// Says how a step that was taken has ended.
    pub(crate) fn end(&self, step: usize, result: Result<(), E>) {
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                if let Some(ended) = state.ended.get_mut(step) {
                    *ended = true;
                }
                while state.ended.get(state.leading) == Some(&true) {
                    state.leading += 1;
                }
            }
            Err(cause) => {
                state.stopped = true;
                state.failed.get_or_insert(cause);
            }
        }
        drop(state);
        self.moved.notify_all();
    }

    /// Blocks until the first `steps` steps have ended.
    ///
    /// # Errors
    /// A step failed before that; who asks first is told why, and false is said to who asks after.
    pub(crate) fn wait(&self, steps: usize) -> Result<bool, E> {
        let mut state = lock_while(&self.state, &self.moved, |state| {
            state.leading < steps && !state.stopped
        });
        match state.failed.take() {
            Some(cause) => Err(cause),
            None => Ok(state.leading >= steps),
        }
    }

    /// No further step is taken; who waits is let go.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.moved.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_in_order_and_counted_without_a_gap() {
        let frontier = Frontier::<()>::new(3);
        let taken: Vec<_> = std::iter::from_fn(|| frontier.take()).collect();
        assert_eq!(taken, [0, 1, 2]);
        frontier.end(1, Ok(()));
        assert_eq!(frontier.wait(0), Ok(true));
        frontier.end(0, Ok(()));
        assert_eq!(frontier.wait(2), Ok(true));
        frontier.stop();
        assert_eq!(frontier.wait(3), Ok(false));
    }

    #[test]
    fn the_first_failure_ends_all() {
        let frontier = Frontier::new(3);
        assert_eq!((frontier.take(), frontier.take()), (Some(0), Some(1)));
        frontier.end(1, Err("first"));
        frontier.end(0, Err("second"));
        assert_eq!(frontier.take(), None);
        assert_eq!(frontier.wait(1), Err("first"));
        assert_eq!(frontier.wait(1), Ok(false));
    }
}
