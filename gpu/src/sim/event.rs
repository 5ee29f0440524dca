// SPDX-License-Identifier: Apache-2.0
//! Events of simulated devices.

use std::sync::Arc;

use striata_core::sync::{AtomicU32, AtomicU64, Condvar, Mutex, Ordering, lock_while};

use crate::device::DeviceTime;
use crate::error::GpuError;
use crate::sim::shared::Shared;

const NEW: u32 = 0;
const RECORDED: u32 = 1;
const COMPLETE: u32 = 2;

/// A point in a stream; clones share it.
#[derive(Clone, Debug)]
pub struct SimEvent(Arc<Point>);

#[derive(Debug)]
struct Point {
    owner: Arc<Shared>,
    /// `NEW`, then `RECORDED`, then `COMPLETE`; the last step is taken under `lock`, so that no
    /// sleeper misses it.
    state: AtomicU32,
    /// Valid once `state` is `COMPLETE`, which publishes it.
    time: AtomicU64,
    lock: Mutex<()>,
    completed: Condvar,
}

impl SimEvent {
    pub(crate) fn new(owner: &Arc<Shared>) -> Self {
        Self(Arc::new(Point {
            owner: Arc::clone(owner),
            state: AtomicU32::new(NEW),
            time: AtomicU64::new(0),
            lock: Mutex::new(()),
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

    /// An error if nobody recorded it.
    pub(crate) fn check_recorded(&self, what: &'static str) -> Result<(), GpuError> {
        if self.0.state.load(Ordering::Acquire) == NEW {
            return Err(GpuError::EventNotRecorded { what });
        }
        Ok(())
    }

    /// Completes it at `time` and wakes whoever waits.
    pub(crate) fn complete(&self, time: DeviceTime) {
        self.0.time.store(time.as_nanos(), Ordering::Relaxed);
        let guard = self.0.lock.lock();
        self.0.state.store(COMPLETE, Ordering::Release);
        drop(guard);
        self.0.completed.notify_all();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == COMPLETE
    }

    /// When it completed; blocks until it has. Only for recorded events.
    pub(crate) fn wait(&self) -> DeviceTime {
        if !self.is_complete() {
            let incomplete = |_: &mut ()| !self.is_complete();
            drop(lock_while(&self.0.lock, &self.0.completed, incomplete));
        }
        DeviceTime::from_nanos(self.0.time.load(Ordering::Relaxed))
    }
}
