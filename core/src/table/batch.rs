// SPDX-License-Identifier: Apache-2.0
//! The page table of a batch on one rank.

use super::{EMPTY_CELL, StaleCells, TableError, TableLayout};
use crate::units::{L1Page, Rank};

/// The table of a batch: a row of cells and a local length for each place, at fixed addresses.
///
/// Places without a request have length 0, so that a padded launch does no work.
#[derive(Clone, Debug)]
pub struct PageTable {
    layout: TableLayout,
    rank: Rank,
    width: usize,
    cells: Vec<i32>,
    local_lens: Vec<u64>,
    /// One row, to compare with what stands on a place.
    scratch: Vec<i32>,
}

impl PageTable {
    /// A table of `places` empty rows of `width` cells for `rank`.
    ///
    /// # Errors
    /// A rank outside the group; more cells than memory.
    pub fn new(
        layout: TableLayout,
        rank: Rank,
        places: usize,
        width: usize,
    ) -> Result<Self, TableError> {
        let dcp = layout.stripe.dcp();
        if rank.get() >= dcp {
            let rank = rank.get();
            return Err(TableError::Rank { rank, dcp });
        }
        let cells = filled(places.checked_mul(width), EMPTY_CELL);
        let lens = filled(Some(places), 0);
        let scratch = filled(Some(width), EMPTY_CELL);
        let (Some(cells), Some(local_lens), Some(scratch)) = (cells, lens, scratch) else {
            return Err(TableError::Memory { places, width });
        };
        Ok(Self {
            layout,
            rank,
            width,
            cells,
            local_lens,
            scratch,
        })
    }

    /// Puts a request on a place; returns whether a cell or the length changed, so that the row
    /// must be uploaded. A place that does not exist changes nothing.
    ///
    /// # Errors
    /// As [`TableLayout::write_pages`]; the place is as it was.
    pub fn set(&mut self, place: usize, pages: &[L1Page], length: i64) -> Result<bool, TableError> {
        let Some(range) = self.range(place) else {
            return Ok(false);
        };
        let clear = StaleCells::Clear;
        self.layout
            .write_pages(self.rank, pages, length, clear, &mut self.scratch)?;
        let local = self.layout.stripe.local_len(self.rank, length);
        let row = &mut self.cells[range];
        let changed = *row != self.scratch || self.local_lens[place] != local;
        row.copy_from_slice(&self.scratch);
        self.local_lens[place] = local;
        Ok(changed)
    }

    /// Empties a place; returns whether it held anything.
    pub fn clear(&mut self, place: usize) -> bool {
        let Some(range) = self.range(place) else {
            return false;
        };
        let held = self.local_lens[place] != 0;
        self.cells[range].fill(EMPTY_CELL);
        self.local_lens[place] = 0;
        held
    }

    fn range(&self, place: usize) -> Option<core::ops::Range<usize>> {
        (place < self.local_lens.len()).then(|| place * self.width..(place + 1) * self.width)
    }

    /// All cells. Shape: \[places\]\[width\].
    #[must_use]
    pub fn cells(&self) -> &[i32] {
        &self.cells
    }

    /// Rows that this rank owns of each place's request.
    #[must_use]
    pub fn local_lens(&self) -> &[u64] {
        &self.local_lens
    }
}

fn filled<V: Copy>(len: Option<usize>, value: V) -> Option<Vec<V>> {
    let len = len?;
    let mut values = Vec::new();
    values.try_reserve_exact(len).ok()?;
    values.resize(len, value);
    Some(values)
}
