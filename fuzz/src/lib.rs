// SPDX-License-Identifier: Apache-2.0
//! Bodies of the fuzz targets, as functions that anything may call.
//!
//! | target | what goes in | what must hold |
//! |---|---|---|
//! | [`config`] | text of a configuration | no panic; errors of one line; what is accepted survives a round trip |
//! | [`engine_ops`] | a program of calls of the whole engine on stepped devices, with faults, and perhaps its end | invariants and no race after every call; what is read is right; an engine that breaks says why; no page is lost |
//! | [`planner_ops`] | a program of calls of the planner, and how its copies end | its invariants after every call; no page is lost |
//! | [`prefix_ops`] | a program of calls of the prefix index | its invariants after every call; a flat model agrees |
//! | [`slot_lists`] | two slot lists | accepted exactly if a plain reading accepts them; page lists give the same plan; every rank copies exactly its rows |
//! | [`traces`] | bytes of a trace, packed or not | no panic; errors of one line |
#![forbid(unsafe_code)]

pub mod config;
pub mod engine_ops;
pub mod planner_ops;
pub mod prefix_ops;
pub mod slot_lists;
pub mod traces;

/// Fails on an error message that a terminal would show as several lines, or as none.
fn assert_one_line(error: &dyn std::error::Error) {
    let text = error.to_string();
    assert!(
        !text.is_empty() && !text.contains(['\n', '\r']),
        "the message is not one line: {text:?}"
    );
}
