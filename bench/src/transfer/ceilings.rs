// SPDX-License-Identifier: Apache-2.0
//! What one large copy call reaches, each way and both ways at once.

use std::sync::Arc;

use striata_gpu::{CopyBatch, CopyForm, Device, Direction, Piece};

use striata_host::HostPool;

use super::error::BenchError;
use super::options::TransferOptions;
use super::report::Ceilings;
use super::tiers::Tiers;

/// Copies of which the best counts.
const TRIES: usize = 5;

/// A copy of the ceilings: which way, and from which byte on both sides.
struct Large {
    direction: Direction,
    at: u64,
    bytes: u64,
}

/// Measures the ceilings; leaves anything in both tiers.
pub(super) fn measure<D: Device>(
    tiers: &Tiers<D>,
    options: &TransferOptions,
) -> Result<Ceilings, BenchError> {
    let host = tiers.host_of_ceilings(options)?;
    let bytes = options.ceiling_bytes;
    let loads = Large {
        direction: Direction::HostToDevice,
        at: 0,
        bytes,
    };
    let stores = Large {
        direction: Direction::DeviceToHost,
        at: bytes,
        bytes,
    };
    let best = |copies: &[&Large]| {
        let mut best: f64 = 0.0;
        for _ in 0..TRIES {
            best = best.max(rate(tiers, &host, copies)?);
        }
        Ok::<f64, BenchError>(best)
    };
    Ok(Ceilings {
        copy_bytes: bytes,
        h2d_gb_per_s: best(&[&loads])?,
        d2h_gb_per_s: best(&[&stores])?,
        both_gb_per_s: best(&[&loads, &stores])?,
        floor_gb_per_s: options.floor_gb_per_s,
    })
}

/// Bytes of all copies over the time from the first begin to the last end, in GB/s. The copies run
/// on streams of their own.
fn rate<D: Device>(
    tiers: &Tiers<D>,
    host: &Arc<HostPool>,
    copies: &[&Large],
) -> Result<f64, BenchError> {
    let device = &tiers.device;
    let streams = [&tiers.marks, &tiers.compute];
    let mut ends = Vec::new();
    for (copy, stream) in copies.iter().zip(streams) {
        device.not_before(stream, device.now())?;
        let begin = tiers.fence(stream)?;
        let piece = Piece {
            plane: 0,
            height: 1,
            device: copy.at,
            host: copy.at,
            width: copy.bytes,
            device_pitch: copy.bytes,
            host_pitch: copy.bytes,
        };
        let batch = CopyBatch {
            direction: copy.direction,
            form: CopyForm::Runs,
            planes: tiers.planes.memories(),
            host,
            pieces: &[piece],
        };
        device.copy(stream, &batch)?;
        ends.push((begin, tiers.fence(stream)?));
    }
    let (mut first, mut last) = (None, None);
    for (begin, end) in &ends {
        let ended = device.synchronize(end)?;
        let began = device.synchronize(begin)?;
        first = first.min(Some(began)).or(Some(began));
        last = last.max(Some(ended));
    }
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(0.0);
    };
    device.advance_to(last);
    let bytes: u64 = copies.iter().map(|copy| copy.bytes).sum();
    Ok(bytes as f64 / (last.since(first).max(1)) as f64)
}
