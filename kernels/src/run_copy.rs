// SPDX-License-Identifier: Apache-2.0
//! The contract of the kernel that copies runs of equal length between mapped host memory and the
//! device: what benchmarks compare the engine with, layer by layer.
//!
//! Runs reach the kernel by value in its arguments, so that a launch needs no memory of its own. It
//! only moves bytes, so that benchmarks check it by what arrives.

use bytemuck::{Pod, Zeroable};

/// Bytes that the kernel moves at a time; every address and length is a multiple of it.
pub const UNIT: u64 = 16;
/// Runs of one launch.
pub const RUNS: usize = 248;

/// Where a run goes and where it comes from, as addresses of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CopyRun {
    /// Where it goes.
    pub to: u64,
    /// Where it comes from.
    pub from: u64,
}

/// Runs of one launch, as kernel argument.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RunBatch {
    /// Length of each run in units of [`UNIT`] bytes.
    pub units: u64,
    /// How many of `runs` count.
    pub count: u32,
    pad: u32,
    /// The runs.
    pub runs: [CopyRun; RUNS],
}

// Kernel arguments are limited to 4096 bytes on every architecture.
const _: () = assert!(size_of::<RunBatch>() + 64 <= 4096);
const _: () = assert!(size_of::<RunBatch>() == 16 + RUNS * size_of::<CopyRun>());

impl RunBatch {
    /// Batches that hold runs of `units` units in order.
    pub fn all(units: u64, runs: &[CopyRun]) -> impl Iterator<Item = Self> {
        runs.chunks(RUNS).map(move |chunk| {
            let mut batch = Self {
                units,
                count: u32::try_from(chunk.len()).unwrap_or(0),
                pad: 0,
                runs: [CopyRun::default(); RUNS],
            };
            batch.runs[..chunk.len()].copy_from_slice(chunk);
            batch
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_run_once() {
        let runs: Vec<CopyRun> = (0..2 * RUNS as u64 + 3)
            .map(|i| CopyRun { to: i, from: i + 1 })
            .collect();
        let batches: Vec<_> = RunBatch::all(9, &runs).collect();
        let counts: Vec<_> = batches.iter().map(|b| (b.units, b.count)).collect();
        assert_eq!(counts, [(9, 248), (9, 248), (9, 3)]);
        let all = batches.iter().flat_map(|b| &b.runs[..b.count as usize]);
        assert!(all.eq(&runs));
        assert_eq!(RunBatch::all(9, &[]).count(), 0);
    }
}
