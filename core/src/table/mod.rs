// SPDX-License-Identifier: Apache-2.0
//! Rank-local page tables: where an attention kernel finds the rows of a request on one rank.
//!
//! Page ids are the same on every rank, so a row of the table holds the request's pages; only how
//! many of them are live differs by rank. A kernel whose pages are smaller than P sees each
//! physical page as P / K kernel pages; ownership and local rows still come from P and c alone,
//! and only the final address is split.

mod batch;

pub use batch::PageTable;

use crate::stripe::Stripe;
use crate::units::{L1Page, Rank, Slot, TokenPos};

/// Value of a cell that names no page.
pub const EMPTY_CELL: i32 = -1;

/// What happens to the cells of a row behind its live pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleCells {
    /// They stay as they are.
    Keep,
    /// They become [`EMPTY_CELL`].
    Clear,
}

/// Why a table row cannot be written; the row is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A kernel page that does not divide P.
    #[error("a kernel page of {kernel_rows} rows does not divide the physical page of {rows} rows")]
    KernelPage {
        /// Rows of the kernel page.
        kernel_rows: u32,
        /// P.
        rows: u32,
    },
    /// A rank that is not in the group.
    #[error("dcp rank {rank} is not below the dcp size {dcp}")]
    Rank {
        /// The rank.
        rank: u32,
        /// c.
        dcp: u32,
    },
    /// More live pages than cells.
    #[error("{needed} kernel pages do not fit in a table row of {width} cells")]
    Width {
        /// Live kernel pages.
        needed: u64,
        /// Cells of the row.
        width: usize,
    },
    /// A request that is longer than its pages or slots.
    #[error("position {position} has no slot, and the length is {length}")]
    NoSlot {
        /// The first position of a live page that is missing.
        position: u64,
        /// Tokens of the request.
        length: i64,
    },
    /// A slot that does not begin a widened page where the position does.
    #[error(
        "slot {slot} of position {position} does not begin a widened page of {page_slots} slots"
    )]
    NotPageStart {
        /// The position.
        position: u64,
        /// Its slot.
        slot: u64,
        /// W.
        page_slots: u64,
    },
    /// A table that memory does not hold.
    #[error("a table of {places} rows of {width} cells does not fit in memory")]
    Memory {
        /// Rows.
        places: usize,
        /// Cells of a row.
        width: usize,
    },
    /// A page whose kernel pages have no i32.
    #[error("page {page} has no kernel page number of 32 bits: a page is {split} kernel pages")]
    PageNumber {
        /// The widened page.
        page: u64,
        /// Kernel pages of it.
        split: u32,
    },
}

/// Where a token stands for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelAddress {
    /// The only rank that holds it.
    pub rank: Rank,
    /// The kernel page in that rank's buffer.
    pub page: u64,
    /// The row in the kernel page.
    pub row: u32,
}

/// How tables of one pool are written for one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLayout {
    stripe: Stripe,
    kernel_rows: u32,
}

impl TableLayout {
    /// Tables for a kernel whose pages are the physical pages.
    #[must_use]
    pub const fn new(stripe: Stripe) -> Self {
        Self {
            stripe,
            kernel_rows: stripe.page_rows(),
        }
    }

    /// Tables for a kernel with pages of `kernel_rows` rows.
    ///
    /// # Errors
    /// A size that does not divide P.
    pub const fn with_kernel_page(stripe: Stripe, kernel_rows: u32) -> Result<Self, TableError> {
        let rows = stripe.page_rows();
        if kernel_rows == 0 || !rows.is_multiple_of(kernel_rows) {
            return Err(TableError::KernelPage { kernel_rows, rows });
        }
        Ok(Self {
            stripe,
            kernel_rows,
        })
    }

    /// Kernel pages of a physical page.
    #[must_use]
    pub const fn split(self) -> u32 {
        self.stripe.page_rows() / self.kernel_rows
    }

    /// Live kernel pages on `rank` of a request of `length` tokens.
    #[must_use]
    pub const fn live_cells(self, rank: Rank, length: i64) -> u64 {
        let rows = self.stripe.local_len(rank, length);
        rows.div_ceil(self.kernel_rows as u64)
    }

