// SPDX-License-Identifier: Apache-2.0
//! What copies cost the compute beside them.
//!
//! A pair is the compute alone and the same compute beside a copy, one right after the other, so
//! that clocks and heat are the same for both; pairs begin with either in turn. Beside a copy the
//! compute runs as often as fits into the copy, and only runs that lie wholly inside it count.

use striata_gpu::{DeviceTime, Direction};

use super::bars;
use super::beside::{Copier, Copies};
use super::error::BenchError;
use super::figure::Unit;
use super::group::Group;
use super::run::{Bench, Taken};
use super::subject::{Compute, Launch, Subject};
use super::timing::end_of;
use crate::samples::Samples;

/// How much longer than the compute a copy is made.
const COVER: f64 = 3.0;
/// Nanoseconds for which the stream is kept busy before the first run, so that it begins when the
/// one before it ends, not when the host has launched it: in runs behind each other no launch shows.
const LEAD: u64 = 200_000;
/// Runs before the first that counts.
const WARM: usize = 3;
/// Blocks of the copy kernels that the engine is compared with.
pub(super) const BLOCKS: [u32; 2] = [2, 8];

/// Three kinds of compute beside copies of the engine; the small GEMMs beside copy kernels too.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let stream = bench.tiers.compute.clone();
    let kinds = bench.device.compute(&stream)?;
    if kinds.is_empty() {
        let why = "the simulated device computes nothing".to_owned();
        bench.skip(Group::Slowdown.name(), why);
    }
    for kind in kinds {
        match &kind.run {
            Err(why) => bench.skip(&format!("{}: {}", Group::Slowdown, kind.name), why.clone()),
            Ok(run) => beside_all(bench, &kind, run)?,
        }
    }
    Ok(())
}

fn beside_all<D: Subject>(
    bench: &mut Bench<'_, D>,
    kind: &Compute<D>,
    run: &Launch<D>,
) -> Result<(), BenchError> {
    let mut alone = Samples::new();
    for rep in 0..WARM + 3 {
        let nanos = time_alone(bench, run)?;
        if rep >= WARM {
            alone.push(nanos);
        }
    }
    let alone = alone.median().unwrap_or(1.0);
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        let copies = by_engine(bench, direction, alone);
        pairs(bench, kind, run, &copies)?;
        if !kind.decode {
            continue;
        }
        for blocks in BLOCKS {
            if let Some(copies) = by_kernel(bench, direction, blocks, &copies)? {
                pairs(bench, kind, run, &copies)?;
            }
        }
    }
    Ok(())
}

/// A copy of the engine that is longer than the compute.
fn by_engine<D: Subject>(bench: &mut Bench<'_, D>, direction: Direction, alone: f64) -> Copies<D> {
    let page = bench.link_nanos(direction, bench.tiers.bytes(1));
    let needed = ((LEAD as f64 + alone * COVER) / page).ceil();
    let most = bench.options.most_pages();
    let pages = (1..=most).find(|pages| f64::from(*pages) >= needed);
    let pairs = bench
        .lists
        .scattered(pages.unwrap_or(most), bench.tiers.room());
    let word = match direction {
        Direction::HostToDevice => "a load",
        Direction::DeviceToHost => "a store",
    };
    Copies {
        name: word.to_owned(),
        direction,
        pairs,
        copier: Copier::Engine(bench.engine.clone()),
        judged: true,
    }
}

/// The same pages by a copy kernel; none on devices without kernels.
fn by_kernel<D: Subject>(
    bench: &Bench<'_, D>,
    direction: Direction,
    blocks: u32,
    like: &Copies<D>,
) -> Result<Option<Copies<D>>, BenchError> {
    let (planes, host) = (&bench.tiers.planes, &bench.tiers.host);
    let device = &bench.device;
    let launch = device.page_kernel(planes, host, &like.pairs, direction, blocks)?;
    let Some(launch) = launch else {
        return Ok(None);
    };
    Ok(Some(Copies {
        name: format!("{} by a kernel of {blocks} blocks", like.name),
        direction,
        pairs: like.pairs.clone(),
        copier: Copier::Kernel(launch, device.stream("bench copy kernel")?),
        judged: false,
    }))
}

/// Pairs with one kind of copy, its bytes compared after them.
fn pairs<D: Subject>(
    bench: &mut Bench<'_, D>,
    kind: &Compute<D>,
    run: &Launch<D>,
    copies: &Copies<D>,
) -> Result<(), BenchError> {
    let (mut ratios, mut rates) = (Samples::new(), Samples::new());
    let (mut alone_ms, planes) = (Samples::new(), bench.tiers.planes.clone());
    let name = format!("{} beside {}", kind.name, copies.name);
    let mut all = |bench: &mut Bench<'_, D>| {
        for rep in 0..bench.options.reps {
            let first = rep % 2 == 0;
            let before = first.then(|| time_alone(bench, run)).transpose()?;
            let beside = time_beside(bench, run, copies)?;
            let alone = before.map_or_else(|| time_alone(bench, run), Ok)?;
            alone_ms.push(alone / 1e6);
            rates.push(beside.rate);
            if let Some(nanos) = beside.compute {
                ratios.push(nanos / alone);
            }
        }
        Ok(())
    };
    match copies.direction {
        Direction::HostToDevice => bench.checked_load(&planes, &copies.pairs, &name, &mut all)?,
        Direction::DeviceToHost => bench.checked_store(&planes, &copies.pairs, &name, &mut all)?,
    }
    let bar = match copies.direction {
        Direction::HostToDevice => bars::GEMMS_BESIDE_LOAD,
        Direction::DeviceToHost => bars::GEMMS_BESIDE_STORE,
    };
    let alone = alone_ms.median().unwrap_or(0.0);
    bench.take(Taken {
        group: Group::Slowdown,
        case: &format!("{name}, {alone:.2} ms alone"),
        pages: None,
        unit: Unit::Times,
        samples: &ratios,
        against: ("the same compute alone", 1.0),
        bar: (kind.decode && copies.judged).then_some(bar),
    });
    bench.take(Taken {
        group: Group::Slowdown,
        case: &format!("{} beside {}: the copy", copies.name, kind.name),
        pages: None,
        unit: Unit::GbPerS,
        samples: &rates,
        against: bench.ceiling(copies.direction),
        bar: None,
    });
    Ok(())
}

