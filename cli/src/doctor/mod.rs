// SPDX-License-Identifier: Apache-2.0
//! The command `striata doctor`.

mod cuda;
mod driver;
mod report;

use self::report::DoctorReport;
use crate::args::DoctorArgs;
use crate::error::CliError;
use crate::output::{print, print_json};

/// Looks at the machine, prints, and returns the exit code: what is missing is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8, CliError> {
    let report = DoctorReport::of_this_machine();
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.sentences().join("\n"))?;
    }
    Ok(0)
}
