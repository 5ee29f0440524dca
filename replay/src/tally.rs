// SPDX-License-Identifier: Apache-2.0
//! Sums and percentiles over the requests of a replay.

use crate::report::{Outcome, Percentiles, ReplayReport, ReplicaReport, RequestRecord};

/// Values of one quantity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Exact percentiles: the least value that as large a share of the values does not exceed.
    pub(crate) fn percentiles(mut self) -> Percentiles {
        self.0.sort_unstable_by(f64::total_cmp);
        let values = &self.0;
        let at = |percent: usize| {
            let rank = (values.len() * percent).div_ceil(100);
            values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Percentiles {
            count: values.len() as u64,
            // The sum of nothing would be -0.
            total: values.iter().fold(0.0, |sum, value| sum + value),
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

/// What is summed while requests end.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    replicas: Vec<ReplicaReport>,
    requests: u64,
    output_tokens: u64,
    refused_requests: u64,
    refused_tokens: u64,
    truncated_requests: u64,
    load_backs: u64,
    verified_rows: u64,
    first_layer_us: Samples,
    all_layers_us: Samples,
    stall_us: Samples,
    ttft_ms: Samples,
}

impl Tally {
    pub(crate) fn new(replicas: u32) -> Self {
        let replica = |replica| ReplicaReport {
            replica,
            ..ReplicaReport::default()
        };
        Self {
            replicas: (0..replicas).map(replica).collect(),
            requests: 0,
            output_tokens: 0,
            refused_requests: 0,
            refused_tokens: 0,
            truncated_requests: 0,
            load_backs: 0,
            verified_rows: 0,
            first_layer_us: Samples::default(),
            all_layers_us: Samples::default(),
            stall_us: Samples::default(),
            ttft_ms: Samples::default(),
        }
    }

    pub(crate) const fn requests(&self) -> u64 {
        self.requests
    }

    pub(crate) fn add(&mut self, record: &RequestRecord) {
        self.requests += 1;
        self.output_tokens += record.output_tokens;
        match record.outcome {
            Outcome::Served | Outcome::Failed => {}
            Outcome::Truncated => self.truncated_requests += 1,
            Outcome::Refused => {
                self.refused_requests += 1;
                self.refused_tokens += record.input_tokens;
            }
        }
        self.load_backs += u64::from(record.hit_tokens_l2 > 0);
        self.verified_rows += record.verified_rows;
        self.stall_us.push(record.stall_us);
        self.ttft_ms.push(record.ttft_ms);
        if let (Some(first), Some(all)) = (record.first_layer_us, record.all_layers_us) {
            self.first_layer_us.push(first);
            self.all_layers_us.push(all);
        }
        let at = usize::try_from(record.replica).unwrap_or(usize::MAX);
        if let Some(replica) = self.replicas.get_mut(at) {
            replica.requests += 1;
            replica.input_tokens += record.input_tokens;
            replica.hit_tokens_l1 += record.hit_tokens_l1;
            replica.hit_tokens_l2 += record.hit_tokens_l2;
            replica.computed_tokens += record.computed_tokens;
        }
    }

    /// Writes the sums into a report.
    pub(crate) fn finish(self, report: &mut ReplayReport) {
        let sum = |of: fn(&ReplicaReport) -> u64| self.replicas.iter().map(of).sum::<u64>();
        report.requests = self.requests;
        report.input_tokens = sum(|r| r.input_tokens);
        report.output_tokens = self.output_tokens;
        report.hit_tokens_l1 = sum(|r| r.hit_tokens_l1);
        report.hit_tokens_l2 = sum(|r| r.hit_tokens_l2);
        report.computed_tokens = sum(|r| r.computed_tokens);
        report.hit_ratio = ratio(
            report.hit_tokens_l1 + report.hit_tokens_l2,
            report.input_tokens,
        );
        report.refused_requests = self.refused_requests;
        report.refused_tokens = self.refused_tokens;
        report.truncated_requests = self.truncated_requests;
        report.load_backs = self.load_backs;
        report.verified_rows = self.verified_rows;
        report.replicas = self.replicas;
        report.first_layer_us = self.first_layer_us.percentiles();
        report.all_layers_us = self.all_layers_us.percentiles();
        report.stall_us = self.stall_us.percentiles();
        report.ttft_ms = self.ttft_ms.percentiles();
    }
}

/// `part / whole`; 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    crate::compute::float(part) / crate::compute::float(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut samples = Samples::default();
        (1..=200).rev().for_each(|v| samples.push(f64::from(v)));
        let p = samples.percentiles();
        assert_eq!((p.p50, p.p90, p.p99, p.max), (100.0, 180.0, 198.0, 200.0));
        assert_eq!((p.count, p.total), (200, 20_100.0));
        assert_eq!(Samples::default().percentiles(), Percentiles::default());
        let mut one = Samples::default();
        one.push(7.0);
        assert_eq!(one.percentiles().p50, 7.0);
    }
}
