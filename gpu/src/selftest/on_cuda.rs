// SPDX-License-Identifier: Apache-2.0
//! What only a CUDA device can get wrong: captures, lent streams, calls of older drivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use striata_core::PageGeometry;
use striata_host::{HostPool, HostPoolConfig, HugePages};
use striata_kernels::rows::{PageSeed, RowParams, RowSpan};

use super::memory::copies;
use super::rig::{Layout, Rig, finish, log, pool_config, read_records};
use super::{Check, Checked, Failure, ensure};
use crate::cuda::{CudaConfig, CudaDevice, CudaGraph, CudaMemory, CudaStream};
use crate::device::{CopyBatch, CopyForm, Device, Direction, Piece};
use crate::error::GpuError;

const CAPTURES: u32 = 200;
const ROWS: u32 = 64;
const PARAMS: RowParams = RowParams {
    row_words: 288,
    layer: 0,
    rank: 0,
    stride: 1,
};

pub(super) fn checks() -> Vec<Check<CudaDevice>> {
    vec![
        Check {
            name: "cuda.captures_survive",
            about: "200 captures in global mode while an engine loads, polls and registers",
            run: captures_survive,
        },
        Check {
            name: "cuda.lent_streams",
            about: "an engine's stream works, and is left alone while it is captured",
            run: lent_streams,
        },
        Check {
            name: "cuda.lent_memory",
            about: "rows in an engine's own memory",
            run: lent_memory,
        },
        Check {
            name: "cuda.older_drivers",
            about: "copies by the calls of CUDA 12.8, and by a call a piece",
            run: older_drivers,
        },
        Check {
            name: "cuda.unpinned_memory",
            about: "copies of host memory that is not page-locked are refused",
            run: unpinned,
        },
    ]
}

fn spans(content: u64) -> Arc<[RowSpan]> {
    Arc::from([RowSpan {
        seed: PageSeed::new(5, u128::from(content), 0),
        first_row: 0,
        rows: ROWS,
        skip: 0,
    }])
}

/// Captures kernels as an engine's graph holds them.
fn capture(
    device: &CudaDevice,
    stream: &CudaStream,
    memory: &CudaMemory,
    content: u64,
    meanwhile: impl FnOnce() -> Result<(), GpuError>,
) -> Result<CudaGraph, GpuError> {
    device.capture(stream, || {
        for step in 0..10 {
            device.fill_rows(stream, memory, 0, PARAMS, &spans(step))?;
        }
        meanwhile()?;
        device.fill_rows(stream, memory, 0, PARAMS, &spans(content))
    })
}

fn check_rows(
    device: &CudaDevice,
    stream: &CudaStream,
    memory: &CudaMemory,
    content: u64,
) -> Checked {
    let log = log(device, 4)?;
    device.verify_rows(stream, memory, 0, PARAMS, &spans(content), &log)?;
    finish(device, stream)?;
    let (wrong, _) = read_records(device, &log, 4)?;
    ensure!(wrong == 0, "{wrong} rows do not hold content {content}");
    Ok(())
}

/// What an engine does beside captures: loads, stores, polls, registers, allocates.
fn work(rig: &Rig<CudaDevice>, stop: &AtomicBool, turns: &AtomicU32) -> Checked {
    let device = &rig.device;
    let (out, back) = ([(1, 1), (2, 2), (3, 3)], [(4, 1), (5, 2), (6, 3)]);
    while !stop.load(Ordering::Acquire) {
        let turn = turns.fetch_add(1, Ordering::AcqRel);
        rig.fill(&[(1, 1), (2, 2), (3, 3)])?;
        rig.engine
            .store(rig.store_job(1, &out, Some(rig.fence()?)))?;
        rig.finish()?;
        let gate = rig.engine.load(rig.load_job(2, &back, None))?;
        gate.wait_all(&rig.compute)?;
        while !gate.is_complete()? {
            thread::yield_now();
        }
        let done = rig.finish()?;
        ensure!(
            done.iter().all(|done| done.error.is_none()),
            "a job failed: {done:?}"
        );
        if turn.is_multiple_of(4) {
            let page = PageGeometry::new(64, 1152, 1)?;
            drop(HostPool::new(&pool_config(device, page, rig.layout))?);
            drop(device.alloc(1 << 20)?);
        }
    }
    let wrong = rig.wrong_rows(&[(4, 1), (5, 2), (6, 3)])?;
    ensure!(wrong == 0, "{wrong} rows of the background are wrong");
    Ok(())
}

