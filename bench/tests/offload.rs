// SPDX-License-Identifier: Apache-2.0
//! The offload benchmark on the simulated device, on small slices of real traces.

use striata_bench::offload::{
    OffloadOptions, OffloadReport, System, SystemReport, Times, TraceSlice, run,
};
use striata_bench::transfer::{Outcome, Verdict};
use striata_replay::trace::Bundled;
use striata_replay::{Capacity, DeviceChoice, TraceSource, VerifyPolicy};

const LAYERS: u32 = 6;

fn options(slice: TraceSlice) -> OffloadOptions {
    let mut options = OffloadOptions::new(8).unwrap();
    options.device = DeviceChoice::Sim;
    options.model.layers = LAYERS;
    options.verify = VerifyPolicy::All;
    options.slices = vec![slice];
    options.link_bytes = 64 << 20;
    options
}

/// Agents whose contexts do not stay on L1.
fn agents() -> TraceSlice {
    TraceSlice::of(TraceSource::Bundled(Bundled::AgenticCcU256), 8)
}

fn report(options: &OffloadOptions) -> OffloadReport {
    run(options, &mut |_| {}).unwrap()
}

fn of(report: &OffloadReport, system: System) -> &SystemReport {
    report.traces[0].of(system).unwrap()
}

// Seen to fail if the first layer does not wait for the whole load (wrong rows), and if waiting at a
// gate is not counted.
#[test]
fn five_systems_do_the_same_work_to_the_byte_and_ours_is_never_slower_than_loading_first() {
    let report = report(&options(agents()));
    assert_eq!(
        report.outcome(),
        Outcome::Good,
        "{:?}",
        report.traces[0].bars
    );
    assert!(report.simulated && report.scaled && !report.void);
    let trace = &report.traces[0];
    assert_eq!(
        (trace.requests, trace.filled, trace.systems.len()),
        (40, 100, 5)
    );
    assert!(trace.l2_share_of_hits >= 0.5);
    let page_bytes = f64::from(64 * 1152 * LAYERS);
    let (ours, then) = (
        of(&report, System::Striata),
        of(&report, System::LoadThenCompute),
    );
    for system in [
        System::LoadThenCompute,
        System::ChunkCalls,
        System::CopyKernel,
    ] {
        let theirs = of(&report, system);
        assert_eq!(theirs.times, Times::Simulated);
        assert_eq!((theirs.wrong_rows, theirs.errors), (0, 0), "{system}");
        assert_eq!(theirs.loaded_bytes, ours.loaded_bytes, "{system}");
        assert_eq!(theirs.stored_bytes, ours.stored_bytes, "{system}");
        assert_eq!(theirs.verified_rows, ours.verified_rows, "{system}");
        assert_eq!(theirs.hit_ratio, ours.hit_ratio, "{system}");
        assert!((theirs.compute_s - ours.compute_s).abs() < 1e-9, "{system}");
    }
    assert!(ours.loaded_bytes > page_bytes && ours.loaded_bytes % page_bytes < 1.0);
    assert!(ours.verified_rows > 0 && ours.loads > 5);
    for (ours, then) in [
        (ours.ttft_ms.p50, then.ttft_ms.p50),
        (ours.ttft_ms.p90, then.ttft_ms.p90),
        (ours.ttft_ms.p99, then.ttft_ms.p99),
        (ours.prefill_s, then.prefill_s),
    ] {
        assert!(ours <= then, "{ours} after {then}");
    }
    // Times are computing and waiting, and nothing else in the model.
    for system in [ours, then] {
        let sum = system.compute_s + system.stall_s;
        assert!((system.prefill_s / sum - 1.0).abs() < 1e-6, "{system:?}");
        assert!(system.stall_share >= system.least_stall_share, "{system:?}");
    }
    assert!(then.stall_s > 3.0 * ours.stall_s, "{then:?} {ours:?}");
}

