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

/// Copies in groups, an event behind each.
struct Grouped<D: Subject> {
    device: D,
    stream: D::Stream,
    direction: Direction,
    form: CopyForm,
    groups: Vec<Vec<Piece>>,
    /// Most pieces of a call.
    call: usize,
}

impl<D: Subject> Grouped<D> {
    fn submit(&self, bench: &Bench<'_, D>) -> Result<Option<D::Event>, BenchError> {
        let mut end = None;
        for group in &self.groups {
            for pieces in group.chunks(self.call.max(1)) {
                let batch = CopyBatch {
                    direction: self.direction,
                    form: self.form,
                    planes: bench.tiers.planes.memories(),
                    host: &bench.tiers.host,
                    pieces,
                };
                self.device.copy(&self.stream, &batch)?;
            }
            let event = self.device.event()?;
            self.device.record(&event, &self.stream)?;
            end = Some(event);
        }
        Ok(end)
    }

    /// Nanoseconds until all have ended, and of CPU until all were submitted.
    fn once(&self, bench: &Bench<'_, D>) -> Result<(u64, u64), BenchError> {
        let device = &self.device;
        let mark = Mark::set(device, &self.stream)?;
        let begin = thread_nanos();
        let end = self.submit(bench)?;
        let cpu = thread_nanos().saturating_sub(begin);
        let ended = match &end {
            Some(end) => end_of(device, end)?,
            None => device.now(),
        };
        let began = mark.time(device)?;
        device.advance_to(ended);
        Ok((ended.since(began), cpu))
    }
}

/// The calls that an engine would make, and nothing else: a load in layer groups that double, each a
/// batch of chunks with an event behind it; a store as one batch of rectangles. What the engine adds
/// to them is the difference to its own figures. Also the CPU time of a descriptor.
fn batched<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    pairs: &Pairs,
) -> Result<(), BenchError> {
    let way = "batched calls, no engine";
    let (form, groups) = match direction {
        Direction::HostToDevice => (CopyForm::Runs, grouped_chunks(bench, pairs)),
        Direction::DeviceToHost => match rectangles(bench, pairs) {
            Some(boxes) => (CopyForm::Rectangles, vec![boxes]),
            None => {
                let why = "the planes are not at one distance".to_owned();
                bench.skip(
                    &format!("{}: {}, {way}", Group::Baselines, word(direction)),
                    why,
                );
                return Ok(());
            }
        },
    };
    let descriptors = groups.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    let copies = Grouped {
        stream: bench.device.stream("bench batched")?,
        device: bench.device.clone(),
        direction,
        form,
        groups,
        call: CALL,
    };
    // By repetition, of which the first only warms up.
    let cpu = RefCell::new(Vec::new());
    let once = |bench: &Bench<'_, D>| {
        let (nanos, of_cpu) = copies.once(bench)?;
        cpu.borrow_mut().push(of_cpu as f64 / 1e3 / descriptors);
        Ok(nanos)
    };
    series(bench, direction, way, pairs, once)?;
    let mut samples = Samples::new();
    for micros in cpu.into_inner().into_iter().skip(1) {
        samples.push(micros);
    }
    let link = bench.link_nanos(direction, bench.tiers.bytes(pairs.len())) / 1e3;
    bench.take(Taken {
        group: Group::Baselines,
        case: &format!("{}, batched calls, CPU time a descriptor", word(direction)),
        pages: Some(u32::try_from(pairs.len()).unwrap_or(u32::MAX)),
        unit: Unit::Us,
        samples: &samples,
        against: ("a descriptor at the ceiling", link / descriptors),
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
    let (device, call) = bench.device.plain()?;
    let layers = (0..bench.options.shape.layers).map(LayerId::new);
    let copies = Grouped {
        stream: device.stream("bench plain")?,
        device,
        direction,
        form: CopyForm::Runs,
        groups: layers.map(|layer| chunks(bench, layer, pairs)).collect(),
        call,
    };
    let once = |bench: &Bench<'_, D>| Ok(copies.once(bench)?.0);
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
