// SPDX-License-Identifier: Apache-2.0
//! Checks at submission, the same for every backend: after them no operation can leave its memory.

use striata_host::{HostError, HostPool};
use striata_kernels::rows::{RowParams, RowSpan};

use crate::cells::{CellMove, FarSide};
use crate::device::{CopyBatch, Device, Piece};
use crate::error::GpuError;

/// Bytes of a word.
pub(crate) const WORD: u64 = size_of::<u32>() as u64;

/// What a copy call moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pieces: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// Checks every piece of a batch; returns what it moves.
pub(crate) fn copy<D: Device>(device: &D, batch: &CopyBatch<'_, D>) -> Result<Tally, GpuError> {
    let mut tally = Tally::default();
    for piece in batch.pieces {
        let plane = batch.planes.get(piece.plane as usize);
        let plane = plane.ok_or_else(|| GpuError::NoPlane {
            plane: piece.plane,
            planes: batch.planes.len(),
        })?;
        if batch.form.is_of_runs() && piece.height != 1 {
            let height = piece.height;
            return Err(GpuError::NotARun { height });
        }
        check_piece(device.memory_len(plane), batch.host, piece)?;
        tally.pieces += 1;
        tally.rows += u64::from(piece.height);
        let bytes = piece.width.saturating_mul(u64::from(piece.height));
        tally.bytes = tally.bytes.saturating_add(bytes);
    }
    Ok(tally)
}

fn check_piece(plane_len: u64, host: &HostPool, piece: &Piece) -> Result<(), GpuError> {
    let all = piece.device | piece.host | piece.width | piece.device_pitch | piece.host_pitch;
    if !all.is_multiple_of(WORD) {
        check_piece_words(piece)?;
    }
    let rows = |pitch| Rows {
        height: u64::from(piece.height),
        width: piece.width,
        pitch,
    };
    rows(piece.device_pitch).check("copy: the plane", piece.device, plane_len)?;
    let end = rows(piece.host_pitch).check("copy: the host pool", piece.host, host.bytes())?;
    // One registration holds it all as a rule; else each row must lie in one.
    if host.check_copy(piece.host, end - piece.host).is_ok() {
        return Ok(());
    }
    (0..u64::from(piece.height)).try_for_each(|row| {
        let start = piece.host + row * piece.host_pitch;
        host.check_copy(start, piece.width)
            .map_err(|error| split(&error, start, piece.width, host.bytes()))
    })
}

/// Names the value that is not in words.
#[cold]
fn check_piece_words(piece: &Piece) -> Result<(), GpuError> {
    for (what, value) in [
        ("copy: the offset in the plane", piece.device),
        ("copy: the offset in the host pool", piece.host),
        ("copy: the width", piece.width),
        ("copy: the pitch in the plane", piece.device_pitch),
        ("copy: the pitch in the host pool", piece.host_pitch),
    ] {
        check_words(what, value)?;
    }
    Ok(())
}

fn split(error: &HostError, start: u64, width: u64, len: u64) -> GpuError {
    let end = start.saturating_add(width);
    match error {
        HostError::CrossesChunks { edge, .. } => GpuError::SplitRegistration {
            start,
            end,
            edge: *edge,
        },
        _ => GpuError::OutOfRange {
            what: "copy: the host pool",
            start,
            end,
            len,
        },
    }
}

/// Rows of one side of a piece.
#[derive(Clone, Copy)]
struct Rows {
    height: u64,
    width: u64,
    pitch: u64,
}

impl Rows {
    /// The byte after the last of rows that begin at `start` of `len` bytes.
    fn check(self, what: &'static str, start: u64, len: u64) -> Result<u64, GpuError> {
        let (width, pitch) = (self.width, self.pitch);
        if self.height > 1 && pitch < width {
            return Err(GpuError::Pitch { what, pitch, width });
        }
        let steps = self.height.saturating_sub(1);
        // Nothing is touched by no rows, but even then the place must exist.
        let last = if self.height == 0 { 0 } else { width };
        let bytes = steps.checked_mul(pitch).and_then(|b| b.checked_add(last));
        range(what, start, bytes, len)
    }
}

