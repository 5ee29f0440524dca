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
    if in_order(rows.iter().map(capacity)).len() == 1 {
        by_dcp(rows)
    } else {
        by_capacity(rows)
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

fn by_capacity(rows: &[SweepRow]) -> Result<String, PlotError> {
    let (x_name, label) = axis(rows);
    let labels = in_order(rows.iter().map(label));
    let place = |row: &SweepRow| {
        let name = label(row);
        (0_u32..)
            .zip(&labels)
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
                x_name: x_name.clone(),
                y_name: "hit tokens / input tokens".to_owned(),
                x_axis: XAxis::Named(labels.clone()),
                y_max: Some(1.0),
            }
        })
        .collect();
    line_panels("Hit ratio by capacity", 2, &panels)
}

/// Name of the axis and its labels: the tier that varies, or both.
fn axis(rows: &[SweepRow]) -> (String, fn(&SweepRow) -> String) {
    let l1 = in_order(rows.iter().map(|row| row.l1.clone()));
    let l2 = in_order(rows.iter().map(|row| row.l2.clone()));
    match (l1.as_slice(), l2.as_slice()) {
        (_, [l2]) if l2 == "0" => ("L1, without L2".to_owned(), |row| row.l1.clone()),
        (_, [l2]) => (format!("L1, with L2 of {l2}"), |row| row.l1.clone()),
        ([l1], _) => (format!("L2, with L1 of {l1}"), |row| row.l2.clone()),
        _ => ("L1 / L2".to_owned(), |row| {
            format!("{} / {}", row.l1, row.l2)
        }),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(l1: &str, l2: &str, dcp: u32) -> SweepRow {
        SweepRow {
            trace: "a_trace (bundled)".to_owned(),
            model: "m".to_owned(),
            dcp,
            l1: l1.to_owned(),
            l2: l2.to_owned(),
            policy: "lru".to_owned(),
            widened_page_tokens: 64,
            l1_pages: 1,
            l2_pages: 1,
            requests: 1,
            refused_requests: 0,
            input_tokens: 1,
            hit_ratio: 0.5,
            resident_share: 0.25,
            loaded_share: 0.25,
            computed_share: 0.5,
            evicted_pages_l1: 0,
            evicted_pages_l2: 0,
            wall_seconds: 0.0,
        }
    }

    #[test]
    fn one_pair_of_capacities_is_bars_by_dcp() {
        let svg = draw(&[row("32GiB", "64GiB", 1), row("32GiB", "64GiB", 2)]);
        let svg = svg.unwrap_or_else(|e| panic!("{e}"));
        for text in ["DCP size c", "on each rank", "a_trace", "0.500"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(!svg.contains("(bundled)"));
    }

    #[test]
    fn several_capacities_are_lines_named_by_what_varies() {
        for (rows, name, label) in [
            (
                [row("1p", "0", 1), row("2p", "0", 1)],
                "L1, without L2",
                "2p",
            ),
            (
                [row("1p", "9p", 1), row("2p", "9p", 1)],
                "L1, with L2 of 9p",
                "1p",
            ),
            (
                [row("1p", "8p", 1), row("1p", "9p", 1)],
                "L2, with L1 of 1p",
                "8p",
            ),
            (
                [row("1p", "8p", 1), row("2p", "9p", 1)],
                "L1 / L2",
                "2p / 9p",
            ),
        ] {
            let svg = draw(&rows).unwrap_or_else(|e| panic!("{e}"));
            assert!(svg.contains(name) && svg.contains(label), "{name}: {svg}");
        }
    }

    #[test]
    fn no_rows_are_an_empty_picture() {
        assert!(draw(&[]).is_ok());
    }
}
