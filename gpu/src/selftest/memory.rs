// SPDX-License-Identifier: Apache-2.0
//! Reads, writes and copies, against a model of bytes; what is refused.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use striata_core::PageGeometry;
use striata_host::HostPool;

use super::random::Random;
use super::rig::{self, Layout};
use super::{Check, Checked, Failure, ensure};
use crate::device::{CopyBatch, CopyForm, Device, Direction, Piece};
use crate::error::GpuError;

/// Row sizes of behaviour 41.
pub(super) const ROW_SIZES: [u32; 7] = [4, 12, 576, 584, 656, 1152, 1168];
const PLANE_BYTES: u64 = 64 << 10;

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "memory.read_write",
            about: "host reads and writes at any word, and nothing beside them",
            run: read_write,
        },
        Check {
            name: "copies.b41_pieces",
            about: "runs and rectangles of any row size in both directions, bytes around them kept",
            run: |device| copies(device, 400),
        },
        Check {
            name: "copies.large_batches",
            about: "thousands of runs and rectangles in one batch",
            run: large_batches,
        },
        Check {
            name: "copies.registrations",
            about: "rows beside a registration edge copy, rows across it are refused",
            run: registrations,
        },
        Check {
            name: "device.refusals",
            about: "wrong calls are typed errors, and the device works on",
            run: refusals,
        },
    ]
}

fn read_write<D: Device>(device: &D) -> Checked {
    let mut random = Random::new(1);
    let len = 1 << 20;
    let mut model = vec![0u8; len];
    random.fill(&mut model);
    let memory = device.alloc(len as u64)?;
    device.write(&memory, 0, &model)?;
    for _ in 0..200 {
        let words = len as u64 / 4;
        let first = random.below(words);
        let count = random.below((words - first).min(5000) + 1);
        let (at, end) = (
            usize::try_from(4 * first)?,
            usize::try_from(4 * (first + count))?,
        );
        random.fill(&mut model[at..end]);
        device.write(&memory, 4 * first, &model[at..end])?;
        let mut back = vec![0; end - at];
        device.read(&memory, 4 * first, &mut back)?;
        ensure!(
            back == model[at..end],
            "bytes [{at}, {end}) were not read as written"
        );
    }
    let mut all = vec![0; len];
    device.read(&memory, 0, &mut all)?;
    ensure!(
        all == model,
        "byte {:?} changed beside a write",
        first_difference(&all, &model)
    );
    Ok(())
}

/// Two planes and a host pool, and the same as plain bytes.
struct Sides<D: Device> {
    device: D,
    planes: Arc<[D::Memory]>,
    host: Arc<HostPool>,
    stream: D::Stream,
    plane_model: Vec<Vec<u8>>,
    host_model: Vec<u8>,
}

impl<D: Device> Sides<D> {
    fn new(device: &D, random: &mut Random, chunk_bytes: u64) -> Result<Self, Failure> {
        let page = PageGeometry::new(64, 64, 1)?;
        let pages = u32::try_from(PLANE_BYTES / page.page_bytes())?;
        let layout = Layout {
            l2_pages: pages,
            chunk_bytes,
            ..Layout::default()
        };
        let host = Arc::new(HostPool::new(&rig::pool_config(device, page, layout))?);
        let mut host_model = vec![0; usize::try_from(host.bytes())?];
        random.fill(&mut host_model);
        for (word, bytes) in host.words().iter().zip(host_model.chunks_exact(4)) {
            word.store(bytemuck::pod_read_unaligned(bytes), Ordering::Relaxed);
        }
        let mut plane_model = vec![vec![0; usize::try_from(PLANE_BYTES)?]; 2];
        let mut planes = Vec::new();
        for model in &mut plane_model {
            random.fill(model);
            let plane = device.alloc(PLANE_BYTES)?;
            device.write(&plane, 0, model)?;
            planes.push(plane);
        }
        Ok(Self {
            stream: device.stream("copies")?,
            device: device.clone(),
            planes: planes.into(),
            host,
            plane_model,
            host_model,
        })
    }