    /// Cells of a row that holds any request of up to `tokens` tokens on any rank.
    #[must_use]
    pub const fn width_for(self, tokens: u64) -> u64 {
        self.stripe
            .pages_for(tokens)
            .saturating_mul(self.split() as u64)
    }

    /// Where a position of a request that stands on `pages` is; none behind the last page.
    #[must_use]
    pub fn address(self, pages: &[L1Page], position: TokenPos) -> Option<KernelAddress> {
        let slot = self.stripe.slot_at(pages, position)?;
        let row = self.stripe.row_on_owner(slot).get();
        let kernel_rows = u64::from(self.kernel_rows);
        Some(KernelAddress {
            rank: self.stripe.owner_of_slot(slot),
            page: row / kernel_rows,
            row: u32::try_from(row % kernel_rows).ok()?,
        })
    }

    /// Writes the table row of a request that stands on `pages`; returns its live cells.
    ///
    /// # Errors
    /// A rank outside the group; a request longer than its pages or than `cells`; a page without
    /// a number. Nothing is written then.
    pub fn write_pages(
        self,
        rank: Rank,
        pages: &[L1Page],
        length: i64,
        stale: StaleCells,
        cells: &mut [i32],
    ) -> Result<usize, TableError> {
        let w = self.stripe.widened_page();
        let page_at = |index: usize| pages.get(index).map(|page| u64::from(page.get()) * w);
        self.write(rank, length, page_at, stale, cells)
    }

    /// Writes the table row of a request whose token at position p stands at `slots[p]`: a row of
    /// an engine's request-to-slot map, as long as whole widened pages. Returns its live cells.
    ///
    /// # Errors
    /// As [`TableLayout::write_pages`], and a page's first position at a slot that does not begin
    /// a page.
    pub fn write_slots(
        self,
        rank: Rank,
        slots: &[Slot],
        length: i64,
        stale: StaleCells,
        cells: &mut [i32],
    ) -> Result<usize, TableError> {
        let w = usize::try_from(self.stripe.widened_page()).unwrap_or(usize::MAX);
        let slot_at = |index: usize| Some(slots.get(index.checked_mul(w)?)?.get());
        self.write(rank, length, slot_at, stale, cells)
    }

    /// `page_slot(k)` is the slot of position k * W.
    fn write(
        self,
        rank: Rank,
        length: i64,
        page_slot: impl Fn(usize) -> Option<u64>,
        stale: StaleCells,
        cells: &mut [i32],
    ) -> Result<usize, TableError> {
        let dcp = self.stripe.dcp();
        if rank.get() >= dcp {
            let rank = rank.get();
            return Err(TableError::Rank { rank, dcp });
        }
        let needed = self.live_cells(rank, length);
        let live = match usize::try_from(needed) {
            Ok(live) if live <= cells.len() => live,
            _ => {
                let width = cells.len();
                return Err(TableError::Width { needed, width });
            }
        };
        let split = self.split() as usize;
        for index in 0..live.div_ceil(split) {
            self.first_cell(index, length, &page_slot)?;
        }
        for (index, group) in cells[..live].chunks_mut(split).enumerate() {
            let first = self.first_cell(index, length, &page_slot)?;
            for (cell, number) in group.iter_mut().zip(first..=i32::MAX) {
                *cell = number;
            }
        }
        if stale == StaleCells::Clear {
            cells[live..].fill(EMPTY_CELL);
        }
        Ok(live)
    }

    /// The kernel page that begins the page of index `index` of a request.
    fn first_cell(
        self,
        index: usize,
        length: i64,
        page_slot: impl Fn(usize) -> Option<u64>,
    ) -> Result<i32, TableError> {
        let page_slots = self.stripe.widened_page();
        let position = index as u64 * page_slots;
        let slot = page_slot(index).ok_or(TableError::NoSlot { position, length })?;
        if self.stripe.offset_in_page(Slot::new(slot)) != 0 {
            return Err(TableError::NotPageStart {
                position,
                slot,
                page_slots,
            });
        }
        let page = self.stripe.page_number(Slot::new(slot));
        let split = self.split();
        page.checked_mul(u64::from(split))
            .filter(|&first| first.saturating_add(u64::from(split)) <= 1 << 31)
            .and_then(|first| i32::try_from(first).ok())
            .ok_or(TableError::PageNumber { page, split })
    }
}

#[cfg(test)]
mod tests;
