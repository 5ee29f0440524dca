// SPDX-License-Identifier: Apache-2.0
//! Operations in a queue, and what each does to bytes and time.

use core::ops::Range;
use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use striata_core::sync::AtomicBool;
use striata_host::HostPool;
use striata_kernels::cells::{self, Cell};
use striata_kernels::rows::{self, RowParams, RowSpan, VerifyLog};

use crate::device::{DeviceTime, Direction, Piece};
use crate::error::GpuError;
use crate::planes::PlaneSpan;
use crate::sim::decode::DecodeOp;
use crate::sim::event::SimEvent;
use crate::sim::memory::{SimMemory, copy_words, words_at};
use crate::sim::names::OpKind;
use crate::sim::time::{CopyCost, StreamClock};

/// Rows of a plane that a kernel works on.
#[derive(Debug)]
pub(crate) struct RowWork {
    pub(crate) plane: SimMemory,
    pub(crate) base: u64,
    pub(crate) params: RowParams,
    pub(crate) spans: Arc<[RowSpan]>,
}

/// A copy whose pieces lie beside it in the queue.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) direction: Direction,
    pub(crate) planes: Arc<[SimMemory]>,
    pub(crate) host: Arc<HostPool>,
    pub(crate) pieces: Range<usize>,
    pub(crate) cost: CopyCost,
}

/// The far side of a move of cells.
#[derive(Debug)]
pub(crate) enum Far {
    Host(Arc<HostPool>),
    Memory(SimMemory),
}

/// Cells that a kernel moves.
#[derive(Debug)]
pub(crate) struct CellWork {
    pub(crate) direction: Direction,
    pub(crate) planes: Arc<[SimMemory]>,
    pub(crate) layers: Box<[PlaneSpan]>,
    pub(crate) far: Far,
    pub(crate) far_base: u64,
    pub(crate) far_layer: u64,
    pub(crate) cells: Box<[Cell]>,
    pub(crate) cell_bytes: u64,
    pub(crate) nanos: u64,
}

/// A copy that fails by plan: it delivers its first pieces only.
#[derive(Debug)]
pub(crate) struct FailingCopy {
    pub(crate) copy: Copy,
    pub(crate) good_pieces: usize,
    pub(crate) cause: GpuError,
}

/// One operation. All of its ranges were checked when it was submitted.
#[derive(Debug)]
pub(crate) enum Op {
    Copy(Copy),
    Fill(RowWork, u64),
    Verify(RowWork, SimMemory, u64),
    Cells(Box<CellWork>),
    Record(SimEvent),
    Wait(SimEvent),
    Occupy(u64),
    NotBefore(DeviceTime),
    Hold(Arc<AtomicBool>),
    /// With what it costs. Large, so that the others stay as small as a cache line.
    Decode(Box<DecodeOp>, u64),
    /// Rare, likewise.
    FailingCopy(Box<FailingCopy>),
    Die(Box<str>),
}

impl Op {
    /// Says which of a queue's pieces are those of a copy; nothing for other operations.
    #[inline]
    pub(crate) fn set_pieces(&mut self, place: impl FnOnce() -> Range<usize>) {
        match self {
            Self::Copy(copy) => copy.pieces = place(),
            Self::FailingCopy(failing) => failing.copy.pieces = place(),
            _ => {}
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> OpKind {
        match self {
            Self::Copy(copy) => copy.kind(),
            Self::FailingCopy(failing) => failing.copy.kind(),
            Self::Fill(..) => OpKind::Fill,
            Self::Verify(..) => OpKind::Verify,
            Self::Decode(op, _) => op.kind(),
            Self::Cells(_) => OpKind::Cells,
            Self::Record(_) => OpKind::Record,
            Self::Wait(_) => OpKind::Wait,
            Self::Occupy(_) => OpKind::Occupy,
            Self::NotBefore(_) => OpKind::NotBefore,
            Self::Hold(_) => OpKind::Hold,
            Self::Die(_) => OpKind::Die,
        }
    }
}

impl RowWork {
    /// The words of the plane from `base` on.
    fn rows(&self) -> &[AtomicU32] {
        let rest = self.plane.len().saturating_sub(self.base);
        words_at(self.plane.words(), self.base, rest)
    }

    /// Writes the fingerprints.
    pub(crate) fn fill(&self, clock: &mut StreamClock, nanos: u64) {
        let inside = rows::fill(self.rows(), &self.params, &self.spans);
        assert!(
            inside,
            "a span that was checked at submission left its plane"
        );
        clock.run(nanos);
    }

    /// Compares the fingerprints and appends what differs to `log`.
    pub(crate) fn verify(&self, log: &SimMemory, clock: &mut StreamClock, nanos: u64) {
        if let Some(log) = VerifyLog::new(log.words()) {
            rows::verify(self.rows(), &self.params, &self.spans, |m| log.push(m));
        }
        clock.run(nanos);
    }
}

impl CellWork {
    /// Each cell in each layer: its plane and the byte there, and the byte of the far side.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&SimMemory, u64, u64)> {
        let layers = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        let places = cells::places(&self.cells, layers, self.far_layer);
        places.filter_map(|place| {
            let span = self.layers.get(place.layer as usize)?;
            let plane = self.planes.get(span.memory as usize)?;
            let far = self.far_base + place.far;
            Some((plane, span.offset + place.plane, far))
        })
    }

    /// Moves the bytes.
    pub(crate) fn run(&self, clock: &mut StreamClock) {
        let far_words = match &self.far {
            Far::Host(pool) => pool.words(),
            Far::Memory(memory) => memory.words(),
        };
        for (plane, at, far) in self.places() {
            let on_plane = words_at(plane.words(), at, self.cell_bytes);
            let on_far = words_at(far_words, far, self.cell_bytes);
            match self.direction {
                Direction::HostToDevice => copy_words(on_plane, on_far),
                Direction::DeviceToHost => copy_words(on_far, on_plane),
            }
        }
        clock.run(self.nanos);
    }
}

impl Copy {
    const fn kind(&self) -> OpKind {
        match self.direction {
            Direction::HostToDevice => OpKind::CopyToDevice,
            Direction::DeviceToHost => OpKind::CopyToHost,
        }
    }

    /// Moves the bytes of as many of its pieces as arrive.
    pub(crate) fn run(&self, pieces: &[Piece], good: usize, clock: &mut StreamClock) {
        let pieces = pieces.get(self.pieces.clone()).unwrap_or_default();
        for piece in pieces.iter().take(good) {
            if let Some(plane) = self.planes.get(piece.plane as usize) {
                self.run_piece(plane, piece);
            }
        }
        clock.copy(self.cost);
    }

    fn run_piece(&self, plane: &SimMemory, piece: &Piece) {
        let (device, host) = (plane.words(), self.host.words());
        let dense = piece.device_pitch == piece.width && piece.host_pitch == piece.width;
        let (height, width) = if dense {
            (1, piece.width * u64::from(piece.height))
        } else {
            (u64::from(piece.height), piece.width)
        };
        for row in 0..height {
            let on_device = words_at(device, piece.device + row * piece.device_pitch, width);
            let on_host = words_at(host, piece.host + row * piece.host_pitch, width);
            match self.direction {
                Direction::HostToDevice => copy_words(on_device, on_host),
                Direction::DeviceToHost => copy_words(on_host, on_device),
            }
        }
    }
}
