// SPDX-License-Identifier: Apache-2.0
//! What an operator watches, through the `metrics` facade: nothing is recorded unless the process
//! installs a recorder.
//!
//! | name | labels | unit |
//! |---|---|---|
//! | `striata_pages_total` | `direction` store, load; `outcome` good, failed, skipped, deferred, declined | widened pages |
//! | `striata_bytes_total` | `direction`; `tier` L1, L2, to which the copy went; `outcome` good, failed | bytes, all ranks and pools of this process: those of the pages that all ranks agreed on |
//! | `striata_tokens_total` | `source` l1, l2 | tokens hit |
//! | `striata_evicted_pages_total` | `tier` L1, L2; `outcome` kept, dropped | widened pages |
//! | `striata_inserted_pages_total` | `outcome` new, duplicate | widened pages |
//! | `striata_requests_total` | `outcome` granted, out_of_space | reservations |
//! | `striata_cancelled_loads_total` | | operations |
//! | `striata_operation_seconds` | `direction` | histogram, from order to end on the slowest rank |
//! | `striata_first_layer_seconds` | | histogram, loads |
//! | `striata_pages` | `tier`; `state` all, free, resident, evictable, pinned, quarantined (L1) | gauge, widened pages |
//! | `striata_operations_in_flight`, `striata_leases` | | gauges |

use metrics::{counter, gauge, histogram};
use striata_gpu::Direction;

use crate::planner::PlannerStats;
use crate::shards::OpReport;

/// Turns the planner's counters and the ends of operations into metrics.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    seen: PlannerStats,
}

const fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "load",
        Direction::DeviceToHost => "store",
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
const fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
const fn level(count: u64) -> f64 {
    count as f64
}

impl Meter {
    /// Records operations that have ended.
    pub(crate) fn operations(&self, reports: &[OpReport]) {
        for report in reports {
            let direction = name(report.direction);
            let took = seconds(report.finished.since(report.issued));
            histogram!("striata_operation_seconds", "direction" => direction).record(took);
            if let Some(first) = report.first_layer {
                let first = seconds(first.since(report.issued));
                histogram!("striata_first_layer_seconds").record(first);
            }
        }
    }

    /// Records what the planner has done since the last call, and how the tiers stand. A page has
    /// `page_bytes` bytes on all ranks in all pools.
    pub(crate) fn planner(&mut self, now: &PlannerStats, page_bytes: u64) {
        let was = std::mem::replace(&mut self.seen, *now);
        self.copies(&was);
        self.bytes(&was, page_bytes);
        self.cache(&was);
        for (tier, state, pages) in [
            ("L1", "all", now.pages_l1),
            ("L2", "all", now.pages_l2),
            ("L1", "free", now.free_pages_l1),
            ("L1", "resident", now.resident_pages_l1),
            ("L2", "free", now.free_pages_l2),
            ("L2", "resident", now.resident_pages_l2),
            ("L1", "evictable", now.evictable_pages_l1),
            ("L2", "evictable", now.evictable_pages_l2),
            ("L1", "pinned", now.pinned_pages_l1),
            ("L2", "pinned", now.pinned_pages_l2),
            ("L1", "quarantined", now.quarantined_pages_l1),
        ] {
            gauge!("striata_pages", "tier" => tier, "state" => state).set(level(pages));
        }
        gauge!("striata_operations_in_flight").set(level(now.operations_in_flight as u64));
        gauge!("striata_leases").set(level(now.leases as u64));
    }

    /// Bytes of what has ended, by the tier that it was for.
    fn bytes(&self, was: &PlannerStats, page_bytes: u64) {
        let now = &self.seen;
        for (direction, tier, outcome, pages) in [
            ("store", "L2", "good", now.stored_pages - was.stored_pages),
            (
                "store",
                "L2",
                "failed",
                now.failed_store_pages - was.failed_store_pages,
            ),
            ("load", "L1", "good", now.loaded_pages - was.loaded_pages),
            (
                "load",
                "L1",
                "failed",
                now.failed_load_pages - was.failed_load_pages,
            ),
        ] {
            counter!("striata_bytes_total", "direction" => direction, "tier" => tier, "outcome" => outcome)
                .increment(pages * page_bytes);
        }
    }

    fn copies(&self, was: &PlannerStats) {
        let now = &self.seen;
        for (direction, outcome, pages) in [
            ("store", "good", now.stored_pages - was.stored_pages),
            (
                "store",
                "failed",
                now.failed_store_pages - was.failed_store_pages,
            ),
            (
                "store",
                "skipped",
                now.skipped_store_pages - was.skipped_store_pages,
            ),
            (
                "store",
                "deferred",
                now.deferred_store_pages - was.deferred_store_pages,
            ),
            ("load", "good", now.loaded_pages - was.loaded_pages),
            (
                "load",
                "failed",
                now.failed_load_pages - was.failed_load_pages,
            ),
            (
                "load",
                "declined",
                now.declined_load_pages - was.declined_load_pages,
            ),
        ] {
            counter!("striata_pages_total", "direction" => direction, "outcome" => outcome)
                .increment(pages);
        }
        let cancelled = now.cancelled_loads - was.cancelled_loads;
        counter!("striata_cancelled_loads_total").increment(cancelled);
    }

    fn cache(&self, was: &PlannerStats) {
        let now = &self.seen;
        for (source, tokens) in [
            ("l1", now.hit_tokens_l1 - was.hit_tokens_l1),
            ("l2", now.hit_tokens_l2 - was.hit_tokens_l2),
        ] {
            counter!("striata_tokens_total", "source" => source).increment(tokens);
        }
        let kept = now.evicted_pages_kept_on_l2 - was.evicted_pages_kept_on_l2;
        for (tier, outcome, pages) in [
            ("L1", "kept", kept),
            (
                "L1",
                "dropped",
                now.evicted_pages_dropped - was.evicted_pages_dropped,
            ),
            ("L2", "dropped", now.evicted_pages_l2 - was.evicted_pages_l2),
        ] {
            counter!("striata_evicted_pages_total", "tier" => tier, "outcome" => outcome)
                .increment(pages);
        }
        for (outcome, pages) in [
            ("new", now.inserted_pages - was.inserted_pages),
            ("duplicate", now.duplicate_pages - was.duplicate_pages),
        ] {
            counter!("striata_inserted_pages_total", "outcome" => outcome).increment(pages);
        }
        for (outcome, requests) in [
            ("granted", now.granted - was.granted),
            ("out_of_space", now.out_of_space - was.out_of_space),
        ] {
            counter!("striata_requests_total", "outcome" => outcome).increment(requests);
        }
    }
}
