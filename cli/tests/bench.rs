// SPDX-License-Identifier: Apache-2.0
//! `striata bench` on the simulated device.

mod common;

use std::collections::BTreeSet;

use common::{assert_refused, stderr, stdout, striata};
use serde_json::Value;

/// Rows so small that the whole benchmark takes no time.
const TINY: [&str; 16] = [
    "bench",
    "transfer",
    "--device",
    "sim",
    "--layers",
    "3",
    "--page-size",
    "4",
    "--row-bytes",
    "64",
    "--pages",
    "1,3",
    "--reps",
    "2",
    "--ceiling-bytes",
    "4096",
];

fn tiny(more: &[&str]) -> std::process::Output {
    striata(&[&TINY[..], more].concat())
}

fn report(more: &[&str]) -> Value {
    let output = tiny(&[more, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("one JSON object")
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

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bench.md");
    std::fs::read_to_string(path).expect("docs/bench.md is there")
}

#[test]
fn the_whole_transfer_benchmark_runs_and_every_key_is_documented() {
    let report = report(&[]);
    assert_eq!(report["simulated"], true);
    assert_eq!(report["checks"]["wrong_rows"], 0);
    assert!(report["checks"]["rows"].as_u64() > Some(100), "{report}");
    let figures = report["figures"].as_array().expect("a list");
    assert!(figures.len() > 20, "{report}");
    for figure in figures {
        assert!(figure["ratio"].as_f64() > Some(0.0), "{figure}");
        assert_eq!(figure["stats"]["count"], 2, "{figure}");
        let verdict = &figure["verdict"];
        assert!(verdict == "no_bar" || verdict == "not_judged", "{figure}");
        let rate = figure["unit"] == "gb_per_s" && figure["group"] != "both";
        assert!(
            !rate || figure["stats"]["p90"].as_f64() < Some(55.4),
            "{figure}"
        );
    }
    let (mut found, page) = (BTreeSet::new(), page());
    keys(&report, &mut found);
    assert!(found.len() > 30, "{found:?}");
    for key in found {
        assert!(
            page.contains(&format!("`{key}`")),
            "{key} is not in docs/bench.md"
        );
    }
}

#[test]
fn every_flag_and_part_of_the_transfer_benchmark_is_documented() {
    let (page, help) = (page(), stdout(&striata(&["bench", "transfer", "--help"])));
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let flags = words.filter(|word| word.starts_with("--") && word.len() > 2);
    for flag in flags.filter(|word| !["--help", "--version"].contains(word)) {
        assert!(page.contains(flag), "{flag} is not in docs/bench.md");
    }
    let refused = stderr(&tiny(&["--only", "nonsense"]));
    let (_, parts) = refused.split_once("they are ").expect("a list of parts");
    let parts: Vec<&str> = parts.trim().split(", ").collect();
    assert!(parts.len() > 8, "{refused}");
    for part in parts {
        assert!(
            page.contains(&format!("`{part}`")),
            "{part} is not in docs/bench.md"
        );
    }
}

#[test]
fn tables_say_that_times_are_simulated_and_parts_can_be_chosen() {
    let file = common::scratch("bench-transfer.json");
    let output = tiny(&["--only", "store,load", "--save", common::path(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("SIMULATED"), "{text}");
    assert!(
        text.contains("store") && text.contains("scattered"),
        "{text}"
    );
    assert!(!text.contains("consumer"), "{text}");
    let saved = std::fs::read_to_string(&file).expect("the file is there");
    let saved: Value = serde_json::from_str(&saved).expect("one JSON object");
    assert_eq!(saved["checks"]["wrong_rows"], 0);
    assert!(
        text.trim_end()
            .lines()
            .last()
            .unwrap_or("")
            .contains("0 wrong"),
        "{text}"
    );
}

#[test]
fn a_link_below_the_floor_voids_the_run() {
    let output = tiny(&["--only", "store", "--floor", "1000", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("void"), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    assert_eq!(report["void"], true);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (more, part) in [
        (&["--only", "loads"][..], "baselines"),
        (&["--reps", "0"], "reps"),
        (&["--floor=-1"], "from 0"),
    ] {
        assert_refused(&tiny(more), &[part], &more.join(" "));
    }
    for more in [["--row-bytes", "6"], ["--page-size", "0"]] {
        let bad = striata(&[&["bench", "transfer", "--device", "sim"], &more[..]].concat());
        assert_refused(&bad, &[more[1]], &more.join(" "));
    }
    let twice = striata(&["bench", "transfer", "--device", "sim", "--pages", "0"]);
    assert_refused(&twice, &["at least one page"], "--pages 0");
}
