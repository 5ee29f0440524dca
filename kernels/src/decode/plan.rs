// SPDX-License-Identifier: Apache-2.0
//! The plan of a step on one rank: what every layer of the step reads, at fixed addresses.
//!
//! The host stages one [`PlanPlace`] a place of the batch and, unless the engine has its own map
//! of slots on the device, the pages of the requests; one small kernel makes lengths, the table,
//! destinations and the division of the work of them. [`PlanShape::build`] is its reference.

use bytemuck::{Pod, Zeroable};
use striata_core::table::EMPTY_CELL;
use striata_core::{Rank, Slot, Stripe, TokenPos};

use super::attend::AttendShape;
use super::schedule::{Cut, Schedule, WorkStart};
use super::{DecodeError, in_range, same_len};
use crate::stripe_twin::StripeWords;

/// Most places of a batch.
pub const MAX_BATCH: u32 = 4096;
/// A destination that is not written.
pub const NO_ROW: i32 = -1;

/// What the requests' sources hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PlanSource {
    /// The widened pages of a request.
    Pages = 0,
    /// The slots of its positions: a row of an engine's request-to-slot map.
    Slots = 1,
}

/// One place of the batch, as the host stages it. All zero: padding, no work and no write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PlanPlace {
    /// Tokens of the request, those of this step included; 0 or less for padding.
    pub global_len: i32,
    /// Row of the source.
    pub source_row: u32,
    /// Widened pages from the first on that the tokens of the step before filled and that are the
    /// same now: they are not read again, and their cells stay. 0 for a place with another
    /// request, or after a bad status. The page that is being filled is staged every step.
    pub kept_pages: u32,
    /// Tokens of this step, the last positions of the request; at most the queries of the shape.
    pub new_tokens: u32,
}

/// What became of a place. Every place but a good one becomes padding with empty cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PlanStatus {
    /// As staged.
    Good = 0,
    /// More live cells than the width of the table.
    TooWide = 1,
    /// The request is longer than its source, or there is no such source row.
    NoSlot = 2,
    /// A slot that does not begin a widened page.
    NotPageStart = 3,
    /// A page that is the sink or outside the plane.
    Page = 4,
    /// More new tokens than queries or than tokens.
    NewTokens = 5,
}

impl PlanStatus {
    /// The status of a word that the kernel wrote.
    #[must_use]
    pub const fn of(word: u32) -> Option<Self> {
        Some(match word {
            0 => Self::Good,
            1 => Self::TooWide,
            2 => Self::NoSlot,
            3 => Self::NotPageStart,
            4 => Self::Page,
            5 => Self::NewTokens,
            _ => return None,
        })
    }
}

/// Sizes of a plan; they never change while its buffers live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanShape {
    /// The stripe.
    pub stripe: Stripe,
    /// The rank.
    pub rank: Rank,
    /// Rows of a kernel page, which divides P: what a cell of the table stands for.
    pub kernel_rows: u32,
    /// Physical pages of a plane, the sink included.
    pub pages: u32,
    /// Cells of a place.
    pub width: u32,
    /// Batch, queries and heads of the attention calls.
    pub attend: AttendShape,
    /// How they divide their work.
    pub schedule: Schedule,
    /// What the sources hold.
    pub source: PlanSource,
    /// Entries of a source row.
    pub source_width: u32,
    /// Rows of the source.
    pub source_rows: u32,
}

/// The kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PlanParams {
    /// The stripe.
    pub stripe: StripeWords,
    /// The rank.
    pub rank: u32,
    /// Rows of a kernel page.
    pub kernel_rows: u32,
    /// Physical pages of a plane.
    pub pages: u32,
    /// Cells of a place.
    pub width: u32,
    /// Places.
    pub batch: u32,
    /// Queries of a place.
    pub queries: u32,
    /// A [`PlanSource`].
    pub source: u32,
    /// Entries of a source row.
    pub source_width: u32,
    /// Rows of the source.
    pub source_rows: u32,
    /// Parts of the work.
    pub parts: u32,
}

const _: () = assert!(size_of::<PlanParams>() == 52 && size_of::<PlanPlace>() == 16);

/// Where the parts of a plan stand in its memory: byte offsets, multiples of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLayout {
    /// Rows that the rank owns. Shape: \[B\] i32.
    pub local_lens: u64,
    /// Tokens. Shape: \[B\] i32.
    pub global_lens: u64,
    /// Row of the plane for each query's token, or [`NO_ROW`]. Shape: \[B\]\[s_q\] i32.
    pub rows: u64,
    /// [`PlanStatus`] words. Shape: \[B\].
    pub status: u64,
    /// [`WorkStart`]. Shape: \[parts + 1\].
    pub starts: u64,
    /// [`Cut`]. Shape: \[B\].
    pub cuts: u64,
    /// The table, kernel pages or -1. Shape: \[B\]\[width\] i32.
    pub cells: u64,
    /// Bytes of it all.
    pub bytes: u64,
}

