// SPDX-License-Identifier: Apache-2.0
//! Small replays, from flags to tables, JSON, CSV and SVG.

mod common;

use std::fmt::Write as _;

use common::{file, path, scratch, stderr, stdout, striata, striata_with};
use serde_json::Value;

/// Eight conversations of growing prompts, taken in turns: more than L1 holds, less than L2.
fn conversations() -> String {
    let mut text = String::new();
    for turn in 1..=6_u64 {
        for talk in 0..8_u64 {
            let ids: Vec<u64> = (0..turn).map(|block| talk * 100 + block).collect();
            let line = serde_json::json!({
                "timestamp": turn * 1000 + talk,
                "input_length": turn * 512,
                "output_length": 3,
                "hash_ids": ids,
            });
            writeln!(text, "{line}").expect("writing to a string");
        }
    }
    text
}

/// A small machine: 2 ranks, 3 layers, W = 64 tokens, L1 of 100 pages, L2 of 1,000.
const SMALL: [&str; 13] = [
    "replay",
    "-",
    "--dcp-size",
    "2",
    "--page-size",
    "32",
    "--layers",
    "3",
    "--l1",
    "100p",
    "--l2",
    "1000p",
    "--json",
];

fn json(extra: &[&str], code: i32) -> Value {
    let mut args = SMALL.to_vec();
    args.extend(extra);
    let output = striata_with(&args, conversations().as_bytes());
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}: {}",
        stderr(&output)
    );
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).expect("one JSON object and nothing else")
}

fn number(report: &Value, key: &str) -> u64 {
    report[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} is no count in {report}"))
}

#[test]
fn the_json_has_its_documented_keys_and_adds_up() {
    let report = json(&[], 0);
    assert_eq!(number(&report, "requests"), 48);
    let tokens = number(&report, "input_tokens");
    assert_eq!(tokens, 8 * 512 * (1 + 2 + 3 + 4 + 5 + 6));
    let l1 = number(&report, "hit_tokens_l1");
    let l2 = number(&report, "hit_tokens_l2");
    assert_eq!(l1 + l2 + number(&report, "computed_tokens"), tokens);
    assert!(l2 > 0, "nothing was loaded back: {report}");
    assert!(number(&report["l1"], "evicted_pages") > 0);
    assert!(number(&report, "verified_rows") > 0);
    for key in ["mismatches", "errors", "collective_calls"] {
        assert_eq!(number(&report, key), 0, "{key}");
    }
    for key in [
        "hit_ratio",
        "load_gb_per_s",
        "store_gb_per_s",
        "first_layer_us",
        "all_layers_us",
        "stall_us",
        "ttft_ms",
        "simulated",
        "scaled",
        "ranks",
        "config",
        "notices",
    ] {
        assert!(report.get(key).is_some(), "{key} is missing from {report}");
    }
    let ranks = report["ranks"].as_array().expect("ranks are a list");
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|rank| number(rank, "bytes_to_device") > 0));
}

#[test]
fn metadata_alone_finds_the_same_hits() {
    let bytes = json(&[], 0);
    let metadata = json(&["--metadata-only"], 0);
    for key in [
        "requests",
        "input_tokens",
        "hit_tokens_l1",
        "hit_tokens_l2",
        "hit_ratio",
    ] {
        assert_eq!(bytes[key], metadata[key], "{key}");
    }
    assert_eq!(number(&metadata, "verified_rows"), 0);
}

