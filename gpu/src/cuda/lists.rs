// SPDX-License-Identifier: Apache-2.0
//! Kernels that read lists: rows by list, page tables, the stripe's answers.

use striata_core::table::TableLayout;
use striata_core::{Rank, Stripe};
use striata_kernels::row_list::unit_of;
use striata_kernels::source::Kernel;
use striata_kernels::stripe_twin::{StripeAnswer, StripeCase};
use striata_kernels::table::{PlaceStatus, TableParams};

use super::device::CudaDevice;
use super::keep::Kept;
use super::launch::{Grid, ROW_THREADS, ROW_WARPS, argument, launch};
use super::memory::CudaMemory;
use super::stream::CudaStream;
use crate::check;
use crate::device::Device;
use crate::error::GpuError;

const LIST_THREADS: u32 = 128;

/// Rows of a plane, on the device.
#[derive(Clone, Debug)]
pub struct RowList {
    memory: CudaMemory,
    count: u64,
    /// The row after the last.
    end: u64,
    distinct: bool,
}

/// Rows that move between a plane and a dense buffer.
#[derive(Clone, Copy, Debug)]
pub struct RowMove<'a> {
    /// Where the rows stand.
    pub plane: &'a CudaMemory,
    /// Byte at which row 0 begins.
    pub base: u64,
    /// Bytes of a row, a multiple of 4.
    pub row_bytes: u32,
    /// Which rows.
    pub list: &'a RowList,
    /// The rows one after the other.
    pub dense: &'a CudaMemory,
    /// Byte at which they begin.
    pub offset: u64,
}

/// What a request's source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSource {
    /// Its widened pages.
    Pages,
    /// The slots of its positions.
    Slots,
}

/// Page tables to be built on one rank.
#[derive(Clone, Copy, Debug)]
pub struct TableBuild<'a> {
    /// The stripe.
    pub stripe: Stripe,
    /// Rows of a kernel page; divides P.
    pub kernel_rows: u32,
    /// The rank.
    pub rank: Rank,
    /// Cells of a place.
    pub width: u32,
    /// Whether cells behind the live ones become empty.
    pub clear: bool,
    /// What the sources hold.
    pub source: TableSource,
    /// Source and tokens of each place.
    pub requests: &'a [(Vec<u64>, i64)],
}

impl CudaDevice {
    /// Puts a list of rows on the device.
    ///
    /// # Errors
    /// No room; a lost device.
    pub fn row_list(&self, rows: &[u64]) -> Result<RowList, GpuError> {
        let memory = self.alloc(rows.len() as u64 * size_of::<u64>() as u64)?;
        self.write(&memory, 0, bytemuck::cast_slice(rows))?;
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        Ok(RowList {
            memory,
            count: rows.len() as u64,
            end: sorted.last().map_or(0, |last| last.saturating_add(1)),
            distinct: sorted.windows(2).all(|pair| pair[0] != pair[1]),
        })
    }

    /// Copies the rows of a list from the plane to the dense buffer.
    ///
    /// # Errors
    /// A row outside its memory; buffers that overlap; a lost device.
    pub fn gather_rows(&self, stream: &CudaStream, rows: &RowMove<'_>) -> Result<(), GpuError> {
        let kernels = [Kernel::Gather16, Kernel::Gather8, Kernel::Gather4];
        move_rows("gather_rows", stream, rows, kernels)
    }

    /// Copies the rows of the dense buffer to the rows of a list in the plane.
    ///
    /// # Errors
    /// As [`CudaDevice::gather_rows`], and a list that names a row twice.
    pub fn scatter_rows(&self, stream: &CudaStream, rows: &RowMove<'_>) -> Result<(), GpuError> {
        if !rows.list.distinct {
            return Err(GpuError::Argument {
                call: "scatter_rows",
                reason: "the list names a row twice".to_owned(),
            });
        }
        let kernels = [Kernel::Scatter16, Kernel::Scatter8, Kernel::Scatter4];
        move_rows("scatter_rows", stream, rows, kernels)
    }

