// SPDX-License-Identifier: Apache-2.0
//! What the transfer benchmark found; keys of `--json`, which `docs/bench.md` explains.

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Verdict};

/// What one copy call reaches on this link, in this run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes of each copy.
    pub copy_bytes: u64,
    /// Host to device, the best of five, GB/s.
    pub h2d_gb_per_s: f64,
    /// Device to host, the best of five, GB/s.
    pub d2h_gb_per_s: f64,
    /// Both at once, bytes of both over the time until both have ended, the best of five, GB/s.
    pub both_gb_per_s: f64,
    /// Below this, each way, the run is void.
    pub floor_gb_per_s: f64,
}

impl Ceilings {
    /// Whether the link is too slow for the figures to mean anything.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.h2d_gb_per_s.min(self.d2h_gb_per_s) < self.floor_gb_per_s
    }
}

/// What was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Part and case.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Comparisons of bytes, one after each series of measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Series whose bytes were compared.
    pub series: usize,
    /// Rows that were compared.
    pub rows: u64,
    /// Rows that were wrong.
    pub wrong_rows: u64,
    /// The series that they were found in.
    pub wrong: Vec<String>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferReport {
    /// Version of the program.
    pub version: String,
    /// Backend.
    pub device: String,
    /// Its name.
    pub device_name: String,
    /// Whether times come from a cost model: then no figure says anything of a machine.
    pub simulated: bool,
    /// Layers.
    pub layers: u32,
    /// Rows of a page.
    pub page_rows: u32,
    /// Bytes of a row in a layer.
    pub row_bytes: u32,
    /// Bytes of a page in all layers.
    pub page_bytes: u64,
    /// Measurements of a figure, as asked for.
    pub reps: usize,
    /// Which pages were drawn.
    pub seed: u64,
    /// Bytes of a registration of the host pool.
    pub registration_bytes: u64,
    /// Whether the engine's copies took the ways of the built-in table.
    pub built_in_paths: bool,
    /// What one copy call reaches.
    pub ceilings: Ceilings,
    /// Whether the link was too slow for the figures to mean anything.
    pub void: bool,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What was not measured.
    pub skipped: Vec<Skipped>,
    /// Parts that ended early by an error; their figures up to there stand above.
    pub failed: Vec<Skipped>,
    /// Bars that were reached.
    pub bars_reached: usize,
    /// Bars that were missed.
    pub bars_missed: usize,
    /// Bars that are not for this run.
    pub bars_not_judged: usize,
    /// Comparisons of bytes.
    pub checks: Checks,
    /// How long it took.
    pub seconds: f64,
}

/// What a report comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every bar that is for this run was reached.
    Good,
    /// Bytes were wrong.
    WrongBytes,
    /// A part ended by an error.
    Failed,
    /// The link was too slow.
    Void,
    /// A bar was missed.
    Missed,
}

impl TransferReport {
    /// The gravest of what is wrong.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        if self.checks.wrong_rows > 0 {
            Outcome::WrongBytes
        } else if !self.failed.is_empty() {
            Outcome::Failed
        } else if self.void {
            Outcome::Void
        } else if self.bars_missed > 0 {
            Outcome::Missed
        } else {
            Outcome::Good
        }
    }

    /// Compares every figure with its bar and counts. `counts` says whether bars are for this run.
    pub(super) fn judge(&mut self, counts: bool) {
        self.figures
            .iter_mut()
            .for_each(|figure| figure.judge(counts));
        let count = |verdict| {
            let with = self
                .figures
                .iter()
                .filter(|figure| figure.verdict == verdict);
            with.count()
        };
        self.bars_reached = count(Verdict::Reached);
        self.bars_missed = count(Verdict::Missed);
        self.bars_not_judged = count(Verdict::NotJudged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> TransferReport {
        let ceilings = Ceilings {
            copy_bytes: 1 << 30,
            h2d_gb_per_s: 55.4,
            d2h_gb_per_s: 55.3,
            both_gb_per_s: 96.0,
            floor_gb_per_s: 54.0,
        };
        TransferReport {
            version: "0".to_owned(),
            device: "cuda".to_owned(),
            device_name: "a GPU".to_owned(),
            simulated: false,
            layers: 61,
            page_rows: 64,
            row_bytes: 1152,
            page_bytes: 4_497_408,
            reps: 20,
            seed: 1,
            registration_bytes: 1,
            built_in_paths: true,
            ceilings,
            void: ceilings.is_void(),
            figures: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            bars_reached: 0,
            bars_missed: 0,
            bars_not_judged: 0,
            checks: Checks::default(),
            seconds: 1.0,
        }
    }

    #[test]
    fn either_direction_below_the_floor_voids_the_run() {
        let ceilings = report().ceilings;
        assert!(!ceilings.is_void());
        let slow = |h2d_gb_per_s, d2h_gb_per_s| Ceilings {
            h2d_gb_per_s,
            d2h_gb_per_s,
            ..ceilings
        };
        assert!(slow(53.9, 55.0).is_void() && slow(55.0, 53.9).is_void());
        assert!(!slow(54.0, 54.0).is_void());
    }

    #[test]
    fn the_gravest_decides() {
        let mut report = report();
        assert_eq!(report.outcome(), Outcome::Good);
        report.bars_missed = 1;
        assert_eq!(report.outcome(), Outcome::Missed);
        report.void = true;
        assert_eq!(report.outcome(), Outcome::Void);
        report.failed.push(Skipped {
            name: "load".to_owned(),
            why: "the device is lost".to_owned(),
        });
        assert_eq!(report.outcome(), Outcome::Failed);
        report.checks.wrong_rows = 1;
        assert_eq!(report.outcome(), Outcome::WrongBytes);
    }
}