/// Nanoseconds of the compute alone.
fn time_alone<D: Subject>(bench: &mut Bench<'_, D>, run: &Launch<D>) -> Result<f64, BenchError> {
    let stream = &bench.tiers.compute;
    bench.device.occupy(stream, LEAD)?;
    let begin = bench.tiers.fence(stream)?;
    run(stream)?;
    let end = end_of(&bench.device, &bench.tiers.fence(stream)?)?;
    let begin = bench.device.synchronize(&begin)?;
    bench.device.advance_to(end);
    Ok(end.since(begin) as f64)
}

/// What one copy beside compute gave.
struct Beside {
    /// Mean nanoseconds of the runs of compute inside the copy; none if there was no such run.
    compute: Option<f64>,
    /// GB/s of the copy.
    rate: f64,
}

fn time_beside<D: Subject>(
    bench: &mut Bench<'_, D>,
    run: &Launch<D>,
    copies: &Copies<D>,
) -> Result<Beside, BenchError> {
    let running = copies.start(bench)?;
    let stream = bench.tiers.compute.clone();
    bench.device.not_before(&stream, bench.device.now())?;
    bench.device.occupy(&stream, LEAD)?;
    // More than fit into the copy at any slowdown.
    let runs = 2 + whole(COVER);
    let mut points = vec![bench.tiers.fence(&stream)?];
    for _ in 0..runs {
        run(&stream)?;
        points.push(bench.tiers.fence(&stream)?);
    }
    let (began, ended) = copies.finish(bench, &running)?;
    if let Some(last) = points.last() {
        bench.device.advance_to(end_of(&bench.device, last)?);
    }
    let times = points.iter().map(|point| bench.device.synchronize(point));
    let times: Vec<DeviceTime> = times.collect::<Result<_, _>>()?;
    let bytes = bench.tiers.bytes(copies.pairs.len());
    Ok(Beside {
        compute: mean_inside(&times, began, ended),
        rate: bytes as f64 / ended.since(began).max(1) as f64,
    })
}

/// Mean nanoseconds between two points that both lie inside \[began, ended\].
fn mean_inside(times: &[DeviceTime], began: DeviceTime, ended: DeviceTime) -> Option<f64> {
    let inside = |pair: &&[DeviceTime]| pair[0] >= began && pair[1] <= ended;
    let spans = times.windows(2).filter(inside);
    let spans: Vec<f64> = spans.map(|two| two[1].since(two[0]) as f64).collect();
    let sum: f64 = spans.iter().sum();
    (!spans.is_empty()).then(|| sum / spans.len() as f64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small whole number"
)]
const fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use striata_gpu::Device;
    use striata_gpu::sim::{SimConfig, SimDevice};

    use super::*;
    use crate::transfer::options::TransferOptions;

    /// Streams of the simulated device do not slow each other, so every ratio is 1.
    #[test]
    fn pairs_of_compute_that_nothing_slows_have_the_ratio_1() {
        let options = TransferOptions {
            reps: 4,
            pages: vec![24],
            ..TransferOptions::simulated()
        };
        let device = SimDevice::new(SimConfig::new(0));
        let mut bench = Bench::new(&device, &options).unwrap();
        let kind = |run| Compute {
            name: "time",
            decode: true,
            run,
        };
        let run: Launch<SimDevice> = Box::new(move |stream| device.occupy(stream, 20_000));
        beside_all(&mut bench, &kind(Err(String::new())), &run).unwrap();
        let report = bench.report(std::time::Instant::now());
        let slowdowns = report.figures.iter().filter(|f| f.unit == Unit::Times);
        let slowdowns: Vec<_> = slowdowns.collect();
        assert_eq!(slowdowns.len(), 2, "{:?}", report.skipped);
        for figure in slowdowns {
            assert_eq!(
                (figure.stats.count, figure.ratio),
                (4, 1.0),
                "{}",
                figure.case
            );
            assert!(figure.bar.is_some() && figure.case.contains("0.02 ms alone"));
        }
        assert_eq!((report.checks.series, report.checks.wrong_rows), (2, 0));
    }

    // Seen to fail if a run that ends after the copy counts.
    #[test]
    fn only_runs_wholly_inside_the_copy_count() {
        let at = DeviceTime::from_nanos;
        let times: Vec<DeviceTime> = [0, 10, 30, 60, 100].map(at).to_vec();
        assert_eq!(mean_inside(&times, at(5), at(70)), Some(25.0));
        assert_eq!(mean_inside(&times, at(0), at(100)), Some(25.0));
        assert_eq!(mean_inside(&times, at(61), at(99)), None);
        assert_eq!(mean_inside(&[], at(0), at(1)), None);
    }
}
