// SPDX-License-Identifier: Apache-2.0
//! The host side of a gate: how far a job was submitted, or why it never will be.
//!
//! One submitter advances or fails the state, any number of consumers wait for it. What loom
//! checks (`tests/loom_gate.rs`):
//!
//! 1. A waiter that returns `Ok` for group k sees everything the submitter did before it announced
//!    k + 1 groups.
//! 2. A failure reaches every waiter, also those that wait already.
//! 3. No wake-up is lost.

use striata_core::sync::{AtomicU32, Condvar, Mutex, Ordering, lock_while};

/// Stands in the fast path's counter once the job has failed.
const FAILED: u32 = u32::MAX;

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
    failed: Option<E>,
}

impl<E: Clone> GateState<E> {
    /// A gate of which nothing was submitted yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seen: AtomicU32::new(0),
            progress: Mutex::new(Progress {
                submitted: 0,
                failed: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Announces that the first `groups` groups were submitted. Nothing after a failure.
    pub fn advance(&self, groups: u32) {
        let mut progress = self.progress.lock();
        if progress.failed.is_some() || groups <= progress.submitted {
            return;
        }
        progress.submitted = groups;
        self.seen.store(groups, Ordering::Release);
        drop(progress);
        self.changed.notify_all();
    }

    /// Announces that no further group will be submitted. The first cause stays; a job of which
    /// all of `groups` groups were submitted does not fail any more.
    pub fn fail(&self, groups: u32, cause: E) {
        let mut progress = self.progress.lock();
        if progress.failed.is_some() || progress.submitted >= groups {
            return;
        }
        progress.failed = Some(cause);
        self.seen.store(FAILED, Ordering::Release);
        drop(progress);
        self.changed.notify_all();
    }

    /// Blocks until the first `groups` groups were submitted.
    ///
    /// **Cost:** one atomic load if they were, else a lock and a wait.
    ///
    /// # Errors
    /// The cause, once the job has failed, whatever was submitted before.
    pub fn wait(&self, groups: u32) -> Result<(), E> {
        let seen = self.seen.load(Ordering::Acquire);
        if seen != FAILED && seen >= groups {
            return Ok(());
        }
        let waits = |p: &mut Progress<E>| p.failed.is_none() && p.submitted < groups;
        let progress = lock_while(&self.progress, &self.changed, waits);
        progress.failed.clone().map_or(Ok(()), Err)
    }

    /// How many groups were submitted so far.
    ///
    /// # Errors
    /// The cause, once the job has failed.
    pub fn submitted(&self) -> Result<u32, E> {
        let seen = self.seen.load(Ordering::Acquire);
        if seen != FAILED {
            return Ok(seen);
        }
        let progress = self.progress.lock();
        progress.failed.clone().map_or(Ok(progress.submitted), Err)
    }
}

impl<E: Clone> Default for GateState<E> {
    fn default() -> Self {
        Self::new()
    }
}