    /// Builds page tables into `cells`; returns the local length and the status of each place once
    /// they are there. Shape of `cells`: \[places\]\[width\] of i32.
    ///
    /// # Errors
    /// A kernel page that does not divide P, a rank outside the group, cells that do not fit; no
    /// room; a lost device.
    pub fn build_tables(
        &self,
        stream: &CudaStream,
        build: &TableBuild<'_>,
        cells: &CudaMemory,
    ) -> Result<Vec<(u64, PlaceStatus)>, GpuError> {
        let places = build.params()?.places;
        // Below 2^63 cells. Saturated, it is more than any memory has.
        let count = u64::from(places) * u64::from(build.width);
        let cell_bytes = count.saturating_mul(check::WORD) & !(check::WORD - 1);
        check::access("build_tables: the cells", cells.len(), 0, cell_bytes)?;
        if places == 0 {
            return Ok(Vec::new());
        }
        let upload = self.upload_table(build, places)?;
        self.launch_tables(stream, build, &upload, cells)?;
        stream.synchronize()?;
        let mut lens = vec![0u64; places as usize];
        self.read(
            &upload.memory,
            upload.lens,
            bytemuck::cast_slice_mut(&mut lens),
        )?;
        let mut words = vec![0u32; places as usize];
        self.read(
            &upload.memory,
            upload.status,
            bytemuck::cast_slice_mut(&mut words),
        )?;
        let status = words.into_iter().map(|word| {
            PlaceStatus::of(word).ok_or_else(|| GpuError::Argument {
                call: "build_tables",
                reason: format!("the kernel wrote the status {word}"),
            })
        });
        lens.into_iter()
            .zip(status)
            .map(|(len, status)| Ok((len, status?)))
            .collect()
    }

    /// Asks the stripe on the device.
    ///
    /// # Errors
    /// A case whose stripe or rank is refused; no room; a lost device.
    pub fn stripe_answers(
        &self,
        stream: &CudaStream,
        cases: &[StripeCase],
    ) -> Result<Vec<StripeAnswer>, GpuError> {
        for case in cases {
            let words = case.stripe;
            let stripe = Stripe::with_interleave(words.dcp, words.page_rows, words.interleave);
            let rank = stripe.and_then(|stripe| stripe.check_rank(Rank::new(case.rank)));
            rank.map_err(|error| refused("stripe_answers", &error))?;
        }
        let questions: &[u8] = bytemuck::cast_slice(cases);
        let mut answers: Vec<StripeAnswer> = vec![bytemuck::Zeroable::zeroed(); cases.len()];
        let from = self.alloc(questions.len() as u64)?;
        let to = self.alloc(size_of_val(answers.as_slice()) as u64)?;
        self.write(&from, 0, questions)?;
        if !cases.is_empty() {
            let count = cases.len() as u64;
            let shared = stream.owner();
            let _scope = stream.enter("stripe_answers")?;
            let kept = [Kept::Memory(from.clone()), Kept::Memory(to.clone())];
            stream.submit(&kept, || {
                let (mut from, mut to, mut count) = (from.at(0), to.at(0), count);
                let grid = Grid::over(shared, count, LIST_THREADS, LIST_THREADS);
                let mut list = [argument(&mut from), argument(&mut to), argument(&mut count)];
                // SAFETY: (7) both buffers hold `count` records; (9) twin of
                // `striata_stripe_check`.
                unsafe { launch(shared, stream, Kernel::StripeCheck, grid, &mut list) }
            })?;
        }
        stream.synchronize()?;
        self.read(&to, 0, bytemuck::cast_slice_mut(&mut answers))?;
        Ok(answers)
    }

    fn upload_table(&self, build: &TableBuild<'_>, places: u32) -> Result<Upload, GpuError> {
        let mut starts = vec![0u64];
        let mut source = Vec::new();
        let mut lengths = Vec::new();
        for (pages, length) in build.requests {
            source.extend_from_slice(pages);
            starts.push(source.len() as u64);
            lengths.push(*length);
        }
        let word = size_of::<u64>() as u64;
        let at_source = starts.len() as u64 * word;
        let at_lengths = at_source + source.len() as u64 * word;
        let lens = at_lengths + lengths.len() as u64 * word;
        let status = lens + u64::from(places) * word;
        let memory = self.alloc(status + u64::from(places) * check::WORD)?;
        self.write(&memory, 0, bytemuck::cast_slice(&starts))?;
        self.write(&memory, at_source, bytemuck::cast_slice(&source))?;
        self.write(&memory, at_lengths, bytemuck::cast_slice(&lengths))?;
        Ok(Upload {
            memory,
            source: at_source,
            lengths: at_lengths,
            lens,
            status,
        })
    }

    fn launch_tables(
        &self,
        stream: &CudaStream,
        build: &TableBuild<'_>,
        upload: &Upload,
        cells: &CudaMemory,
    ) -> Result<(), GpuError> {
        let shared = stream.owner();
        shared.check_same("build_tables", "cells", cells.owner())?;
        shared.check_same("build_tables", "stream", upload.memory.owner())?;
        let mut params = build.params()?;
        let _scope = stream.enter("build_tables")?;
        let kept = [
            Kept::Memory(upload.memory.clone()),
            Kept::Memory(cells.clone()),
        ];
        let grid = Grid {
            x: params.places,
            y: 1,
            threads: LIST_THREADS,
        };
        stream.submit(&kept, || {
            let at = |offset| upload.memory.at(offset);
            let (mut source, mut starts, mut lengths) =
                (at(upload.source), at(0), at(upload.lengths));
            let (mut lens, mut status, mut cells) =
                (at(upload.lens), at(upload.status), cells.at(0));
            let mut list = [
                argument(&mut params),
                argument(&mut source),
                argument(&mut starts),
                argument(&mut lengths),
                argument(&mut cells),
                argument(&mut lens),
                argument(&mut status),
            ];
            // SAFETY: (7) the lists were made for these places, and the cells fit; (9) twin of
            // `striata_page_tables`.
            unsafe { launch(shared, stream, Kernel::PageTables, grid, &mut list) }
        })
    }
}

