// SPDX-License-Identifier: Apache-2.0
//! A consumer that computes layer by layer behind a load: before each layer its stream waits for
//! the layer's gate.
//!
//! Its layers are kernels that let time pass. How long one must be told to last, so that the whole
//! consumer takes its share of the load's time, is found first on a load that has ended: launches
//! and waits cost time too.

use striata_core::LayerId;
use striata_gpu::transfer::{LoadGate, LoadJob};

use super::bars;
use super::error::BenchError;
use super::figure::Unit;
use super::group::Group;
use super::lists::Pairs;
use super::run::{Bench, Taken};
use super::subject::Subject;
use super::timing::{LoadTime, Mark, end_of, ends_of, poll_until, time_load};
use crate::samples::Samples;

/// The consumer alone takes the load's time divided by these.
const SPEEDS: [(f64, &str); 3] = [
    (0.5, "half as fast as the load"),
    (1.0, "as fast as the load"),
    (2.0, "twice as fast as the load"),
];
/// Measurements of the consumer alone.
const TRIES: usize = 5;

/// One speed: what a layer is told to last, and what is measured.
struct Speed {
    speed: f64,
    case: &'static str,
    layer_nanos: u64,
    totals_us: Samples,
}

/// Loads of many pages with consumers of several speeds behind them.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let pages = bench.options.pages.clone();
    let many = pages.iter().copied().filter(|pages| *pages >= 64);
    let mut chosen: Vec<u32> = many.collect();
    if chosen.is_empty() {
        chosen.extend(pages.last());
    }
    for pages in chosen {
        let pairs = bench.lists.scattered(pages, bench.tiers.room());
        let planes = bench.tiers.planes.clone();
        let name = format!("consumer, {pages} pages");
        bench.checked_load(&planes, &pairs, &name, |bench| behind(bench, pages, &pairs))?;
    }
    Ok(())
}

fn behind<D: Subject>(
    bench: &mut Bench<'_, D>,
    pages: u32,
    pairs: &Pairs,
) -> Result<(), BenchError> {
    let mut alone = Samples::new();
    for _ in 0..TRIES {
        alone.push(load_alone(bench, pairs)?.all as f64);
    }
    let load_nanos = alone.median().unwrap_or(0.0);
    let ended = ended_load(bench, pairs)?;
    let mut speeds = Vec::new();
    for (speed, case) in SPEEDS {
        let layer_nanos = calibrate(bench, &ended, load_nanos / speed)?;
        let totals_us = Samples::new();
        speeds.push(Speed {
            speed,
            case,
            layer_nanos,
            totals_us,
        });
    }
    let mut loads_us = Samples::new();
    for _ in 0..bench.options.reps {
        loads_us.push(load_alone(bench, pairs)?.all as f64 / 1e3);
        for speed in &mut speeds {
            let nanos = together(bench, pairs, speed.layer_nanos)?;
            speed.totals_us.push(nanos as f64 / 1e3);
        }
    }
    let load_us = loads_us.median().unwrap_or(0.0);
    for speed in &speeds {
        take(bench, pages, load_us, speed);
    }
    Ok(())
}

fn take<D: Subject>(bench: &mut Bench<'_, D>, pages: u32, load_us: f64, speed: &Speed) {
    let consumer_us = load_us / speed.speed;
    let layer_us = consumer_us / f64::from(bench.options.shape.layers);
    bench.take(Taken {
        group: Group::Consumer,
        case: speed.case,
        pages: Some(pages),
        unit: Unit::Us,
        samples: &speed.totals_us,
        against: (
            "the longer of load and consumer, and one layer",
            load_us.max(consumer_us) + layer_us,
        ),
        bar: bars::consumer(pages).filter(|_| (speed.speed - 1.0).abs() < 1e-9),
    });
}

fn load_alone<D: Subject>(bench: &mut Bench<'_, D>, pairs: &Pairs) -> Result<LoadTime, BenchError> {
    let op = bench.op();
    time_load(
        &bench.device,
        &bench.tiers.marks,
        &bench.engine,
        (op, pairs),
    )
}

/// The gate of a load that has ended.
fn ended_load<D: Subject>(
    bench: &mut Bench<'_, D>,
    pairs: &Pairs,
) -> Result<std::sync::Arc<LoadGate<D>>, BenchError> {
    let op = bench.op();
    let job = LoadJob {
        op,
        pages: pairs.clone(),
        after: None,
    };
    let gate = bench.engine.load(job)?;
    let (_, last) = ends_of(&gate)?;
    poll_until(&bench.engine, "a load", 1)?;
    bench.device.advance_to(last);
    Ok(gate)
}

/// Lets the compute stream follow a load layer by layer; the end of that.
fn consume<D: Subject>(
    bench: &Bench<'_, D>,
    gate: &LoadGate<D>,
    layer_nanos: u64,
) -> Result<D::Event, BenchError> {
    let stream = &bench.tiers.compute;
    for layer in 0..bench.options.shape.layers {
        gate.wait_layer(LayerId::new(layer), stream)?;
        bench.device.occupy(stream, layer_nanos)?;
    }
    bench.tiers.fence(stream)
}

/// Nanoseconds from the call that submits the load to the end of the consumer behind it.
fn together<D: Subject>(
    bench: &mut Bench<'_, D>,
    pairs: &Pairs,
    layer_nanos: u64,
) -> Result<u64, BenchError> {
    let job = LoadJob {
        op: bench.op(),
        pages: pairs.clone(),
        after: None,
    };
    let device = bench.device.clone();
    device.not_before(&bench.tiers.compute, device.now())?;
    let mark = Mark::set(&device, &bench.tiers.marks)?;
    let gate = bench.engine.load(job)?;
    let end = consume(bench, &gate, layer_nanos)?;
    let end = end_of(&device, &end)?;
    let begin = mark.time(&device)?;
    poll_until(&bench.engine, "a load", 1)?;
    device.advance_to(end);
    Ok(end.since(begin))
}

/// Nanoseconds of the consumer behind a load that has ended.
fn consumer_alone<D: Subject>(
    bench: &Bench<'_, D>,
    ended: &LoadGate<D>,
    layer_nanos: u64,
) -> Result<f64, BenchError> {
    let device = &bench.device;
    let mut samples = Samples::new();
    for _ in 0..TRIES {
        device.not_before(&bench.tiers.compute, device.now())?;
        let mark = Mark::set(device, &bench.tiers.marks)?;
        let end = end_of(device, &consume(bench, ended, layer_nanos)?)?;
        samples.push(end.since(mark.time(device)?) as f64);
        device.advance_to(end);
    }
    Ok(samples.median().unwrap_or(0.0))
}

/// What a layer must be told to last, so that the consumer alone takes `nanos`.
fn calibrate<D: Subject>(
    bench: &Bench<'_, D>,
    ended: &LoadGate<D>,
    nanos: f64,
) -> Result<u64, BenchError> {
    let layers = f64::from(bench.options.shape.layers);
    let mut told = nanos / layers;
    for _ in 0..2 {
        let took = consumer_alone(bench, ended, whole(told))?;
        told = (told + (nanos - took) / layers).max(0.0);
    }
    Ok(whole(told))
}

/// Whole nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time of a layer, not negative"
)]
const fn whole(nanos: f64) -> u64 {
    nanos as u64
}