#[test]
fn rates_are_in_the_order_of_the_ways_to_copy_and_none_passes_the_link() {
    let report = report(&options(agents()));
    let share = |system| of(&report, system).load_share_of_link.unwrap();
    let (calls, kernel, ours) = (
        share(System::ChunkCalls),
        share(System::CopyKernel),
        share(System::Striata),
    );
    assert!(
        calls < 0.31 && kernel > 0.6 && ours > 0.93,
        "{calls} {kernel} {ours}"
    );
    assert!(kernel < ours && ours <= 1.0, "{calls} {kernel} {ours}");
    let near = |rate: f64| (rate / 55.4 - 1.0).abs() < 0.01;
    assert!(near(report.link.h2d_gb_per_s), "{:?}", report.link);
}

#[test]
fn without_an_l2_what_left_l1_is_computed_again() {
    let report = report(&options(agents()));
    let (none, ours) = (of(&report, System::NoL2), of(&report, System::Striata));
    assert_eq!(none.times, Times::Modelled);
    assert_eq!(
        (none.loads, none.loaded_bytes, none.load_gb_per_s),
        (0, 0.0, None)
    );
    assert_eq!(
        (none.hit_ratio_l2, none.hit_ratio),
        (0.0, none.hit_ratio_l1)
    );
    assert!(none.hit_ratio < ours.hit_ratio && none.prefill_s > 2.0 * ours.prefill_s);
    assert!((none.prefill_s / none.compute_s - 1.0).abs() < 1e-6);
}

#[test]
fn tiers_that_keep_everything_on_l1_are_said_to_be_no_benchmark_of_offloading() {
    let slice = TraceSlice {
        l1: Capacity::Pages(2_600),
        ..agents()
    };
    let report = report(&options(slice));
    let missed = report.traces[0].bars.iter();
    let missed: Vec<&str> = missed
        .filter(|bar| bar.verdict == Verdict::Missed)
        .map(|bar| bar.what.as_str())
        .collect();
    assert_eq!(missed, ["share of the hit tokens that come from L2"]);
    assert_eq!(report.outcome(), Outcome::Missed);
}

#[test]
fn ranks_of_any_dcp_size_run_alone_or_together() {
    for (dcp, ranks) in [(1, 1), (4, 2), (8, 8)] {
        let mut options = options(TraceSlice {
            fill: 20,
            requests: 6,
            l1: Capacity::Tokens(200_000),
            l2: Capacity::Tokens(1_000_000),
            ..agents()
        });
        (options.dcp, options.ranks, options.model.layers) = (dcp, ranks, 2);
        let report = report(&options);
        let ours = of(&report, System::Striata);
        assert_eq!((ours.wrong_rows, ours.errors), (0, 0), "c = {dcp}");
        assert!(ours.loads > 0, "c = {dcp}");
        let geometry = report.traces[0].geometry;
        assert_eq!(geometry.page_tokens, 64 * u64::from(dcp));
        // Every rank that runs loads its share of each hit page.
        let pages = ours.loaded_bytes / f64::from(64 * 1152 * 2 * ranks);
        assert!((pages - pages.round()).abs() < 1e-6, "{pages}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let refused = |change: fn(&mut OffloadOptions)| {
        let mut options = options(agents());
        change(&mut options);
        let error = run(&options, &mut |_| panic!("it ran")).unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    assert!(refused(|o| o.slices.clear()).contains("traces"));
    assert!(refused(|o| o.ranks = 9).contains("ranks"));
    assert!(refused(|o| o.kernel_blocks = 0).contains("blocks"));
    assert!(refused(|o| o.compute.time_scale = 1.0).contains("back to back"));
    assert!(refused(|o| o.slices[0].requests = 0).contains("requests"));
    assert!(refused(|o| o.dcp = 3).contains('3'));
    assert!(refused(|o| o.slices[0].skip = u64::MAX).contains("16 replicas"));
    assert!(refused(|o| o.scale_rows = Some(6)).contains('6'));
}
