// SPDX-License-Identifier: Apache-2.0
//! Lists of single rows, scattered over both tiers: of one layer alone, of a layer each by jobs that
//! follow each other, and of all layers.

use core::ops::Range;
use std::sync::Arc;

use striata_core::{L2Page, Row};
use striata_gpu::Direction;
use striata_gpu::transfer::{LoadRows, RowPair, StoreRows};
use striata_kernels::rows::RowSpan;

use super::bars;
use super::error::BenchError;
use super::figure::Unit;
use super::group::Group;
use super::run::{Bench, Taken};
use super::series::WARM;
use super::subject::Subject;
use super::tiers::{Content, seed_of};
use super::timing::{Mark, last_end, poll_until};
use crate::samples::Samples;

/// Most jobs that follow each other.
const IN_A_ROW: u32 = 8;

/// Rows in a range of layers.
struct List {
    rows: Arc<[RowPair]>,
    layers: Range<u32>,
    /// A job for each layer, all of them handed over at once, or one for all layers.
    by_layer: bool,
    /// Whether the bar is for it.
    judged: bool,
}

impl List {
    /// The layers of each job.
    fn jobs(&self) -> Vec<Range<u32>> {
        if self.by_layer {
            self.layers.clone().map(|layer| layer..layer + 1).collect()
        } else {
            vec![self.layers.clone()]
        }
    }
}

/// Both ways.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    let rows = draw(bench);
    let layers = bench.options.shape.layers;
    let several = layers.min(IN_A_ROW);
    let in_a_row = format!("a layer each by {several} jobs");
    for (layers, by_layer, judged, case) in [
        (0..1, false, false, "one layer"),
        (0..several, true, true, in_a_row.as_str()),
        (0..layers, false, true, "all layers"),
    ] {
        let list = List {
            rows: rows.clone(),
            layers,
            by_layer,
            judged,
        };
        loads(bench, &list, case)?;
        stores(bench, &list, case)?;
        // Host pages hold rows of several contents now.
        bench.store_everything()?;
    }
    Ok(())
}

/// Different rows of both tiers, in no order.
fn draw<D: Subject>(bench: &mut Bench<'_, D>) -> Arc<[RowPair]> {
    let (room, page_rows) = (bench.tiers.room(), bench.options.shape.page_rows);
    let count = bench.options.list_rows;
    let l1 = bench.lists.draw(count, room.l1.saturating_mul(page_rows));
    let l2 = bench.lists.draw(count, room.l2.saturating_mul(page_rows));
    // Page 0 of L1 is the sink.
    let row = |row: u32| Row::new(u64::from(row) + u64::from(page_rows));
    let pairs = l1.into_iter().zip(l2);
    pairs
        .map(|(l1, l2)| RowPair {
            l1: row(l1),
            l2: Row::new(u64::from(l2)),
        })
        .collect()
}

fn loads<D: Subject>(bench: &mut Bench<'_, D>, list: &List, case: &str) -> Result<(), BenchError> {
    let planes = bench.tiers.planes.clone();
    let expected = held_by_host(bench, list);
    let other = of_one_content(list, bench.tiers.fresh());
    bench.tiers.fill(&planes, list.layers.clone(), &other)?;
    let mut samples = Samples::new();
    for rep in 0..bench.options.reps + WARM {
        let nanos = time_load(bench, list)?;
        if rep >= WARM {
            samples.push(bytes(bench, list) / nanos as f64);
        }
    }
    let found = bench.tiers.wrong(&planes, list.layers.clone(), &expected)?;
    take(bench, Direction::HostToDevice, list, case, &samples, found);
    Ok(())
}

