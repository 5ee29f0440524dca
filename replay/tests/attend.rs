// SPDX-License-Identifier: Apache-2.0
//! Attention over rows that were stored, evicted and loaded back, checked from tokens alone.

mod common;

use striata_replay::trace::Bundled;
use striata_replay::{
    Capacity, HostCapacity, RandomFaults, ReplayConfig, ReplayReport, TraceSource, VerifyPolicy,
};

/// The beginning of a bundled trace on tiers that hold about two of its requests, with rows of the
/// kernels' format in two layers.
fn config(trace: Bundled, dcp: u32) -> ReplayConfig {
    let pages = |tokens: u64| tokens / (64 * u64::from(dcp));
    let mut config = common::config(TraceSource::Bundled(trace), dcp, 64, pages(24_576));
    config.l2 = HostCapacity::Fixed(Capacity::Pages(pages(81_920)));
    config.model.layers = 2;
    config.model.row_bytes = 1152;
    config.verify = VerifyPolicy::None;
    config.selection.limit = Some(24);
    config.attend = Some(2);
    config
}

fn sound(report: &ReplayReport) {
    assert_eq!(
        (report.mismatches, report.errors),
        (0, 0),
        "{:?}",
        report.error_messages
    );
    let attend = report.attend.as_ref().unwrap();
    assert_eq!(attend.off, 0, "{:?}", attend.first_off);
    assert!(attend.worst_error < 1e-5, "{}", attend.worst_error);
    let (requests, outputs) = (attend.requests, attend.outputs);
    assert!(
        requests > 1 && outputs >= requests * 4,
        "{requests} {outputs}"
    );
}

#[test]
fn no_output_is_off_on_either_trace_under_eviction() {
    let mut loaded = 0;
    for trace in [Bundled::MooncakeConversation, Bundled::AgenticCcU64] {
        for dcp in [1, 8] {
            let report = common::run(&config(trace, dcp));
            sound(&report);
            assert!(report.l1.evicted_pages > 0);
            loaded += report.loaded_pages;
        }
    }
    assert!(loaded > 0);
}

#[test]
fn outputs_of_what_came_are_right_whatever_copies_fail() {
    let mut config = config(Bundled::AgenticCcU64, 2);
    config.faults = Some(RandomFaults { seed: 5, rate: 0.5 });
    config.paranoid = true;
    let report = common::run(&config);
    sound(&report);
    let faults = report.faults.unwrap();
    assert!(
        faults.failed_loads > 0 && faults.recomputed_requests > 0,
        "{faults:?}"
    );
}

#[test]
fn attention_without_its_rows_is_refused() {
    let refused = |change: fn(&mut ReplayConfig), part: &str| {
        let mut config = config(Bundled::MooncakeConversation, 2);
        change(&mut config);
        let error = striata_replay::replay(&config, &mut ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("attention") && error.contains(part),
            "{error}"
        );
    };
    refused(|config| config.verify = VerifyPolicy::All, "verify");
    refused(|config| config.scale_rows = Some(4), "1152");
    refused(|config| config.metadata_only = true, "without bytes");
}
