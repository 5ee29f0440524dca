// SPDX-License-Identifier: Apache-2.0
//! One figure: its statistics, what it is compared with, its bar.

use serde::{Deserialize, Serialize};

use crate::samples::Samples;

/// Fewer measurements than this decide nothing.
pub const LEAST_SAMPLES: usize = 20;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// 1e9 bytes a second.
    GbPerS,
    /// Microseconds.
    Us,
    /// A ratio of two times.
    Times,
}

/// Order statistics of the measurements of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// How many measurements.
    pub count: usize,
    /// The middle one.
    pub median: f64,
    /// Rank ceil(0.1 n).
    pub p10: f64,
    /// Rank ceil(0.9 n).
    pub p90: f64,
    /// Rank ceil(0.99 n).
    pub p99: f64,
}

impl Stats {
    /// Those of `samples`; none of none.
    #[must_use]
    pub fn of(samples: &Samples) -> Option<Self> {
        Some(Self {
            count: samples.len(),
            median: samples.median()?,
            p10: samples.quantile(0.1)?,
            p90: samples.quantile(0.9)?,
            p99: samples.quantile(0.99)?,
        })
    }
}

/// What a figure is compared with, measured in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// What it is.
    pub what: String,
    /// Its value, in the unit of the figure.
    pub value: f64,
}

/// Which statistic a bar is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BarOf {
    /// The ratio of the median to the reference.
    Ratio,
    /// The median.
    Median,
    /// The 99th percentile.
    P99,
}

/// Which side of a bar is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The bar or more.
    AtLeast,
    /// The bar or less.
    AtMost,
}

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Which statistic.
    pub of: BarOf,
    /// Which side is good.
    pub side: Side,
    /// The limit.
    pub value: f64,
}

impl Bar {
    /// The ratio must be at least `value`.
    #[must_use]
    pub const fn ratio_at_least(value: f64) -> Self {
        let (of, side) = (BarOf::Ratio, Side::AtLeast);
        Self { of, side, value }
    }

    /// The statistic must be at most `value`.
    #[must_use]
    pub const fn at_most(of: BarOf, value: f64) -> Self {
        let side = Side::AtMost;
        Self { of, side, value }
    }
}

/// Whether a figure reached its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did.
    Reached,
    /// It did not.
    Missed,
    /// Its bar is for other rows or another device, or there are too few measurements.
    NotJudged,
    /// It has no bar.
    NoBar,
}

/// One figure of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Part of the benchmark.
    pub group: String,
    /// What was measured.
    pub case: String,
    /// Pages of a job, where jobs were measured.
    pub pages: Option<u32>,
    /// The unit of the statistics.
    pub unit: Unit,
    /// The measurements.
    pub stats: Stats,
    /// What they are compared with.
    pub reference: Reference,
    /// Median over reference.
    pub ratio: f64,
    /// What it must reach.
    pub bar: Option<Bar>,
    /// Whether it did.
    pub verdict: Verdict,
}

impl Figure {
    /// Compares the figure with its bar. `counts` says whether bars are for this run at all.
    pub(super) fn judge(&mut self, counts: bool) {
        self.verdict = match self.bar {
            None => Verdict::NoBar,
            Some(_) if !counts || self.stats.count < LEAST_SAMPLES => Verdict::NotJudged,
            Some(bar) if self.reaches(bar) => Verdict::Reached,
            Some(_) => Verdict::Missed,
        };
    }

    fn reaches(&self, bar: Bar) -> bool {
        let value = match bar.of {
            BarOf::Ratio => self.ratio,
            BarOf::Median => self.stats.median,
            BarOf::P99 => self.stats.p99,
        };
        match bar.side {
            Side::AtLeast => value >= bar.value,
            Side::AtMost => value <= bar.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(values: &[f64], reference: f64, bar: Option<Bar>) -> Figure {
        let mut samples = Samples::new();
        values.iter().for_each(|&value| samples.push(value));
        let stats = Stats::of(&samples).unwrap();
        Figure {
            group: "load".to_owned(),
            case: "scattered".to_owned(),
            pages: Some(8),
            unit: Unit::GbPerS,
            stats,
            ratio: stats.median / reference,
            reference: Reference {
                what: "the ceiling".to_owned(),
                value: reference,
            },
            bar,
            verdict: Verdict::NoBar,
        }
    }

    fn verdict(mut figure: Figure, counts: bool) -> Verdict {
        figure.judge(counts);
        figure.verdict
    }

    #[test]
    fn statistics_are_those_of_the_ranks() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let stats = figure(&values, 1.0, None).stats;
        assert_eq!((stats.count, stats.median), (100, 50.5));
        assert_eq!((stats.p10, stats.p90, stats.p99), (10.0, 90.0, 99.0));
        assert_eq!(Stats::of(&Samples::new()), None);
    }

    // Seen to fail if the sides are swapped, and if few measurements are judged.
    #[test]
    fn a_bar_is_reached_on_its_good_side_and_on_the_limit() {
        let at_least = Some(Bar::ratio_at_least(0.9));
        assert_eq!(
            verdict(figure(&[45.0; 20], 50.0, at_least), true),
            Verdict::Reached
        );
        assert_eq!(
            verdict(figure(&[44.9; 20], 50.0, at_least), true),
            Verdict::Missed
        );
        let mut slow_tail = [10.0; 100];
        slow_tail[..2].fill(99.0);
        let p99 = Some(Bar::at_most(BarOf::P99, 50.0));
        assert_eq!(verdict(figure(&slow_tail, 1.0, p99), true), Verdict::Missed);
        let median = Some(Bar::at_most(BarOf::Median, 10.0));
        assert_eq!(
            verdict(figure(&slow_tail, 1.0, median), true),
            Verdict::Reached
        );
    }

    #[test]
    fn few_measurements_and_other_devices_are_not_judged() {
        let bar = Some(Bar::ratio_at_least(0.9));
        assert_eq!(
            verdict(figure(&[1.0; 19], 50.0, bar), true),
            Verdict::NotJudged
        );
        assert_eq!(
            verdict(figure(&[1.0; 20], 50.0, bar), false),
            Verdict::NotJudged
        );
        assert_eq!(
            verdict(figure(&[1.0; 20], 50.0, None), true),
            Verdict::NoBar
        );
    }
}
