// SPDX-License-Identifier: Apache-2.0
//! One run: ceilings, then part after part, then the report.

use std::sync::Arc;
use std::time::Instant;

use striata_core::OpId;
use striata_gpu::Direction;
use striata_gpu::transfer::{TransferConfig, TransferEngine, TransferPaths};

use super::error::BenchError;
use super::figure::{Bar, Figure, Reference, Stats, Unit, Verdict};
use super::group::Group;
use super::lists::Lists;
use super::options::{Shape, TransferOptions};
use super::report::{Ceilings, Checks, Skipped, TransferReport};
use super::subject::Subject;
use super::tiers::Tiers;
use super::{baselines, ceilings, consumer, cpu, engine, foreign, paths, row_lists, slowdown};
use crate::samples::Samples;

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The part that begins.
    pub part: &'a str,
    /// Parts that have ended.
    pub done: usize,
    /// All parts.
    pub parts: usize,
}

/// What the parts of a run share.
pub(super) struct Bench<'a, D: Subject> {
    pub(super) device: D,
    pub(super) options: &'a TransferOptions,
    pub(super) tiers: Tiers<D>,
    /// The engine with its own settings.
    pub(super) engine: Arc<TransferEngine<D>>,
    pub(super) lists: Lists,
    pub(super) ceilings: Ceilings,
    pub(super) checks: Checks,
    figures: Vec<Figure>,
    skipped: Vec<Skipped>,
    failed: Vec<Skipped>,
    ops: u64,
}

/// A figure before it is judged.
pub(super) struct Taken<'a> {
    pub(super) group: Group,
    pub(super) case: &'a str,
    pub(super) pages: Option<u32>,
    pub(super) unit: Unit,
    pub(super) samples: &'a Samples,
    /// What it is compared with, and its value.
    pub(super) against: (&'a str, f64),
    pub(super) bar: Option<Bar>,
}

