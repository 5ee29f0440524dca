// SPDX-License-Identifier: Apache-2.0
//! The picture of a sweep: shares by DCP size, or hit ratio by capacity if there are several.

use std::collections::BTreeSet;

use striata_replay::SweepRow;

use crate::plot::{Bar, BarPanel, Line, LinePanel, PlotError, XAxis, line_panels, stacked_bars};

/// Draws `rows`, a panel a trace, and returns the SVG.
///
/// # Errors
/// The drawing library refuses.
pub(super) fn draw(rows: &[SweepRow]) -> Result<String, PlotError> {
    let capacities = in_order(rows.iter().map(capacity));
    if capacities.len() == 1 {
        by_dcp(rows)
    } else {
        by_capacity(rows, &capacities)
    }
}

fn by_dcp(rows: &[SweepRow]) -> Result<String, PlotError> {
    let policies = in_order(rows.iter().map(|row| row.policy.clone()));
    let panels: Vec<BarPanel> = in_order(rows.iter().map(trace))
        .into_iter()
        .map(|name| BarPanel {
            x_name: "DCP size c".to_owned(),
            bars: rows
                .iter()
                .filter(|row| trace(row) == name)
                .map(|row| Bar {
                    label: if policies.len() == 1 {
                        row.dcp.to_string()
                    } else {
                        format!("{} {}", row.dcp, row.policy)
                    },
                    shares: vec![row.resident_share, row.loaded_share, row.computed_share],
                    note: format!("{:.3}", row.hit_ratio),
                    note_after: 2,
                })
                .collect(),
            title: name,
        })
        .collect();
    let mut tiers = rows.first().map_or(String::new(), capacity);
    if tiers.ends_with('B') {
        tiers.push_str(" on each rank");
    }
    stacked_bars(
        &format!("Prompt tokens by origin, {tiers}"),
        "share of prompt tokens (hit ratio in figures)",
        &["found on L1", "loaded back from L2", "computed"],
        &panels,
    )
}

fn by_capacity(rows: &[SweepRow], capacities: &[String]) -> Result<String, PlotError> {
    let place = |row: &SweepRow| {
        let name = capacity(row);
        (0_u32..)
            .zip(capacities)
            .find_map(|(i, known)| (*known == name).then_some(f64::from(i)))
    };
    let series = |row: &SweepRow| format!("{}, c = {}", row.policy, row.dcp);
    let panels: Vec<LinePanel> = in_order(rows.iter().map(trace))
        .into_iter()
        .map(|title| {
            let of_trace = || rows.iter().filter(|row| trace(row) == title);
            let lines = in_order(of_trace().map(series))
                .into_iter()
                .map(|name| Line {
                    points: of_trace()
                        .filter(|row| series(row) == name)
                        .filter_map(|row| Some((place(row)?, row.hit_ratio)))
                        .collect(),
                    marked: true,
                    name,
                });
            LinePanel {
                lines: lines.collect(),
                title: title.clone(),
                x_name: "L1 and L2".to_owned(),
                y_name: "hit tokens / input tokens".to_owned(),
                x_axis: XAxis::Named(capacities.to_vec()),
                y_max: Some(1.0),
            }
        })
        .collect();
    line_panels("Hit ratio by capacity", 2, &panels)
}

/// The tiers of a point, as they were asked for.
fn capacity(row: &SweepRow) -> String {
    if row.l2 == "0" {
        format!("L1 {}", row.l1)
    } else {
        format!("L1 {}, L2 {}", row.l1, row.l2)
    }
}

/// Names the trace without saying where it lies.
fn trace(row: &SweepRow) -> String {
    row.trace.trim_end_matches(" (bundled)").to_owned()
}

/// Distinct names in the order of their first use.
fn in_order(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}
