// SPDX-License-Identifier: Apache-2.0
//! One device with a plane and a host pool of small pages.

use std::sync::Arc;

use striata_core::PageGeometry;
use striata_gpu::sim::{SimConfig, SimDevice, SimEvent, SimMemory, SimScheduler, SimStream};
use striata_gpu::{CopyBatch, CopyForm, Device, Direction, GpuError, Piece};
use striata_host::{HostPool, HostPoolConfig, HugePages};

/// Bytes of a page of [`Bench`].
pub(crate) const PAGE: u64 = 64;

pub(crate) fn host_pool(page: PageGeometry, pages: u32) -> Arc<HostPool> {
    let config = HostPoolConfig {
        reserve_bytes: 0,
        prefault: false,
        huge_pages: HugePages::Off,
        ..HostPoolConfig::new(page, pages)
    };
    Arc::new(HostPool::new(&config).unwrap())
}

/// One device, one plane of 8 pages, a host pool of 8 pages.
pub(crate) struct Bench {
    pub(crate) scheduler: SimScheduler,
    pub(crate) device: SimDevice,
    pub(crate) planes: Arc<[SimMemory]>,
    pub(crate) host: Arc<HostPool>,
}

impl Bench {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, |config| config)
    }

    pub(crate) fn with(seed: u64, change: impl FnOnce(SimConfig) -> SimConfig) -> Self {
        let scheduler = SimScheduler::new(seed);
        let device = SimDevice::new(change(SimConfig::stepped(0, &scheduler)));
        let planes = Arc::from([device.alloc(8 * PAGE).unwrap()]);
        let host = host_pool(PageGeometry::new(4, 16, 1).unwrap(), 8);
        Self {
            scheduler,
            device,
            planes,
            host,
        }
    }

    pub(crate) fn stream(&self, name: &str) -> SimStream {
        self.device.stream(name).unwrap()
    }

    pub(crate) fn copy(
        &self,
        stream: &SimStream,
        direction: Direction,
        pages: &[(u64, u64)],
    ) -> Result<(), GpuError> {
        let pieces: Vec<_> = pages.iter().map(|&(d, h)| piece(d, h)).collect();
        let batch = CopyBatch {
            direction,
            form: CopyForm::Runs,
            planes: &self.planes,
            host: &self.host,
            pieces: &pieces,
        };
        self.device.copy(stream, &batch)
    }

    /// Host to device.
    pub(crate) fn load(&self, stream: &SimStream, device: u64, host: u64) {
        self.copy(stream, Direction::HostToDevice, &[(device, host)])
            .unwrap();
    }

    /// Device to host.
    pub(crate) fn store(&self, stream: &SimStream, device: u64, host: u64) {
        self.copy(stream, Direction::DeviceToHost, &[(device, host)])
            .unwrap();
    }

    pub(crate) fn mark(&self, stream: &SimStream) -> SimEvent {
        let event = self.device.event().unwrap();
        self.device.record(&event, stream).unwrap();
        event
    }

    pub(crate) fn read(&self, page: u64) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; PAGE as usize];
        self.device
            .read(&self.planes[0], page * PAGE, &mut bytes)
            .map(|()| bytes)
    }

    pub(crate) fn write(&self, page: u64, value: u8) -> Result<(), GpuError> {
        let bytes = [value; PAGE as usize];
        self.device.write(&self.planes[0], page * PAGE, &bytes)
    }
}

/// A whole page of the plane and one of the pool.
pub(crate) fn piece(device: u64, host: u64) -> Piece {
    Piece {
        plane: 0,
        height: 1,
        device: device * PAGE,
        host: host * PAGE,
        width: PAGE,
        device_pitch: PAGE,
        host_pitch: PAGE,
    }
}
