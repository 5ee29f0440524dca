// SPDX-License-Identifier: Apache-2.0
//! From pages and layers to the pieces of copy calls.
//!
//! Pages are put in order and joined to runs once a job ([`page_runs`]); a piece is then made for
//! each run and layer ([`PieceShape::runs`]) or for each run and all layers of a range
//! ([`PieceShape::rectangles`]). No piece crosses two registrations of the host pool.

use core::ops::Range;

use striata_core::{HostStrides, L1Page, L2Page, LayerId, PageGeometry, PagePair};

use striata_kernels::cells::Cell;

use crate::device::{Direction, Piece};
use crate::planes::PlaneSpan;

use super::error::TransferError;
use super::job::RowPair;

/// Pages that are neighbours on both tiers: `l1 + i` goes with `l2 + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    pub(super) l1: L1Page,
    pub(super) l2: L2Page,
    pub(super) pages: u32,
}

impl PageRun {
    /// The first `pages` pages and the rest.
    pub(super) fn split(self, pages: u32) -> (Self, Self) {
        let pages = pages.min(self.pages);
        let rest = Self {
            l1: L1Page::new(self.l1.get() + pages),
            l2: L2Page::new(self.l2.get() + pages),
            pages: self.pages - pages,
        };
        (Self { pages, ..self }, rest)
    }
}

impl PageRun {
    /// Its pages on L1 and on L2.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (l1, l2) = (self.l1.get(), self.l2.get());
        (0..self.pages).map(move |page| (l1 + page, l2 + page))
    }
}

/// Sorts pairs by their target and joins neighbours.
///
/// # Errors
/// A target that is named twice: copies of one job are unordered.
pub(super) fn page_runs(
    pairs: &[PagePair],
    direction: Direction,
) -> Result<Vec<PageRun>, TransferError> {
    let mut sorted = pairs.to_vec();
    match direction {
        Direction::HostToDevice => sorted.sort_unstable_by_key(|pair| pair.l1),
        Direction::DeviceToHost => sorted.sort_unstable_by_key(|pair| pair.l2),
    }
    let mut runs: Vec<PageRun> = Vec::new();
    let mut before: Option<PagePair> = None;
    for pair in sorted {
        if let Some(before) = before {
            check_target(before, pair, direction)?;
        }
        before = Some(pair);
        match runs.last_mut() {
            Some(run) if follows(run, pair) => run.pages += 1,
            _ => runs.push(PageRun {
                l1: pair.l1,
                l2: pair.l2,
                pages: 1,
            }),
        }
    }
    Ok(runs)
}

const fn follows(run: &PageRun, pair: PagePair) -> bool {
    pair.l1.get() as u64 == run.l1.get() as u64 + run.pages as u64
        && pair.l2.get() as u64 == run.l2.get() as u64 + run.pages as u64
}

fn check_target(
    before: PagePair,
    pair: PagePair,
    direction: Direction,
) -> Result<(), TransferError> {
    let (same, page) = match direction {
        Direction::HostToDevice => (before.l1 == pair.l1, pair.l1.get()),
        Direction::DeviceToHost => (before.l2 == pair.l2, pair.l2.get()),
    };
    if same {
        Err(TransferError::DuplicateTarget { direction, page })
    } else {
        Ok(())
    }
}

/// Where the bytes of both tiers stand: all that pieces depend on, beside pages and layers.
#[derive(Clone, Debug)]
pub(super) struct PieceShape {
    /// Plane of each layer.
    pub(super) planes: Box<[PlaneSpan]>,
    /// Bytes from a plane to the next, if rectangles can be used.
    pub(super) uniform: Option<u64>,
    pub(super) page: PageGeometry,
    pub(super) host: HostStrides,
    /// Bytes of each registration of the host pool but the last.
    pub(super) registration: u64,
}

/// Bytes that are contiguous in one layer on both tiers, relative to page 0 of that layer.
#[derive(Clone, Copy)]
struct Strip {
    device: u64,
    host: u64,
    width: u64,
}

impl PieceShape {
    /// Appends plain runs of `layers`, layer by layer.
    pub(super) fn runs(&self, runs: &[PageRun], layers: Range<u32>, out: &mut Vec<Piece>) {
        // Pages that are apart and whole in one registration: nothing to join and nothing to cut.
        let width = self.page.chunk_bytes();
        if self.host.page != width && self.registration.is_multiple_of(self.host.page) {
            return self.chunks(runs, layers, out);
        }
        for layer in layers {
            for strip in runs.iter().flat_map(|run| self.strips(*run)) {
                self.push_runs(strip, layer, out);
            }
        }
    }

