// SPDX-License-Identifier: Apache-2.0
//! The command `striata bench offload`.

mod picture;
mod table;

use striata_bench::offload::{OffloadReport, run as measure};
use striata_bench::transfer::{Outcome, Verdict};

use super::{EXIT_MISSED, EXIT_VOID};
use crate::args::OffloadBenchArgs;
use crate::error::{CliError, EXIT_FAILED, complain};
use crate::output::{TextFile, print, print_json};
use crate::progress::Progress;

/// Measures, prints, draws, and returns the exit code.
///
/// # Errors
/// Refused options and traces, a device that cannot be used or fails, output that cannot be written.
pub(super) fn run(args: &OffloadBenchArgs) -> Result<u8, CliError> {
    let options = args.options()?;
    let picture = args.plot.as_deref().map(TextFile::create).transpose()?;
    let mut bar = Progress::new(args.progress);
    let mut begun = false;
    let report = measure(&options, &mut |at| {
        if !begun {
            bar.start("requests", Some(at.total));
            begun = true;
        }
        bar.at(at.done);
    })?;
    let notices: Vec<&str> = report.notices.iter().map(String::as_str).collect();
    bar.finish(&notices);
    if let Some(file) = picture {
        file.write(&picture::draw(&report)?)?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&table::render(&report))?;
    }
    Ok(verdict(&report))
}

/// The exit code, and a line that says why it is not 0.
fn verdict(report: &OffloadReport) -> u8 {
    match report.outcome() {
        Outcome::Good => 0,
        Outcome::WrongBytes | Outcome::Failed => {
            let systems = || report.traces.iter().flat_map(|trace| &trace.systems);
            let wrong: u64 = systems().map(|system| system.wrong_rows).sum();
            let errors: u64 = systems().map(|system| system.errors).sum();
            let mut messages = systems().flat_map(|system| &system.error_messages);
            complain(&format!(
                "{wrong} rows are wrong and {errors} operations failed{}",
                messages
                    .next()
                    .map_or(String::new(), |first| format!("; the first: {first}"))
            ));
            EXIT_FAILED
        }
        Outcome::Void => {
            complain(&format!(
                "the run is void: the link reaches {:.1} GB/s, at least {:.1} is needed",
                report.link.h2d_gb_per_s, report.link.floor_gb_per_s
            ));
            EXIT_VOID
        }
        Outcome::Missed => {
            let bars = || report.traces.iter().flat_map(|trace| &trace.bars);
            let missed = bars().filter(|bar| bar.verdict == Verdict::Missed).count();
            complain(&format!(
                "{missed} of {} bars were missed",
                bars()
                    .filter(|bar| bar.verdict != Verdict::NotJudged)
                    .count()
            ));
            EXIT_MISSED
        }
    }
}
