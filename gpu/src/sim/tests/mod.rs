// SPDX-License-Identifier: Apache-2.0
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of these tests"
)]

mod bytes;
mod errors;
mod order;

use std::sync::Arc;

use striata_core::PageGeometry;
use striata_host::{HostPool, HostPoolConfig};

use super::*;
use crate::device::{CopyForm, Piece};
use crate::sim::CostModel;

/// A pool of `pages` pages of 4 rows of 16 bytes in 2 layers.
fn pool(pages: u32) -> Arc<HostPool> {
    pool_of(PageGeometry::new(4, 16, 2).unwrap(), pages, 1 << 20)
}

fn pool_of(page: PageGeometry, pages: u32, chunk_bytes: u64) -> Arc<HostPool> {
    let config = HostPoolConfig {
        reserve_bytes: 0,
        chunk_bytes,
        ..HostPoolConfig::new(page, pages)
    };
    Arc::new(HostPool::new(&config).unwrap())
}

/// A device whose calls cost round numbers: 1 ns a byte and direction, 100 ns a call, 10 ns a
/// descriptor, 5 ns a row of a rectangle, 7 ns a kernel.
fn device(index: u32) -> SimDevice {
    SimDevice::new(SimConfig {
        cost: CostModel {
            host_to_device_bytes_per_s: 1_000_000_000,
            device_to_host_bytes_per_s: 500_000_000,
            call_ns: 100,
            single_ns: 0,
            single_call_ns: 0,
            descriptor_ns: 10,
            rectangle_row_ns: 5,
            kernel_ns: 7,
        },
        ..SimConfig::new(index)
    })
}

/// A plain run of `width` bytes.
fn run(plane: u32, device: u64, host: u64, width: u64) -> Piece {
    Piece {
        plane,
        height: 1,
        device,
        host,
        width,
        device_pitch: width,
        host_pitch: width,
    }
}

struct Setup {
    device: SimDevice,
    planes: Arc<[SimMemory]>,
    host: Arc<HostPool>,
}

impl Setup {
    /// One plane as long as the pool.
    fn new() -> Self {
        let device = device(0);
        let host = pool(8);
        let planes = Arc::from([device.alloc(host.bytes()).unwrap()]);
        Self {
            device,
            planes,
            host,
        }
    }

    fn batch<'a>(&'a self, direction: Direction, pieces: &'a [Piece]) -> CopyBatch<'a, SimDevice> {
        CopyBatch {
            direction,
            form: if pieces.iter().all(|p| p.height == 1) {
                CopyForm::Runs
            } else {
                CopyForm::Rectangles
            },
            planes: &self.planes,
            host: &self.host,
            pieces,
        }
    }

    fn copy(&self, stream: &SimStream, direction: Direction, pieces: &[Piece]) {
        let batch = self.batch(direction, pieces);
        self.device.copy(stream, &batch).unwrap();
    }

    /// Records an event on `stream`.
    fn mark(&self, stream: &SimStream) -> SimEvent {
        let event = self.device.event().unwrap();
        self.device.record(&event, stream).unwrap();
        event
    }

    /// Waits for all of `stream`; the modelled time in nanoseconds.
    fn finish(&self, stream: &SimStream) -> u64 {
        let event = self.mark(stream);
        self.device.synchronize(&event).unwrap().as_nanos()
    }

    /// The first word of the plane.
    fn plane_word(&self) -> u32 {
        let mut bytes = [0; 4];
        self.device.read(&self.planes[0], 0, &mut bytes).unwrap();
        u32::from_ne_bytes(bytes)
    }

    fn set_host_word(&self, index: usize, value: u32) {
        let words = self.host.words();
        words[index].store(value, core::sync::atomic::Ordering::Relaxed);
    }

    fn host_word(&self, index: usize) -> u32 {
        self.host.words()[index].load(core::sync::atomic::Ordering::Relaxed)
    }
}