/// A plan in host memory, for references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// As in [`PlanLayout`], and so on.
    pub local_lens: Vec<i32>,
    /// Tokens.
    pub global_lens: Vec<i32>,
    /// Destinations.
    pub rows: Vec<i32>,
    /// Status words.
    pub status: Vec<u32>,
    /// Starts of parts.
    pub starts: Vec<WorkStart>,
    /// Cuts of requests.
    pub cuts: Vec<Cut>,
    /// The table.
    pub cells: Vec<i32>,
}

impl PlanShape {
    /// Checks the sizes.
    ///
    /// # Errors
    /// Sizes that the kernels do not take, a rank outside the group.
    pub fn check(&self) -> Result<(), DecodeError> {
        self.stripe.check_rank(self.rank)?;
        self.attend.check()?;
        let (rows, page_rows) = (self.kernel_rows, self.stripe.page_rows());
        if rows == 0 || !page_rows.is_multiple_of(rows) {
            return Err(DecodeError::KernelPage {
                kernel_rows: rows,
                page_rows,
            });
        }
        in_range("the table width", self.width.into(), 1, 1 << 24)?;
        in_range(
            "the number of parts",
            self.schedule.parts.into(),
            1,
            1 << 16,
        )?;
        let split = page_rows / rows;
        // Cells and rows are i32.
        let most = (1u64 << 31) / u64::from(page_rows).max(u64::from(split));
        in_range("the number of pages", self.pages.into(), 1, most)?;
        let entries = u64::from(self.source_width) * u64::from(self.source_rows);
        in_range("the number of source entries", entries, 0, 1 << 40)
    }

    /// The kernel's argument.
    #[must_use]
    pub fn params(&self) -> PlanParams {
        PlanParams {
            stripe: self.stripe.into(),
            rank: self.rank.get(),
            kernel_rows: self.kernel_rows,
            pages: self.pages,
            width: self.width,
            batch: self.attend.batch,
            queries: self.attend.queries,
            source: self.source as u32,
            source_width: self.source_width,
            source_rows: self.source_rows,
            parts: self.schedule.parts,
        }
    }

    /// Where the parts of the plan stand.
    #[must_use]
    pub const fn layout(&self) -> PlanLayout {
        const fn take(at: &mut u64, count: u64, bytes: u64) -> u64 {
            let begin = *at;
            *at = (begin + count * bytes).next_multiple_of(16);
            begin
        }
        let batch = self.attend.batch as u64;
        let mut at = 0;
        let local_lens = take(&mut at, batch, 4);
        let global_lens = take(&mut at, batch, 4);
        let rows = take(&mut at, batch * self.attend.queries as u64, 4);
        let status = take(&mut at, batch, 4);
        let starts = take(&mut at, self.schedule.parts as u64 + 1, 8);
        let cuts = take(&mut at, batch, 12);
        let cells = take(&mut at, batch * self.width as u64, 4);
        PlanLayout {
            local_lens,
            global_lens,
            rows,
            status,
            starts,
            cuts,
            cells,
            bytes: at,
        }
    }

    /// An empty plan in host memory.
    #[must_use]
    pub fn host_plan(&self) -> HostPlan {
        let batch = self.attend.batch as usize;
        HostPlan {
            local_lens: vec![0; batch],
            global_lens: vec![0; batch],
            rows: vec![NO_ROW; batch * self.attend.queries as usize],
            status: vec![0; batch],
            starts: vec![WorkStart::default(); self.schedule.parts as usize + 1],
            cuts: vec![Cut::default(); batch],
            cells: vec![EMPTY_CELL; batch * self.width as usize],
        }
    }

