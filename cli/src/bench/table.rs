// SPDX-License-Identifier: Apache-2.0
//! The tables of `striata bench transfer`.

use comfy_table::{CellAlignment, Table, presets};
use striata_bench::transfer::{BarOf, Figure, Side, TransferReport, Unit, Verdict};

/// Everything, one below the other.
pub(super) fn render(report: &TransferReport) -> String {
    let mut parts = vec![heading(report), figures(report).to_string()];
    if !report.skipped.is_empty() || !report.failed.is_empty() {
        parts.push(skipped(report));
    }
    parts.push(ending(report));
    parts.join("\n")
}

fn heading(report: &TransferReport) -> String {
    let c = &report.ceilings;
    let times = if report.simulated {
        "SIMULATED times: they say nothing of a machine\n"
    } else {
        ""
    };
    format!(
        "{times}device {} ({}): {} layers, pages of {} rows of {} B, {} B a page; registrations of {} \
         B; paths {}\n\
         one copy call of {} B, best of five: {:.1} GB/s to the device, {:.1} from it, {:.1} both \
         ways at once{}",
        report.device,
        report.device_name,
        report.layers,
        report.page_rows,
        report.row_bytes,
        report.page_bytes,
        report.registration_bytes,
        if report.built_in_paths {
            "of the built-in table"
        } else {
            "as calibrated"
        },
        c.copy_bytes,
        c.h2d_gb_per_s,
        c.d2h_gb_per_s,
        c.both_gb_per_s,
        if report.void { " - VOID" } else { "" },
    )
}

fn figures(report: &TransferReport) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "part", "pages", "case", "median", "p10", "p90", "p99", "ratio", "bar", "",
    ]);
    for (at, column) in table.column_iter_mut().enumerate() {
        if at != 0 && at != 2 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for figure in &report.figures {
        let stats = &figure.stats;
        let pages = figure.pages.map(|pages| pages.to_string());
        table.add_row([
            figure.group.clone(),
            pages.unwrap_or_default(),
            figure.case.clone(),
            format!("{} {}", number(stats.median), unit(figure.unit)),
            number(stats.p10),
            number(stats.p90),
            number(stats.p99),
            format!("{:.3}", figure.ratio),
            bar(figure),
            word(figure.verdict).to_owned(),
        ]);
    }
    table
}

/// Three digits or all before the point.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::GbPerS => "GB/s",
        Unit::Us => "us",
        Unit::Times => "x",
    }
}

fn bar(figure: &Figure) -> String {
    let Some(bar) = figure.bar else {
        return String::new();
    };
    let side = match bar.side {
        Side::AtLeast => ">=",
        Side::AtMost => "<=",
    };
    match bar.of {
        BarOf::Ratio => format!("{side} {}", bar.value),
        BarOf::Median => format!("{side} {} {}", bar.value, unit(figure.unit)),
        BarOf::P99 => format!("p99 {side} {} {}", bar.value, unit(figure.unit)),
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reached => "ok",
        Verdict::Missed => "MISSED",
        Verdict::NotJudged => "-",
        Verdict::NoBar => "",
    }
}

fn skipped(report: &TransferReport) -> String {
    let skipped = report.skipped.iter();
    let skipped = skipped.map(|part| format!("skipped {}: {}", part.name, part.why));
    let failed = report.failed.iter();
    let failed = failed.map(|part| format!("FAILED {}: {}", part.name, part.why));
    skipped.chain(failed).collect::<Vec<_>>().join("\n")
}

fn ending(report: &TransferReport) -> String {
    format!(
        "bars: {} reached, {} missed, {} not for this run; bytes: {} rows compared after {} \
         series, {} wrong; {:.1} s",
        report.bars_reached,
        report.bars_missed,
        report.bars_not_judged,
        report.checks.rows,
        report.checks.series,
        report.checks.wrong_rows,
        report.seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_can_be_told() {
        let numbers = [54.743, 1.0153, 0.43, 1213.4].map(number);
        assert_eq!(numbers, ["54.7", "1.015", "0.4300", "1213"]);
    }
}
