// SPDX-License-Identifier: Apache-2.0
//! Every bad option ends with one clear line, exit code 2 and no panic.

mod common;

use common::{assert_refused, file, path, scratch, striata};

/// Refused by `replay`; the last part must stand in the line.
const REPLAY: [(&[&str], &str); 43] = [
    (&["--no-such-flag"], "--no-such-flag"),
    (&["--dcp-size", "0"], "--dcp-size"),
    (&["--dcp-size", "-1"], "-1"),
    (
        &["--dcp-size", "99999999999999999999"],
        "99999999999999999999",
    ),
    (&["--dcp-size", "two"], "two"),
    (&["--decode-context-parallel-size", "0"], "--dcp-size"),
    (&["--tp", "0"], "--tp"),
    (&["--dp", "0"], "--dp"),
    (&["--tp", "8", "--dcp-size", "3"], "3"),
    (&["--tp", "8", "--dp", "3"], "3"),
    (&["--tp", "8", "--dp", "4", "--dcp-size", "8"], "8"),
    (&["--page-size", "0"], "--page-size"),
    (&["--page-size", "4294967295"], "4294967295"),
    (&["--interleave", "0"], "--interleave"),
    (&["--interleave", "7"], "7"),
    (&["--l1", "0p"], "0p"),
    (&["--l1", "0"], "L1"),
    (&["--l1", "1B"], "L1"),
    (&["--l1", "12"], "\"12\""),
    (&["--l1", "ten pages"], "ten pages"),
    (&["--l1=-5p"], "-5p"),
    (&["--l1", "99999999999999999999t"], "99999999999999999999t"),
    (&["--l1", "99999999999TiB"], "99999999999TiB"),
    (&["--l1", "10000000000p"], "10000000000p"),
    (&["--l2", "much"], "much"),
    (&["--l2", "1B"], "L2"),
    (&["--model", "gpt-oss-9000"], "gpt-oss-9000"),
    (&["--policy", "random"], "random"),
    (&["--write-policy", "sometimes"], "sometimes"),
    (&["--device", "tpu"], "tpu"),
    (&["--verify", "twice"], "twice"),
    (&["--outputs", "maybe"], "maybe"),
    (&["--host-layout", "sideways"], "sideways"),
    (&["--scale-rows", "0"], "--scale-rows"),
    (&["--scale-rows", "6"], "6"),
    (&["--layers", "0"], "--layers"),
    (&["--limit", "0"], "--limit"),
    (&["--time-scale", "-1"], "-1"),
    (&["--time-scale", "nan"], "nan"),
    (&["--layer-us", "inf"], "inf"),
    (&["--prefill-tflops", "0"], "0"),
    (&["--fault", "burn"], "burn"),
    (&["--fault", "corrupt-page:0"], "corrupt-page:0"),
];

#[test]
fn replay_refuses_each() {
    for (flags, part) in REPLAY {
        let mut args = vec!["replay"];
        args.extend(flags);
        assert_refused(&striata(&args), &[part], &args.join(" "));
    }
}

#[test]
fn flags_of_hicache_are_checked_as_sglang_does() {
    let cases: [(&[&str], &str); 9] = [
        (&["--hicache-ratio", "0"], "--hicache-ratio"),
        (&["--hicache-size", "-3"], "-3"),
        (&["--hicache-write-policy", "never"], "never"),
        (&["--hicache-mem-layout", "diagonal"], "diagonal"),
        (&["--radix-eviction-policy", "oldest"], "oldest"),
        (
            &["--hicache-storage-backend", "mooncake"],
            "hicache_storage_backend",
        ),
        (&["--dcp-comm-backend", "carrier-pigeon"], "carrier-pigeon"),
        (&["--dcp-size", "1", "--dcp-comm-backend", "a2a"], "a2a"),
        (&["--dcp-replicate-q-proj"], "dcp_replicate_q_proj"),
    ];
    for (flags, part) in cases {
        let mut args = vec!["replay"];
        args.extend(flags);
        assert_refused(&striata(&args), &[part], &args.join(" "));
    }
}

#[test]
fn flags_that_exclude_each_other_are_named() {
    let cases: [(&[&str], &str); 7] = [
        (&["--l2", "10p", "--hicache-ratio", "2"], "--hicache-ratio"),
        (
            &["--policy", "lru", "--radix-eviction-policy", "lfu"],
            "--radix-eviction-policy",
        ),
        (&["--enable-hierarchical-cache", "--l2", "0"], "--l2 0"),
        (&["--full-rows", "--scale-rows", "8"], "--scale-rows"),
        (&["--metadata-only", "--fault", "corrupt-page:1"], "--fault"),
        (&["--fault", "corrupt-page:1", "--verify", "none"], "fault"),
        (&["--metadata-only", "--verify", "all"], "verify"),
    ];
    for (flags, part) in cases {
        let mut args = vec!["replay"];
        args.extend(flags);
        assert_refused(&striata(&args), &[part], &args.join(" "));
    }
}

#[test]
fn a_pool_larger_than_the_memory_is_refused_with_the_figures() {
    for tier in ["--l1", "--l2"] {
        let output = striata(&["replay", "--full-rows", tier, "4000TiB"]);
        assert_refused(&output, &["bytes"], tier);
        let output = striata(&["replay", "--full-rows", tier, "100000000p"]);
        assert_refused(&output, &["bytes"], tier);
    }
}

#[test]
fn output_files_that_cannot_be_written_are_refused_before_the_run() {
    let folder = scratch("no-such-folder").join("out.csv");
    let output = striata(&["replay", "--csv", path(&folder)]);
    assert_refused(&output, &["no-such-folder"], "--csv");
    let output = striata(&["sweep", "--csv", path(&folder)]);
    assert_refused(&output, &["no-such-folder"], "sweep --csv");
    let output = striata(&["replay", "--plot", path(&folder)]);
    assert_refused(&output, &["no-such-folder"], "--plot");
}

#[test]
fn model_files_are_refused_by_name() {
    let missing = scratch("no-model.toml");
    let output = striata(&["replay", "--model-file", path(&missing)]);
    assert_refused(&output, &["no-model.toml"], "missing");
    let nonsense = file("nonsense-model.toml", b"layers = \"many\"\n");
    let output = striata(&["replay", "--model-file", path(&nonsense)]);
    assert_refused(&output, &["nonsense-model.toml"], "nonsense");
}

#[test]
fn sweep_refuses_each() {
    let cases: [(&[&str], &str); 8] = [
        (&["--dcp-sizes", "1,0"], "--dcp-sizes"),
        (&["--dcp-sizes", "1,two"], "two"),
        (&["--dcp-sizes", "2,3"], "3"),
        (&["--policies", "lru,random"], "random"),
        (&["--l1", "10p,x"], "x"),
        (&["--l2=10p,-1p"], "-1p"),
        (&["--l1", "0p"], "0p"),
        (&["--l1", "512000t", "--same-memory-per-rank"], "512000t"),
    ];
    for (flags, part) in cases {
        let mut args = vec!["sweep"];
        args.extend(flags);
        assert_refused(&striata(&args), &[part], &args.join(" "));
    }
}

#[test]
fn unknown_commands_are_refused() {
    assert_refused(&striata(&["rewind"]), &["rewind"], "rewind");
    assert_refused(&striata(&["doctor", "--fix"]), &["--fix"], "doctor --fix");
    assert_refused(&striata(&["replay", "a", "b"]), &["b"], "two traces");
}
