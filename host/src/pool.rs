// SPDX-License-Identifier: Apache-2.0
//! [`HostPool`]: pages of one rank in host memory, mapped once, present, registered.

use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use striata_core::sync::Mutex;
use striata_core::{HostLayout, HostStrides, L2Page, LayerId, PageGeometry};

use crate::backing::{self, Backing};
use crate::budget::{HostMemory, huge_bytes_of};
use crate::chunks::Chunks;
use crate::config::HostPoolConfig;
use crate::error::HostError;
use crate::pin::Pins;
use crate::pinning::Pinning;
use crate::prefault::{NumaPlacement, Prefault, PrefaultWay};
use crate::published::Published;
use crate::region::Region;

const WORD: u64 = size_of::<u32>() as u64;

/// How a pool came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// Bytes of the pool at first.
    pub bytes: u64,
    /// Bytes that were made present and registered: whole registrations.
    pub present_bytes: u64,
    /// Bytes that the pool may grow to.
    pub reserved_bytes: u64,
    /// Which memory pages it lies on.
    pub backing: Backing,
    /// Bytes that lie on huge pages, as the kernel counts them; `None` where it does not say.
    pub huge_bytes: Option<u64>,
    /// How the memory was made present.
    pub prefault: PrefaultWay,
    /// Threads that made it present.
    pub prefault_threads: usize,
    /// From the begin until all of it was.
    pub prefault_time: Duration,
    /// Where the memory lies.
    pub placement: NumaPlacement,
    /// Bytes of each registration but the last.
    pub chunk_bytes: u64,
    /// Registrations.
    pub chunks: usize,
    /// Whether the memory is page-locked.
    pub pinned: bool,
    /// How long the registrations took together; they run while later chunks are made present.
    pub register_time: Duration,
    /// How long the longest of them took.
    pub longest_register: Duration,
    /// From the begin to the end.
    pub total_time: Duration,
}

/// Pages of one rank in host memory.
///
/// Shape: \[pages\]\[layers\]\[page bytes of a layer\], in the order that the layout says. Every
/// access is by atomic words, so that copies by other threads at the same time are races of
/// values, never of memory; order is the business of who submits the copies.
///
/// Address space is reserved once for all pages that the pool may grow to, so addresses and places
/// never change; pages and bytes are those of now, and only rise ([`HostPool::grow_to`]).
#[derive(Debug)]
pub struct HostPool {
    // Field order is drop order: registrations go before the memory.
    /// Held by who grows the pool.
    pub(crate) pins: Mutex<Pins>,
    pub(crate) region: Region,
    pub(crate) pinning: Pinning,
    pub(crate) published: Published,
    pub(crate) max_pages: u32,
    pub(crate) reserve_bytes: u64,
    page: PageGeometry,
    layout: HostLayout,
    strides: HostStrides,
    report: PoolReport,
}

impl HostPool {
    /// Maps, makes present and registers a pool.
    ///
    /// # Errors
    /// No bytes or too many; more memory than the machine can spare (nothing was mapped then);
    /// demanded huge pages that are not there; a registration that was refused (those before it
    /// were taken back); pages to grow to that are fewer than at first, or in layer-first order.
    pub fn new(config: &HostPoolConfig) -> Result<Self, HostError> {
        Self::on_machine(config, &HostMemory::probe())
    }

    fn on_machine(config: &HostPoolConfig, memory: &HostMemory) -> Result<Self, HostError> {
        let began = Instant::now();
        let max_pages = config.reserved_pages()?;
        let (bytes, reserved) = (config.bytes(config.pages)? as u64, config.bytes(max_pages)?);
        let strides = config.layout.strides(config.page, max_pages);
        let unit = strides.page.max(strides.layer);
        let memory_page = rustix::param::page_size() as u64;
        let chunks = Chunks::new(reserved as u64, unit, config.chunk_bytes, memory_page);
        let count = chunks.holding(bytes);
        let present_bytes = chunks.range(count.saturating_sub(1)).end;
        let (region, backing) = backing::map(
            reserved,
            present_bytes,
            config.huge_pages,
            config.reserve_bytes,
            memory,
        )?;
        let prefault = || Prefault::new(config.prefault_threads, config.numa_node, memory);
        let pinning = Pinning {
            chunks,
            prefault: config.prefault.then(prefault),
        };
        let mut pins = Pins::new(Arc::clone(&config.pinner));
        let pinned = pinning.pin(&region, &mut pins, count)?;
        let report = PoolReport {
            bytes,
            present_bytes,
            reserved_bytes: reserved as u64,
            backing,
            huge_bytes: huge_bytes(&region),
            prefault: pinned.prefaulted.way,
            prefault_threads: pinned.prefaulted.threads,
            prefault_time: pinned.prefault_time,
            placement: pinned.prefaulted.placement,
            chunk_bytes: chunks.chunk_bytes(),
            chunks: pins.len(),
            pinned: config.pinner.locks_pages(),
            register_time: pinned.register_time,
            longest_register: pinned.longest_register,
            total_time: began.elapsed(),
        };
        tracing::debug!(?report, "host pool");
        Ok(Self {
            pins: Mutex::new(pins),
            region,
            pinning,
            published: Published::new(config.pages),
            max_pages,
            reserve_bytes: config.reserve_bytes,
            page: config.page,
            layout: config.layout,
            strides,
            report,
        })
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn geometry(&self) -> PageGeometry {
        self.page
    }
    /// Pages of the pool now.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.published.get()
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
    /// Bytes of the pool now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_of(self.pages())
    }

    /// Bytes of the first `pages` pages, which are at most those reserved.
    pub(crate) fn bytes_of(&self, pages: u32) -> u64 {
        self.page.page_bytes() * u64::from(pages)
    }
    /// How the pool came to be.
    #[must_use]
    pub const fn report(&self) -> &PoolReport {
        &self.report
    }
    /// Bytes that lie on huge pages now, as the kernel counts them; `None` where it does not say.
    /// The kernel walks all mappings of the process for it.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        huge_bytes(&self.region)
    }
    /// Registrations that are held; waits for a growth that runs.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.pins.lock().len()
    }

    /// Address of the first byte, for a device that names host memory by address.
    #[must_use]
    pub fn address(&self) -> usize {
        self.region.address()
    }

    /// All words of the pool now, shared with whoever copies.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        &self.region.words()[..index(self.bytes() / WORD)]
    }

    /// The registration that holds byte `offset`; `None` outside the pool.
    #[must_use]
    pub fn chunk_of(&self, offset: u64) -> Option<u64> {
        (offset < self.bytes()).then(|| self.pinning.chunks.of(offset))
    }

    /// Checks that one copy may touch `len` bytes at `offset`.
    ///
    /// # Errors
    /// Bytes outside the pool, or in two registrations.
    pub fn check_copy(&self, offset: u64, len: u64) -> Result<(), HostError> {
        self.pinning.chunks.check(offset, len, self.bytes())
    }

    /// Byte offset of one page in one layer.
    ///
    /// # Errors
    /// A page or a layer that the pool does not have.
    pub fn offset_of(&self, page: L2Page, layer: LayerId) -> Result<u64, HostError> {
        let pages = self.pages();
        if page.get() >= pages {
            let page = page.get();
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

fn huge_bytes(region: &Region) -> Option<u64> {
    let start = region.address() as u64;
    let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
    huge_bytes_of(&smaps, start, start + region.len() as u64)
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
