// SPDX-License-Identifier: Apache-2.0
//! The command `striata selftest`.

mod one_queue;
mod report;

use std::sync::Arc;
use std::time::Duration;

use striata::core::sync::Mutex;
use striata::gpu::cuda::CudaDevice;
use striata::gpu::selftest::{self, Check, Progress, Subject};
use striata::gpu::sim::{SimConfig, SimDevice};
use striata_replay::{DeviceChoice, Devices};

use self::report::{CheckReport, Reporter};
use crate::args::SelftestArgs;
use crate::error::{CliError, EXIT_FAILED, complain};
use crate::output::print;

/// A check that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// Lists or runs the checks; returns the exit code.
///
/// # Errors
/// No check of that name, a device that cannot be used, output that cannot be written.
pub(crate) fn run(args: &SelftestArgs) -> Result<u8, CliError> {
    // The list of a backend needs no device.
    if args.list && args.device == DeviceChoice::Cuda {
        return list::<CudaDevice>(args);
    }
    match Devices::open(args.device)? {
        Devices::Cuda(device) => check(&device, args),
        Devices::Sim { why } => {
            if let Some(why) = why {
                complain(&format!("note: {why}"));
            }
            check(&SimDevice::new(SimConfig::new(0)), args)
        }
    }
}

fn chosen<D: Subject>(args: &SelftestArgs) -> Result<Vec<Check<D>>, CliError> {
    let named = |name: &str, parts: &[String]| {
        parts.is_empty() || parts.iter().any(|part| name.contains(part))
    };
    let all = striata::selftest::checks::<D>();
    for part in &args.only {
        if !all.iter().any(|check| check.name.contains(part)) {
            return Err(CliError::Usage(format!(
                "--only {part}: no check of this device has that in its name; --list lists them"
            )));
        }
    }
    let chosen = all.into_iter();
    Ok(chosen
        .filter(|check| named(check.name, &args.only))
        .collect())
}

fn list<D: Subject>(args: &SelftestArgs) -> Result<u8, CliError> {
    let lines = chosen::<D>(args)?;
    let lines = lines
        .iter()
        .map(|check| format!("{:30} {}", check.name, check.about));
    print(&lines.collect::<Vec<_>>().join("\n"))?;
    Ok(0)
}

fn check<D: Subject>(device: &D, args: &SelftestArgs) -> Result<u8, CliError> {
    if args.list {
        return list::<D>(args);
    }
    let checks = chosen::<D>(args)?;
    let description = device.describe();
    let again = description.backend == "cuda" && args.only.is_empty() && !one_queue::is_set();
    let reporter = Arc::new(Mutex::new(Reporter::new(&description, args.json)));
    reporter.lock().begin();
    let hung = {
        let reporter = Arc::clone(&reporter);
        move |name| {
            let mut reporter = reporter.lock();
            reporter.add(CheckReport::hung(name, PATIENCE));
            // Nothing in the process can end the check.
            let ended = reporter.finish();
            std::process::exit(i32::from(ended.unwrap_or(EXIT_FAILED)));
        }
    };
    let tell = |progress: Progress<'_>| {
        if let Progress::Ended(outcome) = progress {
            reporter.lock().add(CheckReport::from(outcome));
        }
    };
    selftest::run_watched(device, checks, PATIENCE, hung, tell)
        .map_err(striata_replay::ConfigError::from)?;
    if again {
        for check in one_queue::gates() {
            reporter.lock().add(check);
        }
    }
    reporter.lock().finish()
}