    fn copy(
        &mut self,
        direction: Direction,
        form: CopyForm,
        pieces: &[Piece],
    ) -> Result<(), Failure> {
        let (planes, host) = (&self.planes, &self.host);
        let batch = CopyBatch {
            direction,
            form,
            planes,
            host,
            pieces,
        };
        self.device.copy(&self.stream, &batch)?;
        for piece in pieces {
            self.model(direction, piece)?;
        }
        Ok(())
    }

    fn model(&mut self, direction: Direction, piece: &Piece) -> Result<(), Failure> {
        let plane = &mut self.plane_model[piece.plane as usize];
        for row in 0..u64::from(piece.height) {
            let range = |start: u64, pitch: u64| -> Result<_, Failure> {
                let first = usize::try_from(start + row * pitch)?;
                Ok(first..first + usize::try_from(piece.width)?)
            };
            let device = range(piece.device, piece.device_pitch)?;
            let host = range(piece.host, piece.host_pitch)?;
            match direction {
                Direction::HostToDevice => plane[device].copy_from_slice(&self.host_model[host]),
                Direction::DeviceToHost => self.host_model[host].copy_from_slice(&plane[device]),
            }
        }
        Ok(())
    }

    fn compare(&self) -> Checked {
        rig::finish(&self.device, &self.stream)?;
        for (index, (plane, model)) in self.planes.iter().zip(&self.plane_model).enumerate() {
            let mut bytes = vec![0; model.len()];
            self.device.read(plane, 0, &mut bytes)?;
            let at = first_difference(&bytes, model);
            ensure!(at.is_none(), "plane {index} differs from byte {at:?} on");
        }
        let words = self
            .host
            .words()
            .iter()
            .map(|word| word.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        let at = first_difference(&bytes, &self.host_model);
        ensure!(at.is_none(), "the host pool differs from byte {at:?} on");
        Ok(())
    }
}

/// A piece that lies inside both sides, all of whose rows lie in a registration.
fn piece(random: &mut Random, host: &HostPool) -> Option<Piece> {
    let width = u64::from(random.pick(&ROW_SIZES)?);
    let height = random.below_u32(8);
    let pitch = |random: &mut Random| width + 4 * random.below(40);
    let (device_pitch, host_pitch) = (pitch(random), pitch(random));
    let place = |random: &mut Random, pitch: u64, len: u64| {
        let extent = u64::from(height) * pitch;
        4 * random.below((len - extent.min(len)) / 4 + 1)
    };
    let piece = Piece {
        plane: random.below_u32(2),
        height,
        device: place(random, device_pitch, PLANE_BYTES),
        host: place(random, host_pitch, host.bytes()),
        width,
        device_pitch,
        host_pitch,
    };
    let whole = |row| {
        host.check_copy(piece.host + row * host_pitch, width)
            .is_ok()
    };
    (0..u64::from(height)).all(whole).then_some(piece)
}

/// Pieces of one batch are unordered, so each is a batch of its own here.
pub(super) fn copies<D: Device>(device: &D, count: u32) -> Checked {
    let mut random = Random::new(2);
    for chunk_bytes in [1 << 30, 1] {
        let mut sides = Sides::new(device, &mut random, chunk_bytes)?;
        for _ in 0..count {
            let Some(piece) = piece(&mut random, &sides.host) else {
                continue;
            };
            let direction = if random.coin() {
                Direction::HostToDevice
            } else {
                Direction::DeviceToHost
            };
            let form = if piece.height == 1 && random.coin() {
                CopyForm::Runs
            } else {
                CopyForm::Rectangles
            };
            sides.copy(direction, form, &[piece])?;
        }
        sides.compare()?;
    }
    Ok(())
}

fn large_batches<D: Device>(device: &D) -> Checked {
    let mut random = Random::new(3);
    let mut sides = Sides::new(device, &mut random, 1 << 30)?;
    // Both sides have PLANE_BYTES bytes; cells of 16 bytes go to a shuffled place.
    let cells = u32::try_from(PLANE_BYTES / 16)?;
    let order = random.order(cells);
    let run = |(from, to): (u32, u32), height: u32, width: u64, pitch: u64| Piece {
        plane: 0,
        height,
        device: u64::from(to),
        host: u64::from(from),
        width,
        device_pitch: pitch,
        host_pitch: pitch,
    };
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        let runs: Vec<Piece> = (0..cells)
            .zip(&order)
            .map(|(from, to)| run((16 * from, 16 * to), 1, 16, 16))
            .collect();
        sides.copy(direction, CopyForm::Runs, &runs)?;
        // Columns of 16 bytes in rows of 1 KiB.
        let rows = u32::try_from(PLANE_BYTES / 1024)?;
        let columns = random.order(64);
        let boxes: Vec<Piece> = (0..64)
            .zip(&columns)
            .map(|(from, to)| run((16 * from, 16 * to), rows, 16, 1024))
            .collect();
        sides.copy(direction, CopyForm::Rectangles, &boxes)?;
    }
    sides.compare()
}

