// SPDX-License-Identifier: Apache-2.0
//! [`HostPool`]: pages of one rank in host memory, mapped once, present, registered.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use striata_core::{HostLayout, HostStrides, L2Page, LayerId, PageGeometry};

use crate::backing::{self, Backing, HugePages};
use crate::budget::{HostMemory, huge_bytes_of};
use crate::chunks::Chunks;
use crate::error::HostError;
use crate::pin::{NoPin, PagePinner, PinRegion, Pins};
use crate::prefault::{self, NumaPlacement, PrefaultWay, Prefaulted};
use crate::region::Region;

const WORD: u64 = size_of::<u32>() as u64;

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct HostPoolConfig {
    /// Bytes of a page.
    pub page: PageGeometry,
    /// Pages; none is reserved.
    pub pages: u32,
    /// Order of pages and layers.
    pub layout: HostLayout,
    /// Which memory pages are wanted.
    pub huge_pages: HugePages,
    /// Whether the memory is made present at once. Off, it is taken from the machine as it is
    /// first used, which suits short tests and nothing that is measured.
    pub prefault: bool,
    /// Threads that make the memory present: 0 for as many as pay, never more than cores.
    pub prefault_threads: usize,
    /// NUMA node of the device; ignored where there is one node.
    pub numa_node: Option<u32>,
    /// Bytes of one registration, roughly: 64 to 128 MiB.
    pub chunk_bytes: u64,
    /// Bytes that the machine must keep.
    pub reserve_bytes: u64,
    /// Who page-locks the memory.
    pub pinner: Arc<dyn PagePinner>,
}

impl HostPoolConfig {
    /// Bytes of one registration where nothing else is asked for.
    pub const CHUNK_BYTES: u64 = 128 << 20;
    /// Bytes that the machine keeps where nothing else is asked for.
    pub const RESERVE_BYTES: u64 = 1 << 30;

    /// `pages` pages, page-first, on the best memory pages, present, registered with nobody.
    #[must_use]
    pub fn new(page: PageGeometry, pages: u32) -> Self {
        Self {
            page,
            pages,
            layout: HostLayout::default(),
            huge_pages: HugePages::default(),
            prefault: true,
            prefault_threads: 0,
            numa_node: None,
            chunk_bytes: Self::CHUNK_BYTES,
            reserve_bytes: Self::RESERVE_BYTES,
            pinner: Arc::new(NoPin),
        }
    }

    /// Bytes of the pool.
    ///
    /// # Errors
    /// None at all, or more than can be addressed.
    fn bytes(&self) -> Result<usize, HostError> {
        let page = self.page;
        let chunk = page.chunk_bytes();
        let too_large = HostError::TooLarge {
            pages: self.pages,
            layers: page.layers(),
            chunk_bytes: chunk,
        };
        let page_bytes = chunk
            .checked_mul(u64::from(page.layers()))
            .ok_or(too_large.clone())?;
        let bytes = page_bytes
            .checked_mul(u64::from(self.pages))
            .ok_or(too_large.clone())?;
        if bytes == 0 {
            let pages = self.pages;
            return Err(HostError::Empty { pages, page_bytes });
        }
        isize::try_from(bytes)
            .map(isize::unsigned_abs)
            .map_err(|_| too_large)
    }
}

/// How a pool came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// Bytes of the pool.
    pub bytes: u64,
    /// Which memory pages it lies on.
    pub backing: Backing,
    /// Bytes that lie on huge pages, as the kernel counts them; `None` where it does not say.
    pub huge_bytes: Option<u64>,
    /// How the memory was made present.
    pub prefault: PrefaultWay,
    /// Threads that made it present.
    pub prefault_threads: usize,
    /// How long that took.
    pub prefault_time: Duration,
    /// Where the memory lies.
    pub placement: NumaPlacement,
    /// Bytes of each registration but the last.
    pub chunk_bytes: u64,
    /// Registrations.
    pub chunks: usize,
    /// Whether the memory is page-locked.
    pub pinned: bool,
    /// How long the registrations took.
    pub register_time: Duration,
}

