// SPDX-License-Identifier: Apache-2.0
//! Replays of both bundled traces in which copies fail at random: every readable byte is right,
//! every error names its cause, every invariant holds, and no page is lost.

mod common;

use striata_replay::trace::Bundled;
use striata_replay::{
    Capacity, HostCapacity, RandomFaults, ReplayConfig, ReplayReport, TraceSource, WritePolicy,
};

const REQUESTS: u64 = 200;

/// The beginning of a bundled trace on tiers that hold about two of its requests.
fn config(trace: Bundled, write_policy: WritePolicy) -> ReplayConfig {
    let mut config = common::config(TraceSource::Bundled(trace), 2, 64, 1500);
    config.l2 = HostCapacity::Fixed(Capacity::Pages(4000));
    config.selection.limit = Some(REQUESTS);
    config.scale_rows = Some(4);
    config.write_policy = write_policy;
    config.paranoid = true;
    config
}

fn sound(report: &ReplayReport) {
    assert_eq!(report.requests, REQUESTS);
    assert_eq!(report.mismatches, 0, "{:?}", report.mismatched_rows);
    assert_eq!(report.errors, 0, "{:?}", report.error_messages);
    let paranoid = report.paranoid.unwrap();
    assert_eq!(paranoid.invariant_checks, REQUESTS);
    assert_eq!((paranoid.broken_invariants, paranoid.lost_pages), (0, 0));
    let hits = report.hit_tokens_l1 + report.hit_tokens_l2;
    assert_eq!(hits + report.computed_tokens, report.input_tokens);
}

#[test]
fn what_is_readable_is_right_whatever_copies_fail() {
    let (mut loads, mut stores, mut recomputed) = (0, 0, 0);
    for trace in [Bundled::MooncakeConversation, Bundled::AgenticCcU64] {
        for (seed, write_policy) in [
            (1, WritePolicy::WriteThrough),
            (2, WritePolicy::WriteBack),
            (3, WritePolicy::WriteThroughSelective),
        ] {
            let mut config = config(trace, write_policy);
            config.faults = Some(RandomFaults { seed, rate: 0.1 });
            let report = common::run(&config);
            sound(&report);
            let faults = report.faults.unwrap();
            loads += faults.failed_loads;
            stores += faults.failed_stores;
            recomputed += faults.recomputed_requests;
        }
    }
    assert!(
        loads > 0 && stores > 0 && recomputed > 0,
        "{loads} {stores} {recomputed}"
    );
}

#[test]
fn write_back_stores_what_leaves_l1_and_brings_it_back() {
    for trace in [Bundled::MooncakeConversation, Bundled::AgenticCcU64] {
        let report = common::run(&config(trace, WritePolicy::WriteBack));
        sound(&report);
        assert!(report.faults.is_none());
        assert!(report.stored_pages > 0, "{report:?}");
        let through = common::run(&config(trace, WritePolicy::WriteThrough));
        assert!(report.stored_pages < through.stored_pages);
    }
}
