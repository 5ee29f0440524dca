// SPDX-License-Identifier: Apache-2.0
//! The host side of a gate: how far a job was submitted, or why it never will be.
//!
//! One submitter advances or fails the state, any number of consumers wait for it. What loom
//! checks (`tests/loom_gate.rs`):
//!
//! 1. A waiter that returns `Ok` for group k sees everything the submitter did before it announced
//!    k + 1 groups.
//! 2. A failure reaches every waiter, also those that wait already.
//! 3. What was submitted before a cancellation can be passed, what was not cannot.
//! 4. No wake-up is lost.

use striata_core::sync::{AtomicU32, Condvar, Mutex, Ordering, lock_while};

/// Stands in the fast path's counter once the job was ended early.
const ENDED: u32 = u32::MAX;

/// How many groups of a job were submitted, or its failure.
#[derive(Debug)]
pub struct GateState<E> {
    /// A copy of `progress` for the path without a lock.
    seen: AtomicU32,
    progress: Mutex<Progress<E>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Progress<E> {
    submitted: u32,
    ended: Option<Ended<E>>,
}

/// No further group will be submitted.
#[derive(Debug)]
struct Ended<E> {
    cause: E,
    /// Whether the groups that were submitted are good.
    keeps_submitted: bool,
}

impl<E: Clone> Progress<E> {
    /// Whether a waiter for `groups` groups may go on; none if it has to wait.
    fn answer(&self, groups: u32) -> Option<Result<(), E>> {
        let reached = self.submitted >= groups;
        match &self.ended {
            Some(ended) if !(ended.keeps_submitted && reached) => Some(Err(ended.cause.clone())),
            _ => reached.then_some(Ok(())),
        }
    }
}

impl<E: Clone> GateState<E> {
    /// A gate of which nothing was submitted yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seen: AtomicU32::new(0),
            progress: Mutex::new(Progress {
                submitted: 0,
                ended: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Announces that the first `groups` groups were submitted. Nothing after an early end.
    pub fn advance(&self, groups: u32) {
        let mut progress = self.progress.lock();
        if progress.ended.is_some() || groups <= progress.submitted {
            return;
        }
        progress.submitted = groups;
        self.seen.store(groups, Ordering::Release);
        drop(progress);
        self.changed.notify_all();
    }

    /// Announces that no further group will be submitted, and that none is to be relied on. The
    /// first cause stays; a job of which all of `groups` groups were submitted does not end early
    /// any more.
    pub fn fail(&self, groups: u32, cause: E) {
        self.end(groups, cause, false);
    }

    /// As [`GateState::fail`], but what was submitted stays good.
    pub fn cancel(&self, groups: u32, cause: E) {
        self.end(groups, cause, true);
    }

    fn end(&self, groups: u32, cause: E, keeps_submitted: bool) {
        let mut progress = self.progress.lock();
        if progress.ended.is_some() || progress.submitted >= groups {
            return;
        }
        progress.ended = Some(Ended {
            cause,
            keeps_submitted,
        });
        self.seen.store(ENDED, Ordering::Release);
        drop(progress);
        self.changed.notify_all();
    }

    /// Blocks until the first `groups` groups were submitted.
    ///
    /// **Cost:** one atomic load if they were, else a lock and a wait.
    ///
    /// # Errors
    /// The cause, once the job has failed, whatever was submitted before; once it was cancelled,
    /// if the group was not.
    pub fn wait(&self, groups: u32) -> Result<(), E> {
        if self.is_reached(groups) {
            return Ok(());
        }
        let waits = |p: &mut Progress<E>| p.answer(groups).is_none();
        let progress = lock_while(&self.progress, &self.changed, waits);
        progress.answer(groups).unwrap_or(Ok(()))
    }

    /// Whether `groups` groups were submitted, of a job that did not end early. One atomic load.
    pub fn is_reached(&self, groups: u32) -> bool {
        let seen = self.seen.load(Ordering::Acquire);
        seen != ENDED && seen >= groups
    }

    /// How many groups were submitted so far.
    ///
    /// # Errors
    /// The cause, once the job was ended early.
    pub fn submitted(&self) -> Result<u32, E> {
        let seen = self.seen.load(Ordering::Acquire);
        if seen != ENDED {
            return Ok(seen);
        }
        let progress = self.progress.lock();
        match &progress.ended {
            Some(ended) => Err(ended.cause.clone()),
            None => Ok(progress.submitted),
        }
    }
}

impl<E: Clone> Default for GateState<E> {
    fn default() -> Self {
        Self::new()
    }
}
