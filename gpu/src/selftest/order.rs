// SPDX-License-Identifier: Apache-2.0
//! What waits for what: gates, fences in both directions of hazard, completions, times.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use striata_core::LayerId;

use super::rig::{Layout, Rig};
use super::{Check, Checked, Failure, ensure};
use crate::device::Device;
use crate::transfer::{GateError, JobFailure, LoadGate, TransferEngine};

const MILLI: u64 = 1_000_000;
/// After this, something waits for ever.
const DEADLOCK: Duration = Duration::from_secs(20);
/// Streams of an engine beside ours.
const STREAMS: u32 = 40;

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "gates.before_submission",
            about: "40 streams ask for layers of a load that is not submitted yet, none hangs",
            run: gates_before_submission,
        },
        Check {
            name: "gates.each_layer",
            about: "a layer behind its gate holds the loaded bytes while later layers still load",
            run: gates_each_layer,
        },
        Check {
            name: "fences.b25_store_after_write",
            about: "a store behind a held kernel takes the bytes that the kernel writes, 1000 times",
            run: store_after_write,
        },
        Check {
            name: "fences.load_after_read",
            about: "a load into pages that a held kernel reads begins after it",
            run: load_after_read,
        },
        Check {
            name: "completions.b24_after_the_end",
            about: "pages of a store are in use until it has ended, and are reported once",
            run: reported_after_the_end,
        },
        Check {
            name: "engine.dropped",
            about: "an engine that is dropped fails what it had not submitted and hangs nobody",
            run: dropped_engine,
        },
        Check {
            name: "times.events",
            about: "times of events agree with the host's clock and with what lies between them",
            run: times,
        },
    ]
}

/// A rig whose host pages 0.. hold contents 1000.., and whose L1 pages hold nothing of it.
fn loaded<D: Device>(device: &D, layout: Layout, pages: u32) -> Result<Rig<D>, Failure> {
    let rig = Rig::new(device, layout)?;
    let contents: Vec<_> = (0..pages).map(|p| (p + 1, 1000 + u64::from(p))).collect();
    rig.fill(&contents)?;
    let list: Vec<_> = (0..pages).map(|p| (p + 1, p)).collect();
    rig.engine
        .store(rig.store_job(1, &list, Some(rig.fence()?)))?;
    rig.finish()?;
    let wiped: Vec<_> = (0..pages).map(|p| (p + 1, 999)).collect();
    rig.fill(&wiped)?;
    Ok(rig)
}

