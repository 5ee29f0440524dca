// SPDX-License-Identifier: Apache-2.0
//! `striata bench pinning`.

mod common;

use common::{assert_refused, stderr, stdout, striata};
use serde_json::Value;

#[test]
fn pools_are_measured_and_the_missing_peer_is_named() {
    let small = [
        "bench",
        "pinning",
        "--device",
        "sim",
        "--bytes",
        "8MiB",
        "--reps",
        "2",
        "--growth-bytes",
        "8MiB",
        "--growth-chunks",
        "1MiB",
    ];
    let output = striata(&small);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "host pool",
        "no peer",
        "simulated",
        "longest stall",
        "memory pages",
    ] {
        assert!(text.contains(part), "{part:?} is missing from {text}");
    }
    let output = striata(&[&small[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["simulated"], true);
    assert_eq!(report["ours"]["gib_per_s"]["count"], 2);
    assert!(report["peer"].is_null() && report["ratio"].is_null());
    assert_eq!(report["verdict"], "not_judged");
    assert_eq!(report["growth"].as_array().map(Vec::len), Some(1));
    assert!(report["growth"][0]["pages"].as_u64() > Some(0));
}

#[test]
fn every_flag_and_key_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bench.md");
    let page = std::fs::read_to_string(path).expect("docs/bench.md is there");
    let (_, page) = page
        .split_once("## `striata bench pinning`")
        .expect("a section");
    let help = stdout(&striata(&["bench", "pinning", "--help"]));
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
    for flag in flags.filter(|word| !["--help", "--version"].contains(word)) {
        assert!(page.contains(flag), "{flag} is not in docs/bench.md");
    }
    let small = [
        "bench",
        "pinning",
        "--device",
        "sim",
        "--bytes",
        "1MiB",
        "--reps",
        "1",
        "--growth-bytes",
        "1MiB",
        "--json",
    ];
    let report: Value = serde_json::from_str(&stdout(&striata(&small))).expect("JSON");
    let of = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let (mut keys, growth) = (of(&report), &report["growth"][0]);
    keys.extend(of(&report["ours"]));
    keys.extend(of(growth));
    keys.extend(of(&growth["load_ms_quiet"]));
    for key in keys {
        assert!(
            page.contains(&format!("`{key}`")),
            "{key} is not in docs/bench.md"
        );
    }
}

#[test]
fn sizes_without_sense_are_refused() {
    let refused = |args: &[&str], reasons: &[&str]| {
        let output = striata(&[&["bench", "pinning", "--device", "sim"], args].concat());
        assert_refused(&output, reasons, &format!("{args:?}"));
    };
    refused(&["--bytes", "5"], &["5", "unit"]);
    refused(&["--bytes", "100B"], &["100", "at least one page"]);
    refused(&["--bytes", "10p"], &["number of bytes"]);
    refused(&["--reps", "0"], &["reps"]);
    refused(&["--load-pages", "0"], &["load pages"]);
}
