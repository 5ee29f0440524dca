// SPDX-License-Identifier: Apache-2.0
//! Other ways to copy the same pages, without the engine: the batched calls that it makes, a plain
//! copy call a chunk, and one kernel that reads and writes mapped host memory.

use std::cell::RefCell;

use striata_core::{LayerId, PagePair};
use striata_gpu::transfer::LayerGroups;
use striata_gpu::{CopyBatch, CopyForm, Direction, Piece};

use super::error::BenchError;
use super::figure::Unit;
use super::group::Group;
use super::lists::Pairs;
use super::paths::{MOST_REPS, path_pages};
use super::run::{Bench, Taken};
use super::slowdown::BLOCKS;
use super::subject::Subject;
use super::timing::{Mark, end_of};
use crate::clock::thread_nanos;
use crate::samples::Samples;

/// Most descriptors of a batched call.
const CALL: usize = 512;

/// All baselines, both ways, several numbers of pages.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let mut kernels = true;
    for pages in path_pages(&bench.options.pages) {
        let pairs = bench.lists.scattered(pages, bench.tiers.room());
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            batched(bench, direction, &pairs)?;
            plain(bench, direction, &pairs)?;
            for blocks in BLOCKS {
                kernels &= by_kernel(bench, direction, blocks, &pairs)?;
            }
        }
    }
    if !kernels {
        let why = "the device runs no copy kernels".to_owned();
        bench.skip(&format!("{}: copy kernel", Group::Baselines), why);
    }
    Ok(())
}

/// The calls that an engine would make, and nothing else: a load in layer groups that double, each a
/// batch of chunks with an event behind it; a store as one batch of rectangles. What the engine adds
/// to them is the difference to its own figures. Also the CPU time of a descriptor.
fn batched<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    pairs: &Pairs,
) -> Result<(), BenchError> {
    let device = bench.device.clone();
    let stream = device.stream("bench batched")?;
    let (form, groups) = match direction {
        Direction::HostToDevice => (CopyForm::Runs, grouped_chunks(bench, pairs)),
        Direction::DeviceToHost => match rectangles(bench, pairs) {
            Some(boxes) => (CopyForm::Rectangles, vec![boxes]),
            None => return Ok(()),
        },
    };
    let descriptors: usize = groups.iter().map(Vec::len).sum();
    // By repetition, of which the first only warms up.
    let cpu = RefCell::new(Vec::new());
    let once = |bench: &Bench<'_, D>| {
        let mark = Mark::set(&device, &stream)?;
        let begin = thread_nanos();
        let mut end = None;
        for pieces in &groups {
            for pieces in pieces.chunks(CALL) {
                let batch = CopyBatch {
                    direction,
                    form,
                    planes: bench.tiers.planes.memories(),
                    host: &bench.tiers.host,
                    pieces,
                };
                device.copy(&stream, &batch)?;
            }
            end = Some(bench.tiers.fence(&stream)?);
        }
        let nanos = thread_nanos().saturating_sub(begin);
        cpu.borrow_mut()
            .push(nanos as f64 / 1e3 / descriptors.max(1) as f64);
        let ended = match &end {
            Some(end) => end_of(&device, end)?,
            None => device.now(),
        };
        let began = mark.time(&device)?;
        device.advance_to(ended);
        Ok(ended.since(began))
    };
    series(bench, direction, "batched calls, no engine", pairs, once)?;
    let mut samples = Samples::new();
    for micros in cpu.into_inner().into_iter().skip(1) {
        samples.push(micros);
    }
    bench.take(Taken {
        group: Group::Baselines,
        case: &format!("{}, batched calls, CPU time a descriptor", word(direction)),
        pages: Some(u32::try_from(pairs.len()).unwrap_or(u32::MAX)),
        unit: Unit::Us,
        samples: &samples,
        against: (
            "a page at the ceiling",
            bench.link_nanos(direction, bench.tiers.bytes(1)) / 1e3,
        ),
        bar: None,
    });
    Ok(())
}

/// The chunks of each group of layers.
fn grouped_chunks<D: Subject>(bench: &Bench<'_, D>, pairs: &Pairs) -> Vec<Vec<Piece>> {
    let groups = LayerGroups::growing(bench.options.shape.layers, 200, u32::MAX);
    let group = |group| {
        let layers = groups.range(group).map(LayerId::new);
        layers
            .flat_map(|layer| chunks(bench, layer, pairs))
            .collect()
    };
    (0..groups.len()).map(group).collect()
}

