// SPDX-License-Identifier: Apache-2.0
//! The command `striata bench decode`.

use comfy_table::{CellAlignment, Table, presets};
use striata::gpu::cuda::CudaDevice;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata_bench::decode::{
    DecodeReport, DecodeSubject, GroupFigure, KernelFigure, MergeFigure, PlanFigure,
};
use striata_replay::{ConfigError, DeviceChoice};

use crate::args::DecodeBenchArgs;
use crate::error::{CliError, complain};
use crate::output::{print, print_json};
use crate::progress::Progress;

/// Measures, prints, and returns the exit code.
///
/// # Errors
/// A device that cannot be used or fails, results that are wrong, output that cannot be written.
pub(super) fn run(args: &DecodeBenchArgs) -> Result<u8, CliError> {
    match args.device {
        DeviceChoice::Sim => on(&SimDevice::new(SimConfig::new(0)), args),
        DeviceChoice::Cuda => on(&CudaDevice::new(0).map_err(ConfigError::from)?, args),
        DeviceChoice::Auto => match CudaDevice::new(0) {
            Ok(device) => on(&device, args),
            Err(error) => {
                complain(&format!(
                    "note: --device auto is the simulated device: {error}"
                ));
                on(&SimDevice::new(SimConfig::new(0)), args)
            }
        },
    }
}

fn on<D: DecodeSubject>(device: &D, args: &DecodeBenchArgs) -> Result<u8, CliError> {
    let options = args.options(device.describe().simulated_time);
    let mut bar = Progress::new(args.progress);
    bar.start("parts", None);
    let mut done = 0;
    let report = striata_bench::decode::run(device, &options, &mut |what| {
        bar.now(what);
        bar.at(done);
        done += 1;
    })?;
    bar.finish(&[]);
    if args.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    Ok(0)
}

fn render(report: &DecodeReport) -> String {
    let mut parts = vec![heading(report)];
    if !report.kernels.is_empty() {
        parts.push(kernels(&report.kernels).to_string());
        parts.push(format!("peers: {}", report.peers_source));
    }
    if !report.merges.is_empty() {
        parts.push(merges(&report.merges).to_string());
    }
    if !report.groups.is_empty() {
        parts.push(groups(report).to_string());
    }
    if !report.plans.is_empty() {
        parts.push(plans(&report.plans).to_string());
    }
    parts.extend(
        report
            .skipped
            .iter()
            .map(|what| format!("left out: {what}")),
    );
    parts.join("\n")
}

fn heading(report: &DecodeReport) -> String {
    let times = if report.simulated {
        "times are those of the CPU references: they say nothing of a device\n"
    } else {
        ""
    };
    let ceilings = report.ceilings.map_or_else(String::new, |c| {
        let matrix = c.matrix_tflops.map_or_else(
            || "no rate of products".to_owned(),
            |rate| format!("{rate:.0} TFLOP/s in a large product"),
        );
        format!(
            "\nceilings of this run: {:.0} GB/s read, {matrix}",
            c.read_gb_per_s
        )
    });
    format!(
        "{times}device {} ({}), kernel {}{ceilings}",
        report.device, report.device_name, report.kernel
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

fn micros(us: f64) -> String {
    format!("{us:.1}")
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn kernels(figures: &[KernelFigure]) -> Table {
    let mut table = table(&[
        "attention, H x s_q x B x L",
        "us",
        "floor us",
        "floor/time",
        "peers, floor/time of their own run",
    ]);
    for figure in figures {
        let peers: Vec<String> = figure
            .peers
            .iter()
            .map(|peer| format!("{} {}", peer.name, percent(Some(peer.share_of_floor))))
            .collect();
        table.add_row([
            figure.shape.to_string(),
            micros(figure.us),
            figure.floor_us.map_or_else(|| "-".to_owned(), micros),
            percent(figure.share_of_floor),
            peers.join(", "),
        ]);
    }
    table
}

fn merges(figures: &[MergeFigure]) -> Table {
    let mut table = table(&["merge", "rows", "us", "floor us"]);
    for figure in figures {
        table.add_row([
            format!("c = {}", figure.dcp),
            figure.rows.to_string(),
            micros(figure.us),
            figure.floor_us.map_or_else(|| "-".to_owned(), micros),
        ]);
    }
    table
}

fn plans(figures: &[PlanFigure]) -> Table {
    let mut table = table(&["plan, CPU time of a thread", "first us", "us", "bar us", ""]);
    for figure in figures {
        let PlanFigure {
            dcp, batch, tokens, ..
        } = figure;
        let verdict = match figure.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        };
        table.add_row([
            format!("c = {dcp}, B = {batch}, {tokens} tokens"),
            micros(figure.first_us),
            micros(figure.cpu_us),
            figure.bar_us.map_or_else(|| "-".to_owned(), micros),
            verdict.to_owned(),
        ]);
    }
    table
}

fn groups(report: &DecodeReport) -> Table {
    let step = format!("step of {} layers us", report.layers);
    let mut table = table(&[
        "group, all ranks on one device",
        "layer us",
        "beyond attention us",
        "layer, a stream a rank us",
        &step,
        "plan on the host us",
    ]);
    for figure in &report.groups {
        let GroupFigure {
            dcp,
            heads,
            batch,
            tokens,
            ..
        } = figure;
        table.add_row([
            format!("c = {dcp}, {heads} heads, B = {batch}, {tokens} tokens"),
            micros(figure.layer_us),
            micros(figure.exchange_us),
            micros(figure.layer_streams_us),
            micros(figure.step_us),
            micros(figure.plan_host_us),
        ]);
    }
    table
}
