// SPDX-License-Identifier: Apache-2.0
//! Panels of bars side by side in groups: one bar a series, one group a statistic.

use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{
    Area, GRID, INK, Key, LABEL_PX, PANEL_TITLE_PX, PlotError, SERIES, draw_error, font, frame,
};

/// Side of a panel in pixels, and the size of the figures over bars.
const PANEL_PX: (u32, u32) = (560, 330);
const NOTE_PX: u32 = 11;
/// Share of a group's width that its bars take.
const FILLED: f64 = 0.86;

/// The bars of one group, in the order of the series' names; none where a series has no value.
#[derive(Clone, Debug)]
pub(crate) struct BarGroup {
    /// Stands under the group.
    pub(crate) label: String,
    /// From left to right.
    pub(crate) values: Vec<Option<f64>>,
}

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0 on.
    Linear,
    /// By powers of ten; a value that is not above 0 is not drawn.
    Logarithmic,
}

/// One panel.
#[derive(Clone, Debug)]
pub(crate) struct GroupPanel {
    /// Stands over the panel.
    pub(crate) title: String,
    /// What runs up the side.
    pub(crate) y_name: String,
    /// How values become heights.
    pub(crate) scale: Scale,
    /// From left to right.
    pub(crate) groups: Vec<BarGroup>,
}

/// Draws panels, `columns` in a row, and returns the SVG. `names` are those of the series.
///
/// # Errors
/// The drawing library refuses.
pub(crate) fn grouped_bars(
    title: &str,
    names: &[&str],
    columns: usize,
    panels: &[GroupPanel],
) -> Result<String, PlotError> {
    let keys: Vec<Key> = names
        .iter()
        .zip(SERIES.iter().cycle())
        .map(|(name, color)| Key {
            color: *color,
            name: (*name).to_owned(),
        })
        .collect();
    let columns = columns.clamp(1, panels.len().max(1));
    let rows = panels.len().div_ceil(columns).max(1);
    let side = |n: usize, px: u32| u32::try_from(n).map_or(u32::MAX, |n| n.saturating_mul(px));
    let size = (
        side(columns, PANEL_PX.0).max(900),
        side(rows, PANEL_PX.1).saturating_add(super::HEAD_PX),
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let areas = frame(&root, title, &keys, (rows, columns))?;
        for (panel, area) in panels.iter().zip(&areas) {
            match panel.scale {
                Scale::Linear => {
                    let top = panel.largest() * 1.15;
                    let top = if top > 0.0 { top } else { 1.0 };
                    draw_panel(area, panel, &keys, RangedCoordf64::from(0.0..top), 0.0)?;
                }
                Scale::Logarithmic => {
                    let (low, high) = panel.decades();
                    let y: LogCoord<f64> = (low..high).log_scale().into();
                    draw_panel(area, panel, &keys, y, low)?;
                }
            }
        }
        root.present().map_err(draw_error)?;
    }
    Ok(svg)
}

impl GroupPanel {
    fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let all = self.groups.iter().flat_map(|group| &group.values);
        all.copied().flatten().filter(|value| value.is_finite())
    }

    fn largest(&self) -> f64 {
        self.values().fold(0.0, f64::max)
    }

    /// Powers of ten around the values that can be drawn.
    fn decades(&self) -> (f64, f64) {
        let positive = || self.values().filter(|value| *value > 0.0);
        let least = positive().fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return (1.0, 10.0);
        }
        // Room for the figure over the highest bar.
        let high = 10f64.powf((self.largest() * 1.6).log10().ceil());
        (10f64.powf(least.log10().floor()), high)
    }
}

fn draw_panel<Y>(
    area: &Area<'_>,
    panel: &GroupPanel,
    keys: &[Key],
    y: Y,
    floor: f64,
) -> Result<(), PlotError>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let groups = u32::try_from(panel.groups.len()).unwrap_or(u32::MAX).max(1);
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, font(PANEL_TITLE_PX))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..f64::from(groups), y)
        .map_err(draw_error)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .y_labels(6)
        .y_label_formatter(&|value| short(*value))
        .y_desc(&panel.y_name)
        .axis_desc_style(font(LABEL_PX))
        .label_style(font(LABEL_PX))
        .draw()
        .map_err(draw_error)?;
    let series = u32::try_from(keys.len()).unwrap_or(u32::MAX).max(1);
    let width = FILLED / f64::from(series);
    for (at, group) in (0u32..).zip(&panel.groups) {
        let left = f64::from(at) + (1.0 - FILLED) / 2.0;
        for (nth, (value, key)) in (0u32..).zip(group.values.iter().zip(keys)) {
            let Some(value) = value.filter(|value| *value >= floor) else {
                continue;
            };
            let x = left + f64::from(nth) * width;
            let corners = [(x + width * 0.06, floor), (x + width * 0.94, value)];
            let body = Rectangle::new(corners, key.color.filled());
            chart.draw_series([body]).map_err(draw_error)?;
            let style = font(NOTE_PX).pos(Pos::new(HPos::Center, VPos::Bottom));
            let note = EmptyElement::at((x + width / 2.0, value))
                + Text::new(short(value), (0, -3), style);
            chart.draw_series([note]).map_err(draw_error)?;
        }
        let style = font(LABEL_PX).pos(Pos::new(HPos::Center, VPos::Top));
        let label = EmptyElement::at((f64::from(at) + 0.5, floor))
            + Text::new(group.label.clone(), (0, 8), style);
        chart.draw_series([label]).map_err(draw_error)?;
    }
    Ok(())
}

/// Three digits or all before the point, without zeros behind it.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(scale: Scale) -> GroupPanel {
        let group = |label: &str, values: [Option<f64>; 2]| BarGroup {
            label: label.to_owned(),
            values: values.to_vec(),
        };
        GroupPanel {
            title: "a trace".to_owned(),
            y_name: "ms".to_owned(),
            scale,
            groups: vec![
                group("p50", [Some(12.34), Some(250.6)]),
                group("p99", [Some(0.0), None]),
            ],
        }
    }

    #[test]
    fn names_labels_and_figures_are_text_in_the_svg() {
        let panels = [panel(Scale::Linear), panel(Scale::Logarithmic)];
        let svg = grouped_bars("What it buys", &["ours", "theirs"], 2, &panels)
            .unwrap_or_else(|e| panic!("{e}"));
        for text in [
            "What it buys",
            "a trace",
            "ours",
            "theirs",
            "p50",
            "p99",
            "12.3",
            "251",
        ] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn decades_hold_every_value_that_can_be_drawn() {
        assert_eq!(panel(Scale::Logarithmic).decades(), (10.0, 1000.0));
        let mut empty = panel(Scale::Logarithmic);
        empty.groups.remove(0);
        assert_eq!(empty.decades(), (1.0, 10.0));
        assert!(grouped_bars("nothing", &[], 1, &[empty]).is_ok());
    }

    #[test]
    fn figures_are_short() {
        let texts = [0.0, 0.0341, 1.5, 12.34, 250.6].map(short);
        assert_eq!(texts, ["0", "0.034", "1.5", "12.3", "251"]);
    }
}