fn stores<D: Subject>(bench: &mut Bench<'_, D>, list: &List, case: &str) -> Result<(), BenchError> {
    let planes = bench.tiers.planes.clone();
    let stored = of_one_content(list, bench.tiers.fresh());
    bench.tiers.fill(&planes, list.layers.clone(), &stored)?;
    let mut samples = Samples::new();
    for rep in 0..bench.options.reps + WARM {
        let nanos = time_store(bench, list)?;
        if rep >= WARM {
            samples.push(bytes(bench, list) / nanos as f64);
        }
    }
    // Back over something else.
    let other = of_one_content(list, bench.tiers.fresh());
    bench.tiers.fill(&planes, list.layers.clone(), &other)?;
    time_load(bench, list)?;
    let found = bench.tiers.wrong(&planes, list.layers.clone(), &stored)?;
    take(bench, Direction::DeviceToHost, list, case, &samples, found);
    Ok(())
}

fn take<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    list: &List,
    case: &str,
    samples: &Samples,
    found: (u64, u64),
) {
    let word = match direction {
        Direction::HostToDevice => "load",
        Direction::DeviceToHost => "store",
    };
    let case = format!("{word} of {} rows, {case}", list.rows.len());
    bench.checked(&format!("{}, {case}", Group::Rows), found);
    bench.take(Taken {
        group: Group::Rows,
        case: &case,
        pages: None,
        unit: Unit::GbPerS,
        samples,
        against: bench.ceiling(direction),
        bar: list.judged.then_some(bars::ROWS),
    });
}

fn time_load<D: Subject>(bench: &mut Bench<'_, D>, list: &List) -> Result<u64, BenchError> {
    let job = |layers| LoadRows {
        op: bench.op(),
        rows: list.rows.clone(),
        layers,
        after: None,
    };
    let jobs: Vec<_> = list.jobs().into_iter().map(job).collect();
    let (device, count) = (&bench.device, jobs.len());
    let mark = Mark::set(device, &bench.tiers.marks)?;
    for job in jobs {
        bench.engine.load_rows(job)?;
    }
    let last = last_end(&poll_until(&bench.engine, "a load of rows", count)?);
    let begin = mark.time(device)?;
    device.advance_to(last);
    Ok(last.since(begin))
}

fn time_store<D: Subject>(bench: &mut Bench<'_, D>, list: &List) -> Result<u64, BenchError> {
    let job = |layers| StoreRows {
        op: bench.op(),
        rows: list.rows.clone(),
        layers,
        after: None,
        urgent: false,
    };
    let jobs: Vec<_> = list.jobs().into_iter().map(job).collect();
    let (device, count) = (&bench.device, jobs.len());
    let mark = Mark::set(device, &bench.tiers.marks)?;
    for job in jobs {
        bench.engine.store_rows(job)?;
    }
    let last = last_end(&poll_until(&bench.engine, "a store of rows", count)?);
    let begin = mark.time(device)?;
    device.advance_to(last);
    Ok(last.since(begin))
}

fn bytes<D: Subject>(bench: &Bench<'_, D>, list: &List) -> f64 {
    let row = f64::from(bench.options.shape.row_bytes);
    row * list.rows.len() as f64 * list.layers.len() as f64
}

/// The L1 rows of a list with what the host rows hold.
fn held_by_host<D: Subject>(bench: &Bench<'_, D>, list: &List) -> Arc<[RowSpan]> {
    let page_rows = u64::from(bench.options.shape.page_rows).max(1);
    let span = |pair: &RowPair| {
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let (page, row) = (pair.l2.get() / page_rows, pair.l2.get() % page_rows);
        RowSpan {
            seed: seed_of(bench.tiers.held(L2Page::new(small(page)))),
            first_row: pair.l1.get(),
            rows: 1,
            skip: small(row),
        }
    };
    list.rows.iter().map(span).collect()
}

/// The L1 rows of a list as different rows of one content.
fn of_one_content(list: &List, content: Content) -> Arc<[RowSpan]> {
    let span = |(skip, pair): (u32, &RowPair)| RowSpan {
        seed: seed_of(content),
        first_row: pair.l1.get(),
        rows: 1,
        skip,
    };
    (0..).zip(list.rows.iter()).map(span).collect()
}