    /// Appends a piece for each page in each of `layers`. A full link takes one every 1.3 us.
    fn chunks(&self, runs: &[PageRun], layers: Range<u32>, out: &mut Vec<Piece>) {
        let width = self.page.chunk_bytes();
        for layer in layers {
            let Some(plane) = self.planes.get(layer as usize) else {
                return;
            };
            let host = self.host.offset(0, LayerId::new(layer));
            for run in runs {
                out.extend(run.pairs().map(|(l1, l2)| Piece {
                    plane: plane.memory,
                    height: 1,
                    device: plane.offset + u64::from(l1) * width,
                    host: host + u64::from(l2) * self.host.page,
                    width,
                    device_pitch: width,
                    host_pitch: width,
                }));
            }
        }
    }

    /// Appends rectangles whose rows are `layers`. Without uniform planes they are plain runs.
    pub(super) fn rectangles(&self, runs: &[PageRun], layers: Range<u32>, out: &mut Vec<Piece>) {
        let Some(device_pitch) = self.uniform else {
            return self.runs(runs, layers, out);
        };
        for strip in runs.iter().flat_map(|run| self.strips(*run)) {
            let mut layer = layers.start;
            while layer < layers.end {
                let height = self
                    .rows_in_registration(strip, layer)
                    .min(layers.end - layer);
                if height == 0 {
                    self.push_runs(strip, layer, out);
                    layer += 1;
                    continue;
                }
                out.extend(self.piece(strip, layer).map(|run| Piece {
                    height,
                    device_pitch,
                    host_pitch: self.host.layer,
                    ..run
                }));
                layer += height;
            }
        }
    }

    /// Appends runs between the host and a buffer that holds `layers` of each page together, as a
    /// page-first host does, one page after the other from byte `at` on. Pages that are neighbours
    /// on the host go together if all their layers do.
    pub(super) fn objects(
        &self,
        runs: &[PageRun],
        layers: Range<u32>,
        at: u64,
        out: &mut Vec<Piece>,
    ) {
        let object = self.page.chunk_bytes() * layers.len() as u64;
        let whole = object == self.host.page;
        let first = LayerId::new(layers.start);
        let mut device = at;
        for (_, l2) in runs.iter().flat_map(PageRun::pairs) {
            let host = self.host.offset(l2, first);
            let joins = |last: &Piece| {
                let ends = last.host + last.width == host && last.device + last.width == device;
                whole && ends && self.room(last.host) >= last.width + object
            };
            match out.last_mut().filter(|last| joins(last)) {
                Some(last) => last.width += object,
                None => out.push(Piece {
                    plane: 0,
                    height: 1,
                    device,
                    host,
                    width: object,
                    device_pitch: 0,
                    host_pitch: 0,
                }),
            }
            device += object;
        }
    }

    /// A run as one strip where pages of a layer are adjacent on the host, else one a page.
    fn strips(&self, run: PageRun) -> impl Iterator<Item = Strip> + use<> {
        let chunk = self.page.chunk_bytes();
        let joined = self.host.page == chunk;
        let (count, pages) = if joined {
            (1, run.pages)
        } else {
            (run.pages, 1)
        };
        let (device, host) = (
            u64::from(run.l1.get()) * chunk,
            self.host.offset(run.l2.get(), LayerId::new(0)),
        );
        let host_step = self.host.page;
        (0..u64::from(count)).map(move |index| Strip {
            device: device + index * chunk,
            host: host + index * host_step,
            width: u64::from(pages) * chunk,
        })
    }

    /// Layers from `layer` on whose bytes of `strip` lie in the registration that holds the first.
    fn rows_in_registration(&self, strip: Strip, layer: u32) -> u32 {
        let first = strip.host + u64::from(layer) * self.host.layer;
        let room = self.room(first);
        if room < strip.width {
            return 0;
        }
        let more = (room - strip.width).checked_div(self.host.layer);
        u32::try_from(more.unwrap_or(0)).map_or(u32::MAX, |more| more.saturating_add(1))
    }

    /// Bytes from `host` to the end of its registration.
    fn room(&self, host: u64) -> u64 {
        match host.checked_rem(self.registration) {
            Some(into) => self.registration - into,
            None => u64::MAX,
        }
    }

