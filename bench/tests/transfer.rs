// SPDX-License-Identifier: Apache-2.0
//! The whole transfer benchmark on the simulated device.

use std::collections::BTreeSet;

use striata_bench::transfer::{
    Figure, Group, Outcome, Shape, TransferOptions, TransferReport, Unit, Verdict, run,
};
use striata_gpu::sim::{CostModel, Fault, FaultPlan, OpClass, SimConfig, SimDevice};

fn options() -> TransferOptions {
    TransferOptions {
        shape: Shape {
            layers: 5,
            page_rows: 8,
            row_bytes: 64,
        },
        pages: vec![4, 1],
        reps: 2,
        ceiling_bytes: 4096,
        foreign_samples: 2,
        list_rows: 16,
        ..TransferOptions::simulated()
    }
}

fn report(options: TransferOptions) -> TransferReport {
    let device = SimDevice::new(SimConfig::new(0));
    run(&device, options, &mut |_| {}).unwrap()
}

#[test]
fn every_part_gives_figures_or_says_why_not_and_every_byte_is_right() {
    let report = report(options());
    assert_eq!(report.outcome(), Outcome::Good);
    assert!(report.simulated && !report.void);
    let told = report.figures.iter().map(|figure| figure.group.as_str());
    let skipped = report
        .skipped
        .iter()
        .filter_map(|s| s.name.split(':').next());
    let parts: BTreeSet<&str> = told.chain(skipped).collect();
    assert_eq!(parts, Group::ALL.map(Group::name).into_iter().collect());
    for figure in &report.figures {
        let stats = figure.stats;
        let name = format!("{} {}", figure.group, figure.case);
        assert!(stats.median > 0.0 && figure.ratio > 0.0, "{name}");
        assert!(
            stats.p10 <= stats.median && stats.median <= stats.p90,
            "{name}"
        );
        assert!(stats.count == 2, "{name}: {}", stats.count);
        assert_eq!(
            figure.ratio,
            stats.median / figure.reference.value,
            "{name}"
        );
        // Bars are for a GPU.
        assert!(
            matches!(figure.verdict, Verdict::NotJudged | Verdict::NoBar),
            "{name}"
        );
        // A job is never faster than its bytes over the modelled link.
        if figure.unit == Unit::GbPerS && figure.group != "both" {
            assert!(stats.p90 < 55.4, "{name}: {}", stats.p90);
        }
    }
    for path in [
        "load by runs, groups that grow to 200 %",
        "store by rectangles",
    ] {
        let of_path = report.figures.iter().filter(|f| f.case == path);
        assert_eq!(of_path.count(), 2, "{path}");
    }
    assert!(report.checks.series > 20 && report.checks.wrong_rows == 0);
}

#[test]
fn modelled_times_do_not_depend_on_the_machine() {
    let times = |report: TransferReport| {
        let figures = report.figures.into_iter();
        let of_cpu = |figure: &Figure| figure.group == "cpu" || figure.case.contains("CPU time");
        let figures = figures.filter(|figure| !of_cpu(figure));
        figures
            .map(|figure| (figure.case, figure.stats.median))
            .collect::<Vec<_>>()
    };
    let mut only = options();
    only.only = vec![Group::Load, Group::Store, Group::Separate, Group::Baselines];
    assert_eq!(times(report(only.clone())), times(report(only)));
}

#[test]
fn a_ceiling_below_the_floor_voids_the_run() {
    let mut slow = options();
    slow.only = vec![Group::Store];
    slow.floor_gb_per_s = 1000.0;
    let report = report(slow);
    assert!(report.void && report.outcome() == Outcome::Void);
}

/// The rate of a job of many bytes comes close to the link's, whatever the link's.
#[test]
fn a_faster_link_gives_higher_rates_and_ceilings() {
    let rate = |bytes_per_s| {
        let mut config = SimConfig::new(0);
        config.cost = CostModel {
            host_to_device_bytes_per_s: bytes_per_s,
            ..CostModel::default()
        };
        let mut options = options();
        options.only = vec![Group::Load];
        options.ceiling_bytes = 1 << 20;
        let report = run(&SimDevice::new(config), options, &mut |_| {}).unwrap();
        let slowest = report.figures.iter().find(|f| f.pages == Some(4)).unwrap();
        (report.ceilings.h2d_gb_per_s, slowest.stats.median)
    };
    let (slow, fast) = (rate(100_000_000), rate(10_000_000_000));
    assert!(slow.0 > 0.099 && slow.0 <= 0.1, "{slow:?}");
    assert!(slow.1 > 0.07 && slow.1 <= 0.1, "{slow:?}");
    assert!(fast.0 > 9.0 * slow.0 && fast.1 > slow.1, "{fast:?}");
}

// Seen to fail if a part that failed ends the run, and if it leaves its jobs to the next one.
#[test]
fn a_part_that_fails_says_why_and_the_others_go_on() {
    let failing = |nth, fault| {
        let mut config = SimConfig::new(0);
        config.faults = FaultPlan::new().with(OpClass::Copy, nth, fault);
        run(&SimDevice::new(config), options(), &mut |_| {})
    };
    // A copy that did not deliver everything fails its part and no other.
    let report = failing(60, Fault::Fail { good_pieces: 0 }).unwrap();
    assert_eq!(report.outcome(), Outcome::Failed);
    assert_eq!(report.failed.len(), 1, "{:?}", report.failed);
    assert!(
        report.failed[0].why.contains("delivered 0"),
        "{:?}",
        report.failed
    );
    assert!(report.figures.len() > 20 && report.checks.wrong_rows == 0);
    // A device that is lost fails every part from there on.
    let report = failing(60, Fault::Die).unwrap();
    assert!(report.failed.len() > 5, "{:?}", report.failed);
    assert!(failing(0, Fault::Refuse).is_err());
}
