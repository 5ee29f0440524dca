// SPDX-License-Identifier: Apache-2.0
//! The command `striata bench transfer`.

use striata::gpu::calibrate::{CalibrationOptions, calibrate};
use striata::gpu::cuda::CudaDevice;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata_bench::transfer::{BenchError, Outcome, Subject, TransferReport, run as measure};
use striata_replay::{ConfigError, DeviceChoice};

use super::{EXIT_MISSED, EXIT_VOID, table};
use crate::args::TransferBenchArgs;
use crate::error::{CliError, EXIT_FAILED, complain};
use crate::output::{TextFile, json, print, print_json};
use crate::progress::Progress;

/// Measures, prints, and returns the exit code.
///
/// # Errors
/// Refused options, a device that cannot be used or fails, output that cannot be written.
pub(super) fn run(args: &TransferBenchArgs) -> Result<u8, CliError> {
    // Kernels are compiled when they are first needed: most of them are not.
    let cuda = match args.device {
        DeviceChoice::Sim => None,
        DeviceChoice::Cuda => Some(CudaDevice::new(0).map_err(ConfigError::from)?),
        DeviceChoice::Auto => match CudaDevice::new(0) {
            Ok(device) => Some(device),
            Err(error) => {
                complain(&format!(
                    "note: --device auto is the simulated device: {error}"
                ));
                None
            }
        },
    };
    match cuda {
        Some(device) => on(&device, args),
        None => on(&SimDevice::new(SimConfig::new(0)), args),
    }
}

fn on<D: Subject>(device: &D, args: &TransferBenchArgs) -> Result<u8, CliError> {
    let mut options = args.options(device.describe().simulated_time);
    if args.calibrate {
        let found = calibrate(device, &CalibrationOptions::default()).map_err(BenchError::from)?;
        options.paths = found.paths;
    }
    let file = args.save.as_deref().map(TextFile::create).transpose()?;
    let mut bar = Progress::new(args.progress);
    let mut begun = false;
    let report = measure(device, options, &mut |at| {
        if !begun {
            bar.start("parts", u64::try_from(at.parts).ok());
            begun = true;
        }
        bar.now(at.part);
        bar.at(u64::try_from(at.done).unwrap_or(u64::MAX));
    })?;
    bar.finish(&[]);
    if let Some(file) = file {
        file.write(&json(&report)?)?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&table::render(&report))?;
    }
    Ok(verdict(&report))
}

/// The exit code, and a line that says why it is not 0.
fn verdict(report: &TransferReport) -> u8 {
    match report.outcome() {
        Outcome::Good => 0,
        Outcome::WrongBytes => {
            let checks = &report.checks;
            complain(&format!(
                "{} rows are wrong, in: {}",
                checks.wrong_rows,
                checks.wrong.join("; ")
            ));
            EXIT_FAILED
        }
        Outcome::Failed => {
            for part in &report.failed {
                complain(&format!("{} ended early: {}", part.name, part.why));
            }
            EXIT_FAILED
        }
        Outcome::Void => {
            let ceilings = &report.ceilings;
            complain(&format!(
                "the run is void: the link reaches {:.1} GB/s to the device and {:.1} from it, at \
                 least {:.1} is needed",
                ceilings.h2d_gb_per_s, ceilings.d2h_gb_per_s, ceilings.floor_gb_per_s
            ));
            EXIT_VOID
        }
        Outcome::Missed => {
            let all = report.bars_missed + report.bars_reached;
            complain(&format!("{} of {all} bars were missed", report.bars_missed));
            EXIT_MISSED
        }
    }
}