/// Waits for an event, but not for ever.
fn await_event<D: Device>(device: &D, event: &D::Event, what: &str) -> Checked {
    let begin = Instant::now();
    while !device.is_complete(event)? {
        ensure!(
            begin.elapsed() < DEADLOCK,
            "{what} did not end within {DEADLOCK:?}"
        );
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

fn gates_before_submission<D: Device>(device: &D) -> Checked {
    const PAGES: u32 = 8;
    let layout = Layout {
        layers: 12,
        ..Layout::default()
    };
    let rig = loaded(device, layout, PAGES)?;
    let names = (0..STREAMS).map(|index| device.stream(&format!("engine {index}")));
    let streams: Vec<D::Stream> = names.collect::<Result<_, _>>()?;
    let list: Vec<_> = (0..PAGES).map(|p| (p + 1, p)).collect();
    let contents: Vec<_> = (0..PAGES).map(|p| (p + 1, 1000 + u64::from(p))).collect();
    for round in 0..5 {
        // The load stays in the host queue until the held kernel has ended; meanwhile all ask.
        device.occupy(&rig.compute, 30 * MILLI)?;
        let busy = rig.fence()?;
        let gate = rig.engine.load(rig.load_job(2, &list, Some(busy)))?;
        let log = rig.log()?;
        let ask = |index: u32, stream: &D::Stream| -> Result<D::Event, Failure> {
            let layer = index.wrapping_mul(5) % layout.layers;
            device.occupy(stream, MILLI / 10)?;
            gate.wait_layer(LayerId::new(layer), stream)?;
            rig.verify(stream, layer, &contents, &log)?;
            let event = device.event()?;
            device.record(&event, stream)?;
            Ok(event)
        };
        let events = thread::scope(|scope| {
            let asked = (0..).zip(&streams).map(|(index, stream)| {
                let ask = &ask;
                scope.spawn(move || ask(index, stream))
            });
            let asked: Vec<_> = asked.collect();
            asked
                .into_iter()
                .map(|thread| thread.join())
                .collect::<Vec<_>>()
        });
        for event in events {
            let event = event.map_err(|_| Failure::Wrong("a consumer panicked".to_owned()))??;
            await_event(device, &event, "a stream behind a gate")?;
        }
        let wrong = rig.count(&log)?;
        ensure!(
            wrong == 0,
            "{wrong} rows were read before they were loaded, round {round}"
        );
        rig.finish()?;
        rig.fill(&(0..PAGES).map(|p| (p + 1, 999)).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn gates_each_layer<D: Device>(device: &D) -> Checked {
    const PAGES: u32 = 32;
    let layout = Layout {
        layers: 61,
        l1_pages: PAGES + 2,
        l2_pages: PAGES,
        ..Layout::default()
    };
    let rig = loaded(device, layout, PAGES)?;
    let list: Vec<_> = (0..PAGES).map(|p| (p + 1, p)).collect();
    let contents: Vec<_> = (0..PAGES).map(|p| (p + 1, 1000 + u64::from(p))).collect();
    let gate = rig
        .engine
        .load(rig.load_job(2, &list, Some(rig.fence()?)))?;
    let reader = device.stream("reader")?;
    let log = rig.log()?;
    for layer in 0..layout.layers {
        gate.wait_layer(LayerId::new(layer), &reader)?;
        rig.verify(&reader, layer, &contents, &log)?;
    }
    let event = device.event()?;
    device.record(&event, &reader)?;
    await_event(device, &event, "a reader of all layers")?;
    let wrong = rig.count(&log)?;
    ensure!(wrong == 0, "{wrong} rows were read before they were loaded");
    let times = gate.synchronize()?;
    let groups = gate.groups().len();
    ensure!(groups > 2, "the load has {groups} groups");
    ensure!(
        times.issued <= times.first && times.first <= times.last,
        "groups ended in the wrong order: {times:?}"
    );
    Ok(())
}

/// One page of one layer, so that a thousand turns are quick.
const SMALL: Layout = Layout {
    page_rows: 64,
    row_bytes: 1152,
    layers: 1,
    l1_pages: 4,
    l2_pages: 4,
    host: striata_core::HostLayout::PageFirst,
    uniform: true,
    chunk_bytes: 1 << 30,
};

fn store_after_write<D: Device>(device: &D) -> Checked {
    let rig = Rig::new(device, SMALL)?;
    for turn in 0..1000u64 {
        // 20 ms as the behaviour says at first, then short enough for many turns.
        let held = if turn < 20 { 20 * MILLI } else { MILLI / 5 };
        device.occupy(&rig.compute, held)?;
        rig.fill(&[(1, turn)])?;
        let job = rig.store_job(turn, &[(1, 2)], Some(rig.fence()?));
        rig.engine.store(job)?;
        rig.finish()?;
        let wrong = rig.wrong_host_words(2, turn)?;
        ensure!(
            wrong == 0,
            "{wrong} words of the store of turn {turn} are older than the kernel"
        );
    }
    Ok(())
}

fn load_after_read<D: Device>(device: &D) -> Checked {
    let rig = loaded(device, SMALL, 1)?;
    for turn in 0..200u64 {
        rig.fill(&[(1, turn)])?;
        device.occupy(&rig.compute, if turn < 10 { 20 * MILLI } else { MILLI / 2 })?;
        let log = rig.log()?;
        rig.verify(&rig.compute, 0, &[(1, turn)], &log)?;
        let gate = rig
            .engine
            .load(rig.load_job(turn, &[(1, 0)], Some(rig.fence()?)))?;
        gate.synchronize()?;
        let wrong = rig.count(&log)?;
        ensure!(
            wrong == 0,
            "the load of turn {turn} overwrote {wrong} rows that were being read"
        );
        let wrong = rig.wrong_rows(&[(1, 1000)])?;
        ensure!(
            wrong == 0,
            "{wrong} rows are not what was loaded in turn {turn}"
        );
        rig.finish()?;
    }
    Ok(())
}

fn reported_after_the_end<D: Device>(device: &D) -> Checked {
    let rig = Rig::new(device, Layout::default())?;
    let real = !device.describe().simulated_time;
    let list = [(1, 1), (2, 2), (3, 3)];
    let before = Instant::now();
    device.occupy(&rig.compute, 200 * MILLI)?;
    rig.fill(&[(1, 1), (2, 2), (3, 3)])?;
    let fence = rig.fence()?;
    for (op, pair) in (1..).zip(list) {
        rig.engine
            .store(rig.store_job(op, &[pair], Some(fence.clone())))?;
    }
    let mut done = Vec::new();
    while real && before.elapsed() < Duration::from_millis(100) {
        rig.engine.poll(&mut done);
        ensure!(
            done.is_empty(),
            "{} stores ended before the kernel they wait for",
            done.len()
        );
    }
    rig.engine.drain()?;
    rig.engine.poll(&mut done);
    let ops: Vec<_> = done
        .iter()
        .map(|done| (done.op.get(), done.good_pages))
        .collect();
    ensure!(ops == [(1, 1), (2, 1), (3, 1)], "completions are {ops:?}");
    rig.engine.poll(&mut done);
    ensure!(done.len() == 3, "a completion was reported twice");
    for (page, content) in [(1, 1), (2, 2), (3, 3)] {
        let wrong = rig.wrong_host_words(page, content)?;
        ensure!(wrong == 0, "{wrong} words of host page {page} are wrong");
    }
    Ok(())
}

fn dropped_engine<D: Device>(device: &D) -> Checked {
    let real = !device.describe().simulated_time;
    let rig = loaded(device, SMALL, 1)?;
    device.occupy(&rig.compute, 100 * MILLI)?;
    let gate = rig
        .engine
        .load(rig.load_job(2, &[(1, 0)], Some(rig.fence()?)))?;
    let Rig {
        engine,
        compute,
        planes,
        ..
    } = rig;
    let asked = thread::scope(|scope| -> Result<_, Failure> {
        let consumer = scope.spawn(|| ask(&gate, &compute));
        drop(engine);
        let joined = consumer.join();
        joined.map_err(|_| Failure::Wrong("a consumer panicked".to_owned()))
    })?;
    let stopped = matches!(
        asked,
        Err(GateError::Failed {
            cause: JobFailure::Stopped,
            ..
        })
    );
    ensure!(
        stopped || !real,
        "a load that was parked when its engine went: {asked:?}"
    );
    // The tiers are whole: another engine works on them.
    let again: Arc<_> = planes;
    let engine = TransferEngine::new(device.clone(), again, None, Default::default())?;
    ensure!(engine.poisoned().is_none(), "the next engine is poisoned");
    Ok(())
}

fn ask<D: Device>(gate: &LoadGate<D>, stream: &D::Stream) -> Result<(), GateError> {
    gate.wait_layer(LayerId::new(0), stream)
}

fn times<D: Device>(device: &D) -> Checked {
    /// What launches and clocks may add.
    const SLACK: u64 = MILLI;
    let stream = device.stream("times")?;
    let mark = || -> Result<D::Event, Failure> {
        let event = device.event()?;
        device.record(&event, &stream)?;
        Ok(event)
    };
    // The first launch loads the kernel.
    device.occupy(&stream, 1)?;
    device.synchronize(&mark()?)?;
    for held in [MILLI, 10 * MILLI, 1500 * MILLI, MILLI] {
        let before = device.now();
        // Held until all is submitted, so that the host's pauses do not count.
        device.occupy(&stream, 5 * MILLI)?;
        let begin = mark()?;
        device.occupy(&stream, held)?;
        let end = mark()?;
        let (begin, end) = (device.synchronize(&begin)?, device.synchronize(&end)?);
        let after = device.now();
        let took = end.since(begin);
        ensure!(
            (held - held / 100..held + SLACK).contains(&took),
            "a kernel of {held} ns took {took} ns by its events"
        );
        if device.describe().simulated_time {
            continue;
        }
        ensure!(
            before <= begin.plus(SLACK) && end <= after.plus(SLACK),
            "events at {begin:?} and {end:?} lie outside of the host's [{before:?}, {after:?}]"
        );
    }
    Ok(())
}
