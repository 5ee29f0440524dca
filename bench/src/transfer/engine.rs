// SPDX-License-Identifier: Apache-2.0
//! The engine as it is: load-backs, stores, both at once, planes of an allocation each.

use std::sync::Arc;
use std::time::Duration;

use striata_gpu::transfer::{LoadJob, StoreJob, TransferConfig, TransferEngine};
use striata_gpu::{Direction, L1Planes, PlaneSpan};

use super::bars;
use super::error::BenchError;
use super::figure::{Bar, Unit};
use super::group::Group;
use super::lists::{Pairs, Room, run};
use super::run::{Bench, Taken};
use super::series::{Place, WARM};
use super::subject::Subject;
use super::timing::{Mark, ends_of, last_end, poll_until};
use crate::samples::Samples;

/// How long the engine rests before each job of the case that shows what waking it costs.
const REST: Duration = Duration::from_millis(2);

/// Load-backs of every number of pages, scattered and in runs, and of the smallest after a rest.
pub(super) fn loads<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let place = bench.place();
    for pages in bench.options.pages.clone() {
        let room = bench.tiers.room();
        let scattered = bench.lists.scattered(pages, room);
        load_case(bench, &place, ("scattered", &scattered), || {})?;
        load_case(bench, &place, ("runs", &run(pages, room)), || {})?;
        if pages == bench.options.pages[0] {
            let rest = || std::thread::sleep(REST);
            load_case(
                bench,
                &place,
                ("scattered, after 2 ms of rest", &scattered),
                rest,
            )?;
        }
    }
    Ok(())
}

fn load_case<D: Subject>(
    bench: &mut Bench<'_, D>,
    place: &Place<D>,
    (case, pairs): (&str, &Pairs),
    rest: impl Fn(),
) -> Result<(), BenchError> {
    let pages = count(pairs);
    let judged = !case.contains("rest");
    let series = bench.load_series(place, pairs, &format!("load, {pages} pages, {case}"), rest)?;
    bench.take(Taken {
        group: Group::Load,
        case,
        pages: Some(pages),
        unit: Unit::GbPerS,
        samples: &series.rate,
        against: bench.ceiling(Direction::HostToDevice),
        bar: bars::load(pages).filter(|_| judged),
    });
    let layer = bench.tiers.planes.geometry().page().chunk_bytes() * u64::from(pages);
    let link = bench.link_nanos(Direction::HostToDevice, layer) / 1e3;
    bench.take(Taken {
        group: Group::Load,
        case: &format!("{case}: first layer"),
        pages: Some(pages),
        unit: Unit::Us,
        samples: &series.first_us,
        against: ("one layer at the ceiling", link),
        bar: bars::first_layer(pages).filter(|_| judged),
    });
    Ok(())
}

/// Stores of every number of pages, scattered and in runs.
pub(super) fn stores<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let place = bench.place();
    for pages in bench.options.pages.clone() {
        let room = bench.tiers.room();
        let scattered = bench.lists.scattered(pages, room);
        let bar = bars::store(pages);
        store_case(bench, &place, Group::Store, ("scattered", &scattered), bar)?;
        store_case(
            bench,
            &place,
            Group::Store,
            ("runs", &run(pages, room)),
            bar,
        )?;
    }
    Ok(())
}

fn store_case<D: Subject>(
    bench: &mut Bench<'_, D>,
    place: &Place<D>,
    group: Group,
    (case, pairs): (&str, &Pairs),
    bar: Option<Bar>,
) -> Result<(), BenchError> {
    let pages = count(pairs);
    let samples = bench.store_series(place, pairs, &format!("{group}, {pages} pages, {case}"))?;
    bench.take(Taken {
        group,
        case,
        pages: Some(pages),
        unit: Unit::GbPerS,
        samples: &samples,
        against: bench.ceiling(Direction::DeviceToHost),
        bar,
    });
    Ok(())
}

