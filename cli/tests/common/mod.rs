// SPDX-License-Identifier: Apache-2.0
//! Runs the binary and looks at what it says.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test file uses its part of this module"
)]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Runs `striata` with `args` and nothing on standard input.
pub fn striata(args: &[&str]) -> Output {
    striata_with(args, b"")
}

/// Runs `striata` with `args` and `input` on standard input.
pub fn striata_with(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_striata"))
        .args(args)
        .env_remove("STRIATA_LOG")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A program that refuses its flags may leave before it has read anything.
    let _ = child.stdin.take().expect("stdin is piped").write_all(input);
    child.wait_with_output().expect("the binary ends")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is text")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is text")
}

/// Asserts exit code 2, nothing on standard output, and one line on standard error that holds
/// each of `parts`.
pub fn assert_refused(output: &Output, parts: &[&str], what: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{what}: {said}");
    assert!(output.stdout.is_empty(), "{what}: {}", stdout(output));
    assert_eq!(said.lines().count(), 1, "{what}: {said}");
    assert!(said.starts_with("striata: "), "{what}: {said}");
    assert!(!said.contains("panicked"), "{what}: {said}");
    assert!(said.len() < 500, "{what}: {said}");
    for part in parts {
        assert!(
            said.contains(part),
            "{what}: {part:?} is missing from {said}"
        );
    }
}

/// A file of this test run with `bytes` in it.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch(name);
    fs::write(&path, bytes).expect("the scratch folder can be written");
    path
}

/// A path of this test run; names are unique over all tests of the crate.
pub fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub fn path(path: &std::path::Path) -> &str {
    path.to_str().expect("scratch paths are text")
}
