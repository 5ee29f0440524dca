// SPDX-License-Identifier: Apache-2.0
//! The picture of a replay: hit ratio over requests, and where the bytes came from.

use striata_replay::{ReplayReport, RequestRecord};

use crate::plot::{Line, LinePanel, PlotError, XAxis, line_panels};

/// Most points of a line; more cannot be told apart.
const POINTS: usize = 600;
const GIB: f64 = (1_u64 << 30) as f64;

/// Sums after each request.
#[derive(Debug, Default)]
pub(super) struct Curve {
    sums: Vec<Sums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    input: u64,
    l1: u64,
    l2: u64,
}

impl Sums {
    fn minus(self, before: Self) -> Self {
        Self {
            input: self.input - before.input,
            l1: self.l1 - before.l1,
            l2: self.l2 - before.l2,
        }
    }

    fn hit_ratio(self) -> f64 {
        share(self.l1 + self.l2, self.input)
    }
}

impl Curve {
    /// Takes a request in.
    pub(super) fn add(&mut self, record: &RequestRecord) {
        let last = self.sums.last().copied().unwrap_or_default();
        self.sums.push(Sums {
            input: last.input + record.input_tokens,
            l1: last.l1 + record.hit_tokens_l1,
            l2: last.l2 + record.hit_tokens_l2,
        });
    }

    /// The SVG.
    ///
    /// # Errors
    /// The drawing library refuses.
    pub(super) fn draw(&self, report: &ReplayReport) -> Result<String, PlotError> {
        let config = &report.config;
        let title = format!(
            "{}: c = {}, L1 {}, L2 {}, {}",
            config.trace, config.dcp, config.l1, config.l2, config.policy
        );
        // The model's own bytes, whatever the replay moved for each row.
        let token_bytes = f64::from(config.model_row_bytes) * f64::from(config.layers);
        let gib = |tokens: u64| as_f64(tokens) * token_bytes / GIB;
        let line = |name: &str, value: &dyn Fn(Sums) -> f64| Line {
            name: name.to_owned(),
            points: self.thinned().map(|(at, sums)| (at, value(sums))).collect(),
            marked: false,
        };
        let panel = |title: &str, y_name: &str, y_max, lines| LinePanel {
            title: title.to_owned(),
            x_name: "requests".to_owned(),
            y_name: y_name.to_owned(),
            x_axis: XAxis::Linear,
            y_max,
            lines,
        };
        let ratio = vec![
            Line {
                name: "hit ratio, last 2 %".to_owned(),
                points: self.recent(),
                marked: false,
            },
            line("hit ratio so far", &|s| s.hit_ratio()),
        ];
        let origin = vec![
            line("found on L1", &|s| gib(s.l1)),
            line("loaded back from L2", &|s| gib(s.l2)),
            line("computed", &|s| gib(s.input - s.l1 - s.l2)),
        ];
        let panels = [
            panel("Hit ratio", "hit tokens / input tokens", Some(1.0), ratio),
            panel(
                "Where the bytes of the prompts came from, so far",
                "GiB",
                None,
                origin,
            ),
        ];
        line_panels(&title, 1, &panels)
    }

    /// At most about [`POINTS`] of the sums, the last among them, with the number of requests.
    fn thinned(&self) -> impl Iterator<Item = (f64, Sums)> + '_ {
        let step = self.sums.len().div_ceil(POINTS).max(1);
        let last = self.sums.len().saturating_sub(1);
        (self.sums.iter().enumerate())
            .filter(move |(i, _)| i.is_multiple_of(step) || *i == last)
            .map(|(i, sums)| (count(i + 1), *sums))
    }

    /// Hit ratio of a sliding window.
    fn recent(&self) -> Vec<(f64, f64)> {
        let window = (self.sums.len() / 50).max(1);
        let step = self.sums.len().div_ceil(POINTS).max(1);
        (window..self.sums.len())
            .step_by(step)
            .map(|i| {
                let sums = self.sums[i].minus(self.sums[i - window]);
                (count(i + 1), sums.hit_ratio())
            })
            .collect()
    }
}

/// `part / whole`, 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        as_f64(part) / as_f64(whole)
    }
}

/// For pictures and percentages, where 53 bits are plenty.
fn as_f64(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    as_f64(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_replay::Outcome;

    fn record(index: u64, hit: u64) -> RequestRecord {
        RequestRecord {
            index,
            replica: 0,
            arrival_s: 0.0,
            outcome: Outcome::Served,
            input_tokens: 10,
            output_tokens: 0,
            hit_tokens_l1: hit,
            hit_tokens_l2: 0,
            computed_tokens: 10 - hit,
            first_layer_us: None,
            all_layers_us: None,
            stall_us: 0.0,
            ttft_ms: 0.0,
            verified_rows: 0,
            mismatches: 0,
        }
    }

    #[test]
    fn long_runs_are_thinned_and_keep_their_end() {
        let mut curve = Curve::default();
        (0..5000).for_each(|i| curve.add(&record(i, u64::from(i >= 2500) * 10)));
        let points: Vec<_> = curve.thinned().collect();
        assert!(points.len() <= POINTS + 1, "{}", points.len());
        let (at, sums) = points[points.len() - 1];
        assert_eq!((at, sums.hit_ratio()), (5000.0, 0.5));
        let recent = curve.recent();
        assert_eq!(recent.first().map(|p| p.1), Some(0.0));
        assert_eq!(recent.last().map(|p| p.1), Some(1.0));
    }

    #[test]
    fn short_runs_are_drawn_too() {
        for requests in 0..3 {
            let mut curve = Curve::default();
            (0..requests).for_each(|i| curve.add(&record(i, 5)));
            assert!(curve.draw(&ReplayReport::default()).is_ok());
        }
    }
}
