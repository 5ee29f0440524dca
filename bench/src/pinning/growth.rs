// SPDX-License-Identifier: Apache-2.0
//! A pool that grows while another thread loads from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use striata_core::{L1Page, L2Page, OpId, PagePair};
use striata_gpu::transfer::{TransferConfig, TransferEngine};
use striata_gpu::{Device, Direction, L1Planes};
use striata_host::{HostError, HostPool, HostPoolConfig};

use super::creation::{gib, stats};
use super::options::PinningOptions;
use super::report::GrowthFigures;
use crate::samples::Samples;
use crate::transfer::{BenchError, Stats};

/// Steps of a growth.
#[derive(Default)]
struct Steps {
    count: usize,
    bytes: u64,
    time: Duration,
    longest: Duration,
    longest_stall: Duration,
}

/// Grows a pool in steps of one registration of about `chunk_bytes` bytes.
pub(super) fn measure<D: Device>(
    device: &D,
    options: &PinningOptions,
    chunk_bytes: u64,
) -> Result<GrowthFigures, BenchError> {
    let page = options.shape.page()?;
    let more = options.growth_bytes / page.page_bytes().max(1);
    let more = u32::try_from(more).unwrap_or(u32::MAX).max(1);
    let first = options.load_pages;
    let mut config = HostPoolConfig::new(page, first);
    config.max_pages = Some(first.saturating_add(more));
    config.chunk_bytes = chunk_bytes;
    config.pinner = device.pinner();
    let host = Arc::new(HostPool::new(&config)?);
    // Page 0 of L1 is the sink.
    let pool = options.shape.pool(first.saturating_add(1))?;
    let planes = Arc::new(L1Planes::alloc(device, pool)?);
    let engine = TransferEngine::new(
        device.clone(),
        planes,
        Some(Arc::clone(&host)),
        TransferConfig::default(),
    )?;
    let loads = Loads {
        engine,
        pairs: (0..first)
            .map(|page| PagePair {
                l1: L1Page::new(page + 1),
                l2: L2Page::new(page),
            })
            .collect(),
    };
    let mut quiet = Samples::new();
    loads.one()?;
    for _ in 0..options.quiet_loads.max(1) {
        quiet.push(loads.one()?);
    }
    let ended = AtomicBool::new(false);
    let (grown, beside) = std::thread::scope(|scope| {
        let grower = scope.spawn(|| {
            let grown = grow(&host);
            ended.store(true, Ordering::Release);
            grown
        });
        let mut beside = Samples::new();
        let loaded = loop {
            let load = loads.one();
            // One that ended after the growth was not beside it alone.
            if ended.load(Ordering::Acquire) {
                break load.map(|_| ());
            }
            match load {
                Ok(milliseconds) => beside.push(milliseconds),
                Err(error) => break Err(error),
            }
        };
        let grown = grower.join().map_err(|_| BenchError::NoSample {
            what: "growth".to_owned(),
            reason: "its thread panicked",
        });
        (grown, loaded.map(|()| beside))
    });
    let (steps, beside) = (grown??, beside?);
    let pages = host.pages() - first;
    let seconds = steps.time.as_secs_f64();
    Ok(GrowthFigures {
        chunk_bytes: host.report().chunk_bytes,
        steps: steps.count,
        pages,
        pages_per_s: f64::from(pages) / seconds,
        gib_per_s: gib(steps.bytes) / seconds,
        longest_stall_ms: milliseconds(steps.longest_stall),
        longest_step_ms: milliseconds(steps.longest),
        load_pages: first,
        load_ms_quiet: stats("loads without growth", &quiet)?,
        load_ms_beside: Stats::of(&beside),
        longest_load_ms: beside.best(),
    })
}

/// Grows to the maximum, a registration a step.
fn grow(host: &HostPool) -> Result<Steps, HostError> {
    let chunk = host.report().chunk_bytes / host.geometry().page_bytes().max(1);
    let chunk = u32::try_from(chunk).unwrap_or(u32::MAX).max(1);
    let mut steps = Steps::default();
    let mut pages = host.pages();
    while pages < host.max_pages() {
        pages = pages.saturating_add(chunk).min(host.max_pages());
        let growth = host.grow_to(pages)?;
        steps.count += 1;
        steps.bytes += growth.bytes;
        steps.time += growth.total_time;
        steps.longest = steps.longest.max(growth.total_time);
        steps.longest_stall = steps.longest_stall.max(growth.longest_stall);
    }
    Ok(steps)
}

/// A load that is repeated.
struct Loads<D: Device> {
    engine: TransferEngine<D>,
    pairs: Vec<PagePair>,
}

impl<D: Device> Loads<D> {
    /// Loads once; milliseconds from the call until the bytes are there.
    fn one(&self) -> Result<f64, BenchError> {
        let began = Instant::now();
        self.engine
            .copy_pages(Direction::HostToDevice, OpId::new(1), &self.pairs)?;
        Ok(milliseconds(began.elapsed()))
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
