// SPDX-License-Identifier: Apache-2.0
//! Panels of stacked bars: shares of a whole, one bar a configuration.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{GRID, INK, Key, LABEL_PX, PANEL_TITLE_PX, PlotError, draw_error, font, frame};

/// One bar: shares from the bottom up, at most 1 together.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Stands under the bar.
    pub(crate) label: String,
    /// Shares, in the order of the names.
    pub(crate) shares: Vec<f64>,
    /// Stands in the bar where the part `note_after` ends.
    pub(crate) note: String,
    /// How many parts lie below the note.
    pub(crate) note_after: usize,
}

/// The bars of one panel.
#[derive(Clone, Debug)]
pub(crate) struct BarPanel {
    /// Stands over the panel.
    pub(crate) title: String,
    /// What the labels under the bars count.
    pub(crate) x_name: String,
    /// From left to right.
    pub(crate) bars: Vec<Bar>,
}

/// From what is cheapest to what is dearest: resident, loaded, computed.
const PARTS: [RGBColor; 4] = [
    RGBColor(0, 92, 150),
    RGBColor(96, 176, 222),
    RGBColor(226, 220, 208),
    RGBColor(190, 190, 190),
];

/// Draws panels side by side and returns the SVG.
///
/// `parts` names the shares; `y_name` says what they are shares of.
///
/// # Errors
/// The drawing library refuses.
pub(crate) fn stacked_bars(
    title: &str,
    y_name: &str,
    parts: &[&str],
    panels: &[BarPanel],
) -> Result<String, PlotError> {
    let keys: Vec<Key> = parts
        .iter()
        .zip(PARTS)
        .map(|(name, color)| Key {
            color,
            name: (*name).to_owned(),
        })
        .collect();
    let columns = panels.len().max(1);
    let width = u32::try_from(columns).map_or(u32::MAX, |n| n.saturating_mul(440).max(640));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, 460)).into_drawing_area();
        let areas = frame(&root, title, &keys, (1, columns))?;
        for (panel, area) in panels.iter().zip(&areas) {
            draw_panel(area, y_name, panel)?;
        }
        root.present().map_err(draw_error)?;
    }
    Ok(svg)
}

fn draw_panel(area: &super::Area<'_>, y_name: &str, panel: &BarPanel) -> Result<(), PlotError> {
    // A segmented range takes in both of its ends.
    let last = panel.bars.len().saturating_sub(1);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, font(PANEL_TITLE_PX))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(56)
        .build_cartesian_2d((0..last).into_segmented(), 0.0..1.0)
        .map_err(draw_error)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .y_labels(6)
        .y_label_formatter(&|share| format!("{share:.1}"))
        .x_labels(panel.bars.len().max(1))
        .x_label_formatter(&|at| match at {
            SegmentValue::CenterOf(i) => panel
                .bars
                .get(*i)
                .map_or(String::new(), |bar| bar.label.clone()),
            _ => String::new(),
        })
        .x_desc(&panel.x_name)
        .y_desc(y_name)
        .axis_desc_style(font(LABEL_PX))
        .label_style(font(LABEL_PX))
        .draw()
        .map_err(draw_error)?;
    for (i, bar) in panel.bars.iter().enumerate() {
        let mut base = 0.0;
        let mut note_at = 0.0;
        for (part, (share, color)) in bar.shares.iter().zip(PARTS).enumerate() {
            let top = (base + share).min(1.0);
            let corners = [
                (SegmentValue::Exact(i), base),
                (SegmentValue::Exact(i + 1), top),
            ];
            let mut body = Rectangle::new(corners, color.filled());
            body.set_margin(0, 0, 14, 14);
            chart.draw_series([body]).map_err(draw_error)?;
            base = top;
            if part + 1 == bar.note_after {
                note_at = top;
            }
        }
        // Over the parts it sums up, unless there is no room under the upper edge.
        let (v, shift) = if note_at > 0.93 {
            (VPos::Top, 5)
        } else {
            (VPos::Bottom, -5)
        };
        let style = font(LABEL_PX).pos(Pos::new(HPos::Center, v));
        let note = EmptyElement::at((SegmentValue::CenterOf(i), note_at))
            + Text::new(bar.note.clone(), (0, shift), style);
        chart.draw_series([note]).map_err(draw_error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, shares: [f64; 3]) -> Bar {
        Bar {
            label: label.to_owned(),
            shares: shares.to_vec(),
            note: format!("{:.2}", shares[0] + shares[1]),
            note_after: 2,
        }
    }

    #[test]
    fn names_labels_and_notes_are_text_in_the_svg() {
        let panel = BarPanel {
            title: "a trace".to_owned(),
            x_name: "ranks c".to_owned(),
            bars: vec![bar("1", [0.1, 0.2, 0.7]), bar("8", [0.5, 0.46, 0.04])],
        };
        let svg = stacked_bars("What it buys", "share", &["L1", "L2", "computed"], &[panel])
            .unwrap_or_else(|e| panic!("{e}"));
        for text in [
            "What it buys",
            "a trace",
            "ranks c",
            "computed",
            "0.30",
            "0.96",
        ] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn no_panels_is_an_empty_picture() {
        assert!(stacked_bars("nothing", "share", &["a"], &[]).is_ok());
    }
}
