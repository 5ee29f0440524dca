// SPDX-License-Identifier: Apache-2.0
//! Makes chunks of a pool usable: present, then registered, the second close behind the first.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::chunks::Chunks;
use crate::error::HostError;
use crate::pin::{PinRegion, Pins};
use crate::prefault::{Prefault, Prefaulted, Progress};
use crate::region::{HUGE_PAGE, Region};

/// How chunks are made usable.
#[derive(Clone, Debug)]
pub(crate) struct Pinning {
    pub(crate) chunks: Chunks,
    /// Who makes memory present; none if it is taken as it is first used.
    pub(crate) prefault: Option<Prefault>,
}

/// How that went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    pub(crate) prefaulted: Prefaulted,
    /// From the begin until all memory was present.
    pub(crate) prefault_time: Duration,
    /// In registrations, together.
    pub(crate) register_time: Duration,
    /// In the longest of them.
    pub(crate) longest_register: Duration,
}

impl Pinning {
    /// Makes the chunks that `pins` does not hold present, up to `count` chunks in all, and
    /// registers each as soon as it is, while those behind it are made present.
    ///
    /// # Errors
    /// As [`Prefault::run`]; a registration that was refused. Then `pins` is as it was, and the
    /// memory is given back but for less than a huge page.
    pub(crate) fn pin(
        &self,
        region: &Region,
        pins: &mut Pins,
        count: usize,
    ) -> Result<Pinned, HostError> {
        let held = pins.len();
        let span = start(self.chunks.range(held))..end(self.chunks.range(count.saturating_sub(1)));
        let began = Instant::now();
        let mut times = RegisterTimes::default();
        let mut register = |progress: Option<&Progress<'_>>| {
            self.register(region, pins, held..count, &mut times, progress)
        };
        let done = match &self.prefault {
            Some(prefault) => {
                prefault.run(region, span.clone(), |progress| register(Some(progress)))
            }
            None => register(None).map(|()| Prefaulted::skipped()),
        };
        match done {
            Ok(prefaulted) => Ok(Pinned {
                prefaulted,
                prefault_time: prefaulted.ended.duration_since(began),
                register_time: times.sum,
                longest_register: times.longest,
            }),
            Err(error) => {
                pins.truncate(held);
                give_back(region, span);
                Err(error)
            }
        }
    }

    fn register(
        &self,
        region: &Region,
        pins: &mut Pins,
        chunks: Range<usize>,
        times: &mut RegisterTimes,
        progress: Option<&Progress<'_>>,
    ) -> Result<(), HostError> {
        for chunk in chunks.clone() {
            let range = self.chunks.range(chunk);
            let (start, end) = (start(range.clone()), end(range));
            if let Some(progress) = progress {
                progress.wait(end)?;
            }
            let began = Instant::now();
            let registered = pins.add(PinRegion {
                address: region.address() + start,
                bytes: end - start,
            });
            times.add(began.elapsed());
            registered.map_err(|cause| HostError::Register {
                chunk,
                chunks: chunks.end,
                bytes: (end - start) as u64,
                cause,
            })?;
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct RegisterTimes {
    sum: Duration,
    longest: Duration,
}

impl RegisterTimes {
    fn add(&mut self, time: Duration) {
        self.sum += time;
        self.longest = self.longest.max(time);
    }
}

/// Gives the memory of `span` back, but for the huge page that bytes before it share.
fn give_back(region: &Region, span: Range<usize>) {
    let start = span.start.next_multiple_of(HUGE_PAGE);
    if start >= span.end {
        return;
    }
    if let Err(error) = region.discard(start..span.end) {
        tracing::debug!(%error, start, end = span.end, "memory was not given back");
    }
}

fn start(range: Range<u64>) -> usize {
    byte(range.start)
}

fn end(range: Range<u64>) -> usize {
    byte(range.end)
}

/// A byte of a mapping, which `usize` counts.
#[expect(
    clippy::cast_possible_truncation,
    reason = "no mapping is longer than usize counts"
)]
const fn byte(at: u64) -> usize {
    at as usize
}