/// Where the lists of a table build stand in their memory; the starts stand first.
struct Upload {
    memory: CudaMemory,
    source: u64,
    lengths: u64,
    lens: u64,
    status: u64,
}

impl TableBuild<'_> {
    fn params(&self) -> Result<TableParams, GpuError> {
        TableLayout::with_kernel_page(self.stripe, self.kernel_rows)
            .map_err(|error| refused("build_tables", &error))?;
        let rank = self.stripe.check_rank(self.rank);
        let rank = rank.map_err(|error| refused("build_tables", &error))?;
        let places = u32::try_from(self.requests.len())
            .ok()
            .filter(|n| i32::try_from(*n).is_ok());
        let places = places.ok_or_else(|| GpuError::Argument {
            call: "build_tables",
            reason: format!("{} places are more than 2^31", self.requests.len()),
        })?;
        Ok(TableParams {
            stripe: self.stripe.into(),
            rank: rank.get(),
            kernel_rows: self.kernel_rows,
            width: self.width,
            places,
            from_slots: u32::from(self.source == TableSource::Slots),
            clear: u32::from(self.clear),
        })
    }
}

fn refused(call: &'static str, error: &dyn core::fmt::Display) -> GpuError {
    GpuError::Argument {
        call,
        reason: error.to_string(),
    }
}

fn move_rows(
    call: &'static str,
    stream: &CudaStream,
    rows: &RowMove<'_>,
    kernels: [Kernel; 3],
) -> Result<(), GpuError> {
    let shared = stream.owner();
    check_move(call, rows)?;
    for memory in [rows.plane, rows.dense, &rows.list.memory] {
        shared.check_same(call, "memory", memory.owner())?;
    }
    if rows.list.count == 0 || rows.row_bytes == 0 {
        return Ok(());
    }
    let (plane, dense) = (rows.plane.at(rows.base), rows.dense.at(rows.offset));
    let unit = unit_of(rows.row_bytes, &[plane, dense]).ok_or(GpuError::Misaligned {
        what: "move_rows: the row",
        value: u64::from(rows.row_bytes),
    })?;
    let kernel = match unit {
        16 => kernels[0],
        8 => kernels[1],
        _ => kernels[2],
    };
    let _scope = stream.enter_launch(call)?;
    let owners = [rows.plane, rows.dense, &rows.list.memory];
    let kept = owners.map(|memory| Kept::Memory(memory.clone()));
    stream.submit(&kept, || {
        let (mut plane, mut dense, mut list) = (plane, dense, rows.list.memory.at(0));
        let (mut count, mut units) = (rows.list.count, rows.row_bytes / unit);
        let grid = Grid::over(shared, count, ROW_WARPS, ROW_THREADS);
        let mut arguments = [
            argument(&mut plane),
            argument(&mut list),
            argument(&mut dense),
            argument(&mut count),
            argument(&mut units),
        ];
        // SAFETY: (7) both ends were checked; (9) gather and scatter kernels have one signature.
        unsafe { launch(shared, stream, kernel, grid, &mut arguments) }
    })
}

/// Checks that all rows lie in their memory and that the two sides share no byte.
fn check_move(call: &'static str, rows: &RowMove<'_>) -> Result<(), GpuError> {
    let row_bytes = u64::from(rows.row_bytes);
    check::check_words("move_rows: the row", row_bytes)?;
    let bytes = |count: u64| count.checked_mul(row_bytes).unwrap_or(u64::MAX - 3);
    let plane_bytes = bytes(rows.list.end);
    let dense_bytes = bytes(rows.list.count);
    check::access(
        "move_rows: the plane",
        rows.plane.len(),
        rows.base,
        plane_bytes,
    )?;
    check::access(
        "move_rows: the dense rows",
        rows.dense.len(),
        rows.offset,
        dense_bytes,
    )?;
    let apart = rows.base + plane_bytes <= rows.offset || rows.offset + dense_bytes <= rows.base;
    if rows.plane.is_same(rows.dense) && !apart {
        let reason = "the dense rows overlap the rows of the plane".to_owned();
        return Err(GpuError::Argument { call, reason });
    }
    Ok(())
}
