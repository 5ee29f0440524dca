// SPDX-License-Identifier: Apache-2.0
//! `striata bench offload` on the simulated device.

mod common;

use std::collections::BTreeSet;

use common::{assert_refused, path, scratch, stderr, stdout, striata};
use serde_json::Value;

/// A slice so small that the benchmark takes a moment.
const SMALL: [&str; 11] = [
    "bench",
    "offload",
    "--device",
    "sim",
    "mooncake_conversation",
    "--layers",
    "3",
    "--fill",
    "120",
    "--requests",
    "12",
];

fn small(more: &[&str]) -> std::process::Output {
    striata(&[&SMALL[..], more].concat())
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bench.md");
    std::fs::read_to_string(path).expect("docs/bench.md is there")
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn the_json_has_five_systems_and_documented_keys_and_the_picture_shows_them() {
    let picture = scratch("offload.svg");
    let output = small(&["--json", "--plot", path(&picture)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    assert_eq!(report["simulated"], true);
    let trace = &report["traces"][0];
    let systems = trace["systems"].as_array().expect("a list");
    let names: Vec<&str> = systems
        .iter()
        .filter_map(|s| s["system"].as_str())
        .collect();
    let expected = [
        "no_l2",
        "load_then_compute",
        "chunk_calls",
        "copy_kernel",
        "striata",
    ];
    assert_eq!(names, expected);
    for system in &systems[1..] {
        assert_eq!(
            system["loaded_bytes"], systems[4]["loaded_bytes"],
            "{system}"
        );
        assert_eq!(system["wrong_rows"], 0, "{system}");
        assert!(system["verified_rows"].as_u64() > Some(0), "{system}");
    }
    for bar in trace["bars"].as_array().expect("a list") {
        assert!(bar["verdict"] != "missed", "{bar}");
    }
    let (mut found, page) = (BTreeSet::new(), page());
    keys(&report, &mut found);
    assert!(found.len() > 50, "{found:?}");
    for key in found {
        assert!(
            page.contains(&format!("`{key}`")),
            "{key} is not in docs/bench.md"
        );
    }
    let svg = std::fs::read_to_string(&picture).expect("the picture is there");
    for text in [
        "SIMULATED",
        "Striata",
        "load, then compute",
        "p99",
        "mooncake_conversation",
    ] {
        assert!(svg.contains(text), "{text} is missing");
    }
}

#[test]
fn the_table_states_the_model_and_every_verdict() {
    let output = small(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("SIMULATED"), "{text}");
    for part in [
        "a MODEL: deepseek-v3.1 on 8 ranks, 400 TFLOP/s",
        "500 in attention",
        "1 decode steps of 20000 us",
        "closed loop",
        "a copy kernel a layer",
        "pass: share of the hit tokens that come from L2",
        "pass: rows that differ",
        "not judged: stall share",
    ] {
        assert!(text.contains(part), "{part} is missing from {text}");
    }
}

#[test]
fn every_flag_is_documented() {
    let (page, help) = (page(), stdout(&striata(&["bench", "offload", "--help"])));
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
    for flag in flags.filter(|word| !["--help", "--version"].contains(word)) {
        assert!(page.contains(flag), "{flag} is not in docs/bench.md");
    }
}

#[test]
fn too_little_from_l2_is_a_missed_bar() {
    let output = small(&["--l1", "2600p", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("1 of 3 bars"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (more, part) in [
        (&["--ranks", "9"][..], "ranks"),
        (&["--dcp-size", "3"], "3"),
        (&["--kernel-blocks", "0"], "kernel blocks"),
        (&["--requests", "0"], "--requests"),
        (&["--skip", "99999999"], "mooncake_conversation"),
        (&["--prefill-tflops", "0"], "above 0"),
        (&["--l1", "1B"], "L1"),
        (&["--scale-rows", "6"], "6"),
    ] {
        assert_refused(&small(more), &[part], &more.join(" "));
    }
    let absent = striata(&["bench", "offload", "--device", "sim", "no-such-trace"]);
    assert_refused(&absent, &["no-such-trace"], "an absent trace");
}
