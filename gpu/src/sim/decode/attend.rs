// SPDX-License-Identifier: Apache-2.0
//! Attention of one rank in f32, on as many threads as the work is worth.
//!
//! A thread has a share of the query rows of a request and goes through the request's rows in
//! tiles, as the kernels do; every query row is computed alike whatever the number of threads.

use core::ops::Range;
use std::thread;

use striata_kernels::decode::{LANES, LATENT, OutputForm, OutputKind, PlanLayout, PlanShape};
use striata_kernels::reference::{LseFault, MergeReport};
use striata_kernels::{Base, E, Lse, Two};

use super::message::count;
use super::plane::{Plane, RowBuffer};
use super::span::Span;

/// Rows of a tile.
const TILE: usize = 64;
/// Products of a query row and a row from which on another thread is worth its start.
const WORTH_A_THREAD: u64 = 1 << 15;
/// Lanes that are summed side by side.
const ABREAST: usize = 16;

/// The operation.
#[derive(Debug)]
pub(crate) struct AttendOp {
    pub(crate) shape: PlanShape,
    pub(crate) layout: PlanLayout,
    pub(crate) plan: Span,
    pub(crate) plane: Plane,
    pub(crate) query: Span,
    pub(super) query_strides: [u64; 3],
    pub(super) scale: f32,
    pub(super) base: Base,
    pub(super) form: OutputForm,
    pub(super) message_stride: u64,
    pub(super) message_heads: u64,
    pub(crate) output: Span,
    pub(crate) tally: Option<Span>,
}

/// The output of one query row.
struct Out {
    o: [f32; LATENT],
    /// Natural.
    lse: Lse<E>,
}

/// Sums of one query row relative to its largest score so far.
struct Running {
    query: [f32; LANES],
    visible: u64,
    max: f32,
    sum: f64,
    o: [f32; LATENT],
}

impl AttendOp {
    /// Rows of the plane that a place may read: local index of the first, and how many, run by
    /// run.
    pub(crate) fn read_runs(&self) -> Vec<Range<u64>> {
        let kernel_rows = u64::from(self.shape.kernel_rows);
        let mut runs = Vec::new();
        for place in 0..u64::from(self.shape.attend.batch) {
            let last = self.shape.attend.queries - 1;
            let rows = self.visible(place, last);
            for (index, start) in (0..rows)
                .step_by(self.shape.kernel_rows as usize)
                .enumerate()
            {
                let cell = self.cell(place, index as u64);
                if let Some(row) = self.plane.row_of(cell, kernel_rows, start) {
                    let end = row + kernel_rows.min(rows - start);
                    runs.push(row..end.min(self.plane.rows));
                }
            }
        }
        runs
    }

    fn visible(&self, place: u64, query: u32) -> u64 {
        let global = i64::from(self.plan.i32(self.layout.global_lens, place));
        let queries = self.shape.attend.queries;
        let stripe = self.shape.stripe;
        stripe.visible_rows(self.shape.rank, global, queries, query)
    }

    fn cell(&self, place: u64, index: u64) -> i32 {
        let width = u64::from(self.shape.width);
        if index >= width {
            return -1;
        }
        self.plan.i32(self.layout.cells, place * width + index)
    }

    /// Computes every query row.
    pub(super) fn run(&self) {
        let attend = self.shape.attend;
        let rows = attend.queries as usize * attend.heads as usize;
        for place in 0..u64::from(attend.batch) {
            let work = self.visible(place, attend.queries - 1) * rows as u64;
            let wanted = usize::try_from(work / WORTH_A_THREAD).unwrap_or(usize::MAX);
            let threads = wanted.clamp(1, cores()).min(rows.max(1));
            if threads <= 1 {
                self.run_rows(place, 0..rows);
                continue;
            }
            let share = rows.div_ceil(threads);
            thread::scope(|scope| {
                for first in (0..rows).step_by(share) {
                    let rows = first..(first + share).min(rows);
                    scope.spawn(move || self.run_rows(place, rows));
                }
            });
        }
    }

    /// Computes query rows `rows` (query x head) of a place.
    fn run_rows(&self, place: u64, rows: Range<usize>) {
        let heads = self.shape.attend.heads as usize;
        let mut running: Vec<Running> = rows
            .clone()
            .map(|row| self.begin(place, row / heads, row % heads))
            .collect();
        let end = running.iter().map(|query| query.visible).max();
        let kernel_rows = u64::from(self.shape.kernel_rows);
        let mut buffer = RowBuffer::new();
        let mut tile = vec![0f32; TILE * LANES];
        for first in (0..end.unwrap_or(0)).step_by(TILE) {
            let count = (end.unwrap_or(0) - first).min(TILE as u64);
            for (local, lanes) in (first..first + count).zip(tile.chunks_exact_mut(LANES)) {
                let cell = self.cell(place, local / kernel_rows);
                let row = self.plane.row_of(cell, kernel_rows, local);
                self.plane.lanes(row, &mut buffer, lanes);
            }
            for query in &mut running {
                let seen = query.visible.saturating_sub(first).min(count);
                let seen = usize::try_from(seen).unwrap_or(TILE);
                query.add(&tile[..seen * LANES], self.scale);
            }
        }
        for (row, query) in rows.zip(running) {
            self.put(place, row / heads, row % heads, &query.end());
        }
    }

