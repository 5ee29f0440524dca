// SPDX-License-Identifier: Apache-2.0
//! Every bad trace ends with one clear line, exit code 2 and no panic.

mod common;

use std::process::Output;

use common::{assert_refused, file, path, scratch, striata, striata_with};

/// Small tiers, so that nothing large is allocated before the trace is read.
const SMALL: [&str; 7] = ["replay", "--dcp-size", "1", "--l1", "10p", "--l2", "10p"];

/// `striata replay` of `trace` on small tiers.
fn replay(trace: &str, extra: &[&str], input: &[u8]) -> Output {
    striata_with(&[&SMALL, extra, &[trace]].concat(), input)
}

const GOOD: &str =
    r#"{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}"#;

/// A second line, and what the refusal says beside the file and the line number.
const BAD_LINES: [(&str, &str, &str); 10] = [
    (
        "truncated",
        r#"{"timestamp": 0, "input_length": 10"#,
        "truncated",
    ),
    (
        "wrong-type",
        r#"{"timestamp": 0, "input_length": "long", "output_length": 5, "hash_ids": [1, 2]}"#,
        "\"long\"",
    ),
    ("not-an-object", "[1, 2, 3]", ""),
    ("no-json", "hello", ""),
    (
        "negative",
        r#"{"timestamp": 0, "input_length": -7, "output_length": 5, "hash_ids": [1, 2]}"#,
        "-7",
    ),
    (
        "absurd",
        r#"{"timestamp": 0, "input_length": 90000000000000000, "output_length": 5, "hash_ids": [1]}"#,
        "90000000000000000",
    ),
    (
        "too-few-ids",
        r#"{"timestamp": 0, "input_length": 2000, "output_length": 5, "hash_ids": [1, 2]}"#,
        "2000",
    ),
    (
        "changed-predecessor",
        r#"{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [9, 2]}"#,
        "2",
    ),
    (
        "missing-field",
        r#"{"timestamp": 0, "output_length": 5, "hash_ids": [1, 2]}"#,
        "input_length",
    ),
    (
        "bad-time",
        r#"{"timestamp": "noon", "input_length": 10, "output_length": 5, "hash_ids": [1]}"#,
        "noon",
    ),
];

#[test]
fn bad_lines_are_named_by_file_and_number() {
    for (name, line, part) in BAD_LINES {
        let bad = file(
            &format!("bad-{name}.jsonl"),
            format!("{GOOD}\n{line}\n").as_bytes(),
        );
        let place = format!("bad-{name}.jsonl:2:");
        assert_refused(&replay(path(&bad), &[], b""), &[&place, part], name);
    }
}

#[test]
fn bad_files_are_named() {
    let zstd_header = [
        0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x10, 0xff, 0xff, 0xff, 0xff, 7, 7,
    ];
    let cases: [(&str, &[u8]); 6] = [
        ("empty", b""),
        ("blank", b"\n\n\n"),
        ("binary", &[0, 159, 146, 150, 255, 0, 1, 2]),
        ("broken-zstd", &zstd_header),
        ("unknown-object", b"{\"a\": 1}\n"),
        ("unknown-csv", b"A,B,C\n1,2,3\n"),
    ];
    for (name, bytes) in cases {
        let bad = file(&format!("bad-file-{name}"), bytes);
        assert_refused(
            &replay(path(&bad), &[], b""),
            &[&format!("bad-file-{name}")],
            name,
        );
    }
}

#[test]
fn a_missing_file_and_a_folder_are_told_apart() {
    let missing = scratch("there-is-no-such-trace.jsonl");
    assert_refused(
        &replay(path(&missing), &[], b""),
        &["there-is-no-such-trace"],
        "missing",
    );
    let folder = scratch("a-folder.jsonl");
    std::fs::create_dir_all(&folder).expect("the scratch folder can be written");
    assert_refused(&replay(path(&folder), &[], b""), &["folder"], "folder");
}

#[test]
fn standard_input_is_refused_in_the_same_way() {
    let bad = format!("{GOOD}\n{}\n", BAD_LINES[0].1);
    let output = replay("-", &[], bad.as_bytes());
    assert_refused(&output, &[":2:", "truncated"], "stdin");
    assert_refused(&replay("-", &[], b""), &["empty"], "empty stdin");
}

#[test]
fn sweep_and_metadata_only_refuse_them_too() {
    let bad = file(
        "bad-for-all.jsonl",
        format!("{GOOD}\n{}\n", BAD_LINES[1].1).as_bytes(),
    );
    let place = ["bad-for-all.jsonl:2:"];
    assert_refused(&striata(&["sweep", path(&bad)]), &place, "sweep");
    assert_refused(
        &replay(path(&bad), &["--metadata-only"], b""),
        &place,
        "metadata",
    );
    assert_refused(&replay(path(&bad), &["--json"], b""), &place, "json");
}
