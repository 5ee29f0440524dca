// SPDX-License-Identifier: Apache-2.0
//! Device time: the host's clock since the device was opened, and events placed on it.
//!
//! The driver gives the distance of two events as 32-bit floating-point milliseconds, which is
//! coarse over minutes. So an anchor event, whose host time is known within its round trip of a few
//! microseconds, is renewed about once a second.

use core::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent;
use striata_core::sync::Mutex;

use super::shared::Shared;
use super::status::NOT_READY;
use crate::device::DeviceTime;
use crate::error::GpuError;

const NANOS_PER_MILLI: f64 = 1e6;
/// Age at which an anchor is renewed.
const STALE: Duration = Duration::from_secs(1);
/// Tries of one renewal.
const TRIES: u32 = 5;
/// A try that takes longer says too little; the device is busy.
const PATIENCE: Duration = Duration::from_micros(200);
/// The first anchor is needed, however long it takes.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// The clock of one device.
#[derive(Debug)]
pub(super) struct Clock {
    origin: Instant,
    anchor: Mutex<Option<Anchor>>,
}

/// An event that completed at a known time.
#[derive(Debug)]
struct Anchor {
    event: CUevent,
    /// Nanoseconds since the origin.
    at: u64,
    /// When it was made, or when the last renewal failed.
    checked: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            anchor: Mutex::new(None),
        }
    }
}

impl Clock {
    /// Sets the first anchor.
    pub(super) fn start(&self, shared: &Arc<Shared>) -> Result<(), GpuError> {
        let _scope = shared.enter()?;
        let mut best = self.measure(shared, FIRST_PATIENCE)?;
        for _ in 1..TRIES {
            best = self.better(shared, best)?;
        }
        let Some((anchor, _)) = best else {
            return Err(GpuError::Lost {
                cause: format!("an event did not complete within {FIRST_PATIENCE:?}"),
            });
        };
        *self.anchor.lock() = Some(anchor);
        Ok(())
    }

    /// Now.
    pub(super) fn now(&self) -> DeviceTime {
        DeviceTime::from_nanos(self.nanos(Instant::now()))
    }

    /// When a complete event had completed.
    pub(super) fn time_of(&self, shared: &Shared, event: CUevent) -> Result<DeviceTime, GpuError> {
        let _scope = shared.enter()?;
        let mut anchor = self.anchor.lock();
        self.renew(shared, &mut anchor)?;
        let Some(anchor) = anchor.as_ref() else {
            return Ok(self.now());
        };
        let mut millis = 0f32;
        // SAFETY: (3) the place outlives the call; (5) both events exist.
        let status =
            unsafe { (shared.driver.cuEventElapsedTime)(&raw mut millis, anchor.event, event) };
        shared.check("cuEventElapsedTime", status)?;
        let nanos = f64::from(millis) * NANOS_PER_MILLI;
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds of a process")]
        let offset = nanos as i64;
        Ok(DeviceTime::from_nanos(
            anchor.at.saturating_add_signed(offset),
        ))
    }

    /// Replaces an old anchor, if the device answers quickly enough for a good one.
    fn renew(&self, shared: &Shared, anchor: &mut Option<Anchor>) -> Result<(), GpuError> {
        let Some(old) = anchor.as_mut().filter(|old| old.checked.elapsed() >= STALE) else {
            return Ok(());
        };
        old.checked = Instant::now();
        let mut best = None;
        for _ in 0..TRIES {
            best = self.better(shared, best)?;
        }
        if let Some((new, _)) = best {
            destroy(shared, old.event);
            *old = new;
        }
        Ok(())
    }

    /// The better of `best` and another try.
    fn better(
        &self,
        shared: &Shared,
        best: Option<(Anchor, Duration)>,
    ) -> Result<Option<(Anchor, Duration)>, GpuError> {
        let (best, new) = match (best, self.measure(shared, PATIENCE)?) {
            (Some(best), Some(new)) => (best, new),
            (one, other) => return Ok(one.or(other)),
        };
        let (kept, other) = if new.1 < best.1 {
            (new, best)
        } else {
            (best, new)
        };
        destroy(shared, other.0.event);
        Ok(Some(kept))
    }

    /// Records an event on the idle private stream; its anchor and how uncertain that is, unless it
    /// took longer than `patience`.
    fn measure(
        &self,
        shared: &Shared,
        patience: Duration,
    ) -> Result<Option<(Anchor, Duration)>, GpuError> {
        let driver = shared.driver;
        let mut event = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (driver.cuEventCreate)(&raw mut event, 0) };
        shared.check("cuEventCreate", status)?;
        let begin = Instant::now();
        // SAFETY: (5) event and stream exist.
        let status = unsafe { (driver.cuEventRecord)(event, shared.io) };
        let mut outcome = shared.check("cuEventRecord", status);
        while outcome.is_ok() {
            // SAFETY: (5) the event exists.
            let status = unsafe { (driver.cuEventQuery)(event) };
            let took = begin.elapsed();
            if status == NOT_READY && took < patience {
                spin_loop();
                continue;
            }
            if status == NOT_READY {
                break;
            }
            outcome = shared.check("cuEventQuery", status);
            if outcome.is_ok() {
                let anchor = Anchor {
                    event,
                    at: self.nanos(begin + took / 2),
                    checked: Instant::now(),
                };
                return Ok(Some((anchor, took)));
            }
        }
        destroy(shared, event);
        outcome.map(|()| None)
    }

    /// Gives the anchor back. Only in the context.
    pub(super) fn stop(&self, shared: &Shared) {
        if let Some(anchor) = self.anchor.lock().take() {
            destroy(shared, anchor.event);
        }
    }

    fn nanos(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

fn destroy(shared: &Shared, event: CUevent) {
    // SAFETY: (5) the event is the clock's own and nobody uses it after this.
    let status = unsafe { (shared.driver.cuEventDestroy_v2)(event) };
    shared.note("cuEventDestroy", status);
}
