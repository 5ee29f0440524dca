// SPDX-License-Identifier: Apache-2.0
//! What one large copy from pinned host memory reaches on this link.

use std::sync::Arc;

use striata_core::PageGeometry;
use striata_gpu::{CopyBatch, CopyForm, Device, Direction, Piece};
use striata_host::{HostPool, HostPoolConfig};

use super::error::OffloadError;

/// Copies of which the best counts.
const TRIES: usize = 5;
/// Bytes of a row of the pool that is copied from.
const ROW_BYTES: u32 = 4;

/// GB/s of the best copy of about `bytes` bytes, and the bytes.
pub(super) fn measure<D: Device>(device: &D, bytes: u64) -> Result<(f64, u64), OffloadError> {
    // One page of one layer, in one registration.
    let rows = bytes / u64::from(ROW_BYTES);
    let rows = u32::try_from(rows).unwrap_or(u32::MAX).max(1);
    let page = PageGeometry::new(rows, ROW_BYTES, 1)?;
    let bytes = page.page_bytes();
    let mut config = HostPoolConfig::new(page, 1);
    config.chunk_bytes = bytes.max(config.chunk_bytes);
    config.pinner = device.pinner();
    let host = Arc::new(HostPool::new(&config)?);
    let planes: Arc<[D::Memory]> = Arc::new([device.alloc(bytes)?]);
    let stream = device.stream("link")?;
    let piece = Piece {
        plane: 0,
        height: 1,
        device: 0,
        host: 0,
        width: bytes,
        device_pitch: bytes,
        host_pitch: bytes,
    };
    let batch = CopyBatch {
        direction: Direction::HostToDevice,
        form: CopyForm::Runs,
        planes: &planes,
        host: &host,
        pieces: &[piece],
    };
    let mark = || {
        let event = device.event()?;
        device.record(&event, &stream)?;
        Ok::<_, OffloadError>(event)
    };
    let mut best = 0.0f64;
    for _ in 0..TRIES {
        let begin = mark()?;
        device.copy(&stream, &batch)?;
        let end = device.synchronize(&mark()?)?;
        let nanos = end.since(device.synchronize(&begin)?).max(1);
        // Bytes a nanosecond are 10^9 bytes a second.
        best = best.max(bytes as f64 / nanos as f64);
    }
    Ok((best, bytes))
}

#[cfg(test)]
mod tests {
    use striata_gpu::sim::{SimConfig, SimDevice};

    use super::*;

    #[test]
    fn the_simulated_link_is_as_fast_as_its_cost_model_says() {
        let mut config = SimConfig::new(0);
        config.cost.host_to_device_bytes_per_s = 2_000_000_000;
        let (rate, bytes) = measure(&SimDevice::new(config), 40_000_002).unwrap();
        assert_eq!(bytes, 40_000_000);
        assert!((1.99..=2.0).contains(&rate), "{rate}");
    }
}