#[test]
fn without_l2_nothing_is_loaded() {
    let report = json(&["--hicache-io-backend", "direct"], 0);
    assert!(number(&report, "hit_tokens_l2") > 0);
    let args = [&SMALL[..10], &["--l2", "0", "--json"]].concat();
    let output = striata_with(&args, conversations().as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(number(&report, "hit_tokens_l2"), 0);
    assert_eq!(number(&report, "stored_pages"), 0);
}

#[test]
fn any_widened_page_works() {
    for (dcp, page) in [("1", "16"), ("2", "8"), ("8", "4")] {
        let args = [
            "replay",
            "-",
            "--dcp-size",
            dcp,
            "--page-size",
            page,
            "--layers",
            "2",
            "--l1",
            "8000t",
            "--l2",
            "80000t",
            "--json",
        ];
        let output = striata_with(&args, conversations().as_bytes());
        assert_eq!(
            output.status.code(),
            Some(0),
            "c = {dcp}: {}",
            stderr(&output)
        );
        let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(number(&report, "mismatches"), 0);
        assert!(number(&report, "verified_rows") > 0);
    }
}

#[test]
fn a_planted_fault_is_named_and_fails_the_run() {
    let report = json(&["--fault", "corrupt-page:3"], 1);
    assert_eq!(report["fault"]["exact"], Value::Bool(true), "{report}");
    // 32 rows on each of 2 ranks in each of 3 layers.
    assert_eq!(number(&report["fault"], "corrupted_rows"), 192);
    assert_eq!(number(&report, "mismatches"), 192);
}

#[test]
fn a_fault_that_never_happens_fails_the_run() {
    let report = json(&["--fault", "corrupt-page:1000000"], 1);
    assert_eq!(number(&report["fault"], "corrupted_rows"), 0);
}

#[test]
fn limit_and_skip_choose_requests() {
    let report = json(&["--skip", "8", "--limit", "16"], 0);
    assert_eq!(number(&report, "requests"), 16);
    assert_eq!(number(&report, "input_tokens"), 8 * 512 * (2 + 3));
}

#[test]
fn csv_and_svg_are_written() {
    let trace = file("conversations.jsonl", conversations().as_bytes());
    let csv = scratch("requests.csv");
    let svg = scratch("replay.svg");
    let output = striata(&[
        "replay",
        path(&trace),
        "--dcp-size",
        "2",
        "--page-size",
        "32",
        "--layers",
        "2",
        "--l1",
        "100p",
        "--l2",
        "1000p",
        "--csv",
        path(&csv),
        "--plot",
        path(&svg),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(csv).expect("the CSV is there");
    let mut lines = text.lines();
    let header = lines.next().expect("a header");
    for column in [
        "index",
        "input_tokens",
        "hit_tokens_l1",
        "hit_tokens_l2",
        "computed_tokens",
        "first_layer_us",
        "ttft_ms",
        "mismatches",
    ] {
        assert!(
            header.split(',').any(|name| name == column),
            "{column} is missing"
        );
    }
    assert_eq!(lines.count(), 48);
    let picture = std::fs::read_to_string(svg).expect("the SVG is there");
    assert!(picture.contains("hit ratio so far"));
}

#[test]
fn the_tables_say_what_is_scaled_and_simulated() {
    let args = &SMALL[..12];
    let output = striata_with(args, conversations().as_bytes());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "SCALED",
        "simulated",
        "hit on L1",
        "loaded back from L2",
        "computed",
        "L2 to L1",
        "L1 to L2",
        "GB/s",
        "first layer",
        "all layers",
        "p50",
        "p90",
        "p99",
        "stall",
        "evicted",
        "verified",
    ] {
        assert!(text.contains(part), "{part:?} is missing from {text}");
    }
    assert!(!stderr(&output).contains("panicked"));
}

#[test]
fn quiet_says_nothing_and_progress_says_lines() {
    let quiet = [&SMALL[..12], &["--quiet"]].concat();
    let output = striata_with(&quiet, conversations().as_bytes());
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    let lines = [&SMALL[..12], &["--progress"]].concat();
    let said = stderr(&striata_with(&lines, conversations().as_bytes()));
    assert!(said.contains("requests: 48"), "{said}");
}

#[test]
fn a_small_sweep_gives_rows_csv_and_svg() {
    let trace = file("sweep-conversations.jsonl", conversations().as_bytes());
    let csv = scratch("sweep.csv");
    let svg = scratch("sweep.svg");
    let args = [
        "sweep",
        path(&trace),
        "--dcp-sizes",
        "1,2,4",
        "--page-size",
        "32",
        "--l1",
        "40p",
        "--l2",
        "200p",
        "--same-memory-per-rank",
        "--json",
        "--csv",
        path(&csv),
        "--plot",
        path(&svg),
    ];
    let output = striata(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let rows = report["rows"].as_array().expect("rows are a list");
    assert_eq!(rows.len(), 3);
    let ratios: Vec<f64> = rows
        .iter()
        .filter_map(|row| row["hit_ratio"].as_f64())
        .collect();
    assert!(ratios.is_sorted(), "more ranks hold more: {ratios:?}");
    for row in rows {
        let sum: f64 = ["resident_share", "loaded_share", "computed_share"]
            .iter()
            .filter_map(|key| row[*key].as_f64())
            .sum();
        assert!((sum - 1.0).abs() < 1e-9, "{row}");
    }
    assert_eq!(
        std::fs::read_to_string(csv)
            .expect("the CSV")
            .lines()
            .count(),
        4
    );
    assert!(
        std::fs::read_to_string(svg)
            .expect("the SVG")
            .contains("loaded back from L2")
    );
}
