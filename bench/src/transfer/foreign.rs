// SPDX-License-Identifier: Apache-2.0
//! A copy of 4 KiB by somebody else, on a stream of its own, while loads keep the link full: what a
//! step of the engine feels when it uploads its small tables.

use std::time::Instant;

use striata_core::{LayerId, PagePair};
use striata_gpu::transfer::LoadJob;
use striata_gpu::{CopyBatch, CopyForm, Direction, Piece};

use super::bars;
use super::error::BenchError;
use super::figure::Unit;
use super::group::Group;
use super::lists::Pairs;
use super::run::{Bench, Taken};
use super::subject::Subject;
use super::timing::{last_end, poll};
use crate::samples::Samples;

/// Bytes of the copy.
const BYTES: u64 = 4096;
/// Copies on the idle link.
const IDLE: usize = 50;
/// Tries for each measurement, since a copy counts only if loads ran from before to after it.
const TRIES: usize = 4;

/// Measures the copy on the idle link and beside loads.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    if bench.simulated() {
        let why = "streams of the simulated device do not share a link".to_owned();
        bench.skip(Group::Foreign.name(), why);
        return Ok(());
    }
    on_one_link(bench)
}

fn on_one_link<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let room = bench.tiers.room();
    // The last pair is the small copy's; the others are loaded in two jobs in turn.
    let jobs = room.l1.min(room.l2) - 1;
    let all = bench.lists.scattered(jobs + 1, room);
    let (pairs, small) = all.split_at(jobs as usize);
    let (first, second) = pairs.split_at(pairs.len() / 2);
    let halves: [Pairs; 2] = [first.into(), second.into()];
    let pairs: Pairs = pairs.into();
    let Some(piece) = small.first().and_then(|pair| piece_in(bench, *pair)) else {
        return Ok(());
    };
    let stream = bench.device.stream("bench foreign")?;
    let mut idle = Samples::new();
    for _ in 0..IDLE {
        idle.push(small_copy(bench, &stream, piece)? as f64 / 1e3);
    }
    let planes = bench.tiers.planes.clone();
    let mut samples = Samples::new();
    bench.checked_load(&planes, &pairs, "foreign, loads", |bench| {
        beside(bench, &halves, &stream, piece, &mut samples)
    })?;
    bench.take(Taken {
        group: Group::Foreign,
        case: "4 KiB to the device beside loads",
        pages: None,
        unit: Unit::Us,
        samples: &samples,
        against: ("the same on the idle link", idle.median().unwrap_or(1.0)),
        bar: Some(bars::FOREIGN),
    });
    Ok(())
}

/// The first bytes of a page in layer 0.
fn piece_in<D: Subject>(bench: &Bench<'_, D>, pair: PagePair) -> Option<Piece> {
    let (layer, planes) = (LayerId::new(0), &bench.tiers.planes);
    let width = BYTES.min(planes.geometry().page().chunk_bytes());
    Some(Piece {
        plane: 0,
        height: 1,
        device: planes.chunk_offset(layer, pair.l1)?,
        host: bench.tiers.host.offset_of(pair.l2, layer).ok()?,
        width,
        device_pitch: width,
        host_pitch: width,
    })
}

fn beside<D: Subject>(
    bench: &mut Bench<'_, D>,
    halves: &[Pairs; 2],
    stream: &D::Stream,
    piece: Piece,
    samples: &mut Samples,
) -> Result<(), BenchError> {
    let wanted = bench.options.foreign_samples;
    let (mut given, mut done) = (0, 0);
    for _ in 0..wanted.saturating_mul(TRIES) {
        if samples.len() >= wanted {
            break;
        }
        while given < done + 2 {
            let pages = halves[given % 2].clone();
            let (op, after) = (bench.op(), None);
            bench.engine.load(LoadJob { op, pages, after })?;
            given += 1;
        }
        let waiting = |bench: &Bench<'_, D>| bench.engine.stats().loads.queued_bytes > 0;
        let before = waiting(bench);
        let nanos = small_copy(bench, stream, piece)?;
        // Something still waits to be submitted, so the window was full all the time.
        if before && waiting(bench) {
            samples.push(nanos as f64 / 1e3);
        }
        done += poll(&bench.engine, "a load")?.len();
    }
    let mut last = bench.device.now();
    while done < given {
        let ended = poll(&bench.engine, "a load")?;
        last = last.max(last_end(&ended));
        done += ended.len();
        std::thread::yield_now();
    }
    bench.device.advance_to(last);
    Ok(())
}

/// Nanoseconds of one small copy, from before the call until the caller has seen its end: by the
/// host's clock, since a mark on another stream may be reached later than the copy itself.
fn small_copy<D: Subject>(
    bench: &Bench<'_, D>,
    stream: &D::Stream,
    piece: Piece,
) -> Result<u64, BenchError> {
    let device = &bench.device;
    let batch = CopyBatch {
        direction: Direction::HostToDevice,
        form: CopyForm::Runs,
        planes: bench.tiers.planes.memories(),
        host: &bench.tiers.host,
        pieces: &[piece],
    };
    let begin = Instant::now();
    device.copy(stream, &batch)?;
    device.synchronize(&bench.tiers.fence(stream)?)?;
    Ok(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use striata_gpu::sim::{SimConfig, SimDevice};

    use super::*;
    use crate::transfer::options::TransferOptions;

    #[test]
    fn small_copies_beside_loads_end_and_leave_the_loads_right() {
        let options = TransferOptions {
            foreign_samples: 3,
            ..TransferOptions::simulated()
        };
        let device = SimDevice::new(SimConfig::new(0));
        let mut bench = Bench::new(&device, &options).unwrap();
        on_one_link(&mut bench).unwrap();
        assert_eq!(bench.engine.stats().loads.queued_jobs, 0);
        let report = bench.report(Instant::now());
        assert_eq!((report.checks.series, report.checks.wrong_rows), (1, 0));
        // Whether the simulated loads are slow enough to wait is the machine's business.
        assert_eq!(report.figures.len() + report.skipped.len(), 1);
    }
}