fn captures_survive(device: &CudaDevice) -> Checked {
    device.load_kernels()?;
    let rig = Rig::new(device, Layout::default())?;
    let stream = device.stream("captured")?;
    let memory = device.alloc(u64::from(ROWS * PARAMS.row_words * 4))?;
    let polled = rig.fence()?;
    let (stop, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    let lost = thread::scope(|scope| -> Result<Vec<String>, Failure> {
        let background = scope.spawn(|| work(&rig, &stop, &turns));
        let mut lost = Vec::new();
        let mut rounds = || -> Checked {
            for round in 0..CAPTURES {
                let from = turns.load(Ordering::Acquire);
                let graph = capture(device, &stream, &memory, u64::from(round), || {
                    // The engine's own thread polls in the middle, and the background gets on.
                    device.is_complete(&polled)?;
                    while turns.load(Ordering::Acquire) == from && !background.is_finished() {
                        thread::yield_now();
                    }
                    Ok(())
                });
                match graph {
                    Ok(graph) => {
                        graph.launch(&stream)?;
                        check_rows(device, &stream, &memory, u64::from(round))?;
                    }
                    Err(error) => lost.push(error.to_string()),
                }
            }
            Ok(())
        };
        // The background ends whatever happens here.
        let went = rounds();
        stop.store(true, Ordering::Release);
        let joined = background.join();
        joined.map_err(|_| Failure::Wrong("the background panicked".to_owned()))??;
        went?;
        Ok(lost)
    })?;
    let turns = turns.load(Ordering::Acquire);
    ensure!(
        lost.is_empty(),
        "{} of {CAPTURES} captures were lost beside {turns} turns of work, the first by: {}",
        lost.len(),
        lost[0]
    );
    control(device, &stream, &memory)
}

/// A careless thread must be seen to ruin a capture, or the check above shows nothing.
fn control(device: &CudaDevice, stream: &CudaStream, memory: &CudaMemory) -> Checked {
    let mut careless = Ok(());
    let captured = capture(device, stream, memory, 1, || {
        careless = thread::scope(|scope| {
            let thread = scope.spawn(|| device.allocate_carelessly());
            thread.join().unwrap_or(Ok(()))
        });
        Ok(())
    });
    ensure!(
        careless.is_err() || captured.is_err(),
        "a careless thread did not disturb a capture in global mode, so this check is blind"
    );
    let graph = capture(device, stream, memory, 2, || Ok(()))?;
    graph.launch(stream)?;
    check_rows(device, stream, memory, 2)
}

fn lent_streams(device: &CudaDevice) -> Checked {
    let rig = Rig::new(device, Layout::default())?;
    let stream = device.stream("engine")?;
    let lent = stream.lend()?;
    let memory = device.alloc(u64::from(ROWS * PARAMS.row_words * 4))?;
    device.fill_rows(&lent, &memory, 0, PARAMS, &spans(3))?;
    check_rows(device, &lent, &memory, 3)?;
    let (recorded, fresh) = (rig.fence()?, device.event()?);
    let mut accepted = Vec::new();
    let graph = capture(device, &stream, &memory, 4, || {
        let refused = |call: &'static str, result: Result<(), GpuError>| {
            (result != Err(GpuError::Capturing { call })).then(|| format!("{call}: {result:?}"))
        };
        let planes = rig.planes.memories();
        let batch = CopyBatch {
            direction: Direction::HostToDevice,
            form: CopyForm::Runs,
            planes,
            host: &rig.host,
            pieces: &[],
        };
        accepted.extend(refused("wait", device.wait(&lent, &recorded)));
        accepted.extend(refused("record", device.record(&fresh, &lent)));
        accepted.extend(refused("copy", device.copy(&lent, &batch)));
        accepted.extend(refused("occupy", device.occupy(&lent, 1)));
        accepted.extend(refused("wait", device.wait(&stream, &recorded)));
        Ok(())
    })?;
    ensure!(
        accepted.is_empty(),
        "calls on a stream that is captured: {accepted:?}"
    );
    graph.launch(&lent)?;
    check_rows(device, &lent, &memory, 4)?;
    device.record(&fresh, &lent)?;
    device.synchronize(&fresh)?;
    Ok(())
}

fn lent_memory(device: &CudaDevice) -> Checked {
    let owner = device.alloc(u64::from(ROWS * PARAMS.row_words * 4) + 256)?;
    let lent = owner.lend(256)?;
    let stream = device.stream("engine")?;
    device.fill_rows(&stream, &lent, 0, PARAMS, &spans(6))?;
    check_rows(device, &stream, &lent, 6)?;
    let (mut there, mut here) = ([0u8; 64], [0u8; 64]);
    device.read(&owner, 256, &mut there)?;
    device.read(&lent, 0, &mut here)?;
    ensure!(
        there == here,
        "lent memory does not begin where it was lent"
    );
    Ok(())
}

fn older_drivers(device: &CudaDevice) -> Checked {
    for newest in [12_080, 12_000] {
        let older = CudaDevice::with_config(CudaConfig {
            index: device.index(),
            newest_version: Some(newest),
        })?;
        let calls = older.copy_calls();
        let named = |failure| match failure {
            Failure::Wrong(what) => Failure::Wrong(format!("by {calls:?}: {what}")),
            skipped => skipped,
        };
        copies(&older, 200).map_err(named)?;
        let rig = Rig::new(&older, Layout::default())?;
        rig.fill(&[(1, 1), (2, 2), (3, 3)])?;
        let list = [(1, 1), (2, 2), (3, 3)];
        rig.engine
            .store(rig.store_job(1, &list, Some(rig.fence()?)))?;
        rig.finish()?;
        let back = [(7, 1), (6, 2), (5, 3)];
        rig.engine
            .load(rig.load_job(2, &back, None))?
            .wait_all(&rig.compute)?;
        let wrong = rig.wrong_rows(&[(7, 1), (6, 2), (5, 3)])?;
        ensure!(wrong == 0, "by {calls:?}: {wrong} rows are wrong");
    }
    Ok(())
}

fn unpinned(device: &CudaDevice) -> Checked {
    let config = HostPoolConfig {
        huge_pages: HugePages::Off,
        prefault: false,
        reserve_bytes: 0,
        ..HostPoolConfig::new(PageGeometry::new(64, 64, 1)?, 4)
    };
    let host = Arc::new(HostPool::new(&config)?);
    let planes = Arc::from([device.alloc(4096)?]);
    let batch = CopyBatch {
        direction: Direction::HostToDevice,
        form: CopyForm::Runs,
        planes: &planes,
        host: &host,
        pieces: &[Piece {
            plane: 0,
            height: 1,
            device: 0,
            host: 0,
            width: 64,
            device_pitch: 64,
            host_pitch: 64,
        }],
    };
    let refused = device.copy(&device.stream("copies")?, &batch);
    ensure!(
        refused == Err(GpuError::NotPinned),
        "a copy of pageable memory: {refused:?}"
    );
    Ok(())
}
