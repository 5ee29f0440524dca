// SPDX-License-Identifier: Apache-2.0
//! Help, version and `doctor`.

mod common;

use common::{stderr, stdout, striata};

#[test]
fn help_goes_to_standard_output_and_names_every_flag() {
    let output = striata(&["replay", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let text = stdout(&output);
    for flag in [
        "--model",
        "--model-file",
        "--tp",
        "--dp",
        "--dcp-size",
        "--decode-context-parallel-size",
        "--page-size",
        "--interleave",
        "--l1",
        "--l2",
        "--hicache-ratio",
        "--hicache-size",
        "--hicache-write-policy",
        "--hicache-io-backend",
        "--hicache-mem-layout",
        "--radix-eviction-policy",
        "--dcp-comm-backend",
        "--dcp-replicate-q-proj",
        "--no-dcp-replicate-q-proj",
        "--enable-hierarchical-cache",
        "--enable-dp-attention",
        "--hicache-storage-backend",
        "--policy",
        "--write-policy",
        "--device",
        "--scale-rows",
        "--full-rows",
        "--layers",
        "--verify",
        "--outputs",
        "--limit",
        "--skip",
        "--time-scale",
        "--layer-us",
        "--prefill-tflops",
        "--json",
        "--csv",
        "--plot",
        "--metadata-only",
        "--fault",
        "--host-layout",
        "--quiet",
        "--no-progress",
    ] {
        assert!(text.contains(flag), "{flag} is missing");
    }
    for line in text.lines() {
        assert!(line.len() <= 100, "too long: {line}");
    }
}

#[test]
fn the_commands_are_listed() {
    let text = stdout(&striata(&["--help"]));
    for command in ["replay", "sweep", "selftest", "doctor"] {
        assert!(text.contains(command), "{command} is missing");
    }
    assert!(stdout(&striata(&["sweep", "--help"])).contains("--dcp-sizes"));
    assert!(stdout(&striata(&["--version"])).starts_with("striata "));
}

#[test]
fn no_command_is_a_usage_error() {
    let output = striata(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("replay"), "{}", stderr(&output));
}

#[test]
fn doctor_speaks_in_sentences() {
    let output = striata(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["core", "memory", "huge pages", "NUMA", "--device auto"] {
        assert!(text.contains(part), "{part:?} is missing from {text}");
    }
    // Where there is a GPU its copy paths stand below, as a table.
    let mut said = text
        .lines()
        .take_while(|line| !line.starts_with("Copy paths"));
    assert!(said.all(|line| line.ends_with('.')), "{text}");
}

#[test]
fn doctor_shows_the_copy_paths_of_the_simulated_device_as_simulated() {
    let text = stdout(&striata(&["doctor", "--recalibrate"]));
    for part in ["Copy paths of", "runs by 2", "* is chosen", "separate"] {
        assert!(text.contains(part), "{part:?} is missing from {text}");
    }
    let report = stdout(&striata(&["doctor", "--recalibrate", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let found = &report["calibrations"][0];
    assert_eq!(found["simulated"], report["auto_device"] == "sim");
    assert_eq!(text.contains("SIMULATED"), report["auto_device"] == "sim");
    let rows = found["rows"].as_array().expect("rows");
    assert!(rows.len() > 100);
    assert!(rows.iter().all(|row| row["gb_per_s"].as_f64() > Some(0.0)));
    assert!(!stdout(&striata(&["doctor", "--no-calibrate"])).contains("Copy paths"));
}

#[test]
fn doctor_prints_one_json_object() {
    let output = striata(&["doctor", "--json"]);
    let report: serde_json::Value =
        serde_json::from_str(&stdout(&output)).expect("one JSON value and nothing else");
    for key in [
        "version",
        "platform",
        "cores",
        "memory_total_bytes",
        "memory_available_bytes",
        "huge_pages_free",
        "transparent_huge_pages",
        "numa_nodes",
        "gpu_driver_library",
        "gpus",
        "minimum_driver",
        "cuda_backend",
        "libraries",
        "cuda_devices",
        "auto_device",
    ] {
        assert!(report.get(key).is_some(), "{key} is missing from {report}");
    }
}