fn registrations<D: Device>(device: &D) -> Checked {
    let mut random = Random::new(4);
    let mut sides = Sides::new(device, &mut random, 1)?;
    let edge = sides.host.report().chunk_bytes;
    ensure!(edge < sides.host.bytes(), "the pool has one registration");
    let piece = |host, width| Piece {
        plane: 0,
        height: 1,
        device: 0,
        host,
        width,
        device_pitch: width,
        host_pitch: width,
    };
    let form = CopyForm::Runs;
    let across = sides.copy(Direction::HostToDevice, form, &[piece(edge - 8, 16)]);
    ensure!(
        across.is_err(),
        "a row across the registration edge at {edge} was accepted"
    );
    sides.copy(Direction::HostToDevice, form, &[piece(edge - 16, 16)])?;
    sides.copy(Direction::DeviceToHost, form, &[piece(edge, 64)])?;
    let rows = Piece {
        height: 4,
        device_pitch: 1024,
        ..piece(edge - 32, 16)
    };
    sides.copy(Direction::DeviceToHost, CopyForm::Rectangles, &[rows])?;
    sides.compare()
}

fn refusals<D: Device>(device: &D) -> Checked {
    let stream = device.stream("refusals")?;
    let event = device.event()?;
    let unrecorded = |error| matches!(error, Err(GpuError::EventNotRecorded { .. }));
    ensure!(
        unrecorded(device.wait(&stream, &event)),
        "a wait for an unrecorded event"
    );
    ensure!(
        unrecorded(device.is_complete(&event).map(|_| ())),
        "a query of an unrecorded event"
    );
    device.record(&event, &stream)?;
    let twice = device.record(&event, &stream);
    ensure!(
        twice == Err(GpuError::EventRecordedTwice),
        "recorded twice: {twice:?}"
    );
    device.synchronize(&event)?;
    let misaligned = device.alloc(6).is_err();
    ensure!(misaligned, "an allocation of 6 bytes");
    let memory = device.alloc(64)?;
    for (offset, bytes) in [(64, 4), (62, 4), (0, 6), (u64::MAX - 3, 8)] {
        let refused = device.write(&memory, offset, &vec![0; bytes]).is_err();
        ensure!(refused, "a write of {bytes} bytes at {offset} into 64");
        let refused = device.read(&memory, offset, &mut vec![0; bytes]).is_err();
        ensure!(refused, "a read of {bytes} bytes at {offset} of 64");
    }
    device.write(&memory, 0, &[7; 64])?;
    let mut back = [0; 64];
    device.read(&memory, 0, &mut back)?;
    ensure!(back == [7; 64], "the device does not work after refusals");
    Ok(())
}

/// The first byte at which two equally long buffers differ.
pub(super) fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}
