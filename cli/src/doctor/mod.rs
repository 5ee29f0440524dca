// SPDX-License-Identifier: Apache-2.0
//! The command `striata doctor`.

mod calibration;
mod cuda;
mod driver;
mod report;

use self::report::DoctorReport;
use crate::args::DoctorArgs;
use crate::error::CliError;
use crate::output::{print, print_json};

/// Whether copy paths are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calibrate {
    No,
    /// Unless measurements are kept.
    Once,
    Again,
}

impl Calibrate {
    const fn asked(args: &DoctorArgs) -> Self {
        match (args.no_calibrate, args.recalibrate) {
            (true, _) => Self::No,
            (false, true) => Self::Again,
            (false, false) => Self::Once,
        }
    }
}

/// Looks at the machine, prints, and returns the exit code: what is missing is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8, CliError> {
    let report = DoctorReport::of_this_machine(Calibrate::asked(args));
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.sentences().join("\n"))?;
        for calibration in report.calibrations() {
            print(&calibration.render())?;
        }
    }
    Ok(0)
}
