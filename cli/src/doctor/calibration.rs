// SPDX-License-Identifier: Apache-2.0
//! How fast each copy path is on a device, and which of them are chosen.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use striata::gpu::Direction;
use striata::gpu::calibrate::{
    Calibration, CalibrationError, CalibrationOptions, CalibrationSource, Measured, calibrate,
    calibrate_cuda, rule_name,
};
use striata::gpu::cuda::CudaDevice;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::gpu::transfer::PlaneKind;

/// One job on one path; keys of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    direction: &'static str,
    planes: PlaneKind,
    chunk_bytes: u64,
    pages: u32,
    /// Path and layer groups.
    path: String,
    /// Median.
    gb_per_s: f64,
    /// How many measurements.
    count: usize,
    /// Whether jobs of this kind take the path.
    chosen: bool,
}

/// The calibration of a device; keys of `--json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Calibrated {
    device: String,
    simulated: bool,
    /// `fresh` or `cached`; null if there is none.
    source: Option<&'static str>,
    /// Where it is kept.
    file: Option<String>,
    /// How long it took, if it was measured now.
    took_ms: Option<f64>,
    /// Why there is none.
    problem: Option<String>,
    rows: Vec<Row>,
}

impl Calibrated {
    /// That of a GPU, kept or measured now.
    pub(super) fn of_gpu(name: &str, device: &CudaDevice, fresh: bool) -> Self {
        Self::of(name, calibrate_cuda(device, fresh))
    }

    /// That of the simulated device: what the table looks like, and that every path runs.
    pub(super) fn of_sim() -> Self {
        let options = CalibrationOptions {
            budget: Duration::from_millis(50),
            layers: 4,
            reps: 1,
            ..CalibrationOptions::default()
        };
        let device = SimDevice::new(SimConfig::new(0));
        Self::of("the simulated device", calibrate(&device, &options))
    }

    fn of(device: &str, found: Result<Calibration, CalibrationError>) -> Self {
        let none = Self {
            device: device.to_owned(),
            simulated: false,
            source: None,
            file: None,
            took_ms: None,
            problem: None,
            rows: Vec::new(),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                return Self {
                    problem: Some(error.to_string()),
                    ..none
                };
            }
        };
        let (source, file, took) = match &found.source {
            CalibrationSource::Fresh { took, kept } => ("fresh", kept.clone(), Some(*took)),
            CalibrationSource::Cached { file } => ("cached", Some(file.clone()), None),
        };
        Self {
            simulated: found.simulated,
            source: Some(source),
            file,
            took_ms: took.map(|took| took.as_secs_f64() * 1e3),
            rows: rows(&found),
            ..none
        }
    }

    /// Where it comes from, and the table.
    pub(super) fn render(&self) -> String {
        if let Some(problem) = &self.problem {
            return format!(
                "Copy paths of {}: not calibrated, the built-in table is used: {problem}.",
                self.device
            );
        }
        let file = self.file.as_deref();
        let origin = match (self.took_ms, file) {
            (Some(took), Some(file)) => format!("measured now in {took:.0} ms, kept in {file}"),
            (Some(took), None) => format!("measured now in {took:.0} ms, kept nowhere"),
            (None, file) => format!("from {}", file.unwrap_or("the cache")),
        };
        let simulated = if self.simulated {
            "; SIMULATED times: they say nothing of a machine"
        } else {
            ""
        };
        format!(
            "Copy paths of {} in GB/s by pages of a job, {origin}{simulated}; * is chosen:\n{}",
            self.device,
            table(&self.rows)
        )
    }
}

fn rows(found: &Calibration) -> Vec<Row> {
    let of = |direction: Direction, name| {
        let row = move |row: &Measured| Row {
            direction: name,
            planes: row.planes,
            chunk_bytes: row.chunk_bytes,
            pages: row.pages,
            path: rule_name(row.rule),
            gb_per_s: row.gb_per_s,
            count: row.count,
            chosen: {
                let rules = found.paths.of(direction);
                let pages = usize::try_from(row.pages).unwrap_or(usize::MAX);
                rules.rule(row.planes, row.chunk_bytes, pages) == row.rule
            },
        };
        found.measured.of(direction).iter().map(row)
    };
    let loads = of(Direction::HostToDevice, "load");
    loads.chain(of(Direction::DeviceToHost, "store")).collect()
}

/// A line a path, a column a number of pages.
fn table(rows: &[Row]) -> Table {
    let mut pages: Vec<u32> = rows.iter().map(|row| row.pages).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let fixed = ["", "planes", "chunk", "path"].map(str::to_owned);
    table.set_header(fixed.into_iter().chain(pages.iter().map(u32::to_string)));
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut done: Vec<(&str, PlaneKind, u64, &str)> = Vec::new();
    for row in rows {
        let line = (
            row.direction,
            row.planes,
            row.chunk_bytes,
            row.path.as_str(),
        );
        if done.contains(&line) {
            continue;
        }
        done.push(line);
        let cell = |pages: &u32| {
            let found = rows.iter().find(|row| {
                let of = (
                    row.direction,
                    row.planes,
                    row.chunk_bytes,
                    row.path.as_str(),
                );
                of == line && row.pages == *pages
            });
            found.map_or_else(String::new, |row| {
                let mark = if row.chosen { "*" } else { "" };
                format!("{:.1}{mark}", row.gb_per_s)
            })
        };
        let planes = match row.planes {
            PlaneKind::Uniform => "uniform",
            PlaneKind::Separate => "separate",
        };
        let fixed = [
            row.direction.to_owned(),
            planes.to_owned(),
            row.chunk_bytes.to_string(),
            row.path.clone(),
        ];
        table.add_row(fixed.into_iter().chain(pages.iter().map(cell)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_device_has_a_table_with_a_choice_for_each_job() {
        let found = Calibrated::of_sim();
        assert!(found.simulated && found.file.is_none() && found.source == Some("fresh"));
        let job = |row: &Row| (row.direction, row.planes, row.chunk_bytes, row.pages);
        for row in &found.rows {
            let of = found.rows.iter().filter(|other| job(other) == job(row));
            assert_eq!(of.filter(|row| row.chosen).count(), 1, "{row:?}");
        }
        let text = found.render();
        for part in [
            "SIMULATED",
            "runs by 2",
            "separate",
            "73728",
            "kept nowhere",
            "*",
        ] {
            assert!(text.contains(part), "{part:?} is missing from {text}");
        }
    }

    #[test]
    fn a_device_that_cannot_be_calibrated_says_why() {
        let error = striata::gpu::GpuError::EventRecordedTwice;
        let found = Calibrated::of("GPU 0", Err(error.into()));
        assert!(found.render().contains("built-in table is used: record"));
        assert!(found.rows.is_empty() && found.source.is_none());
    }
}
