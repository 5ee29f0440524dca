// SPDX-License-Identifier: Apache-2.0
//! The command `striata bench pinning`.

use comfy_table::{CellAlignment, Table, presets};
use indicatif::BinaryBytes;
use striata::gpu::cuda::CudaDevice;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata_bench::pinning::{GrowthFigures, Peer, PinningReport, run as measure};
use striata_bench::transfer::{Stats, Verdict};
use striata_replay::{ConfigError, DeviceChoice};

use super::EXIT_MISSED;
use super::table::number;
use crate::args::PinningBenchArgs;
use crate::error::{CliError, complain};
use crate::output::{print, print_json};
use crate::progress::Progress;

/// Measures, prints, and returns the exit code.
///
/// # Errors
/// Refused options, a device that cannot be used or fails, output that cannot be written.
pub(super) fn run(args: &PinningBenchArgs) -> Result<u8, CliError> {
    let cuda = match args.device {
        DeviceChoice::Sim => None,
        DeviceChoice::Cuda => Some(CudaDevice::new(0).map_err(ConfigError::from)?),
        DeviceChoice::Auto => match CudaDevice::new(0) {
            Ok(device) => Some(device),
            Err(error) => {
                complain(&format!(
                    "note: --device auto is the simulated device: {error}"
                ));
                None
            }
        },
    };
    match cuda {
        Some(device) => on(&device, args),
        None => on(&SimDevice::new(SimConfig::new(0)), args),
    }
}

fn on<D: Peer>(device: &D, args: &PinningBenchArgs) -> Result<u8, CliError> {
    let options = args.options(device.describe().simulated_time);
    let mut bar = Progress::new(args.progress);
    let pools = u64::try_from(options.reps).unwrap_or(u64::MAX);
    let peers = device.peer_name().map_or(0, |_| pools);
    let growths = u64::try_from(options.growth_chunks.len()).unwrap_or(u64::MAX);
    let all = pools.saturating_add(peers).saturating_add(growths);
    bar.start("measurements", Some(all.saturating_add(1)));
    let mut begun = 0;
    let report = measure(device, &options, &mut |part| {
        bar.now(part);
        bar.at(begun);
        begun += 1;
    })?;
    bar.finish(&[]);
    if args.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    if report.verdict == Verdict::Missed {
        let ratio = report.ratio.unwrap_or_default();
        complain(&format!(
            "the bar was missed: {ratio:.2} times the peer's rate, {} is needed",
            report.bar
        ));
        return Ok(EXIT_MISSED);
    }
    Ok(0)
}

fn render(report: &PinningReport) -> String {
    let mut parts = vec![heading(report), pools(report).to_string(), ratio(report)];
    if !report.growth.is_empty() {
        parts.push(growth(&report.growth).to_string());
    }
    parts.push(format!("{:.1} s", report.seconds));
    parts.join("\n")
}

fn heading(report: &PinningReport) -> String {
    let loads = if report.simulated {
        "times of loads are SIMULATED; those of pools are this machine's, which page-locks nothing\n"
    } else {
        ""
    };
    let ours = &report.ours;
    let huge = ours.huge_bytes.map_or_else(
        || "an unknown part".to_owned(),
        |bytes| BinaryBytes(bytes).to_string(),
    );
    format!(
        "{loads}device {} ({}): pools of {} in registrations of {}, {} memory pages, {huge} of it \
         huge, {} threads",
        report.device,
        report.device_name,
        BinaryBytes(report.bytes),
        BinaryBytes(ours.chunk_bytes),
        ours.backing,
        ours.threads,
    )
}

fn pools(report: &PinningReport) -> Table {
    let mut table = table(&[
        "what",
        "GiB/s",
        "p10",
        "p90",
        "seconds",
        "present",
        "registered",
        "freed",
        "n",
    ]);
    let ours = &report.ours;
    table.add_row([
        "host pool".to_owned(),
        number(ours.gib_per_s.median),
        number(ours.gib_per_s.p10),
        number(ours.gib_per_s.p90),
        number(ours.seconds.median),
        number(ours.prefault_seconds.median),
        number(ours.register_seconds.median),
        number(ours.free_seconds.median),
        ours.gib_per_s.count.to_string(),
    ]);
    match &report.peer {
        Some(peer) => table.add_row([
            peer.name.clone(),
            number(peer.gib_per_s.median),
            number(peer.gib_per_s.p10),
            number(peer.gib_per_s.p90),
            number(peer.seconds.median),
            String::new(),
            String::new(),
            number(peer.free_seconds.median),
            peer.gib_per_s.count.to_string(),
        ]),
        None => table.add_row([
            "no peer".to_owned(),
            report.peer_absent.clone().unwrap_or_default(),
        ]),
    };
    table
}

fn ratio(report: &PinningReport) -> String {
    let longest = format!(
        "longest registration {} ms",
        number(report.ours.longest_register_ms.median)
    );
    let Some(ratio) = report.ratio else {
        return longest;
    };
    let word = match report.verdict {
        Verdict::Reached => "ok",
        Verdict::Missed => "MISSED",
        Verdict::NotJudged | Verdict::NoBar => "not judged at this size",
    };
    format!(
        "ratio of medians {ratio:.2}, bar >= {}: {word}; {longest}",
        report.bar
    )
}

fn growth(growth: &[GrowthFigures]) -> Table {
    let mut table = table(&[
        "growth by",
        "steps",
        "pages/s",
        "GiB/s",
        "longest stall",
        "longest step",
        "load before",
        "load beside",
        "longest load",
    ]);
    for row in growth {
        let ms = |value: f64| format!("{} ms", number(value));
        let median = |stats: &Stats| ms(stats.median);
        table.add_row([
            BinaryBytes(row.chunk_bytes).to_string(),
            row.steps.to_string(),
            number(row.pages_per_s),
            number(row.gib_per_s),
            ms(row.longest_stall_ms),
            ms(row.longest_step_ms),
            median(&row.load_ms_quiet),
            row.load_ms_beside.as_ref().map_or_else(String::new, median),
            row.longest_load_ms.map_or_else(String::new, ms),
        ]);
    }
    table
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