/// A rectangle a page whose rows are all layers; none on planes that are not at one distance.
fn rectangles<D: Subject>(bench: &Bench<'_, D>, pairs: &Pairs) -> Option<Vec<Piece>> {
    let device_pitch = bench.tiers.planes.uniform_stride()?;
    let host_pitch = bench.tiers.host.strides().layer;
    let of_first_layer = chunks(bench, LayerId::new(0), pairs);
    let rectangle = |chunk: Piece| Piece {
        height: bench.options.shape.layers,
        device_pitch,
        host_pitch,
        ..chunk
    };
    Some(of_first_layer.into_iter().map(rectangle).collect())
}

/// A plain copy a chunk, layer by layer, an event behind each layer.
fn plain<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    pairs: &Pairs,
) -> Result<(), BenchError> {
    let (device, most) = bench.device.plain()?;
    let stream = device.stream("bench plain")?;
    let layers = (0..bench.options.shape.layers).map(LayerId::new);
    let layers: Vec<Vec<Piece>> = layers.map(|layer| chunks(bench, layer, pairs)).collect();
    let once = |bench: &Bench<'_, D>| {
        let mark = Mark::set(&device, &stream)?;
        let mut end = None;
        for pieces in &layers {
            for pieces in pieces.chunks(most.max(1)) {
                let batch = CopyBatch {
                    direction,
                    form: CopyForm::Runs,
                    planes: bench.tiers.planes.memories(),
                    host: &bench.tiers.host,
                    pieces,
                };
                device.copy(&stream, &batch)?;
            }
            let event = device.event()?;
            device.record(&event, &stream)?;
            end = Some(event);
        }
        let ended = match &end {
            Some(end) => end_of(&device, end)?,
            None => device.now(),
        };
        let began = mark.time(&device)?;
        device.advance_to(ended);
        Ok(ended.since(began))
    };
    series(bench, direction, "a plain copy call a chunk", pairs, once)
}

/// One launch of a kernel of `blocks` blocks. False on devices without kernels.
fn by_kernel<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    blocks: u32,
    pairs: &Pairs,
) -> Result<bool, BenchError> {
    let device = bench.device.clone();
    let (planes, host) = (&bench.tiers.planes, &bench.tiers.host);
    let launch = device.page_kernel(planes, host, pairs, direction, blocks)?;
    let Some(launch) = launch else {
        return Ok(false);
    };
    let stream = device.stream("bench copy kernel")?;
    let once = |bench: &Bench<'_, D>| {
        let mark = Mark::set(&device, &bench.tiers.marks)?;
        launch(&stream)?;
        let ended = end_of(&device, &bench.tiers.fence(&stream)?)?;
        Ok(ended.since(mark.time(&device)?))
    };
    let case = format!("one kernel of {blocks} blocks");
    series(bench, direction, &case, pairs, once)?;
    Ok(true)
}

/// Repeats a copy that gives its nanoseconds.
fn series<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    way: &str,
    pairs: &Pairs,
    once: impl Fn(&Bench<'_, D>) -> Result<u64, BenchError>,
) -> Result<(), BenchError> {
    let case = format!("{}, {way}", word(direction));
    let name = format!("{case}, {} pages", pairs.len());
    let bytes = bench.tiers.bytes(pairs.len());
    let planes = bench.tiers.planes.clone();
    let mut samples = Samples::new();
    let mut all = |bench: &mut Bench<'_, D>| {
        for rep in 0..=bench.options.reps.min(MOST_REPS) {
            let nanos = once(bench)?;
            if rep > 0 {
                samples.push(bytes as f64 / nanos as f64);
            }
        }
        Ok(())
    };
    match direction {
        Direction::HostToDevice => bench.checked_load(&planes, pairs, &name, &mut all)?,
        Direction::DeviceToHost => bench.checked_store(&planes, pairs, &name, &mut all)?,
    }
    bench.take(Taken {
        group: Group::Baselines,
        case: &case,
        pages: Some(u32::try_from(pairs.len()).unwrap_or(u32::MAX)),
        unit: Unit::GbPerS,
        samples: &samples,
        against: bench.ceiling(direction),
        bar: None,
    });
    Ok(())
}

const fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "load",
        Direction::DeviceToHost => "store",
    }
}

/// The chunks of one layer.
fn chunks<D: Subject>(bench: &Bench<'_, D>, layer: LayerId, pairs: &[PagePair]) -> Vec<Piece> {
    let (planes, host) = (&bench.tiers.planes, &bench.tiers.host);
    let width = planes.geometry().page().chunk_bytes();
    let piece = |pair: &PagePair| {
        Some(Piece {
            plane: 0,
            height: 1,
            device: planes.chunk_offset(layer, pair.l1)?,
            host: host.offset_of(pair.l2, layer).ok()?,
            width,
            device_pitch: width,
            host_pitch: width,
        })
    };
    pairs.iter().filter_map(piece).collect()
}
