// SPDX-License-Identifier: Apache-2.0
//! The measurements: real jobs, each with one path forced.

use std::time::Instant;

use striata_core::OpId;

use super::cells::{DIRECTIONS, KINDS, PAGES, ROW_BYTES, chunk_bytes, tried};
use super::scratch::Scratch;
use super::{CalibrationError, CalibrationOptions, Measured, Measurements};
use crate::device::{Device, Direction};
use crate::transfer::{
    CopyPath, PageRule, PlaneKind, TransferConfig, TransferEngine, TransferPaths,
};

/// A path that was this much slower than the best of its cell is not measured again.
const HOPELESS: f64 = 1.5;

/// A series has at least that many measurements of each job, budget or not.
const LEAST_REPS: usize = 3;

/// Measures: each series has its share of the budget for more measurements than it must have.
/// Nothing at all is measured with no budget, and no series begins after thrice the budget.
pub(super) fn measure<D: Device>(
    device: &D,
    options: &CalibrationOptions,
    began: Instant,
) -> Result<Measurements, CalibrationError> {
    let mut measured = Measurements {
        layers: options.layers,
        ..Measurements::default()
    };
    let most = PAGES.iter().copied().max().unwrap_or(1);
    let series = ROW_BYTES.len() * KINDS.len() * DIRECTIONS.len();
    let share = options.budget / u32::try_from(series).unwrap_or(u32::MAX);
    let mut until = share;
    for row_bytes in ROW_BYTES {
        if began.elapsed() >= options.budget * 3 {
            tracing::warn!(
                row_bytes,
                "too slow to calibrate: built-in rules stay from here on"
            );
            break;
        }
        let scratch = Scratch::new(device, row_bytes, options.layers, most)?;
        for (kind, direction) in KINDS.into_iter().flat_map(|k| DIRECTIONS.map(|d| (k, d))) {
            let series = Series {
                device,
                scratch: &scratch,
                direction,
                kind,
                chunk_bytes: chunk_bytes(row_bytes),
            };
            let out = match direction {
                Direction::HostToDevice => &mut measured.loads,
                Direction::DeviceToHost => &mut measured.stores,
            };
            out.extend(series.run(options.reps, &|| began.elapsed() >= until)?);
            until += share;
        }
    }
    Ok(measured)
}

/// Jobs of one direction, kind of planes and chunk size on every path.
struct Series<'a, D: Device> {
    device: &'a D,
    scratch: &'a Scratch<D>,
    direction: Direction,
    kind: PlaneKind,
    chunk_bytes: u64,
}

/// One path.
struct Lane<D: Device> {
    rule: PageRule,
    engine: TransferEngine<D>,
    /// Nanoseconds, by the entries of [`PAGES`].
    nanos: [Vec<u64>; PAGES.len()],
}

impl<D: Device> Series<'_, D> {
    fn run(
        &self,
        reps: usize,
        spent: &dyn Fn() -> bool,
    ) -> Result<Vec<Measured>, CalibrationError> {
        let mut lanes = Vec::new();
        for rule in tried(self.direction, self.kind, self.chunk_bytes) {
            lanes.extend(self.lane(rule)?);
        }
        for rep in 0..reps.max(1) {
            if rep >= LEAST_REPS && spent() {
                break;
            }
            for (at, pages) in PAGES.into_iter().enumerate() {
                let best = lanes
                    .iter()
                    .filter_map(|lane| median(&lane.nanos[at]))
                    .min();
                for lane in &mut lanes {
                    if rep > 0 && is_hopeless(&lane.nanos[at], best) {
                        continue;
                    }
                    let took = self.job(&lane.engine, pages)?;
                    lane.nanos[at].push(took);
                }
            }
        }
        Ok(lanes.iter().flat_map(|lane| self.medians(lane)).collect())
    }

    /// An engine whose jobs take one path; none if it takes another instead, or if the path needs
    /// kernels and they cannot be had.
    fn lane(&self, rule: PageRule) -> Result<Option<Lane<D>>, CalibrationError> {
        let config = TransferConfig {
            paths: TransferPaths::built_in().forced(self.direction, rule),
            ..TransferConfig::default()
        };
        let engine = TransferEngine::new(
            self.device.clone(),
            self.scratch.planes(self.kind).clone(),
            Some(self.scratch.host.clone()),
            config,
        )?;
        // The first job may make what the path needs, such as a kernel; it is not counted.
        if let Err(error) = self.job(&engine, 1) {
            // A device that is lost says so on the next path as well.
            let needs_kernels = matches!(rule.path, CopyPath::Staged | CopyPath::Mapped);
            if needs_kernels {
                tracing::info!(%error, path = rule.path.name(), "a copy path cannot be used");
                return Ok(None);
            }
            return Err(error);
        }
        let stats = engine.stats();
        let taken = match self.direction {
            Direction::HostToDevice => stats.loads.by_path,
            Direction::DeviceToHost => stats.stores.by_path,
        };
        Ok((taken.jobs(rule.path) > 0).then(|| Lane {
            rule,
            engine,
            nanos: Default::default(),
        }))
    }

    /// Nanoseconds of one job.
    fn job(&self, engine: &TransferEngine<D>, pages: u32) -> Result<u64, CalibrationError> {
        let pairs = self.scratch.pairs(pages);
        let done = engine.copy_pages(self.direction, OpId::default(), &pairs)?;
        self.device.advance_to(done.finished);
        Ok(done.finished.since(done.issued))
    }

    fn medians<'s>(&'s self, lane: &'s Lane<D>) -> impl Iterator<Item = Measured> + 's {
        PAGES
            .into_iter()
            .zip(&lane.nanos)
            .filter_map(|(pages, nanos)| {
                let median = median(nanos).filter(|nanos| *nanos > 0)?;
                let bytes = self.scratch.page.page_bytes() * u64::from(pages);
                Some(Measured {
                    planes: self.kind,
                    chunk_bytes: self.chunk_bytes,
                    pages,
                    rule: lane.rule,
                    gb_per_s: rate(bytes, median),
                    count: nanos.len(),
                })
            })
    }
}

/// 1e9 bytes a second, which are bytes a nanosecond, to six places: a decimal that comes back from
/// disk as it went there.
fn rate(bytes: u64, nanos: u64) -> f64 {
    (bytes as f64 / nanos as f64 * 1e6).round() / 1e6
}

fn is_hopeless(nanos: &[u64], best: Option<u64>) -> bool {
    match (median(nanos), best) {
        (Some(mine), Some(best)) => mine as f64 > best as f64 * HOPELESS,
        _ => false,
    }
}

/// The lower of the two in the middle, or the one.
fn median(nanos: &[u64]) -> Option<u64> {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_what_was_measured() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[5]), Some(5));
        assert_eq!(median(&[9, 1, 5]), Some(5));
        assert_eq!(median(&[4, 1]), Some(1));
        assert!(is_hopeless(&[16], Some(10)) && !is_hopeless(&[15], Some(10)));
        assert!(!is_hopeless(&[], Some(10)));
    }
}
