// SPDX-License-Identifier: Apache-2.0
//! The tables at the end of a replay.

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{BinaryBytes, HumanCount};
use striata_replay::ReplayReport;
use striata_replay::report::{Percentiles, TierReport};

use super::curve::share;

/// Most ranks that get a line of their own.
const RANK_LINES: usize = 16;

/// Every table, one below the other.
pub(super) fn render(report: &ReplayReport) -> String {
    let mut parts = vec![heading(report), tokens(report).to_string()];
    if !report.metadata_only {
        parts.push(ranks(report).to_string());
    }
    parts.push(times(report).to_string());
    parts.push(engine(report).to_string());
    parts.push(checks(report).to_string());
    parts.join("\n")
}

fn heading(report: &ReplayReport) -> String {
    let c = &report.config;
    let rows = match (report.metadata_only, report.scaled) {
        (true, _) => "no bytes (metadata only)".to_owned(),
        (false, true) => format!(
            "rows SCALED to {} B, the model has {} B",
            c.row_bytes, c.model_row_bytes
        ),
        (false, false) => format!("rows of {} B", c.row_bytes),
    };
    let device = if c.device_name.is_empty() {
        c.device.clone()
    } else {
        format!("{} ({})", c.device, c.device_name)
    };
    format!(
        "{} on {}: tp {}, dp {}, c = {}, P = {}, W = {} tokens, {} layers, {rows}\n\
         L1 {}, L2 {}, {}, {}, device {}",
        c.trace,
        c.model,
        c.tp,
        c.dp,
        c.dcp,
        c.page_size,
        c.widened_page_tokens,
        c.layers,
        c.l1,
        c.l2,
        c.policy,
        c.write_policy,
        device,
    )
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn tokens(report: &ReplayReport) -> Table {
    let mut table = table(&["prompt tokens", "tokens", "share"]);
    let whole = report.input_tokens;
    let mut row = |name: &str, tokens: u64| {
        let percent = format!("{:.2} %", share(tokens, whole) * 100.0);
        table.add_row([name.to_owned(), count(tokens), percent]);
    };
    row("hit on L1", report.hit_tokens_l1);
    row("loaded back from L2", report.hit_tokens_l2);
    row("computed", report.computed_tokens);
    row("all", whole);
    table.add_row([
        "hit ratio".to_owned(),
        String::new(),
        format!("{:.4}", report.hit_ratio),
    ]);
    table
}

fn ranks(report: &ReplayReport) -> Table {
    let mut table = table(&["bytes of a rank", "L2 to L1", "L1 to L2"]);
    let bytes = |n: u64| BinaryBytes(n).to_string();
    if report.ranks.len() <= RANK_LINES {
        for rank in &report.ranks {
            let name = format!("replica {} rank {}", rank.replica, rank.rank);
            table.add_row([name, bytes(rank.bytes_to_device), bytes(rank.bytes_to_host)]);
        }
        return table;
    }
    let device = || report.ranks.iter().map(|rank| rank.bytes_to_device);
    let host = || report.ranks.iter().map(|rank| rank.bytes_to_host);
    let name = format!("least of {} ranks", report.ranks.len());
    let least = (device().min().unwrap_or(0), host().min().unwrap_or(0));
    let most = (device().max().unwrap_or(0), host().max().unwrap_or(0));
    table.add_row([name, bytes(least.0), bytes(least.1)]);
    table.add_row(["most".to_owned(), bytes(most.0), bytes(most.1)]);
    table
}

fn times(report: &ReplayReport) -> Table {
    let kind = if report.simulated {
        "simulated time"
    } else {
        "time"
    };
    let mut table = table(&[kind, "count", "p50", "p90", "p99", "max"]);
    let mut row = |name: &str, p: &Percentiles| {
        let number = |value: f64| format!("{value:.1}");
        table.add_row([
            name.to_owned(),
            count(p.count),
            number(p.p50),
            number(p.p90),
            number(p.p99),
            number(p.max),
        ]);
    };
    row("load-back, first layer, us", &report.first_layer_us);
    row("load-back, all layers, us", &report.all_layers_us);
    row("stall of a request, us", &report.stall_us);
    row("time to first token, ms", &report.ttft_ms);
    table
}

fn engine(report: &ReplayReport) -> Table {
    let mut table = table(&["engine", ""]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    let (l1, l2) = (&report.l1, &report.l2);
    let pages = |n: u64| format!("{} pages", count(n));
    let used = |tier: &TierReport| {
        let of = pages(tier.capacity_pages);
        format!("{} of {of}", count(tier.peak_pages))
    };
    row("requests", count(report.requests));
    if report.refused_requests > 0 {
        row("requests larger than L1", count(report.refused_requests));
    }
    if report.truncated_requests > 0 {
        let requests = count(report.truncated_requests);
        row("requests without their outputs", requests);
    }
    let loaded = pages(report.loaded_pages);
    row(
        "load-backs",
        format!("{}, {loaded}", count(report.load_backs)),
    );
    row("stored", pages(report.stored_pages));
    row("evicted from L1", pages(l1.evicted_pages));
    row("evicted from L2", pages(l2.evicted_pages));
    row("L1 in use at most", used(l1));
    row("L2 in use at most", used(l2));
    if !report.metadata_only {
        let label = if report.simulated { " (simulated)" } else { "" };
        let rate = |gb_per_s: f64| format!("{gb_per_s:.3} GB/s{label}");
        row("load of a rank", rate(report.load_gb_per_s));
        row("store of a rank", rate(report.store_gb_per_s));
        row("L1 on a rank", BinaryBytes(l1.bytes_per_rank).to_string());
        row("L2 on a rank", BinaryBytes(l2.bytes_per_rank).to_string());
    }
    table
}

fn checks(report: &ReplayReport) -> Table {
    let mut table = table(&["checks", ""]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("verified", verification(report));
    if let Some(fault) = &report.fault {
        let exact = if fault.exact && fault.corrupted_rows > 0 {
            "exactly"
        } else {
            "NOT exactly"
        };
        let told = format!(
            "{} rows changed, {} reported: {exact} those",
            count(fault.corrupted_rows),
            count(fault.reported_rows)
        );
        row(&format!("fault {}", fault.fault), told);
    }
    if let Some(faults) = &report.faults {
        let told = format!(
            "{} loads and {} stores failed, {} requests served again",
            count(faults.failed_loads),
            count(faults.failed_stores),
            count(faults.recomputed_requests)
        );
        row(&format!("faults {}:{}", faults.seed, faults.rate), told);
    }
    if let Some(attend) = &report.attend {
        let told = format!(
            "{} outputs of {} requests, {} off; the largest error is {:.1e} of {:.0e} allowed",
            count(attend.outputs),
            count(attend.requests),
            count(attend.off),
            attend.worst_error,
            attend.tolerance
        );
        let name = format!("attention, {} heads, {}", attend.heads, attend.kernel);
        row(&name, told);
    }
    if let Some(paranoid) = &report.paranoid {
        let told = format!(
            "checked {} times, {} broken; {} pages lost",
            count(paranoid.invariant_checks),
            count(paranoid.broken_invariants),
            count(paranoid.lost_pages)
        );
        row("invariants", told);
    }
    row("errors", count(report.errors));
    row("collective calls", count(report.collective_calls));
    row("wall time", format!("{:.1} s", report.wall_seconds));
    if let Some(peak) = report.peak_memory_bytes {
        row("peak memory", BinaryBytes(peak).to_string());
    }
    table
}

fn verification(report: &ReplayReport) -> String {
    format!(
        "{} rows ({}), {} mismatches",
        count(report.verified_rows),
        report.config.verify,
        count(report.mismatches)
    )
}

fn count(n: u64) -> String {
    HumanCount(n).to_string()
}
