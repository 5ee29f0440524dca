// SPDX-License-Identifier: Apache-2.0
//! The picture of an offload benchmark: times to first token and stall shares of the systems.

use striata_bench::offload::{OffloadReport, SystemReport, TraceReport};

use crate::plot::{BarGroup, GroupPanel, PlotError, Scale, grouped_bars};

/// Draws a row of panels a trace and returns the SVG.
///
/// # Errors
/// The drawing library refuses.
pub(super) fn draw(report: &OffloadReport) -> Result<String, PlotError> {
    let names: Vec<&str> = report.traces.first().map_or(Vec::new(), |trace| {
        trace.systems.iter().map(|s| s.title.as_str()).collect()
    });
    let panels: Vec<GroupPanel> = report.traces.iter().flat_map(panels).collect();
    let kind = if report.simulated { "SIMULATED, " } else { "" };
    let title = format!(
        "Prefixes that come back from host memory: {kind}{} layers of {} on one rank of {}, {}",
        report
            .traces
            .first()
            .map_or(0, |trace| trace.geometry.layers),
        report.compute.model,
        report.compute.ranks,
        if report.device_name.is_empty() {
            &report.device
        } else {
            &report.device_name
        },
    );
    grouped_bars(&title, &names, 2, &panels)
}

fn panels(trace: &TraceReport) -> [GroupPanel; 2] {
    let name = trace.trace.trim_end_matches(" (bundled)");
    let group = |label: &str, value: fn(&SystemReport) -> f64| BarGroup {
        label: label.to_owned(),
        values: trace
            .systems
            .iter()
            .map(|system| Some(value(system)))
            .collect(),
    };
    let stall = |label: &str, value: fn(&SystemReport) -> f64| BarGroup {
        label: label.to_owned(),
        values: trace
            .systems
            .iter()
            .map(|system| (system.loads > 0).then(|| value(system) * 100.0))
            .collect(),
    };
    [
        GroupPanel {
            title: format!("{name}: time to first token"),
            y_name: "ms".to_owned(),
            scale: Scale::Logarithmic,
            groups: vec![
                group("p50", |system| system.ttft_ms.p50),
                group("p90", |system| system.ttft_ms.p90),
                group("p99", |system| system.ttft_ms.p99),
            ],
        },
        GroupPanel {
            title: format!("{name}: waiting for loads"),
            y_name: "% of prefill time".to_owned(),
            scale: Scale::Linear,
            groups: vec![
                stall("measured", |system| system.stall_share),
                stall("least that the link allows", |system| {
                    system.least_stall_share
                }),
            ],
        },
    ]
}
