// SPDX-License-Identifier: Apache-2.0
//! Kernels that benchmarks compare the engine with: pages by one launch, reads of memory.

use std::sync::Arc;

use striata_core::PagePair;
use striata_host::HostPool;
use striata_kernels::page_copy::{PageCopyParams, READ_UNIT, UNIT};
use striata_kernels::source::Kernel;

use super::device::CudaDevice;
use super::keep::Kept;
use super::launch::{Grid, argument, launch};
use super::memory::CudaMemory;
use super::stream::CudaStream;
use crate::check;
use crate::device::{Device, Direction};
use crate::error::GpuError;
use crate::planes::L1Planes;

/// Threads of a block of the copy kernel.
const COPY_THREADS: u32 = 1024;
const READ_THREADS: u32 = 256;

/// Pages that one launch copies between planes and a mapped host pool.
#[derive(Clone, Debug)]
pub struct PageKernel {
    planes: Arc<L1Planes<CudaDevice>>,
    host: Arc<HostPool>,
    direction: Direction,
    pairs: CudaMemory,
    params: PageCopyParams,
    first_plane: CudaMemory,
    first_offset: u64,
}

impl PageKernel {
    /// Puts the list of pages on the device.
    ///
    /// # Errors
    /// Planes without a uniform stride, a pool of other rows or not page-locked, a page outside its
    /// pool or named twice as a target, chunks that are no multiple of 16 bytes; no room; a lost
    /// device.
    pub fn new(
        device: &CudaDevice,
        planes: &Arc<L1Planes<CudaDevice>>,
        host: &Arc<HostPool>,
        pairs: &[PagePair],
        direction: Direction,
    ) -> Result<Self, GpuError> {
        let stride = planes.uniform_stride();
        let stride =
            stride.ok_or_else(|| refused("the planes have no uniform stride".to_owned()))?;
        let page = planes.geometry().page();
        page.check_same(host.geometry())
            .map_err(|error| refused(error.to_string()))?;
        if !host.report().pinned || !device.shared().maps_host {
            return Err(GpuError::NotPinned);
        }
        check_pages(planes, host, pairs, direction)?;
        let first = planes.plane(striata_core::LayerId::new(0));
        let (first_plane, first_offset) =
            first.ok_or_else(|| refused("there is no layer".to_owned()))?;
        let strides = host.strides();
        let units = |bytes: u64| {
            let whole = bytes.is_multiple_of(UNIT).then_some(bytes / UNIT);
            whole.ok_or_else(|| refused(format!("{bytes} bytes are no multiple of {UNIT}")))
        };
        units(first_plane.at(first_offset))?;
        units(host.address() as u64)?;
        let params = PageCopyParams {
            plane: units(stride)?,
            host_page: units(strides.page)?,
            host_layer: units(strides.layer)?,
            chunk: units(page.chunk_bytes())?,
            pages: u32::try_from(pairs.len()).map_err(|_| refused("too many pages".to_owned()))?,
            layers: page.layers(),
        };
        let words: Vec<u32> = pairs
            .iter()
            .flat_map(|pair| [pair.l1.get(), pair.l2.get()])
            .collect();
        let list = device.alloc(size_of_val(words.as_slice()) as u64)?;
        device.write(&list, 0, bytemuck::cast_slice(&words))?;
        Ok(Self {
            first_plane: first_plane.clone(),
            first_offset,
            planes: planes.clone(),
            host: host.clone(),
            direction,
            pairs: list,
            params,
        })
    }

    /// Copies the pages by `blocks` blocks, behind what `stream` holds.
    ///
    /// # Errors
    /// A stream of another device; a lost device.
    pub fn launch(&self, stream: &CudaStream, blocks: u32) -> Result<(), GpuError> {
        let shared = stream.owner();
        shared.check_same("page kernel", "planes", self.first_plane.owner())?;
        if self.params.pages == 0 {
            return Ok(());
        }
        let _scope = stream.enter("page kernel")?;
        let kept = [
            Kept::Planes(Arc::clone(self.planes.memories())),
            Kept::Pool(Arc::clone(&self.host)),
            Kept::Memory(self.pairs.clone()),
        ];
        let kernel = match self.direction {
            Direction::HostToDevice => Kernel::PagesToDevice,
            Direction::DeviceToHost => Kernel::PagesToHost,
        };
        let grid = Grid {
            x: blocks.max(1),
            y: 1,
            threads: COPY_THREADS,
        };
        stream.submit(&kept, || {
            let mut planes = self.first_plane.at(self.first_offset);
            // Registered memory has one address for host and device (`maps_host`).
            let mut host = self.host.address() as u64;
            let (mut pairs, mut params) = (self.pairs.at(0), self.params);
            let mut list = [
                argument(&mut planes),
                argument(&mut host),
                argument(&mut pairs),
                argument(&mut params),
            ];
            // SAFETY: (7), (8) every page of the list lies in both pools, whose strides these are;
            // (9) both kernels have this signature.
            unsafe { launch(shared, stream, kernel, grid, &mut list) }
        })
    }
}

/// Checks that all pages lie in their pools, and that no target is named twice.
fn check_pages(
    planes: &L1Planes<CudaDevice>,
    host: &HostPool,
    pairs: &[PagePair],
    direction: Direction,
) -> Result<(), GpuError> {
    let mut targets = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let (l1, l2) = (pair.l1.get(), pair.l2.get());
        if l1 >= planes.geometry().pages() || l2 >= host.pages() {
            return Err(refused(format!(
                "pages {l1} and {l2} are not in both pools"
            )));
        }
        targets.push(match direction {
            Direction::HostToDevice => l1,
            Direction::DeviceToHost => l2,
        });
    }
    targets.sort_unstable();
    match targets.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err(refused(format!("page {} is a target twice", two[0]))),
        None => Ok(()),
    }
}

fn refused(reason: String) -> GpuError {
    GpuError::Argument {
        call: "page kernel",
        reason,
    }
}

impl CudaDevice {
    /// Reads all of `memory`, a multiple of 16 bytes, and mixes it into the first word of `sink`.
    ///
    /// # Errors
    /// A size that is no multiple of 16 bytes, an empty sink; a lost device.
    pub fn read_through(
        &self,
        stream: &CudaStream,
        memory: &CudaMemory,
        sink: &CudaMemory,
    ) -> Result<(), GpuError> {
        let shared = stream.owner();
        check::access("read_through: the sink", sink.len(), 0, check::WORD)?;
        for place in [memory, sink] {
            shared.check_same("read_through", "memory", place.owner())?;
        }
        if !memory.len().is_multiple_of(READ_UNIT) || !memory.at(0).is_multiple_of(READ_UNIT) {
            return Err(GpuError::Argument {
                call: "read_through",
                reason: format!("{} bytes are no multiple of {READ_UNIT}", memory.len()),
            });
        }
        let _scope = stream.enter_launch("read_through")?;
        let kept = [Kept::Memory(memory.clone()), Kept::Memory(sink.clone())];
        let count = memory.len() / READ_UNIT;
        let grid = Grid::over(shared, count, READ_THREADS, READ_THREADS);
        stream.submit(&kept, || {
            let (mut from, mut units, mut to) = (memory.at(0), count, sink.at(0));
            let mut list = [argument(&mut from), argument(&mut units), argument(&mut to)];
            // SAFETY: (7) all units lie in the memory, and the sink has a word; (9) twin of
            // `striata_read`.
            unsafe { launch(shared, stream, Kernel::Read, grid, &mut list) }
        })
    }
}