    /// Pushes one layer of a strip, cut at registrations.
    fn push_runs(&self, strip: Strip, layer: u32, out: &mut Vec<Piece>) {
        let Some(whole) = self.piece(strip, layer) else {
            return;
        };
        let mut done = 0;
        while done < whole.width {
            let width = self.room(whole.host + done).min(whole.width - done);
            out.push(Piece {
                device: whole.device + done,
                host: whole.host + done,
                width,
                device_pitch: width,
                host_pitch: width,
                ..whole
            });
            done += width;
        }
    }

    /// Appends runs between the host and a buffer that holds `layers` of rows from byte `at` on,
    /// layer by layer, each in the order of the list. Neighbours on the host go together.
    pub(super) fn row_objects(
        &self,
        cells: &[Cell],
        layers: Range<u32>,
        at: u64,
        out: &mut Vec<Piece>,
    ) {
        let width = u64::from(self.page.row_bytes());
        let mut device = at;
        for layer in layers {
            let base = u64::from(layer) * self.host.layer;
            let first = out.len();
            for cell in cells {
                let host = base + cell.far;
                let joins = |last: &Piece| {
                    let ends = last.host + last.width == host;
                    ends && self.room(last.host) >= last.width + width
                };
                let last = out.get_mut(first..).and_then(<[Piece]>::last_mut);
                match last.filter(|last| joins(last)) {
                    Some(last) => last.width += width,
                    None => out.push(Piece {
                        plane: 0,
                        height: 1,
                        device,
                        host,
                        width,
                        device_pitch: 0,
                        host_pitch: 0,
                    }),
                }
                device += width;
            }
        }
    }

    /// Where rows stand: in a plane, and in layer 0 on the host.
    pub(super) fn cells(&self, rows: &[RowPair]) -> Vec<Cell> {
        let page_rows = u64::from(self.page.page_rows());
        // A division takes longer than all the rest, and the rows of a page mostly allow a shift.
        if page_rows.is_power_of_two() {
            let shift = page_rows.trailing_zeros();
            return self.cells_by(rows, page_rows, |row| row >> shift);
        }
        self.cells_by(rows, page_rows, |row| {
            row.checked_div(page_rows).unwrap_or(0)
        })
    }

    fn cells_by(
        &self,
        rows: &[RowPair],
        page_rows: u64,
        page_of: impl Fn(u64) -> u64,
    ) -> Vec<Cell> {
        let row_bytes = u64::from(self.page.row_bytes());
        let cell = |pair: &RowPair| {
            let row = pair.l2.get();
            let page = page_of(row);
            Cell {
                plane: pair.l1.get() * row_bytes,
                far: page * self.host.page + (row - page * page_rows) * row_bytes,
            }
        };
        rows.iter().map(cell).collect()
    }

    /// The L1 pages of which a piece made here holds bytes.
    pub(super) fn pages_of(&self, piece: &Piece) -> Range<u32> {
        let planes = self.planes.iter();
        let offsets =
            planes.filter(|span| span.memory == piece.plane && span.offset <= piece.device);
        let start = piece.device - offsets.map(|span| span.offset).max().unwrap_or(0);
        let page = |byte: u64| {
            let page = byte.checked_div(self.page.chunk_bytes()).unwrap_or(0);
            u32::try_from(page).unwrap_or(u32::MAX)
        };
        let last = start.saturating_add(piece.width.saturating_sub(1));
        page(start)..page(last).saturating_add(1)
    }

    /// The L2 pages of which a piece made by [`Self::objects`] holds bytes.
    pub(super) fn host_pages_of(&self, piece: &Piece) -> Range<u32> {
        let page = |byte: u64| {
            let page = byte.checked_div(self.host.page).unwrap_or(0);
            u32::try_from(page).unwrap_or(u32::MAX)
        };
        let last = piece.host + piece.width.saturating_sub(1);
        page(piece.host)..page(last).saturating_add(1)
    }

    /// One layer of a strip; none past the last layer.
    fn piece(&self, strip: Strip, layer: u32) -> Option<Piece> {
        let plane = self.planes.get(layer as usize)?;
        Some(Piece {
            plane: plane.memory,
            height: 1,
            device: plane.offset + strip.device,
            host: strip.host + u64::from(layer) * self.host.layer,
            width: strip.width,
            device_pitch: strip.width,
            host_pitch: strip.width,
        })
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
