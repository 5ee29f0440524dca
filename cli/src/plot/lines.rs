// SPDX-License-Identifier: Apache-2.0
//! Panels of lines with one legend for all of them.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::{GRID, INK, Key, LABEL_PX, PANEL_TITLE_PX, PlotError, SERIES, draw_error, font, frame};

/// One line; lines of equal names share a colour and an entry of the legend.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Entry of the legend.
    pub(crate) name: String,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
    /// Marks each point, for few points.
    pub(crate) marked: bool,
}

/// What stands along the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum XAxis {
    /// Numbers.
    Linear,
    /// Names at 0, 1, 2, ..., for values that no even scale shows well.
    Named(Vec<String>),
}

/// The lines of one panel.
#[derive(Clone, Debug)]
pub(crate) struct LinePanel {
    /// Stands over the panel.
    pub(crate) title: String,
    /// What runs along the bottom.
    pub(crate) x_name: String,
    /// What runs up the side.
    pub(crate) y_name: String,
    /// What stands there.
    pub(crate) x_axis: XAxis,
    /// The upper edge; the largest value and some room if there is none.
    pub(crate) y_max: Option<f64>,
    /// The lines, first drawn first.
    pub(crate) lines: Vec<Line>,
}

/// Draws panels, `columns` in a row, and returns the SVG.
///
/// # Errors
/// The drawing library refuses.
pub(crate) fn line_panels(
    title: &str,
    columns: usize,
    panels: &[LinePanel],
) -> Result<String, PlotError> {
    let mut names: Vec<&str> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
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
        side(columns, if columns == 1 { 860 } else { 480 }),
        side(rows, 330).saturating_add(super::HEAD_PX),
    );
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let areas = frame(&root, title, &keys, (rows, columns))?;
        for (panel, area) in panels.iter().zip(&areas) {
            draw_panel(area, panel, &keys)?;
        }
        root.present().map_err(draw_error)?;
    }
    Ok(svg)
}

fn draw_panel(area: &super::Area<'_>, panel: &LinePanel, keys: &[Key]) -> Result<(), PlotError> {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let top = panel.y_max.unwrap_or_else(|| {
        let max = points().map(|p| p.1).fold(0.0, f64::max);
        if max > 0.0 { max * 1.08 } else { 1.0 }
    });
    match &panel.x_axis {
        XAxis::Named(names) => {
            let places: Vec<f64> = (0_u32..).zip(names).map(|(i, _)| f64::from(i)).collect();
            let last = places.last().copied().unwrap_or(0.0);
            let name = |x: f64| {
                let at = places.iter().position(|place| (place - x).abs() < 0.01);
                at.and_then(|at| names.get(at)).cloned().unwrap_or_default()
            };
            let x = Ticks::new(-0.25..last + 0.25, Some(places.clone()));
            draw_axes(area, panel, keys, (x, &name), top)
        }
        XAxis::Linear => {
            let low = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
            let high = points().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
            let x = match (low < high, low.is_finite()) {
                (true, _) => low..high,
                (false, true) => low - 1.0..low + 1.0,
                (false, false) => 0.0..1.0,
            };
            draw_axes(area, panel, keys, (Ticks::new(x, None), &short_number), top)
        }
    }
}

/// An even axis whose ticks may be given.
struct Ticks {
    even: RangedCoordf64,
    places: Option<Vec<f64>>,
}

impl Ticks {
    fn new(range: Range<f64>, places: Option<Vec<f64>>) -> Self {
        Self {
            even: range.into(),
            places,
        }
    }
}

impl Ranged for Ticks {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.even.map(value, limit)
    }
    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        match &self.places {
            Some(places) => places.clone(),
            None => self.even.key_points(hint),
        }
    }
    fn range(&self) -> Range<f64> {
        self.even.range()
    }
}

fn draw_axes(
    area: &super::Area<'_>,
    panel: &LinePanel,
    keys: &[Key],
    (x, x_label): (Ticks, &dyn Fn(f64) -> String),
    top: f64,
) -> Result<(), PlotError> {
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, font(PANEL_TITLE_PX))
        .margin(12)
        .margin_right(28)
        .x_label_area_size(48)
        .y_label_area_size(68)
        .build_cartesian_2d(x, 0.0..top)
        .map_err(draw_error)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|x| x_label(*x))
        .y_label_formatter(&|y| short_number(*y))
        .x_desc(&panel.x_name)
        .y_desc(&panel.y_name)
        .axis_desc_style(font(LABEL_PX))
        .label_style(font(LABEL_PX))
        .draw()
        .map_err(draw_error)?;
    for line in &panel.lines {
        let color = keys
            .iter()
            .find(|key| key.name == line.name)
            .map_or(INK, |key| key.color);
        let points = line.points.iter().copied();
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(draw_error)?;
        if line.marked {
            let marks = line
                .points
                .iter()
                .map(|p| Circle::new(*p, 4, color.filled()));
            chart.draw_series(marks).map_err(draw_error)?;
        }
    }
    Ok(())
}

/// A number as an axis says it: `0.25`, `1500`, `20k`, `1.5M`.
fn short_number(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{scaled:.2}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.25, "0.25"),
            (1500.0, "1500"),
            (20_000.0, "20k"),
            (1_500_000.0, "1.5M"),
            (3e9, "3G"),
        ];
        for (value, text) in cases {
            assert_eq!(short_number(value), text);
        }
    }

    fn panel(x_axis: XAxis, points: Vec<(f64, f64)>) -> LinePanel {
        LinePanel {
            title: "a panel".to_owned(),
            x_name: "requests".to_owned(),
            y_name: "hit ratio".to_owned(),
            x_axis,
            y_max: Some(1.0),
            lines: vec![Line {
                name: "all requests so far".to_owned(),
                points,
                marked: true,
            }],
        }
    }

    #[test]
    fn every_label_is_text_in_the_svg() {
        let panels = [panel(XAxis::Linear, vec![(0.0, 0.1), (100.0, 0.4)])];
        let svg = line_panels("A run", 1, &panels).unwrap_or_else(|e| panic!("{e}"));
        for text in [
            "A run",
            "a panel",
            "requests",
            "hit ratio",
            "all requests so far",
        ] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn one_point_or_none_is_drawn_too() {
        for names in [vec![], vec!["1000p".to_owned()]] {
            for points in [vec![], vec![(0.0, 0.0)], vec![(7.0, 0.5)]] {
                let named = panel(XAxis::Named(names.clone()), points.clone());
                let linear = panel(XAxis::Linear, points);
                assert!(line_panels("few", 1, &[named, linear]).is_ok());
            }
        }
    }
}
