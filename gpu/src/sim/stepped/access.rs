// SPDX-License-Identifier: Apache-2.0
//! Which bytes an operation touches.

use core::ops::Range;
use std::sync::Arc;

use striata_host::HostPool;

use super::shadow::Mode;
use crate::check::WORD;
use crate::device::{Direction, Piece};
use crate::sim::decode::Use;
use crate::sim::memory::SimMemory;
use crate::sim::op::{CellWork, Copy, Far, Op, RowWork};

/// A memory whose accesses are followed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    Device(&'a SimMemory),
    Host(&'a Arc<HostPool>),
}

impl Place<'_> {
    /// A value that no other living memory has.
    pub(crate) fn key(self) -> usize {
        match self {
            Self::Device(memory) => memory.key(),
            Self::Host(pool) => Arc::as_ptr(pool).addr(),
        }
    }
}

/// One access of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Touch<'a> {
    pub(crate) place: Place<'a>,
    pub(crate) bytes: Range<u64>,
    pub(crate) mode: Mode,
}

/// Shows `visit` what `op` touches, as long as it says so.
pub(crate) fn visit<'a, E>(
    op: &'a Op,
    pieces: &[Piece],
    visit: &mut impl FnMut(Touch<'a>) -> Result<(), E>,
) -> Result<(), E> {
    match op {
        Op::Copy(copy) => visit_copy(copy, pieces, visit),
        // What is not delivered may have been touched all the same.
        Op::FailingCopy(failing) => visit_copy(&failing.copy, pieces, visit),
        Op::Fill(work, _) => visit_rows(work, Mode::Write, visit),
        Op::Verify(work, log, _) => {
            visit_rows(work, Mode::Read, visit)?;
            visit(Touch {
                place: Place::Device(log),
                bytes: 0..log.len(),
                mode: Mode::Append,
            })
        }
        Op::Decode(op, _) => op.visit(&mut |memory, bytes, how| {
            let mode = match how {
                Use::Read => Mode::Read,
                Use::Write => Mode::Write,
                Use::Count => Mode::Append,
            };
            let place = Place::Device(memory);
            visit(Touch { place, bytes, mode })
        }),
        Op::Cells(work) => visit_cells(work, visit),
        Op::Record(_)
        | Op::Wait(_)
        | Op::Occupy(_)
        | Op::NotBefore(_)
        | Op::Hold(_)
        | Op::Die(_) => Ok(()),
    }
}

fn visit_rows<'a, E>(
    work: &'a RowWork,
    mode: Mode,
    visit: &mut impl FnMut(Touch<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let row_bytes = u64::from(work.params.row_words) * WORD;
    work.spans.iter().try_for_each(|span| {
        let start = work.base + span.first_row * row_bytes;
        visit(Touch {
            place: Place::Device(&work.plane),
            bytes: start..start + u64::from(span.rows) * row_bytes,
            mode,
        })
    })
}

fn visit_cells<'a, E>(
    work: &'a CellWork,
    visit: &mut impl FnMut(Touch<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let (on_plane, on_far) = sides(work.direction);
    let far = match &work.far {
        Far::Host(pool) => Place::Host(pool),
        Far::Memory(memory) => Place::Device(memory),
    };
    let mut places = work.places();
    places.try_for_each(|(plane, at, far_at)| {
        visit(Touch {
            place: Place::Device(plane),
            bytes: at..at + work.cell_bytes,
            mode: on_plane,
        })?;
        visit(Touch {
            place: far,
            bytes: far_at..far_at + work.cell_bytes,
            mode: on_far,
        })
    })
}

/// What is done to the device's side and to the other.
const fn sides(direction: Direction) -> (Mode, Mode) {
    match direction {
        Direction::HostToDevice => (Mode::Write, Mode::Read),
        Direction::DeviceToHost => (Mode::Read, Mode::Write),
    }
}

fn visit_copy<'a, E>(
    copy: &'a Copy,
    pieces: &[Piece],
    visit: &mut impl FnMut(Touch<'a>) -> Result<(), E>,
) -> Result<(), E> {
    pieces
        .iter()
        .try_for_each(|piece| visit_piece(copy, piece, visit))
}

fn visit_piece<'a, E>(
    copy: &'a Copy,
    piece: &Piece,
    visit: &mut impl FnMut(Touch<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let Some(plane) = copy.planes.get(piece.plane as usize) else {
        return Ok(());
    };
    let (on_device, on_host) = sides(copy.direction);
    let sides = [
        (
            Place::Device(plane),
            on_device,
            piece.device,
            piece.device_pitch,
        ),
        (
            Place::Host(&copy.host),
            on_host,
            piece.host,
            piece.host_pitch,
        ),
    ];
    for (place, mode, start, pitch) in sides {
        for bytes in rows(start, piece.width, pitch, piece.height) {
            visit(Touch { place, bytes, mode })?;
        }
    }
    Ok(())
}

/// The rows of one side of a piece; rows without a gap are one range.
fn rows(start: u64, width: u64, pitch: u64, height: u32) -> impl Iterator<Item = Range<u64>> {
    let height = u64::from(height);
    let (count, width) = if pitch == width {
        (height.min(1), width * height)
    } else {
        (height, width)
    };
    (0..count).map(move |row| {
        let first = start + row * pitch;
        first..first + width
    })
}
