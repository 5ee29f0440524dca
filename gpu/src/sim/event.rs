// SPDX-License-Identifier: Apache-2.0
//! Events of simulated devices.

use std::sync::Arc;

use striata_core::sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, lock_while};

use crate::device::{CopyFailure, DeviceTime};
use crate::error::GpuError;
use crate::sim::names::OpName;
use crate::sim::shared::Shared;
use crate::sim::stepped::Past;

const NEW: u32 = 0;
const RECORDED: u32 = 1;
const COMPLETE: u32 = 2;
/// Complete, and copies before it failed.
const FAILED: u32 = 3;

/// A point in a stream; clones share it.
#[derive(Clone, Debug)]
pub struct SimEvent(Arc<Point>);

#[derive(Debug)]
struct Point {
    owner: Arc<Shared>,
    /// `NEW`, then `RECORDED`, then `COMPLETE` or `FAILED`; the last step is taken under `lock`, so that no
    /// sleeper misses it.
    state: AtomicU32,
    /// Valid once `state` says complete, which publishes it.
    time: AtomicU64,
    lock: Mutex<Option<Box<Story>>>,
    completed: Condvar,
}

/// What is known of an event that something failed before, or that a scheduler runs.
#[derive(Debug, Default)]
struct Story {
    failures: Vec<CopyFailure>,
    /// Where it was recorded; only under a scheduler.
    recorded: Option<OpName>,
    /// What came before it; only under a scheduler.
    past: Option<Past>,
}

impl SimEvent {
    pub(crate) fn new(owner: &Arc<Shared>) -> Self {
        Self(Arc::new(Point {
            owner: Arc::clone(owner),
            state: AtomicU32::new(NEW),
            time: AtomicU64::new(0),
            lock: Mutex::new(None),
            completed: Condvar::new(),
        }))
    }

    /// The device that it was made on.
    pub(crate) fn owner(&self) -> &Arc<Shared> {
        &self.0.owner
    }

    /// Marks it as recorded: from here on something in a queue will complete it.
    pub(crate) fn mark_recorded(&self) -> Result<(), GpuError> {
        self.0
            .state
            .compare_exchange(NEW, RECORDED, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(|_| GpuError::EventRecordedTwice)
    }

    /// Takes [`SimEvent::mark_recorded`] back: nothing was queued after all.
    pub(crate) fn unmark_recorded(&self) {
        self.0.state.store(NEW, Ordering::Release);
    }

    /// An error if nobody recorded it.
    pub(crate) fn check_recorded(&self, what: &'static str) -> Result<(), GpuError> {
        if self.0.state.load(Ordering::Acquire) == NEW {
            return Err(GpuError::EventNotRecorded { what });
        }
        Ok(())
    }

    /// Completes it at `time`, behind copies of which `failures` failed, and wakes whoever waits.
    pub(crate) fn complete(&self, time: DeviceTime, failures: Vec<CopyFailure>) {
        self.0.time.store(time.as_nanos(), Ordering::Relaxed);
        let state = if failures.is_empty() {
            COMPLETE
        } else {
            FAILED
        };
        let mut guard = self.0.lock.lock();
        if state == FAILED {
            story(&mut guard).failures = failures;
        }
        self.0.state.store(state, Ordering::Release);
        drop(guard);
        self.0.completed.notify_all();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.0.state.load(Ordering::Acquire) >= COMPLETE
    }

    /// When it completed; blocks until it has. Only for recorded events.
    pub(crate) fn wait(&self) -> DeviceTime {
        if !self.is_complete() {
            let incomplete = |_: &mut Option<Box<Story>>| !self.is_complete();
            drop(lock_while(&self.0.lock, &self.0.completed, incomplete));
        }
        DeviceTime::from_nanos(self.0.time.load(Ordering::Relaxed))
    }

    /// The copies that failed since the event before; none as long as it has not completed.
    pub(crate) fn failures(&self) -> Vec<CopyFailure> {
        if self.0.state.load(Ordering::Acquire) != FAILED {
            return Vec::new();
        }
        let story = self.0.lock.lock();
        story
            .as_ref()
            .map(|s| s.failures.clone())
            .unwrap_or_default()
    }

    /// Which operation records it, if a scheduler knows.
    pub(crate) fn recorded(&self) -> Option<OpName> {
        self.0.lock.lock().as_ref()?.recorded.clone()
    }

    pub(crate) fn set_recorded(&self, by: OpName) {
        story(&mut self.0.lock.lock()).recorded = Some(by);
    }

    /// What came before it, if a scheduler knows.
    pub(crate) fn past(&self) -> Option<Past> {
        self.0.lock.lock().as_ref()?.past.clone()
    }

    pub(crate) fn set_past(&self, past: Past) {
        story(&mut self.0.lock.lock()).past = Some(past);
    }
}

fn story(of: &mut Option<Box<Story>>) -> &mut Story {
    of.get_or_insert_default()
}