/// The end of `bytes` (`None`: more than can be counted) at `start`, if it lies in `len`.
fn range(what: &'static str, start: u64, bytes: Option<u64>, len: u64) -> Result<u64, GpuError> {
    let end = bytes.and_then(|bytes| start.checked_add(bytes));
    end.filter(|end| *end <= len)
        .ok_or_else(|| GpuError::OutOfRange {
            what,
            start,
            end: end.unwrap_or(u64::MAX),
            len,
        })
}

pub(crate) fn check_words(what: &'static str, value: u64) -> Result<(), GpuError> {
    if value.is_multiple_of(WORD) {
        return Ok(());
    }
    Err(GpuError::Misaligned { what, value })
}

/// Checks a plain access of `bytes` bytes at `offset`.
pub(crate) fn access(
    what: &'static str,
    memory_len: u64,
    offset: u64,
    bytes: u64,
) -> Result<(), GpuError> {
    check_words(what, offset)?;
    check_words(what, bytes)?;
    range(what, offset, Some(bytes), memory_len).map(|_| ())
}

/// Checks that all rows of `spans`, counted from byte `base`, lie in a plane.
pub(crate) fn spans(
    what: &'static str,
    plane_len: u64,
    base: u64,
    params: RowParams,
    spans: &[RowSpan],
) -> Result<(), GpuError> {
    check_words(what, base)?;
    let end_row = spans.iter().try_fold(0, |end: u64, span| {
        let last = span.first_row.checked_add(u64::from(span.rows))?;
        Some(end.max(last))
    });
    let row_bytes = u64::from(params.row_words) * WORD;
    let bytes = end_row.and_then(|rows| rows.checked_mul(row_bytes));
    range(what, base, bytes, plane_len).map(|_| ())
}

/// What all offsets of a move of cells have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellFacts {
    /// Every bit that is set in an offset or a size.
    pub(crate) bits: u64,
    /// Bytes that are moved.
    pub(crate) bytes: u64,
}

/// Checks that every cell lies in its memory in every layer, in words.
pub(crate) fn cells<D: Device>(device: &D, work: &CellMove<'_, D>) -> Result<CellFacts, GpuError> {
    let (mut plane, mut far, mut bits) = (0, 0, work.cell_bytes | work.far_layer | work.far_base);
    for cell in work.cells {
        plane = plane.max(cell.plane);
        far = far.max(cell.far);
        bits |= cell.plane | cell.far;
    }
    bits = work
        .layers
        .iter()
        .fold(bits, |bits, span| bits | span.offset);
    check_words("move cells: an offset or a size", bits)?;
    let (count, layers) = (work.cells.len() as u64, work.layers.len() as u64);
    let bytes = count.checked_mul(layers);
    let bytes = bytes.and_then(|cells| cells.checked_mul(work.cell_bytes));
    if bytes == Some(0) {
        return Ok(CellFacts { bits, bytes: 0 });
    }
    let inside = |what, base: Option<u64>, offset: u64, len| {
        let start = base.and_then(|base| base.checked_add(offset));
        range(what, start.unwrap_or(u64::MAX), Some(work.cell_bytes), len)
    };
    for span in work.layers {
        let memory = work.planes.get(span.memory as usize);
        let memory = memory.ok_or_else(|| GpuError::NoPlane {
            plane: span.memory,
            planes: work.planes.len(),
        })?;
        let len = device.memory_len(memory);
        inside("move cells: the plane", Some(span.offset), plane, len)?;
    }
    let len = match work.far {
        FarSide::Host(pool) => pool.bytes(),
        FarSide::Memory(memory) => device.memory_len(memory),
    };
    let last = work.far_layer.checked_mul(layers - 1);
    let last = last.and_then(|last| last.checked_add(work.far_base));
    inside("move cells: the far side", last, far, len)?;
    // Cells may repeat bytes that are only read, so their sum has no other bound.
    let bytes = bytes.unwrap_or(u64::MAX);
    Ok(CellFacts { bits, bytes })
}
