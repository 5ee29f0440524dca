// SPDX-License-Identifier: Apache-2.0
//! What the checks found, as lines while they run or as one JSON object.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use striata::gpu::DeviceDescription;
use striata::gpu::selftest::{Outcome, Verdict};

use crate::error::{CliError, EXIT_FAILED};
use crate::output::{print, print_json};

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Ok,
    Failed,
    Skipped,
}

/// One check; keys of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CheckReport {
    pub(super) name: String,
    verdict: Word,
    seconds: f64,
    /// What was wrong, or why it was skipped.
    message: Option<String>,
}

impl CheckReport {
    /// A check that does not end.
    pub(super) fn hung(name: &str, after: Duration) -> Self {
        Self {
            seconds: after.as_secs_f64(),
            ..Self::failed(name.to_owned(), "it hangs".to_owned())
        }
    }

    /// A check that could not even be run.
    pub(super) const fn failed(name: String, message: String) -> Self {
        Self {
            name,
            verdict: Word::Failed,
            seconds: 0.0,
            message: Some(message),
        }
    }

    fn line(&self) -> String {
        let word = match self.verdict {
            Word::Ok => "ok",
            Word::Failed => "FAILED",
            Word::Skipped => "skipped",
        };
        let message = self.message.as_deref().map(|text| format!(": {text}"));
        format!(
            "{word:7} {:8.3} s  {}{}",
            self.seconds,
            self.name,
            message.unwrap_or_default()
        )
    }
}

impl From<&Outcome> for CheckReport {
    fn from(outcome: &Outcome) -> Self {
        let (verdict, message) = match &outcome.verdict {
            Verdict::Passed => (Word::Ok, None),
            Verdict::Skipped(why) => (Word::Skipped, Some(why.clone())),
            Verdict::Failed(what) => (Word::Failed, Some(what.clone())),
        };
        Self {
            name: outcome.name.to_owned(),
            verdict,
            seconds: outcome.took.as_secs_f64(),
            message,
        }
    }
}

/// All checks; keys of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SelftestReport {
    version: String,
    device: String,
    device_name: String,
    passed: usize,
    skipped: usize,
    failed: usize,
    pub(super) checks: Vec<CheckReport>,
}

/// Collects checks and prints them.
#[derive(Debug)]
pub(super) struct Reporter {
    report: SelftestReport,
    json: bool,
    /// The first line that could not be written.
    unwritten: Option<CliError>,
}

impl Reporter {
    pub(super) fn new(device: &DeviceDescription, json: bool) -> Self {
        Self {
            report: SelftestReport {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                device: device.backend.to_owned(),
                device_name: device.name.clone(),
                passed: 0,
                skipped: 0,
                failed: 0,
                checks: Vec::new(),
            },
            json,
            unwritten: None,
        }
    }

    /// Says what is checked.
    pub(super) fn begin(&mut self) {
        let report = &self.report;
        let line = format!("device {} ({})", report.device, report.device_name);
        self.say(&line);
    }

    pub(super) fn add(&mut self, check: CheckReport) {
        match check.verdict {
            Word::Ok => self.report.passed += 1,
            Word::Failed => self.report.failed += 1,
            Word::Skipped => self.report.skipped += 1,
        }
        self.say(&check.line());
        self.report.checks.push(check);
    }

    fn say(&mut self, line: &str) {
        if !self.json
            && let Err(error) = print(line)
        {
            self.unwritten.get_or_insert(error);
        }
    }

    /// Prints the end and returns the exit code.
    pub(super) fn finish(&mut self) -> Result<u8, CliError> {
        let report = &self.report;
        let line = format!(
            "{} passed, {} skipped, {} failed",
            report.passed, report.skipped, report.failed
        );
        self.say(&line);
        if self.json {
            print_json(&self.report)?;
        }
        match self.unwritten.take() {
            Some(error) => Err(error),
            None if self.report.failed > 0 => Ok(EXIT_FAILED),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> Reporter {
        let device = DeviceDescription {
            backend: "sim",
            name: "sim0".to_owned(),
            simulated_time: true,
            memory_bytes: None,
        };
        Reporter::new(&device, false)
    }

    fn outcome(verdict: Verdict) -> CheckReport {
        CheckReport::from(&Outcome {
            name: "a.check",
            verdict,
            took: Duration::from_millis(1500),
        })
    }

    #[test]
    fn lines_say_what_became_of_a_check() {
        let line = outcome(Verdict::Passed).line();
        assert_eq!(line, "ok         1.500 s  a.check");
        let line = outcome(Verdict::Failed("3 rows are wrong".to_owned())).line();
        assert_eq!(line, "FAILED     1.500 s  a.check: 3 rows are wrong");
        let line = CheckReport::hung("a.check", Duration::from_secs(180)).line();
        assert_eq!(line, "FAILED   180.000 s  a.check: it hangs");
    }

    #[test]
    fn only_failures_fail() {
        let mut reporter = reporter();
        reporter.add(outcome(Verdict::Passed));
        reporter.add(outcome(Verdict::Skipped("no room".to_owned())));
        assert_eq!(reporter.finish().unwrap(), 0);
        reporter.add(outcome(Verdict::Failed("wrong".to_owned())));
        assert_eq!(reporter.finish().unwrap(), EXIT_FAILED);
        let text = serde_json::to_string(&reporter.report).unwrap();
        let back: SelftestReport = serde_json::from_str(&text).unwrap();
        assert_eq!((back.passed, back.skipped, back.failed), (1, 1, 1));
        assert_eq!(back, reporter.report);
    }
}