    /// Builds a step's plan from staged places and sources. `plan` holds what the step before
    /// left, which kept pages rest on.
    ///
    /// Shapes: `places` \[B\], `source` \[source rows\]\[source width\].
    ///
    /// # Errors
    /// Slices of other lengths; sizes that [`PlanShape::check`] refuses.
    pub fn build(
        &self,
        places: &[PlanPlace],
        source: &[i32],
        plan: &mut HostPlan,
    ) -> Result<(), DecodeError> {
        self.check()?;
        let (width, queries) = (self.width as usize, self.attend.queries as usize);
        let entries = u64::from(self.source_rows) * u64::from(self.source_width);
        same_len("places", places.len() as u64, self.attend.batch.into())?;
        same_len("source", source.len() as u64, entries)?;
        for (index, place) in places.iter().enumerate() {
            let cells = &mut plan.cells[index * width..][..width];
            let rows = &mut plan.rows[index * queries..][..queries];
            let built = self.build_place(place, source, cells, rows);
            let (status, local, global) = match built {
                Ok(local) => (PlanStatus::Good, local, place.global_len.max(0)),
                Err(status) => {
                    cells.fill(EMPTY_CELL);
                    rows.fill(NO_ROW);
                    (status, 0, 0)
                }
            };
            plan.status[index] = status as u32;
            plan.local_lens[index] = local;
            plan.global_lens[index] = global;
        }
        (plan.starts, plan.cuts) = self.schedule.divide(&plan.local_lens);
        Ok(())
    }

    fn build_place(
        &self,
        place: &PlanPlace,
        source: &[i32],
        cells: &mut [i32],
        rows: &mut [i32],
    ) -> Result<i32, PlanStatus> {
        let global = place.global_len.max(0);
        let most_new = self.attend.queries.min(global.unsigned_abs());
        if place.new_tokens > most_new {
            return Err(PlanStatus::NewTokens);
        }
        let local = self.stripe.local_len(self.rank, i64::from(global));
        let live = local.div_ceil(u64::from(self.kernel_rows));
        let live = usize::try_from(live).map_err(|_| PlanStatus::TooWide)?;
        if live > cells.len() {
            return Err(PlanStatus::TooWide);
        }
        let split = (self.stripe.page_rows() / self.kernel_rows) as usize;
        for index in (place.kept_pages as usize)..live.div_ceil(split) {
            let page = self.page(place, source, index)?;
            for part in 0..split.min(live - index * split) {
                let cell = page as usize * split + part;
                cells[index * split + part] = i32::try_from(cell).map_err(|_| PlanStatus::Page)?;
            }
        }
        cells[live..].fill(EMPTY_CELL);
        for (query, row) in rows.iter_mut().enumerate() {
            let behind = i64::from(self.attend.queries) - 1 - query as i64;
            let position = i64::from(global) - 1 - behind;
            let written = behind < i64::from(place.new_tokens);
            *row = if written {
                self.row(position, cells)
            } else {
                NO_ROW
            };
        }
        i32::try_from(local).map_err(|_| PlanStatus::TooWide)
    }

    /// The widened page of index `index` of a request.
    fn page(&self, place: &PlanPlace, source: &[i32], index: usize) -> Result<u32, PlanStatus> {
        let step = match self.source {
            PlanSource::Pages => 1,
            PlanSource::Slots => self.stripe.widened_page(),
        };
        let at = step.saturating_mul(index as u64);
        if place.source_row >= self.source_rows || at >= u64::from(self.source_width) {
            return Err(PlanStatus::NoSlot);
        }
        let at = u64::from(place.source_row) * u64::from(self.source_width) + at;
        let entry = usize::try_from(at).ok().and_then(|at| source.get(at));
        let entry =
            u64::try_from(*entry.ok_or(PlanStatus::NoSlot)?).map_err(|_| PlanStatus::Page)?;
        let page = match self.source {
            PlanSource::Pages => entry,
            PlanSource::Slots => {
                let slot = Slot::new(entry);
                if self.stripe.offset_in_page(slot) != 0 {
                    return Err(PlanStatus::NotPageStart);
                }
                self.stripe.page_number(slot)
            }
        };
        let page = u32::try_from(page).map_err(|_| PlanStatus::Page)?;
        if page == 0 || page >= self.pages {
            return Err(PlanStatus::Page);
        }
        Ok(page)
    }

    /// The row of a position on this rank, by the request's cells; none on other ranks.
    fn row(&self, position: i64, cells: &[i32]) -> i32 {
        let Ok(position) = u64::try_from(position) else {
            return NO_ROW;
        };
        let position = TokenPos::new(position);
        if self.stripe.owner_of_position(position) != self.rank {
            return NO_ROW;
        }
        let local = self.stripe.local_index(position);
        let rows = u64::from(self.kernel_rows);
        let cell = usize::try_from(local / rows)
            .ok()
            .and_then(|at| cells.get(at));
        let Some(Ok(cell)) = cell.map(|&cell| u64::try_from(cell)) else {
            return NO_ROW;
        };
        i32::try_from(cell * rows + local % rows).unwrap_or(NO_ROW)
    }
}