/// Measures a device. A part that fails ends early, is reported as failed, and the others go on.
///
/// # Errors
/// Options that make no sense, memory that cannot be had, a device that fails before the first
/// part.
pub fn run<D: Subject>(
    device: &D,
    options: TransferOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<TransferReport, BenchError> {
    let began = Instant::now();
    let mut options = options;
    options.check()?;
    let parts = options.groups().count() + 1;
    progress(Progress {
        part: "ceilings",
        done: 0,
        parts,
    });
    let mut bench = Bench::new(device, &options)?;
    for (done, group) in (1..).zip(options.groups()) {
        progress(Progress {
            part: group.name(),
            done,
            parts,
        });
        if let Err(error) = bench.part(group) {
            bench.failed_part(group, &error);
        }
    }
    Ok(bench.report(began))
}

impl<'a, D: Subject> Bench<'a, D> {
    pub(super) fn new(device: &D, options: &'a TransferOptions) -> Result<Self, BenchError> {
        let tiers = Tiers::new(device, options)?;
        let ceilings = ceilings::measure(&tiers, options)?;
        let engine = TransferEngine::new(
            device.clone(),
            tiers.planes.clone(),
            Some(tiers.host.clone()),
            TransferConfig {
                paths: options.paths,
                ..TransferConfig::default()
            },
        )?;
        let mut bench = Self {
            device: device.clone(),
            options,
            lists: Lists::new(options.seed),
            engine: Arc::new(engine),
            tiers,
            ceilings,
            checks: Checks::default(),
            figures: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            ops: 0,
        };
        bench.store_everything()?;
        Ok(bench)
    }

    /// Gives every host page a content.
    pub(super) fn store_everything(&mut self) -> Result<(), BenchError> {
        let room = self.tiers.room();
        let pairs = super::lists::run(room.l1.min(room.l2), room);
        let planes = self.tiers.planes.clone();
        let contents = self.tiers.refill(&planes, &pairs)?;
        let op = self.op();
        self.engine
            .copy_pages(Direction::DeviceToHost, op, &pairs)?;
        self.tiers.stored(&pairs, &contents);
        Ok(())
    }

    fn part(&mut self, group: Group) -> Result<(), BenchError> {
        match group {
            Group::Load => engine::loads(self),
            Group::Store => engine::stores(self),
            Group::Paths => paths::measure(self),
            Group::Both => engine::both(self),
            Group::Separate => engine::separate(self),
            Group::Rows => row_lists::measure(self),
            Group::Consumer => consumer::measure(self),
            Group::Cpu => cpu::measure(self),
            Group::Foreign => foreign::measure(self),
            Group::Slowdown => slowdown::measure(self),
            Group::Baselines => baselines::measure(self),
        }
    }

    /// Notes that a part ended early, waits for what it left behind, and fills the host pool anew, so
    /// that the next part finds an idle engine and known bytes.
    fn failed_part(&mut self, group: Group, error: &BenchError) {
        tracing::error!(part = group.name(), %error, "a part ended early");
        self.failed.push(Skipped {
            name: group.name().to_owned(),
            why: error.to_string(),
        });
        // A poisoned engine or a lost device says so again in the next part.
        let _ = self.engine.drain();
        self.engine.poll(&mut Vec::new());
        let _ = self.store_everything();
    }

    /// A name for the next job.
    pub(super) const fn op(&mut self) -> OpId {
        self.ops += 1;
        OpId::new(self.ops)
    }

    /// Whether times are modelled.
    pub(super) fn simulated(&self) -> bool {
        self.device.describe().simulated_time
    }

    /// What one copy call reaches in a direction, GB/s.
    pub(super) const fn ceiling(&self, direction: Direction) -> (&'static str, f64) {
        match direction {
            Direction::HostToDevice => {
                ("one copy call, host to device", self.ceilings.h2d_gb_per_s)
            }
            Direction::DeviceToHost => {
                ("one copy call, device to host", self.ceilings.d2h_gb_per_s)
            }
        }
    }

    /// Nanoseconds that the link alone needs for `bytes` bytes.
    pub(super) fn link_nanos(&self, direction: Direction, bytes: u64) -> f64 {
        bytes as f64 / self.ceiling(direction).1
    }

    /// Keeps a figure; one without measurements is skipped.
    pub(super) fn take(&mut self, taken: Taken<'_>) {
        let Some(stats) = Stats::of(taken.samples) else {
            let why = "no measurement could be used".to_owned();
            self.skip(&format!("{}: {}", taken.group, taken.case), why);
            return;
        };
        let (what, value) = taken.against;
        self.figures.push(Figure {
            group: taken.group.name().to_owned(),
            case: taken.case.to_owned(),
            pages: taken.pages,
            unit: taken.unit,
            ratio: stats.median / value,
            stats,
            reference: Reference {
                what: what.to_owned(),
                value,
            },
            bar: taken.bar,
            verdict: Verdict::NoBar,
        });
    }

    /// Notes that something is not measured.
    pub(super) fn skip(&mut self, name: &str, why: String) {
        self.skipped.push(Skipped {
            name: name.to_owned(),
            why,
        });
    }

    /// Notes a comparison of bytes: rows that were wrong and rows that were compared.
    pub(super) fn checked(&mut self, name: &str, (wrong, rows): (u64, u64)) {
        self.checks.series += 1;
        self.checks.rows += rows;
        self.checks.wrong_rows += wrong;
        if wrong > 0 {
            tracing::error!(series = name, wrong, rows, "wrong bytes");
            self.checks.wrong.push(name.to_owned());
        }
    }

    /// What was found.
    pub(super) fn report(self, began: Instant) -> TransferReport {
        let description = self.device.describe();
        let shape = self.options.shape;
        let mut report = TransferReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: description.backend.to_owned(),
            device_name: description.name,
            simulated: description.simulated_time,
            layers: shape.layers,
            page_rows: shape.page_rows,
            row_bytes: shape.row_bytes,
            page_bytes: self.tiers.bytes(1),
            reps: self.options.reps,
            seed: self.options.seed,
            registration_bytes: self.tiers.host.report().chunk_bytes,
            built_in_paths: self.options.paths == TransferPaths::built_in(),
            ceilings: self.ceilings,
            void: self.ceilings.is_void(),
            figures: self.figures,
            skipped: self.skipped,
            failed: self.failed,
            bars_reached: 0,
            bars_missed: 0,
            bars_not_judged: 0,
            checks: self.checks,
            seconds: began.elapsed().as_secs_f64(),
        };
        let counts = !report.simulated && shape == Shape::DEEPSEEK;
        report.judge(counts);
        report
    }
}
