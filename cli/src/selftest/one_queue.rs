// SPDX-License-Identifier: Apache-2.0
//! The gates once more, in a process whose streams share one hardware queue: there a wait for work
//! that is not submitted yet never ends.

use std::process::{Command, Stdio};

use super::report::{CheckReport, SelftestReport};

/// Read by the driver when it starts, so it takes another process.
const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// What the names of these checks end with.
const SUFFIX: &str = " (one queue)";

/// Whether somebody has chosen the number of queues already.
pub(super) fn is_set() -> bool {
    std::env::var_os(QUEUES).is_some()
}

/// Runs the checks of gates in that process.
pub(super) fn gates() -> Vec<CheckReport> {
    match run() {
        Ok(report) => report
            .checks
            .into_iter()
            .map(|mut check| {
                check.name += SUFFIX;
                check
            })
            .collect(),
        Err(why) => vec![CheckReport::failed(format!("gates{SUFFIX}"), why)],
    }
}

fn run() -> Result<SelftestReport, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["selftest", "--device", "cuda", "--only", "gates", "--json"])
        .env(QUEUES, "1")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    let report = serde_json::from_slice(&output.stdout);
    report.map_err(|error| format!("the process ended with {}: {error}", output.status))
}
