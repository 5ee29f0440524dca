// SPDX-License-Identifier: Apache-2.0
//! Runs a trace through the real engine.
//!
//! Requests are served one at a time on each replica, in file order: reserve, load, compute layer
//! by layer behind the gates, confirm, insert, release, and wait until every copy has ended. So a
//! request finds what the ones before it left, whatever the speed of the machine. Replicas take
//! requests by session (or by prefix block where sessions are not told) modulo their number.
//! [`OneReplica`] is one of them in the hands of another program.

mod bytes;
mod checks;
mod copy_paths;
mod devices;
pub(crate) mod engine;
mod fault;
mod identity;
mod layers;
mod metadata;
pub(crate) mod plan;
mod random_faults;
mod replica;
mod row_log;
mod single;
mod spans;
mod totals;

pub use devices::Devices;
pub use single::{CopiedBytes, LoadStyle, OneReplica, RankPools};

use std::time::Instant;

use striata::{Error, HiCache, HiCacheSetup};
use striata_gpu::Device;
use striata_gpu::decode::{DecodeDevice, ValueDevice};

use crate::attend::{Attendant, Attending};
use crate::config::ReplayConfig;
use crate::error::{ConfigError, ReplayError};
use crate::process::peak_memory_bytes;
use crate::report::{ReplayObserver, ReplayReport};
use crate::tally::Tally;
use crate::trace::TraceReader;
use bytes::WholeEngine;
use checks::Checks;
use copy_paths::Paths;
use engine::Engine;
use metadata::PlannerOnly;
use plan::Plan;
use random_faults::FaultSource;
use replica::Replica;

/// Replays a trace as configured.
///
/// # Errors
/// Options that are refused, a trace that is refused, an engine that fails. A row that differs, a
/// load that fails and a request that does not fit are in the report instead.
pub fn replay(
    config: &ReplayConfig,
    observer: &mut dyn ReplayObserver,
) -> Result<ReplayReport, ReplayError> {
    let plan = Plan::new(config)?;
    let mut report = ReplayReport {
        scaled: plan.scaled,
        metadata_only: config.metadata_only,
        config: plan.echo(config),
        ..ReplayReport::default()
    };
    let replicas = plan.topology.replicas();
    if config.metadata_only {
        report.config.device = "none".to_owned();
        let engines = (0..replicas).map(|_| PlannerOnly::new(&plan));
        let engines = engines.collect::<Result<_, _>>()?;
        return run(config, &plan, engines, None, report, observer);
    }
    let devices = Devices::open(config.device)?;
    devices.check_memory(&plan)?;
    match devices {
        Devices::Sim { why } => {
            report.notices.extend(why);
            let devices: Vec<_> = (0..replicas)
                .flat_map(|replica| devices::simulated(&plan, replica))
                .collect();
            let faults = config.faults;
            let faults = faults.map(|faults| FaultSource::new(faults, devices.clone()));
            let faults = faults.transpose().map_err(Error::from)?;
            let run = Run {
                config,
                plan: &plan,
                faults,
                attend: attending,
                paths: Paths::simulated(config.copy_path),
            };
            run_with_bytes(run, devices, report, observer)
        }
        Devices::Cuda(_) if config.faults.is_some() => {
            Err(ReplayError::Config(ConfigError::Conflict {
                first: "random faults",
                second: "a GPU",
                reason: "they are planted in the simulated device",
            }))
        }
        Devices::Cuda(device) => {
            let paths = Paths::of(config.copy_path, &device);
            let devices = (0..plan.topology.tp()).map(|_| device.clone()).collect();
            let run = Run {
                config,
                plan: &plan,
                faults: None,
                attend: attending,
                paths,
            };
            run_with_bytes(run, devices, report, observer)
        }
    }
}

/// What makes the attention of a replica, if it is asked for.
type MakeAttendant<D> =
    fn(&ReplayConfig, &Plan, &HiCache<D>) -> Result<Option<Box<dyn Attendant<D>>>, Error>;

/// A replay on one kind of device.
struct Run<'a, D: Device> {
    config: &'a ReplayConfig,
    plan: &'a Plan,
    faults: Option<FaultSource>,
    attend: MakeAttendant<D>,
    paths: Paths,
}

