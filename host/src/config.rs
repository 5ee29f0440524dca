// SPDX-License-Identifier: Apache-2.0
//! What a pool is made of.

use std::sync::Arc;

use striata_core::{HostLayout, PageGeometry};

use crate::backing::HugePages;
use crate::error::HostError;
use crate::pin::{NoPin, PagePinner};

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct HostPoolConfig {
    /// Bytes of a page.
    pub page: PageGeometry,
    /// Pages at first; none is reserved.
    pub pages: u32,
    /// Pages that the pool may grow to, for which address space is reserved at once; none for as
    /// many as at first. Explicit huge pages are set aside for all of them.
    pub max_pages: Option<u32>,
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
    /// Bytes of one registration, roughly: 64 to 128 MiB. A pool grows by whole registrations, and
    /// a device holds its lock for the length of one.
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
            max_pages: None,
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

    /// Pages that address space is reserved for.
    ///
    /// # Errors
    /// Fewer than at first; more in an order in which a pool cannot grow.
    pub(crate) fn reserved_pages(&self) -> Result<u32, HostError> {
        let pages = self.pages;
        let max_pages = self.max_pages.unwrap_or(pages);
        if max_pages < pages {
            return Err(HostError::AboveReserve {
                pages: 0,
                asked: pages,
                max_pages,
            });
        }
        if max_pages > pages && self.layout == HostLayout::LayerFirst {
            return Err(HostError::LayerFirstGrowth { pages, max_pages });
        }
        Ok(max_pages)
    }

    /// Bytes of `pages` pages.
    ///
    /// # Errors
    /// None at all, or more than can be addressed.
    pub(crate) fn bytes(&self, pages: u32) -> Result<usize, HostError> {
        let page = self.page;
        let chunk = page.chunk_bytes();
        let too_large = HostError::TooLarge {
            pages,
            layers: page.layers(),
            chunk_bytes: chunk,
        };
        let page_bytes = chunk
            .checked_mul(u64::from(page.layers()))
            .ok_or(too_large.clone())?;
        let bytes = page_bytes
            .checked_mul(u64::from(pages))
            .ok_or(too_large.clone())?;
        if bytes == 0 {
            return Err(HostError::Empty { pages, page_bytes });
        }
        isize::try_from(bytes)
            .map(isize::unsigned_abs)
            .map_err(|_| too_large)
    }
}
