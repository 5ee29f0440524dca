// SPDX-License-Identifier: Apache-2.0
//! Libraries of CUDA that are absent or broken, one after the other: `doctor`, `replay` and
//! `selftest` say so and do what they can. Broken ones are made by the C compiler that links Rust.
#![cfg(target_os = "linux")]

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{assert_refused, scratch, stderr, stdout};
use serde_json::Value;

/// One request of two pages.
const TRACE: &str =
    r#"{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}"#;

/// Entries of a driver that do more than return a status.
const ONE_GPU: &str = r#"
#include <string.h>
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGetName(char *name, int len, int d) { strncpy(name, "A GPU of paper", len); return 0; }
int cuDeviceTotalMem_v2(unsigned long *b, int d) { *b = 1ul << 30; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : 0; return 0; }
int cuMemGetInfo_v2(unsigned long *f, unsigned long *t) { *f = *t = 1ul << 30; return 0; }
"#;
/// A driver that finds no GPU.
const NO_GPU: &str = r#"
int cuGetErrorName(int s, const char **t) { *t = "CUDA_ERROR_NO_DEVICE"; return 0; }
int cuGetErrorString(int s, const char **t) { *t = "no CUDA-capable device"; return 0; }
"#;

/// The entries that the backend looks up, from its own table.
fn entries(source: &str) -> impl Iterator<Item = &str> {
    let lines = source.lines().map(str::trim);
    lines.filter_map(|line| {
        let (name, _) = line.strip_prefix("fn ")?.split_once('(')?;
        (name.starts_with("cu") || name.starts_with("nvrtc")).then_some(name)
    })
}

/// A driver whose entries return `status`, but for those of `text`.
fn driver(text: &str, status: u32) -> String {
    let mut source = text.to_owned();
    for name in entries(include_str!("../../gpu/src/cuda/driver.rs")) {
        if !text.contains(&format!("int {name}(")) {
            writeln!(source, "int {name}() {{ return {status}; }}").expect("a string");
        }
    }
    source
}

/// A folder of this test run with libraries of these names and sources in it.
fn folder(name: &str, libraries: &[(&str, &str)]) -> PathBuf {
    let folder = scratch(name);
    std::fs::create_dir_all(&folder).expect("the scratch folder can be written");
    for (library, source) in libraries {
        let file = folder.join(format!("{library}.c"));
        std::fs::write(&file, source).expect("the scratch folder can be written");
        for ending in ["so", "so.1"] {
            let status = Command::new("cc")
                .args(["-shared", "-fPIC", "-w", "-o"])
                .arg(folder.join(format!("{library}.{ending}")))
                .arg(&file)
                .status()
                .expect("the C compiler that links Rust starts");
            assert!(status.success(), "{library} does not compile");
        }
    }
    folder
}

fn striata_in(folder: Option<&Path>, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_striata"));
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("STRIATA_LOG");
    if let Some(folder) = folder {
        command.env("LD_LIBRARY_PATH", folder);
    }
    command.output().expect("the binary starts")
}

/// What every command does where a GPU cannot be used because of `reasons`.
fn assert_said(folder: Option<&Path>, name: &str, reasons: &[&str]) {
    let trace = common::file(&format!("{name}.jsonl"), TRACE.as_bytes());
    let small = [
        "--dcp-size",
        "2",
        "--layers",
        "2",
        "--l1",
        "20p",
        "--l2",
        "20p",
        "--json",
    ];
    let replay = |device| {
        let mut args = vec!["replay", common::path(&trace), "--device", device];
        args.extend(small);
        striata_in(folder, &args)
    };
    let output = replay("auto");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{name}: {said}");
    assert_eq!(said.matches("--device auto").count(), 1, "{name}: {said}");
    for reason in reasons {
        assert!(
            said.contains(reason),
            "{name}: {reason:?} is missing from {said}"
        );
    }
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["config"]["device"], "sim", "{name}");
    assert_eq!(report["simulated"], true, "{name}");

    assert_refused(&replay("cuda"), reasons, name);
    assert_refused(
        &striata_in(folder, &["selftest", "--device", "cuda"]),
        reasons,
        name,
    );

    let output = striata_in(folder, &["doctor"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
    for part in reasons.iter().chain(&["chooses the simulated device"]) {
        assert!(
            text.contains(part),
            "{name}: {part:?} is missing from {text}"
        );
    }
    assert!(text.lines().all(|line| line.ends_with('.')), "{text}");
    let output = striata_in(folder, &["doctor", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["auto_device"], "sim", "{name}");
}

/// Whether a library can be used here as it is.
fn is_here(library: &str) -> bool {
    let report: Value =
        serde_json::from_str(&stdout(&striata_in(None, &["doctor", "--json"]))).expect("JSON");
    let libraries = report["libraries"].as_array().expect("a list");
    let found = libraries.iter().find(|found| found["name"] == library);
    !found.expect("the library is listed")["version"].is_null()
}

#[test]
fn without_a_driver() {
    if !is_here("libcuda") {
        assert_said(
            None,
            "no-driver",
            &["libcuda.so.1", "install the NVIDIA driver"],
        );
    }
}

#[test]
fn with_a_driver_that_lacks_entries() {
    let folder = folder("empty-driver", &[("libcuda", "int nothing;")]);
    assert_said(Some(&folder), "empty-driver", &["has no cuInit", "525.60"]);
}

#[test]
fn with_a_driver_that_finds_no_gpu() {
    let folder = folder("no-gpu", &[("libcuda", &driver(NO_GPU, 100))]);
    assert_said(
        Some(&folder),
        "no-gpu",
        &["cuInit failed", "CUDA_ERROR_NO_DEVICE (100)"],
    );
}

#[test]
fn with_a_driver_that_is_too_old() {
    let old = driver(
        "int cuDriverGetVersion(int *v) { *v = 11080; return 0; }",
        0,
    );
    let folder = folder("old-driver", &[("libcuda", &old)]);
    assert_said(
        Some(&folder),
        "old-driver",
        &["CUDA 11.8", "12.0 is needed"],
    );
}

#[test]
fn without_a_compiler() {
    if !is_here("libnvrtc") {
        let folder = folder("no-compiler", &[("libcuda", &driver(ONE_GPU, 0))]);
        let reasons = ["libnvrtc.so was not found", "nvidia-cuda-nvrtc"];
        assert_said(Some(&folder), "no-compiler", &reasons);
        let text = stdout(&striata_in(Some(&folder), &["doctor"]));
        for part in [
            "GPU 0: A GPU of paper (sm_90a), 1.00 GiB",
            "no kernels",
            "no batched copies",
        ] {
            assert!(text.contains(part), "{part:?} is missing from {text}");
        }
    }
}

#[test]
fn with_a_compiler_that_lacks_entries() {
    let libraries = [
        ("libcuda", &*driver(ONE_GPU, 0)),
        ("libnvrtc", "int nothing;"),
    ];
    let folder = folder("empty-compiler", &libraries);
    assert_said(
        Some(&folder),
        "empty-compiler",
        &["libnvrtc has no nvrtcVersion"],
    );
}

/// Nothing uses it yet: without it everything is as with it.
#[test]
fn without_collectives() {
    let text = stdout(&striata_in(None, &["doctor"]));
    assert!(text.contains("libnccl"), "{text}");
}