/// The attention of a replica whose devices run the decode path.
fn attending<D: DecodeDevice + ValueDevice>(
    config: &ReplayConfig,
    plan: &Plan,
    cache: &HiCache<D>,
) -> Result<Option<Box<dyn Attendant<D>>>, Error> {
    let Some(every) = config.attend else {
        return Ok(None);
    };
    Ok(Some(Box::new(Attending::new(config, plan, every, cache)?)))
}

fn run_with_bytes<D: Device>(
    on: Run<'_, D>,
    devices: Vec<D>,
    mut report: ReplayReport,
    observer: &mut dyn ReplayObserver,
) -> Result<ReplayReport, ReplayError> {
    let Run { config, plan, .. } = on;
    let mut setup = HiCacheSetup::new(plan.planner());
    setup.host_layout = config.host_layout;
    setup.transfer.paths = on.paths.rules;
    report.config.copy_paths.clone_from(&on.paths.origin);
    report.notices.extend(on.paths.notice.clone());
    let (l1_bytes, l2_bytes) = plan.bytes_per_rank();
    report.l1.bytes_per_rank = l1_bytes;
    report.l2.bytes_per_rank = l2_bytes;
    let mut engines = Vec::new();
    let attention_tp = usize::try_from(plan.topology.attention_tp()).unwrap_or(usize::MAX);
    for devices in devices.chunks(attention_tp) {
        if let Some(device) = devices.first() {
            let description = device.describe();
            report.simulated = description.simulated_time;
            report.config.device = description.backend.to_owned();
            report.config.device_name = description.name;
        }
        let mut engine = WholeEngine::new(plan, &setup, devices.to_vec())?;
        engine.attend = (on.attend)(config, plan, &engine.cache)?;
        engines.push(engine);
    }
    run(config, plan, engines, on.faults, report, observer)
}

/// Serves the selected requests.
fn run<E: Engine>(
    config: &ReplayConfig,
    plan: &Plan,
    engines: Vec<E>,
    mut faults: Option<FaultSource>,
    mut report: ReplayReport,
    observer: &mut dyn ReplayObserver,
) -> Result<ReplayReport, ReplayError> {
    let begun = Instant::now();
    let reader = TraceReader::open(&config.source)?;
    note_trace(&reader, &mut report, observer);
    let total = selected(config, TraceReader::count(&config.source)?);
    observer.started(total);
    let mut replicas: Vec<Replica<E>> = (0..)
        .zip(engines)
        .map(|(number, engine)| Replica::new(number, engine))
        .collect();
    let mut tally = Tally::new(plan.topology.replicas());
    let mut checks = Checks::new(config);
    let skip = usize::try_from(config.selection.skip).unwrap_or(usize::MAX);
    let limit = config.selection.limit.unwrap_or(u64::MAX);
    for request in reader
        .skip(skip)
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
    {
        let request = request?;
        let at = request.affinity() % replicas.len().max(1) as u64;
        let Some(replica) = replicas.get_mut(usize::try_from(at).unwrap_or_default()) else {
            break;
        };
        if let Some(faults) = &mut faults {
            faults.plan();
        }
        let record = replica.serve(plan, &request, &mut checks)?;
        replica.look(request.index, faults.as_ref(), &mut checks);
        tally.add(&record);
        observer.request_done(&record, tally.requests(), total);
    }
    if let Some(faults) = &faults {
        faults.end();
    }
    for replica in &mut replicas {
        replica.report(plan, &mut report);
        if config.paranoid {
            replica.forget(plan, &mut checks)?;
        }
    }
    tally.finish(&mut report);
    checks.finish(&mut report);
    report.peak_memory_bytes = peak_memory_bytes();
    report.wall_seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Writes what is known of the trace and the scale into the report, and tells the observer.
fn note_trace(reader: &TraceReader, report: &mut ReplayReport, observer: &mut dyn ReplayObserver) {
    report.config.format = reader.format().to_string();
    report
        .notices
        .extend(reader.format().notice().map(str::to_owned));
    if report.scaled {
        report.notices.push(format!(
            "rows are scaled to {} bytes instead of {}: bytes and times are those of scaled rows",
            report.config.row_bytes, report.config.model_row_bytes
        ));
    }
    for notice in &report.notices {
        observer.notice(notice);
    }
}

/// Requests that are replayed, of `total` in the trace.
fn selected(config: &ReplayConfig, total: Option<u64>) -> Option<u64> {
    let left = total?.saturating_sub(config.selection.skip);
    Some(config.selection.limit.map_or(left, |limit| left.min(limit)))
}
