// SPDX-License-Identifier: Apache-2.0
//! How long one job takes, from before the call to the end of its last copy on the device.
//!
//! The begin is an event on an idle stream, recorded just before the call; the end is the engine's
//! own event behind the last copy. Both are times of the device, so who waits for them may sleep.

use std::time::Duration;

use striata_core::OpId;
use striata_gpu::transfer::{Completion, LoadGate, LoadJob, StoreJob, TransferEngine};
use striata_gpu::{Device, DeviceTime};

use super::error::BenchError;
use super::lists::Pairs;

/// Between two looks at what runs: often enough to waste little time, seldom enough to leave the
/// driver to who submits.
const LOOK: Duration = Duration::from_micros(50);

/// A point in device time, now.
pub(super) struct Mark<D: Device>(D::Event);

impl<D: Device> Mark<D> {
    /// Records the point on a stream that is idle.
    pub(super) fn set(device: &D, stream: &D::Stream) -> Result<Self, BenchError> {
        device.not_before(stream, device.now())?;
        let event = device.event()?;
        device.record(&event, stream)?;
        Ok(Self(event))
    }

    /// When that was. Asked after the times that it is compared with, so that all of them are
    /// placed by one anchor of the clock.
    pub(super) fn time(&self, device: &D) -> Result<DeviceTime, BenchError> {
        Ok(device.synchronize(&self.0)?)
    }
}

/// Sleeps until `ready` says so.
pub(super) fn wait_until(
    mut ready: impl FnMut() -> Result<bool, BenchError>,
) -> Result<(), BenchError> {
    while !ready()? {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Blocks until `event` has completed; returns when that was.
pub(super) fn end_of<D: Device>(device: &D, event: &D::Event) -> Result<DeviceTime, BenchError> {
    wait_until(|| Ok(device.is_complete(event)?))?;
    Ok(device.synchronize(event)?)
}

/// Nanoseconds of one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadTime {
    /// Until the first layer was ready.
    pub(super) first: u64,
    /// Until the last one was.
    pub(super) all: u64,
}

/// The ends of a load's first and last group.
pub(super) fn ends_of<D: Device>(
    gate: &LoadGate<D>,
) -> Result<(DeviceTime, DeviceTime), BenchError> {
    wait_until(|| Ok(gate.is_complete()?))?;
    let times = gate.synchronize()?;
    Ok((times.first, times.last))
}

/// Takes what has ended; fails on a job that did not bring everything.
pub(super) fn poll<D: Device>(
    engine: &TransferEngine<D>,
    what: &'static str,
) -> Result<Vec<Completion>, BenchError> {
    let mut done = Vec::new();
    engine.poll(&mut done);
    for completion in &done {
        if let Some(error) = &completion.error {
            return Err(BenchError::Incomplete {
                what,
                good_pages: completion.good_pages,
                pages: completion.pages,
                reason: error.to_string(),
            });
        }
    }
    Ok(done)
}

/// Blocks until every job of an engine has ended and was polled; returns when the last one had.
pub(super) fn poll_until<D: Device>(
    engine: &TransferEngine<D>,
    what: &'static str,
    jobs: usize,
) -> Result<Vec<Completion>, BenchError> {
    let mut all = Vec::new();
    wait_until(|| {
        all.extend(poll(engine, what)?);
        Ok(all.len() >= jobs)
    })?;
    Ok(all)
}

/// Times one load of an idle engine.
pub(super) fn time_load<D: Device>(
    device: &D,
    marks: &D::Stream,
    engine: &TransferEngine<D>,
    (op, pages): (OpId, &Pairs),
) -> Result<LoadTime, BenchError> {
    let job = LoadJob {
        op,
        pages: pages.clone(),
        after: None,
    };
    let mark = Mark::set(device, marks)?;
    let gate = engine.load(job)?;
    let (first, last) = ends_of(&gate)?;
    let begin = mark.time(device)?;
    poll_until(engine, "a load", 1)?;
    device.advance_to(last);
    Ok(LoadTime {
        first: first.since(begin),
        all: last.since(begin),
    })
}

/// Nanoseconds of one store of an idle engine.
pub(super) fn time_store<D: Device>(
    device: &D,
    marks: &D::Stream,
    engine: &TransferEngine<D>,
    (op, pages): (OpId, &Pairs),
) -> Result<u64, BenchError> {
    let job = StoreJob {
        op,
        pages: pages.clone(),
        after: None,
        urgent: false,
    };
    let mark = Mark::set(device, marks)?;
    engine.store(job)?;
    let done = poll_until(engine, "a store", 1)?;
    let last = last_end(&done);
    let begin = mark.time(device)?;
    device.advance_to(last);
    Ok(last.since(begin))
}

/// When the last of some jobs had ended.
pub(super) fn last_end(done: &[Completion]) -> DeviceTime {
    let ends = done.iter().map(|completion| completion.finished);
    ends.max().unwrap_or_default()
}
