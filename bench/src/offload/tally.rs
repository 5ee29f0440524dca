// SPDX-License-Identifier: Apache-2.0
//! What the requests of one system add up to.

use striata_replay::compute::Compute;
use striata_replay::{CopiedBytes, ReplayReport, RequestRecord};

use super::report::{Quantiles, SystemReport, Times};
use super::system::System;
use crate::samples::Samples;

const NANOS_PER_SECOND: f64 = 1e9;
const MICROS_PER_SECOND: f64 = 1e6;
const MILLIS_PER_SECOND: f64 = 1e3;

/// What a load costs at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// Layers.
    pub(super) layers: u32,
    /// Tokens of a widened page.
    pub(super) page_tokens: u64,
    /// Bytes of a page on all ranks that run, all layers, as they are moved.
    pub(super) page_bytes: u64,
    /// Bytes that the link moves in a nanosecond.
    pub(super) link: f64,
}

impl Floor {
    /// Nanoseconds that layers of `layer_ns` must wait at least for a load of `tokens` tokens: for
    /// the first layer, and for each later one as much as the link is slower than computing.
    pub(super) fn stall_ns(&self, tokens: u64, layer_ns: u64) -> f64 {
        let bytes = (tokens / self.page_tokens.max(1)).saturating_mul(self.page_bytes);
        let layer = bytes as f64 / f64::from(self.layers.max(1)) / self.link;
        let behind = f64::from(self.layers.saturating_sub(1));
        layer + behind * (layer - layer_ns as f64).max(0.0)
    }
}

/// Sums over the measured requests of a system.
#[derive(Clone, Debug, Default)]
pub(super) struct SystemTally {
    ttft_ms: Samples,
    requests: u64,
    loads: u64,
    prefill_s: f64,
    compute_s: f64,
    stall_s: f64,
    load_s: f64,
    least_stall_s: f64,
    input: u64,
    hits: (u64, u64),
}

impl SystemTally {
    pub(super) fn add(&mut self, record: &RequestRecord, compute: Compute, floor: Floor) {
        let hits = record.hit_tokens_l1 + record.hit_tokens_l2;
        let layer_ns = compute.layer_nanos(record.computed_tokens, hits);
        self.requests += 1;
        self.ttft_ms.push(record.ttft_ms);
        self.prefill_s += record.ttft_ms / MILLIS_PER_SECOND;
        self.compute_s += layer_ns as f64 * f64::from(floor.layers) / NANOS_PER_SECOND;
        self.stall_s += record.stall_us / MICROS_PER_SECOND;
        if let Some(micros) = record.all_layers_us {
            self.loads += 1;
            self.load_s += micros / MICROS_PER_SECOND;
            let least = floor.stall_ns(record.hit_tokens_l2, layer_ns);
            self.least_stall_s += least / NANOS_PER_SECOND;
        }
        self.input += record.input_tokens;
        self.hits.0 += record.hit_tokens_l1;
        self.hits.1 += record.hit_tokens_l2;
    }

    /// Share of the hit tokens that came from L2.
    pub(super) fn l2_share(&self) -> f64 {
        share(self.hits.1, self.hits.0 + self.hits.1)
    }

    /// The report. `copied` are bytes as they were moved, each of which stands for `scale` bytes of
    /// the model's rows; `link` is the ceiling in such bytes, GB/s.
    pub(super) fn report(
        &self,
        system: System,
        times: Times,
        copied: CopiedBytes,
        (scale, link): (f64, f64),
        replayed: &ReplayReport,
    ) -> SystemReport {
        let loaded = copied.to_device as f64 * scale;
        let rate = (self.load_s > 0.0).then(|| loaded / self.load_s / NANOS_PER_SECOND);
        SystemReport {
            system,
            title: system.title().to_owned(),
            times,
            requests: self.requests,
            ttft_ms: Quantiles::of(&self.ttft_ms),
            prefill_s: self.prefill_s,
            compute_s: self.compute_s,
            stall_s: self.stall_s,
            stall_share: ratio(self.stall_s, self.prefill_s),
            least_stall_share: ratio(self.least_stall_s, self.compute_s + self.least_stall_s),
            loads: self.loads,
            load_s: self.load_s,
            loaded_bytes: loaded,
            stored_bytes: copied.to_host as f64 * scale,
            load_gb_per_s: rate,
            load_share_of_link: rate.map(|rate| ratio(rate, link)),
            hit_ratio: share(self.hits.0 + self.hits.1, self.input),
            hit_ratio_l1: share(self.hits.0, self.input),
            hit_ratio_l2: share(self.hits.1, self.input),
            verified_rows: replayed.verified_rows,
            wrong_rows: replayed.mismatches,
            errors: replayed.errors,
            error_messages: replayed.error_messages.clone(),
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    ratio(part as f64, whole as f64)
}

/// `part / whole`; 0 of nothing.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_must_stall_its_first_layer_and_where_computing_is_faster() {
        // 3 pages of 100 bytes in 10 layers at 2 bytes/ns: 15 ns a layer.
        let floor = Floor {
            layers: 10,
            page_tokens: 64,
            page_bytes: 100,
            link: 2.0,
        };
        let near = |layer_ns, expected: f64| {
            let stall = floor.stall_ns(3 * 64 + 63, layer_ns);
            assert!((stall - expected).abs() < 1e-9, "{stall} for {expected}");
        };
        near(0, 150.0);
        near(10, 15.0 + 9.0 * 5.0);
        near(15, 15.0);
        near(1000, 15.0);
    }
}