    fn begin(&self, place: u64, query: usize, head: usize) -> Running {
        let [request, token, of_head] = self.query_strides;
        let at = place * request + query as u64 * token + head as u64 * of_head;
        let mut bits = [0u16; LANES];
        self.query.halves(at, &mut bits);
        Running {
            query: bits.map(striata_kernels::decode::row_codec::widen),
            visible: self.visible(place, u32::try_from(query).unwrap_or(u32::MAX)),
            max: f32::NEG_INFINITY,
            sum: 0.0,
            o: [0.0; LATENT],
        }
    }

    /// Writes an output row where its message has it.
    fn put(&self, place: u64, query: usize, head: usize, out: &Out) {
        let token = place * u64::from(self.shape.attend.queries) + query as u64;
        let (message, head) = (
            head as u64 / self.message_heads,
            head as u64 % self.message_heads,
        );
        let row = token * self.message_heads + head;
        let start = message * self.message_stride;
        let row_bytes = self.form.kind.row_bytes();
        let mut bytes = [0u8; LATENT * 4];
        let bytes = &mut bytes[..out_bytes(self.form.kind)];
        put_lanes(self.form.kind, &out.o, bytes);
        self.output.write(start + row * row_bytes, bytes);
        let rows = self.shape.attend.tokens() * self.message_heads;
        let lse = match self.base {
            Base::E => out.lse.get(),
            Base::Two => out.lse.convert::<Two>().get(),
        };
        let at = start + rows * row_bytes + row * 4;
        self.output.write(at, &lse.to_le_bytes());
        if lse.is_nan() || lse == f32::INFINITY {
            let first = Some(LseFault {
                rank: 0,
                row: usize::try_from(row).unwrap_or(usize::MAX),
            });
            let report = MergeReport { faults: 1, first };
            self.tally.iter().for_each(|tally| count(tally, report));
        }
    }
}

const fn out_bytes(kind: OutputKind) -> usize {
    match kind {
        OutputKind::Bf16 => LATENT * 2,
        OutputKind::F32 => LATENT * 4,
    }
}

fn put_lanes(kind: OutputKind, lanes: &[f32; LATENT], bytes: &mut [u8]) {
    match kind {
        OutputKind::Bf16 => {
            for (bytes, lane) in bytes.chunks_exact_mut(2).zip(lanes) {
                let bits = striata_kernels::decode::row_codec::narrow(*lane);
                bytes.copy_from_slice(&bits.to_le_bytes());
            }
        }
        OutputKind::F32 => {
            for (bytes, lane) in bytes.chunks_exact_mut(4).zip(lanes) {
                bytes.copy_from_slice(&lane.to_le_bytes());
            }
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, core::num::NonZero::get)
}

impl Running {
    /// Takes in the rows of a tile that the query sees.
    fn add(&mut self, tile: &[f32], scale: f32) {
        let mut scores = [0f32; TILE];
        let rows = tile.chunks_exact(LANES);
        let mut max = self.max;
        for (score, row) in scores.iter_mut().zip(rows.clone()) {
            *score = scale * dot(&self.query, row);
            // A NaN stays: the row that it came from must not go unseen.
            max = if *score > max || score.is_nan() {
                *score
            } else {
                max
            };
        }
        if max > self.max || max.is_nan() {
            let factor = (self.max - max).exp();
            let factor = if self.max == f32::NEG_INFINITY {
                0.0
            } else {
                factor
            };
            self.sum *= f64::from(factor);
            self.o.iter_mut().for_each(|lane| *lane *= factor);
            self.max = max;
        }
        for (score, row) in scores.iter().zip(rows) {
            let weight = (score - self.max).exp();
            self.sum += f64::from(weight);
            for (lane, value) in self.o.iter_mut().zip(row) {
                *lane += weight * value;
            }
        }
    }

    fn end(mut self) -> Out {
        if self.visible == 0 {
            return Out {
                o: [0.0; LATENT],
                lse: Lse::EMPTY,
            };
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is meant")]
        let (sum, log) = (self.sum as f32, self.sum.ln() as f32);
        self.o.iter_mut().for_each(|lane| *lane /= sum);
        Out {
            o: self.o,
            lse: Lse::new(self.max + log),
        }
    }
}

fn dot(query: &[f32; LANES], row: &[f32]) -> f32 {
    let mut sums = [0f32; ABREAST];
    for (a, b) in query.chunks_exact(ABREAST).zip(row.chunks_exact(ABREAST)) {
        for ((sum, x), y) in sums.iter_mut().zip(a).zip(b) {
            *sum += x * y;
        }
    }
    let mut width = ABREAST;
    while width > 1 {
        width /= 2;
        for at in 0..width {
            sums[at] += sums[at + width];
        }
    }
    sums[0]
}
