// SPDX-License-Identifier: Apache-2.0
//! CPU time of submission, for each page: of a caller who submits by himself, so that the clock of
//! his thread shows it and nothing else.

use striata_core::OpId;
use striata_gpu::Direction;
use striata_gpu::transfer::{LoadJob, StoreJob, Submission, TransferConfig, TransferEngine};

use super::bars;
use super::error::BenchError;
use super::figure::{Bar, Unit};
use super::group::Group;
use super::lists::Pairs;
use super::paths::path_pages;
use super::run::{Bench, Taken};
use super::subject::Subject;
use super::timing::{last_end, poll_until, wait_until};
use crate::clock::thread_nanos;
use crate::samples::Samples;

/// Load-backs and stores of several numbers of pages.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let engine = TransferEngine::new(
        bench.device.clone(),
        bench.tiers.planes.clone(),
        Some(bench.tiers.host.clone()),
        TransferConfig {
            submission: Submission::Manual,
            paths: bench.options.paths,
            // Submission hardly ever waits for copies.
            window_bytes: u64::MAX,
            ..TransferConfig::default()
        },
    )?;
    let planes = bench.tiers.planes.clone();
    for pages in path_pages(&bench.options.pages) {
        let pairs = bench.lists.scattered(pages, bench.tiers.room());
        let mut samples = Samples::new();
        let name = format!("cpu, loads, {pages} pages");
        bench.checked_load(&planes, &pairs, &name, |bench| {
            repeat(
                bench,
                &engine,
                Direction::HostToDevice,
                &pairs,
                &mut samples,
            )
        })?;
        take(
            bench,
            Direction::HostToDevice,
            pages,
            &samples,
            bars::LOAD_CPU,
        );
        let mut samples = Samples::new();
        let name = format!("cpu, stores, {pages} pages");
        bench.checked_store(&planes, &pairs, &name, |bench| {
            repeat(
                bench,
                &engine,
                Direction::DeviceToHost,
                &pairs,
                &mut samples,
            )
        })?;
        take(
            bench,
            Direction::DeviceToHost,
            pages,
            &samples,
            bars::STORE_CPU,
        );
    }
    Ok(())
}

fn take<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    pages: u32,
    samples: &Samples,
    bar: Bar,
) {
    let case = match direction {
        Direction::HostToDevice => "layered load, CPU time a page",
        Direction::DeviceToHost => "store, CPU time a page",
    };
    let link = bench.link_nanos(direction, bench.tiers.bytes(1)) / 1e3;
    bench.take(Taken {
        group: Group::Cpu,
        case,
        pages: Some(pages),
        unit: Unit::Us,
        samples,
        against: ("a page at the ceiling", link),
        bar: (pages >= bars::CPU_PAGES).then_some(bar),
    });
}

fn repeat<D: Subject>(
    bench: &mut Bench<'_, D>,
    engine: &TransferEngine<D>,
    direction: Direction,
    pairs: &Pairs,
    samples: &mut Samples,
) -> Result<(), BenchError> {
    for rep in 0..=bench.options.reps {
        let (op, pages) = (bench.op(), pairs.clone());
        let mut nanos = 0;
        let mut timed = |work: &mut dyn FnMut() -> Result<bool, BenchError>| {
            let begin = thread_nanos();
            let did = work()?;
            // A look that found nothing to do is no submission.
            nanos += if did {
                thread_nanos().saturating_sub(begin)
            } else {
                0
            };
            Ok::<bool, BenchError>(did)
        };
        timed(&mut || give(engine, direction, op, &pages))?;
        wait_until(|| {
            while timed(&mut || Ok(engine.pump()))? {}
            Ok(waiting(engine, direction) == 0)
        })?;
        let done = poll_until(engine, "a job", 1)?;
        bench.device.advance_to(last_end(&done));
        // The first fills buffers that later ones reuse.
        if rep > 0 {
            samples.push(nanos as f64 / 1e3 / pairs.len() as f64);
        }
    }
    Ok(())
}

/// Hands a job to an engine.
fn give<D: Subject>(
    engine: &TransferEngine<D>,
    direction: Direction,
    op: OpId,
    pages: &Pairs,
) -> Result<bool, BenchError> {
    let (pages, after) = (pages.clone(), None);
    match direction {
        Direction::HostToDevice => {
            engine.load(LoadJob { op, pages, after })?;
        }
        Direction::DeviceToHost => engine.store(StoreJob {
            op,
            pages,
            after,
            urgent: false,
        })?,
    }
    Ok(true)
}

/// Bytes that are not submitted yet.
fn waiting<D: Subject>(engine: &TransferEngine<D>, direction: Direction) -> u64 {
    let stats = engine.stats();
    match direction {
        Direction::HostToDevice => stats.loads.queued_bytes,
        Direction::DeviceToHost => stats.stores.queued_bytes,
    }
}
