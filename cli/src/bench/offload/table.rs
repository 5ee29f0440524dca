// SPDX-License-Identifier: Apache-2.0
//! The tables of `striata bench offload`.

use comfy_table::{CellAlignment, Table, presets};
use striata_bench::offload::{OffloadBar, OffloadReport, SystemReport, Times, TraceReport};
use striata_bench::transfer::{Side, Verdict};

const GIGA: f64 = 1e9;

/// Everything, one below the other.
pub(super) fn render(report: &OffloadReport) -> String {
    let mut parts = vec![heading(report)];
    for trace in &report.traces {
        parts.push(heading_of(trace));
        parts.push(systems(trace).to_string());
        parts.push(bars(trace));
    }
    parts.push(format!("{:.1} s", report.seconds));
    parts.join("\n")
}

fn heading(report: &OffloadReport) -> String {
    let c = &report.compute;
    let times = match (report.simulated, report.scaled) {
        (true, true) => {
            "SIMULATED times: they say nothing of a machine. Rows are scaled down, and the link with \
             them; bytes and rates are those of the model's rows\n"
        }
        (true, false) => "SIMULATED times: they say nothing of a machine\n",
        (false, true) => "Rows are SCALED down; bytes and rates are those of the model's rows\n",
        (false, false) => "",
    };
    let number = |value: Option<f64>| value.map_or("none".to_owned(), |value| value.to_string());
    format!(
        "{times}device {} ({}); one copy of {:.2} GB, best of five: {:.1} GB/s to the device{}\n\
         {}\n\
         computing is a MODEL: {} on {} ranks, {} TFLOP/s a rank ({} in attention), {} us a layer \
         beside, {} decode steps of {} us between two prefills; the copy kernel has {} blocks",
        report.device,
        report.device_name,
        report.link.copy_bytes / GIGA,
        report.link.h2d_gb_per_s,
        if report.void { " - VOID" } else { "" },
        OffloadReport::loop_in_words(),
        c.model,
        c.ranks,
        number(c.prefill_tflops),
        number(c.attention_tflops),
        c.layer_us,
        c.decode_steps,
        c.decode_step_us,
        c.kernel_blocks,
    )
}

fn heading_of(trace: &TraceReport) -> String {
    let g = &trace.geometry;
    format!(
        "\n{}, one of {} replicas: {} requests after {} that filled the tiers and {} left out, {} \
         more too large for L1\n\
         tp {}, c = {}, {} of the ranks here; pages of {} tokens, {} rows of {} B in {} layers; L1 {} \
         pages, L2 {} pages; {:.1} % of the hit tokens from L2",
        trace.trace,
        trace.replicas,
        trace.requests,
        trace.filled,
        trace.skipped,
        trace.left_out,
        g.tp,
        g.dcp,
        g.ranks,
        g.page_tokens,
        g.page_rows,
        g.row_bytes,
        g.layers,
        g.l1_pages,
        g.l2_pages,
        trace.l2_share_of_hits * 100.0,
    )
}

fn systems(trace: &TraceReport) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "system",
        "TTFT p50 ms",
        "p90",
        "p99",
        "stall %",
        "least %",
        "GB/s",
        "of link",
        "loads",
        "loaded GB",
        "stored GB",
        "hit L1",
        "hit L2",
        "rows verified",
        "wrong",
        "times",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for system in &trace.systems {
        table.add_row(row(system));
    }
    table
}

fn row(system: &SystemReport) -> [String; 16] {
    let millis = |value: f64| format!("{value:.1}");
    let percent = |value: f64| format!("{:.3}", value * 100.0);
    let loads = system.loads > 0;
    let if_loads = |text: String| if loads { text } else { "-".to_owned() };
    let rate = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    [
        system.title.clone(),
        millis(system.ttft_ms.p50),
        millis(system.ttft_ms.p90),
        millis(system.ttft_ms.p99),
        if_loads(percent(system.stall_share)),
        if_loads(percent(system.least_stall_share)),
        rate(system.load_gb_per_s, 1),
        rate(system.load_share_of_link, 3),
        system.loads.to_string(),
        format!("{:.2}", system.loaded_bytes / GIGA),
        format!("{:.2}", system.stored_bytes / GIGA),
        format!("{:.3}", system.hit_ratio_l1),
        format!("{:.3}", system.hit_ratio_l2),
        system.verified_rows.to_string(),
        system.wrong_rows.to_string(),
        match system.times {
            Times::Measured => "measured",
            Times::Simulated => "simulated",
            Times::Modelled => "model only",
        }
        .to_owned(),
    ]
}

fn bars(trace: &TraceReport) -> String {
    let line = |bar: &OffloadBar| {
        let side = match bar.side {
            Side::AtLeast => ">=",
            Side::AtMost => "<=",
        };
        let word = match bar.verdict {
            Verdict::Reached => "pass",
            Verdict::Missed => "FAIL",
            Verdict::NotJudged | Verdict::NoBar => "not judged",
        };
        format!(
            "{word}: {} {:.4} ({side} {})",
            bar.what, bar.value, bar.limit
        )
    };
    let lines: Vec<String> = trace.bars.iter().map(line).collect();
    lines.join("\n")
}
