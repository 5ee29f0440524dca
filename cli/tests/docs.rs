// SPDX-License-Identifier: Apache-2.0
//! Every flag, key and column stands in `docs/replay.md`.

mod common;

use std::collections::BTreeSet;

use common::{stdout, striata, striata_with};
use serde_json::Value;

const TRACE: &[u8] =
    br#"{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}"#;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/replay.md");
    std::fs::read_to_string(path).expect("docs/replay.md is there")
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

fn assert_documented(names: &[&str]) {
    let page = page();
    for name in names {
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not in docs/replay.md"
        );
    }
}

#[test]
fn every_key_of_the_json_is_documented() {
    let small = [
        "replay",
        "-",
        "--dcp-size",
        "1",
        "--l1",
        "20p",
        "--l2",
        "20p",
        "--layers",
        "1",
        "--json",
        "--fault",
        "corrupt-page:1",
        "--faults",
        "1",
        "--paranoid",
    ];
    let doctor = ["doctor", "--json"];
    let selftest = ["selftest", "--device", "sim", "--only", "memory", "--json"];
    for args in [&small[..], &doctor[..], &selftest[..]] {
        let text = stdout(&striata_with(args, TRACE));
        let mut found = BTreeSet::new();
        keys(&serde_json::from_str(&text).expect("JSON"), &mut found);
        assert!(found.len() > 7, "{text}");
        assert_documented(&found.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn every_column_is_documented() {
    let replay = common::scratch("docs-replay.csv");
    let sweep = common::scratch("docs-sweep.csv");
    let trace = common::file("docs.jsonl", TRACE);
    let (trace, replay_file, sweep_file) = (
        common::path(&trace),
        common::path(&replay),
        common::path(&sweep),
    );
    striata(&["replay", trace, "--metadata-only", "--csv", replay_file]);
    striata(&["sweep", trace, "--dcp-sizes", "1", "--csv", sweep_file]);
    for file in [replay, sweep] {
        let text = std::fs::read_to_string(file).expect("the CSV is there");
        let header = text.lines().next().expect("a header");
        assert_documented(&header.split(',').collect::<Vec<_>>());
    }
}

#[test]
fn every_flag_is_documented() {
    let page = page();
    let help = ["replay", "selftest", "doctor"]
        .map(|command| stdout(&striata(&[command, "--help"])))
        .concat();
    let flags = help
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .filter(|word| !["--help", "--version"].contains(word));
    for flag in flags {
        let tri_state = flag
            .replace("--no-dcp", "--[no-]dcp")
            .replace("--dcp-repl", "--[no-]dcp-repl");
        assert!(
            page.contains(flag) || page.contains(&tri_state),
            "{flag} is not in docs/replay.md"
        );
    }
}