/// A load-back and a store of the largest number of pages at once.
pub(super) fn both<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let place = bench.place();
    let pages = bench.options.most_pages();
    let (loaded, stored) = bench.lists.two_scattered(pages, bench.tiers.room());
    let bytes = bench.tiers.bytes(loaded.len() + stored.len());
    let mut samples = Samples::new();
    let planes = place.planes.clone();
    bench.checked_store(&planes, &stored, "both, stores", |bench| {
        bench.checked_load(&planes, &loaded, "both, loads", |bench| {
            for rep in 0..bench.options.reps + WARM {
                let nanos = both_once(bench, &place, &loaded, &stored)?;
                if rep >= WARM {
                    samples.push(bytes as f64 / nanos as f64);
                }
            }
            Ok(())
        })
    })?;
    let both = bench.ceilings.both_gb_per_s;
    bench.take(Taken {
        group: Group::Both,
        case: "a load-back and a store at once",
        pages: Some(pages),
        unit: Unit::GbPerS,
        samples: &samples,
        against: ("two copy calls, both ways at once", both),
        bar: Some(bars::BOTH),
    });
    Ok(())
}

/// Nanoseconds until both have ended.
fn both_once<D: Subject>(
    bench: &mut Bench<'_, D>,
    place: &Place<D>,
    loaded: &Pairs,
    stored: &Pairs,
) -> Result<u64, BenchError> {
    let load = LoadJob {
        op: bench.op(),
        pages: loaded.clone(),
        after: None,
    };
    let store = StoreJob {
        op: bench.op(),
        pages: stored.clone(),
        after: None,
        urgent: false,
    };
    let device = &bench.device;
    let mark = Mark::set(device, &bench.tiers.marks)?;
    let gate = place.engine.load(load)?;
    place.engine.store(store)?;
    let (_, loaded) = ends_of(&gate)?;
    let done = poll_until(&place.engine, "both at once", 2)?;
    let last = last_end(&done).max(loaded);
    let begin = mark.time(device)?;
    device.advance_to(last);
    Ok(last.since(begin))
}

/// Planes that are an allocation a layer, as engines have them.
pub(super) fn separate<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let most = bench.options.most_pages();
    // Page 0 is the sink.
    let pool = bench.options.shape.pool(most.saturating_add(1))?;
    let plane = pool.page().chunk_bytes() * u64::from(pool.pages());
    let layers = 0..bench.options.shape.layers;
    let memories = layers.clone().map(|_| bench.device.alloc(plane));
    let memories: Arc<[D::Memory]> = memories.collect::<Result<_, _>>()?;
    let spans = layers.map(|memory| PlaneSpan { memory, offset: 0 });
    let planes = L1Planes::adopt(&bench.device, pool, spans.collect(), memories)?;
    let planes = Arc::new(planes);
    let engine = TransferEngine::new(
        bench.device.clone(),
        planes.clone(),
        Some(bench.tiers.host.clone()),
        TransferConfig {
            paths: bench.options.paths,
            ..TransferConfig::default()
        },
    )?;
    let place = Place {
        engine: Arc::new(engine),
        planes,
        reps: bench.options.reps,
    };
    let room = Room {
        l1: most,
        ..bench.tiers.room()
    };
    for pages in bench.options.pages.clone() {
        let pairs = bench.lists.scattered(pages, room);
        let bar = bars::separate_store(pages);
        store_case(
            bench,
            &place,
            Group::Separate,
            ("store, scattered", &pairs),
            bar,
        )?;
        let name = format!("separate, load, {pages} pages");
        let series = bench.load_series(&place, &pairs, &name, || {})?;
        bench.take(Taken {
            group: Group::Separate,
            case: "load, scattered",
            pages: Some(pages),
            unit: Unit::GbPerS,
            samples: &series.rate,
            against: bench.ceiling(Direction::HostToDevice),
            bar: None,
        });
    }
    Ok(())
}

/// Pages of a job.
pub(super) fn count(pairs: &Pairs) -> u32 {
    u32::try_from(pairs.len()).unwrap_or(u32::MAX)
}
