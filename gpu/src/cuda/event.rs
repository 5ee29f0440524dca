// SPDX-License-Identifier: Apache-2.0
//! Events of CUDA devices.

use core::fmt;
use core::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent;
use striata_core::sync::{AtomicU32, AtomicU64, Ordering};

use super::shared::Shared;
use super::status::NOT_READY;
use super::stream::CudaStream;
use crate::device::DeviceTime;
use crate::error::GpuError;

/// `CU_EVENT_BLOCKING_SYNC`: a thread that waits longer sleeps.
const TIMED: u32 = 1;
/// How long a thread spins before it sleeps: most copies of a page end in less.
const SPIN: Duration = Duration::from_micros(100);

const NEW: u32 = 0;
const RECORDING: u32 = 1;
const RECORDED: u32 = 2;
/// No time was computed yet.
const NO_TIME: u64 = u64::MAX;

/// A point in a stream; clones share it.
#[derive(Clone, Debug)]
pub struct CudaEvent(Arc<Point>);

struct Point {
    shared: Arc<Shared>,
    raw: CUevent,
    /// `NEW`, `RECORDING` while one thread records it, then `RECORDED`.
    state: AtomicU32,
    /// When it completed, once that was asked.
    time: AtomicU64,
}

// SAFETY: (5) handles may be used from any thread; everything else is Send.
unsafe impl Send for Point {}
// SAFETY: (5) handles may be used from any thread at once; everything else is Sync.
unsafe impl Sync for Point {}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Point")
            .field("device", &self.shared.ordinal)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl CudaEvent {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, GpuError> {
        shared.check_alive()?;
        let raw = match shared.spare_event() {
            Some(raw) => raw,
            None => make(shared)?,
        };
        Ok(Self(Arc::new(Point {
            shared: Arc::clone(shared),
            raw,
            state: AtomicU32::new(NEW),
            time: AtomicU64::new(NO_TIME),
        })))
    }

    pub(super) fn owner(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn raw(&self) -> CUevent {
        self.0.raw
    }

    /// Records it behind what `stream` holds.
    pub(super) fn record(&self, stream: &CudaStream) -> Result<(), GpuError> {
        let shared = &self.0.shared;
        shared.check_same("record", "stream", stream.owner())?;
        let _scope = stream.enter("record")?;
        let set = |from, to| {
            let state = &self.0.state;
            state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
        };
        set(NEW, RECORDING).map_err(|_| GpuError::EventRecordedTwice)?;
        // SAFETY: (5), (6) event and stream exist.
        let status = unsafe { (shared.driver.cuEventRecord)(self.0.raw, stream.raw()) };
        let recorded = shared.check("cuEventRecord", status);
        let after = if recorded.is_ok() { RECORDED } else { NEW };
        self.0.state.store(after, Ordering::Release);
        recorded
    }

    /// An error if nobody recorded it.
    pub(super) fn check_recorded(&self, what: &'static str) -> Result<(), GpuError> {
        if self.0.state.load(Ordering::Acquire) == RECORDED {
            return Ok(());
        }
        Err(GpuError::EventNotRecorded { what })
    }

    /// Whether everything before it has ended. Only for recorded events.
    pub(super) fn is_complete(&self) -> Result<bool, GpuError> {
        let shared = &self.0.shared;
        let _scope = shared.enter()?;
        // SAFETY: (5) the event exists.
        let status = unsafe { (shared.driver.cuEventQuery)(self.0.raw) };
        if status == NOT_READY {
            return Ok(false);
        }
        shared.check("cuEventQuery", status)?;
        Ok(true)
    }

    /// Blocks until everything before it has ended. Only for recorded events.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        let begin = Instant::now();
        while begin.elapsed() < SPIN {
            if self.is_complete()? {
                return Ok(());
            }
            spin_loop();
        }
        let shared = &self.0.shared;
        let _scope = shared.enter()?;
        // SAFETY: (5) the event exists.
        let status = unsafe { (shared.driver.cuEventSynchronize)(self.0.raw) };
        shared.check("cuEventSynchronize", status)
    }

    /// When everything before it had ended. Only for complete events.
    pub(super) fn time(&self) -> Result<DeviceTime, GpuError> {
        let known = self.0.time.load(Ordering::Relaxed);
        if known != NO_TIME {
            return Ok(DeviceTime::from_nanos(known));
        }
        let shared = &self.0.shared;
        let time = shared.clock.time_of(shared, self.0.raw)?;
        // Two threads may have asked; both return what the first one found.
        let first = self.0.time.compare_exchange(
            NO_TIME,
            time.as_nanos(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        Ok(first.map_or_else(DeviceTime::from_nanos, |_| time))
    }
}

fn make(shared: &Shared) -> Result<CUevent, GpuError> {
    let _scope = shared.enter()?;
    let mut raw = core::ptr::null_mut();
    // SAFETY: (3) the place outlives the call.
    let status = unsafe { (shared.driver.cuEventCreate)(&raw mut raw, TIMED) };
    shared.check("cuEventCreate", status)?;
    Ok(raw)
}

impl Drop for Point {
    fn drop(&mut self) {
        // To record it again replaces what it marked; waits that were submitted keep the old mark.
        if self.shared.keep_event(self.raw).is_none() {
            return;
        }
        if let Ok(_scope) = self.shared.enter_for_drop() {
            // SAFETY: (5) nobody uses the event after this; the driver ends pending work on it.
            let status = unsafe { (self.shared.driver.cuEventDestroy_v2)(self.raw) };
            self.shared.note("cuEventDestroy", status);
        }
    }
}
