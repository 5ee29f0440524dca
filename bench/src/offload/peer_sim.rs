// SPDX-License-Identifier: Apache-2.0
//! What other ways to copy cost on the simulated device. The bytes move all the same.
//!
//! Fitted to figures of an H200, PCIe Gen5 x16, page-first host memory, 73,728 B a page and layer,
//! and scaled with the device's link:
//!
//! - A plain asynchronous copy of n bytes takes 3.06 us and n bytes on the link; the calls of a
//!   stream go one after the other. Measured: 16.8 GB/s at 73,728 B; within 7 % from 1,152 B to
//!   4.5 MB.
//! - A load of one layer by a kernel that loads and stores 16 bytes, on eight blocks: 9.5, 33.0,
//!   47.9 and 50.8 GB/s at 1, 8, 64 and 512 pages, which 6.35 us and 51.2 GB/s give within 1 %. Two
//!   blocks are as fast, one reaches 38.1. SGLang's own default kernels, on two blocks, reached less:
//!   22 and 38.5 at 64 pages.

use striata_gpu::sim::{CopyCost, SimDevice};
use striata_gpu::{CopyBatch, Direction, GpuError};

use super::peer::LoadPeers;

/// Nanoseconds of a plain copy beside its bytes.
const CALL_NANOS: u64 = 3_060;
/// Nanoseconds of a launch beside its bytes.
const LAUNCH_NANOS: u64 = 6_350;
/// Link, one block, and two or more, in units of 0.1 GB/s.
const LINK: u64 = 554;
const ONE_BLOCK: u64 = 385;
const ALL_BLOCKS: u64 = 512;

fn bytes_of(batch: &CopyBatch<'_, SimDevice>) -> u64 {
    let pieces = batch.pieces.iter();
    let bytes = pieces.map(|piece| piece.width.saturating_mul(piece.height.into()));
    bytes.fold(0, u64::saturating_add)
}

impl LoadPeers for SimDevice {
    fn plain(&self) -> Result<Self, GpuError> {
        Ok(self.clone())
    }

    fn copy_by_calls(
        &self,
        stream: &Self::Stream,
        batch: &CopyBatch<'_, Self>,
    ) -> Result<(), GpuError> {
        let calls = batch.pieces.len() as u64;
        let wire = self
            .cost()
            .wire_nanos(Direction::HostToDevice, bytes_of(batch));
        let cost = CopyCost {
            prepare: 0,
            run: calls.saturating_mul(CALL_NANOS).saturating_add(wire),
        };
        self.copy_at_cost(stream, batch, cost)
    }

    fn copy_by_kernel(
        &self,
        stream: &Self::Stream,
        batch: &CopyBatch<'_, Self>,
        blocks: u32,
    ) -> Result<(), GpuError> {
        let rate = ONE_BLOCK
            .saturating_mul(blocks.max(1).into())
            .min(ALL_BLOCKS);
        let wire = self
            .cost()
            .wire_nanos(Direction::HostToDevice, bytes_of(batch));
        let cost = CopyCost {
            prepare: 0,
            run: (wire.saturating_mul(LINK) / rate).saturating_add(LAUNCH_NANOS),
        };
        self.copy_at_cost(stream, batch, cost)
    }
}

#[cfg(test)]
mod tests {
    use striata_gpu::sim::CostModel;

    use super::*;

    const CHUNK: u64 = 73_728;

    /// GB/s of `bytes` bytes of the link beside `fixed` ns, at `rate` of it.
    fn rate(bytes: u64, fixed: u64, rate: u64) -> f64 {
        let wire = CostModel::default().wire_nanos(Direction::HostToDevice, bytes);
        bytes as f64 / (fixed + wire * LINK / rate) as f64
    }

    #[test]
    fn the_models_give_the_measured_rates() {
        let near = |modelled: f64, measured: f64, allowed: f64| {
            let off = (modelled / measured - 1.0).abs();
            assert!(off < allowed, "{modelled} for {measured}");
        };
        for (bytes, measured) in [
            (16_384, 5.0),
            (CHUNK, 16.8),
            (294_912, 34.1),
            (4_497_408, 52.9),
        ] {
            near(rate(bytes, CALL_NANOS, LINK), measured, 0.07);
        }
        for (pages, measured) in [(1, 9.5), (8, 33.0), (64, 47.9), (512, 50.8)] {
            near(
                rate(pages * CHUNK, LAUNCH_NANOS, ALL_BLOCKS),
                measured,
                0.01,
            );
        }
    }
}
