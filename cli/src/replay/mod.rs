// SPDX-License-Identifier: Apache-2.0
//! The command `striata replay`.

mod curve;
mod table;

use striata_replay::{ReplayObserver, ReplayReport, RequestRecord};

use self::curve::Curve;
use crate::args::{OutputArgs, ReplayArgs};
use crate::error::{CliError, EXIT_FAILED, complain};
use crate::output::{CsvFile, TextFile, print, print_json};
use crate::progress::Progress;

/// Replays, prints, and returns the exit code.
///
/// # Errors
/// Refused flags or traces, a run that ended early, output that cannot be written.
pub(crate) fn run(args: &ReplayArgs) -> Result<u8, CliError> {
    let config = args.config()?;
    let mut watch = Watch::new(&args.output)?;
    let report = striata_replay::replay(&config, &mut watch)?;
    watch.finish(&report)?;
    if args.output.json {
        print_json(&report)?;
    } else {
        print(&table::render(&report))?;
    }
    Ok(verdict(&report))
}

/// 0, or 1 and a line that says why.
fn verdict(report: &ReplayReport) -> u8 {
    let mut code = 0;
    let mut fail = |text: &str| {
        complain(text);
        code = EXIT_FAILED;
    };
    if report.errors > 0 {
        let first = report.error_messages.first().map_or("", String::as_str);
        fail(&format!(
            "{} operations failed; the first: {first}",
            report.errors
        ));
    }
    if report.mismatches > 0 {
        fail(&format!(
            "{} rows did not hold their fingerprints",
            report.mismatches
        ));
    }
    if let Some(attend) = report.attend.as_ref().filter(|attend| attend.off > 0) {
        let first = attend.first_off.as_deref().unwrap_or_default();
        fail(&format!(
            "{} of {} attention outputs are off; the first: {first}",
            attend.off, attend.outputs
        ));
    }
    match &report.fault {
        Some(fault) if fault.corrupted_rows == 0 => fail(&format!(
            "{} did not happen: {} pages were loaded back",
            fault.fault, fault.loaded_pages
        )),
        Some(fault) if !fault.exact => fail(&format!(
            "{} changed {} rows and {} were reported: not the same",
            fault.fault, fault.corrupted_rows, fault.reported_rows
        )),
        Some(_) | None => {}
    }
    code
}

/// Progress, rows of CSV and the curve of the picture, as requests end.
#[derive(Debug)]
struct Watch {
    progress: Progress,
    csv: Option<CsvFile>,
    picture: Option<(Curve, TextFile)>,
    failed: Option<CliError>,
}

impl Watch {
    fn new(output: &OutputArgs) -> Result<Self, CliError> {
        Ok(Self {
            progress: Progress::new(output.progress),
            csv: output.csv.as_deref().map(CsvFile::create).transpose()?,
            picture: match &output.plot {
                Some(path) => Some((Curve::default(), TextFile::create(path)?)),
                None => None,
            },
            failed: None,
        })
    }

    /// Ends the files.
    fn finish(mut self, report: &ReplayReport) -> Result<(), CliError> {
        let notes: Vec<&str> = report.notices.iter().map(String::as_str).collect();
        self.progress.finish(&notes);
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(csv) = self.csv {
            csv.finish()?;
        }
        if let Some((curve, file)) = self.picture {
            file.write(&curve.draw(report)?)?;
        }
        Ok(())
    }
}

impl ReplayObserver for Watch {
    fn started(&mut self, total: Option<u64>) {
        self.progress.start("requests", total);
    }

    fn request_done(&mut self, record: &RequestRecord, done: u64, _: Option<u64>) {
        self.progress.at(done);
        if let Some((curve, _)) = &mut self.picture {
            curve.add(record);
        }
        // The first row that cannot be written ends the file; the replay goes on to its report.
        if let Some(mut csv) = self.csv.take() {
            match csv.row(record) {
                Ok(()) => self.csv = Some(csv),
                Err(error) => self.failed = Some(error),
            }
        }
    }
}
