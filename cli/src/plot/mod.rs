// SPDX-License-Identifier: Apache-2.0
//! Pictures as SVG: panels of lines, of stacked bars and of groups of bars, one look for all of them.
//!
//! Drawn into strings; whoever asked writes the file.

mod bars;
mod groups;
mod lines;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use self::bars::{Bar, BarPanel, stacked_bars};
pub(crate) use self::groups::{BarGroup, GroupPanel, Scale, grouped_bars};
pub(crate) use self::lines::{Line, LinePanel, XAxis, line_panels};

/// The drawing library refused; it draws into a string, so no file is to blame.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {0}")]
pub(crate) struct PlotError(String);

/// The drawing area of a whole picture.
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

const TITLE_PX: u32 = 22;
const PANEL_TITLE_PX: u32 = 17;
const LABEL_PX: u32 = 14;
const HEAD_PX: u32 = 76;
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Colours of series, told apart by people who see fewer of them (Okabe and Ito).
const SERIES: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(110, 80, 40),
    RGBColor(90, 90, 90),
];

/// An entry of a legend: the colour and what it stands for.
struct Key {
    color: RGBColor,
    name: String,
}

fn draw_error<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> PlotError {
    PlotError(error.to_string())
}

fn font(px: u32) -> TextStyle<'static> {
    ("sans-serif", px).into_font().color(&INK)
}

/// Draws the title and the legend, and returns the areas of `panels` panels below them.
fn frame<'a>(
    root: &Area<'a>,
    title: &str,
    keys: &[Key],
    panels: (usize, usize),
) -> Result<Vec<Area<'a>>, PlotError> {
    root.fill(&WHITE).map_err(draw_error)?;
    let (head, body) = root.split_vertically(HEAD_PX);
    let (width, _) = head.dim_in_pixel();
    let middle = i32::try_from(width).unwrap_or(i32::MAX) / 2;
    let style = font(TITLE_PX).pos(Pos::new(HPos::Center, VPos::Top));
    head.draw(&Text::new(title.to_owned(), (middle, 12), style))
        .map_err(draw_error)?;
    legend(&head, keys, middle)?;
    Ok(body.split_evenly(panels))
}

/// One row of swatches with names, centred under the title.
fn legend(head: &Area<'_>, keys: &[Key], middle: i32) -> Result<(), PlotError> {
    const SWATCH: i32 = 14;
    const GAP: i32 = 6;
    const BETWEEN: i32 = 22;
    // Viewers choose the font, so a name's width is an estimate on the wide side.
    let widths: Vec<i32> = keys
        .iter()
        .map(|key| {
            let letters = i32::try_from(key.name.len()).unwrap_or(i32::MAX);
            letters.saturating_mul(7).saturating_add(SWATCH + GAP)
        })
        .collect();
    let between = i32::try_from(keys.len().saturating_sub(1)).unwrap_or(i32::MAX);
    let total = widths.iter().fold(0_i32, |sum, w| sum.saturating_add(*w))
        + between.saturating_mul(BETWEEN);
    let mut x = middle - total / 2;
    let y = 48;
    for (key, width) in keys.iter().zip(widths) {
        let swatch = Rectangle::new([(x, y), (x + SWATCH, y + SWATCH)], key.color.filled());
        head.draw(&swatch).map_err(draw_error)?;
        let style = font(LABEL_PX).pos(Pos::new(HPos::Left, VPos::Center));
        let at = (x + SWATCH + GAP, y + SWATCH / 2);
        head.draw(&Text::new(key.name.clone(), at, style))
            .map_err(draw_error)?;
        x += width + BETWEEN;
    }
    Ok(())
}