/// Pages of one rank in host memory.
///
/// Shape: \[pages\]\[layers\]\[page bytes of a layer\], in the order that the layout says. Every
/// access is by atomic words, so that copies by other threads at the same time are races of
/// values, never of memory; order is the business of who submits the copies.
#[derive(Debug)]
pub struct HostPool {
    // Field order is drop order: registrations go before the memory.
    pins: Pins,
    region: Region,
    page: PageGeometry,
    pages: u32,
    layout: HostLayout,
    strides: HostStrides,
    chunks: Chunks,
    report: PoolReport,
}

impl HostPool {
    /// Maps, makes present and registers a pool.
    ///
    /// # Errors
    /// No bytes or too many; more memory than the machine can spare (nothing was mapped then);
    /// demanded huge pages that are not there; a registration that was refused (those before it
    /// were taken back).
    pub fn new(config: &HostPoolConfig) -> Result<Self, HostError> {
        Self::on_machine(config, &HostMemory::probe())
    }

    fn on_machine(config: &HostPoolConfig, memory: &HostMemory) -> Result<Self, HostError> {
        let len = config.bytes()?;
        let bytes = len as u64;
        let (region, backing) = backing::map(len, config.huge_pages, config.reserve_bytes, memory)?;
        let began = Instant::now();
        let prefaulted = if config.prefault {
            let threads = config.prefault_threads;
            prefault::run(&region, threads, config.numa_node, memory)?
        } else {
            Prefaulted {
                way: PrefaultWay::Skipped,
                threads: 0,
                placement: NumaPlacement::Any,
            }
        };
        let prefault_time = began.elapsed();
        let strides = config.layout.strides(config.page, config.pages);
        let unit = strides.page.max(strides.layer);
        let memory_page = rustix::param::page_size() as u64;
        let chunks = Chunks::new(bytes, unit, config.chunk_bytes, memory_page);
        let began = Instant::now();
        let pins = register(&region, chunks, &config.pinner)?;
        let report = PoolReport {
            bytes,
            backing,
            huge_bytes: huge_bytes(&region),
            prefault: prefaulted.way,
            prefault_threads: prefaulted.threads,
            prefault_time,
            placement: prefaulted.placement,
            chunk_bytes: chunks.chunk_bytes(),
            chunks: pins.len(),
            pinned: config.pinner.locks_pages(),
            register_time: began.elapsed(),
        };
        tracing::debug!(?report, "host pool");
        Ok(Self {
            pins,
            region,
            page: config.page,
            pages: config.pages,
            layout: config.layout,
            strides,
            chunks,
            report,
        })
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn geometry(&self) -> PageGeometry {
        self.page
    }
    /// Pages of the pool.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }
    /// Order of pages and layers.
    #[must_use]
    pub const fn layout(&self) -> HostLayout {
        self.layout
    }
    /// Bytes from page to page and from layer to layer.
    #[must_use]
    pub const fn strides(&self) -> HostStrides {
        self.strides
    }
    /// Bytes of the pool.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.region.len() as u64
    }
    /// How the pool came to be.
    #[must_use]
    pub const fn report(&self) -> &PoolReport {
        &self.report
    }
    /// Registrations that are held.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.pins.len()
    }

    /// Address of the first byte, for a device that names host memory by address.
    #[must_use]
    pub fn address(&self) -> usize {
        self.region.address()
    }

    /// All words of the pool, shared with whoever copies.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        self.region.words()
    }

    /// The registration that holds byte `offset`; `None` outside the pool.
    #[must_use]
    pub fn chunk_of(&self, offset: u64) -> Option<u64> {
        self.chunks.of(offset)
    }

    /// Checks that one copy may touch `len` bytes at `offset`.
    ///
    /// # Errors
    /// Bytes outside the pool, or in two registrations.
    pub fn check_copy(&self, offset: u64, len: u64) -> Result<(), HostError> {
        self.chunks.check(offset, len)
    }

    /// Byte offset of one page in one layer.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have.
    pub fn offset_of(&self, page: L2Page, layer: LayerId) -> Result<u64, HostError> {
        if page.get() >= self.pages {
            let (page, pages) = (page.get(), self.pages);
            return Err(HostError::Page { page, pages });
        }
        if layer.get() >= self.page.layers() {
            let (layer, layers) = (layer.get(), self.page.layers());
            return Err(HostError::Layer { layer, layers });
        }
        Ok(self.strides.offset(page.get(), layer))
    }

    /// The words of one page in one layer, shared with whoever copies.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have.
    pub fn chunk_words(&self, page: L2Page, layer: LayerId) -> Result<&[AtomicU32], HostError> {
        Ok(&self.words()[self.word_range(page, layer)?])
    }

    /// The words of one page in one layer, exclusively.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have.
    pub fn chunk_mut(&mut self, page: L2Page, layer: LayerId) -> Result<&mut [u32], HostError> {
        let range = self.word_range(page, layer)?;
        Ok(&mut self.region.words_mut()[range])
    }

    /// The bytes of one page in one layer, exclusively.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have.
    pub fn chunk_bytes_mut(
        &mut self,
        page: L2Page,
        layer: LayerId,
    ) -> Result<&mut [u8], HostError> {
        Ok(bytemuck::cast_slice_mut(self.chunk_mut(page, layer)?))
    }

    /// Reads one page in one layer into `to`.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have; a buffer of another length.
    pub fn read_chunk(&self, page: L2Page, layer: LayerId, to: &mut [u8]) -> Result<(), HostError> {
        let from = self.chunk_words(page, layer)?;
        self.check_len(to.len())?;
        for (bytes, word) in to.chunks_exact_mut(size_of::<u32>()).zip(from) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    /// Writes `from` into one page in one layer.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have; a buffer of another length.
    pub fn write_chunk(&self, page: L2Page, layer: LayerId, from: &[u8]) -> Result<(), HostError> {
        let to = self.chunk_words(page, layer)?;
        self.check_len(from.len())?;
        for (word, bytes) in to.iter().zip(from.chunks_exact(size_of::<u32>())) {
            word.store(bytemuck::pod_read_unaligned(bytes), Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_len(&self, actual: usize) -> Result<(), HostError> {
        let (expected, actual) = (self.page.chunk_bytes(), actual as u64);
        if expected != actual {
            return Err(HostError::Length { expected, actual });
        }
        Ok(())
    }

    fn word_range(&self, page: L2Page, layer: LayerId) -> Result<Range<usize>, HostError> {
        let start = self.offset_of(page, layer)?;
        let end = start + self.page.chunk_bytes();
        Ok(index(start / WORD)..index(end / WORD))
    }
}

/// A word index below the length of a mapping, which `usize` holds.
#[expect(
    clippy::cast_possible_truncation,
    reason = "no mapping is longer than usize counts"
)]
const fn index(words: u64) -> usize {
    words as usize
}

fn register(
    region: &Region,
    chunks: Chunks,
    pinner: &Arc<dyn PagePinner>,
) -> Result<Pins, HostError> {
    let ranges: Vec<_> = chunks.ranges().collect();
    let address = region.address();
    let regions = ranges.iter().map(|range| PinRegion {
        address: address + index(range.start),
        bytes: index(range.end - range.start),
    });
    Pins::register(Arc::clone(pinner), regions).map_err(|(chunk, cause)| HostError::Register {
        chunk,
        chunks: ranges.len(),
        bytes: ranges[chunk].end - ranges[chunk].start,
        cause,
    })
}

fn huge_bytes(region: &Region) -> Option<u64> {
    let start = region.address() as u64;
    let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
    huge_bytes_of(&smaps, start, start + region.len() as u64)
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
