// SPDX-License-Identifier: Apache-2.0
//! The command `striata sweep`.

mod picture;

use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanCount;
use serde::Serialize;
use striata_replay::{SweepConfig, SweepRow};

use crate::args::SweepArgs;
use crate::error::CliError;
use crate::output::{CsvFile, TextFile, print, print_json};
use crate::progress::Progress;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct SweepReport<'a> {
    rows: &'a [SweepRow],
}

/// Sweeps, prints, and returns the exit code.
///
/// # Errors
/// Refused flags or traces, output that cannot be written.
pub(crate) fn run(args: &SweepArgs) -> Result<u8, CliError> {
    let sweeps = args.configs()?;
    let mut csv = args
        .output
        .csv
        .as_deref()
        .map(CsvFile::create)
        .transpose()?;
    let picture = args
        .output
        .plot
        .as_deref()
        .map(TextFile::create)
        .transpose()?;
    let mut progress = Progress::new(args.output.progress);
    progress.start("points", points(&sweeps));
    let mut rows = Vec::new();
    let mut failed = None;
    for sweep in &sweeps {
        striata_replay::sweep::sweep(sweep, &mut |row| {
            if let (Some(file), None) = (&mut csv, &failed) {
                failed = file.row(row).err();
            }
            rows.push(row.clone());
            progress.at(u64::try_from(rows.len()).unwrap_or(u64::MAX));
        })?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    progress.finish(&[]);
    if let Some(csv) = csv {
        csv.finish()?;
    }
    if let Some(file) = picture {
        file.write(&picture::draw(&rows)?)?;
    }
    if args.output.json {
        print_json(&SweepReport { rows: &rows })?;
    } else {
        print(&table(&rows).to_string())?;
    }
    Ok(0)
}

/// Points of all grids together.
fn points(sweeps: &[SweepConfig]) -> Option<u64> {
    let of = |sweep: &SweepConfig| {
        let pairs = sweep.dcp.len().checked_mul(sweep.capacities.len())?;
        pairs.checked_mul(sweep.policies.len())
    };
    let all = sweeps
        .iter()
        .try_fold(0_usize, |sum, sweep| sum.checked_add(of(sweep)?))?;
    u64::try_from(all).ok()
}

fn table(rows: &[SweepRow]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "trace",
        "c",
        "L1",
        "L2",
        "policy",
        "L1 pages",
        "L2 pages",
        "hit ratio",
        "on L1",
        "loaded",
        "computed",
        "refused",
        "s",
    ]);
    for row in rows {
        let count = |n: u64| HumanCount(n).to_string();
        let share = |value: f64| format!("{value:.4}");
        table.add_row([
            row.trace.clone(),
            row.dcp.to_string(),
            row.l1.clone(),
            row.l2.clone(),
            row.policy.clone(),
            count(row.l1_pages),
            count(row.l2_pages),
            share(row.hit_ratio),
            share(row.resident_share),
            share(row.loaded_share),
            share(row.computed_share),
            count(row.refused_requests),
            format!("{:.1}", row.wall_seconds),
        ]);
    }
    for column in table.column_iter_mut().skip(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
