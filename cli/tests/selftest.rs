// SPDX-License-Identifier: Apache-2.0
//! `striata selftest` on the simulated device.

mod common;

use common::{assert_refused, stderr, stdout, striata};
use serde_json::Value;

#[test]
fn the_list_names_every_check_and_runs_none() {
    for device in ["sim", "cuda"] {
        let output = striata(&["selftest", "--device", device, "--list"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        for name in [
            "fences.b25_store_after_write",
            "large.b40_pages",
            "hicache.c8",
        ] {
            assert!(text.contains(name), "{name} is missing from {text}");
        }
        assert_eq!(text.contains("cuda.captures_survive"), device == "cuda");
    }
}

#[test]
fn chosen_checks_pass_and_are_printed_a_line_each() {
    let args = [
        "selftest",
        "--device",
        "sim",
        "--only",
        "memory,rows.fill",
        "hicache.c1",
    ];
    let output = striata(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[0].starts_with("device sim"), "{text}");
    assert!(
        lines[1..4].iter().all(|line| line.starts_with("ok ")),
        "{text}"
    );
    assert_eq!(lines[4], "3 passed, 0 skipped, 0 failed");
}

#[test]
fn json_is_one_object() {
    let output = striata(&["selftest", "--device", "sim", "--only", "hicache", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    assert_eq!(report["failed"], 0, "{report}");
    let checks = report["checks"].as_array().expect("a list");
    assert_eq!(report["passed"], checks.len());
    assert!(checks.len() > 5 && checks.iter().all(|check| check["verdict"] == "ok"));
}

#[test]
fn names_that_nothing_has_are_refused() {
    let output = striata(&["selftest", "--device", "sim", "--only", "nonsense"]);
    assert_refused(&output, &["nonsense", "--list"], "--only nonsense");
}
