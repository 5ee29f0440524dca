// SPDX-License-Identifier: Apache-2.0
//! Pools of ours and the peer's allocations, in turn.

use std::time::{Duration, Instant};

use striata_host::{Backing, HostPool, HostPoolConfig, PoolReport};

use super::options::PinningOptions;
use super::peer::Peer;
use super::report::{Absent, Ours, PeerFigures};
use crate::samples::Samples;
use crate::transfer::{BenchError, Stats};

/// The peer is warmed with this share of the bytes: the memory is warm from our pool, which goes
/// first, and the peer takes most of the run.
const WARM_SHARE: u64 = 4;

/// What was measured.
pub(super) struct Created {
    pub(super) bytes: u64,
    pub(super) ours: Ours,
    pub(super) peer: Result<PeerFigures, Absent>,
}

/// Measurements of ours.
#[derive(Default)]
struct Series {
    seconds: Samples,
    rates: Samples,
    prefault: Samples,
    register: Samples,
    longest: Samples,
    free: Samples,
}

/// Measures both in turn: ours first in even rounds, the peer first in odd ones.
pub(super) fn measure<D: Peer>(
    device: &D,
    options: &PinningOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Created, BenchError> {
    let page = options.shape.page()?;
    let pages = u32::try_from(options.bytes / page.page_bytes().max(1)).unwrap_or(u32::MAX);
    let mut config = HostPoolConfig::new(page, pages);
    config.pinner = device.pinner();
    let bytes = page.page_bytes() * u64::from(pages);
    progress("warm-up");
    let mut last = create(&config, &mut Series::default())?;
    let name = device.peer_name();
    if name.is_some() {
        device.alloc_by_platform(bytes / WARM_SHARE)?;
    }
    let (mut ours, mut peer) = (Series::default(), Series::default());
    for round in 0..options.reps {
        for turn in 0..2 {
            if (round + turn).is_multiple_of(2) {
                progress("pool");
                last = create(&config, &mut ours)?;
            } else if name.is_some() {
                progress("peer");
                if let Some(done) = device.alloc_by_platform(bytes)? {
                    peer.add(bytes, done.alloc);
                    peer.free.push(done.free.as_secs_f64());
                }
            }
        }
    }
    Ok(Created {
        bytes,
        ours: ours.of_ours(&last)?,
        peer: match name {
            Some(name) => Ok(peer.of_peer(name)?),
            None => Err("the device is simulated and page-locks nothing".to_owned()),
        },
    })
}

/// Makes a pool and drops it.
fn create(config: &HostPoolConfig, series: &mut Series) -> Result<PoolReport, BenchError> {
    let began = Instant::now();
    let pool = HostPool::new(config)?;
    series.add(pool.bytes(), began.elapsed());
    let report = pool.report().clone();
    series.prefault.push(report.prefault_time.as_secs_f64());
    series.register.push(report.register_time.as_secs_f64());
    series
        .longest
        .push(report.longest_register.as_secs_f64() * 1e3);
    let began = Instant::now();
    drop(pool);
    series.free.push(began.elapsed().as_secs_f64());
    Ok(report)
}

impl Series {
    fn add(&mut self, bytes: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds.push(seconds);
        self.rates.push(gib(bytes) / seconds);
    }

    fn of_ours(&self, report: &PoolReport) -> Result<Ours, BenchError> {
        Ok(Ours {
            gib_per_s: stats("the rate of the pool", &self.rates)?,
            seconds: stats("the time of the pool", &self.seconds)?,
            prefault_seconds: stats("the prefault", &self.prefault)?,
            register_seconds: stats("the registrations", &self.register)?,
            longest_register_ms: stats("the longest registration", &self.longest)?,
            free_seconds: stats("giving the pool back", &self.free)?,
            backing: backing(report.backing).to_owned(),
            huge_bytes: report.huge_bytes,
            threads: report.prefault_threads,
            chunk_bytes: report.chunk_bytes,
        })
    }

    fn of_peer(&self, name: &str) -> Result<PeerFigures, BenchError> {
        Ok(PeerFigures {
            name: name.to_owned(),
            gib_per_s: stats("the rate of the peer", &self.rates)?,
            seconds: stats("the time of the peer", &self.seconds)?,
            free_seconds: stats("giving the peer's memory back", &self.free)?,
        })
    }
}

/// Statistics of measurements of which there is at least one.
pub(super) fn stats(what: &str, samples: &Samples) -> Result<Stats, BenchError> {
    Stats::of(samples).ok_or_else(|| BenchError::NoSample {
        what: what.to_owned(),
        reason: "nothing was measured, or in no time",
    })
}

/// Bytes in GiB.
pub(super) fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

const fn backing(backing: Backing) -> &'static str {
    match backing {
        Backing::Explicit => "explicit",
        Backing::Transparent => "transparent",
        Backing::Ordinary => "ordinary",
    }
}
