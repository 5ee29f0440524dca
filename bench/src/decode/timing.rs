// SPDX-License-Identifier: Apache-2.0
//! Microseconds of a launch among many: captured in a graph where the device has them, so that the
//! host's calls are not part of it.

use std::time::Instant;

use striata_gpu::selftest::Subject;
use striata_gpu::{Device, GpuError};

use super::DecodeBenchError;
use crate::samples::Samples;

const NANOS_PER_MICRO: f64 = 1e3;

/// Times work on a stream.
pub(super) struct Timer<'a, D: Device> {
    device: &'a D,
    stream: &'a D::Stream,
    /// Modelled times say nothing of arithmetic; then the host's clock counts.
    by_host: bool,
}

impl<'a, D: Device> Timer<'a, D> {
    pub(super) fn new(device: &'a D, stream: &'a D::Stream) -> Self {
        Self {
            device,
            stream,
            by_host: device.describe().simulated_time,
        }
    }

    /// Microseconds from the begin of what `submit` submits to its end.
    fn once(
        &self,
        submit: impl FnOnce() -> Result<(), DecodeBenchError>,
    ) -> Result<f64, DecodeBenchError> {
        let (device, stream) = (self.device, self.stream);
        let (begin, end) = (device.event()?, device.event()?);
        let begun = Instant::now();
        device.record(&begin, stream)?;
        submit()?;
        device.record(&end, stream)?;
        let ended = device.synchronize(&end)?;
        if self.by_host {
            return Ok(begun.elapsed().as_secs_f64() * 1e6);
        }
        let nanos = ended.since(device.synchronize(&begin)?);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 nanoseconds")]
        Ok(nanos as f64 / NANOS_PER_MICRO)
    }

    /// Microseconds of each of `launches` launches, called one after the other.
    pub(super) fn direct(
        &self,
        launches: u32,
        mut launch: impl FnMut(u32) -> Result<(), DecodeBenchError>,
    ) -> Result<f64, DecodeBenchError> {
        let whole = self.once(|| (0..launches).try_for_each(&mut launch))?;
        Ok(whole / f64::from(launches.max(1)))
    }
}

impl<D: Subject> Timer<'_, D> {
    /// The median of `reps` timings of `launches` launches, for each of them.
    pub(super) fn launches(
        &self,
        launches: u32,
        reps: usize,
        mut launch: impl FnMut(u32) -> Result<(), DecodeBenchError>,
    ) -> Result<f64, DecodeBenchError> {
        // What is first used in a capture would have to be loaded there.
        self.once(|| launch(0))?;
        let mut failed = None;
        let captured = self.device.captured(self.stream, &mut || {
            (0..launches).try_for_each(&mut launch).map_err(|error| {
                let reason = error.to_string();
                failed = Some(error);
                GpuError::Argument {
                    call: "capture",
                    reason,
                }
            })
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut timings = Vec::new();
        match captured? {
            Some(replay) => {
                // The first replay brings code and tables into caches.
                replay(self.stream)?;
                for _ in 0..reps {
                    timings.push(self.once(|| Ok(replay(self.stream)?))?);
                }
            }
            None => {
                for _ in 0..reps {
                    timings.push(self.once(|| (0..launches).try_for_each(&mut launch))?);
                }
            }
        }
        Ok(median(&timings) / f64::from(launches.max(1)))
    }
}

/// The middle of some values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut samples = Samples::new();
    values.iter().for_each(|&value| samples.push(value));
    samples.median().unwrap_or(f64::NAN)
}
