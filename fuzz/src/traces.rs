// SPDX-License-Identifier: Apache-2.0
//! Traces from anywhere.

use striata_replay::trace::parse_bytes;

/// Reads a whole trace.
pub fn run(bytes: &[u8]) {
    match parse_bytes(bytes) {
        Ok(summary) => assert!(summary.requests > 0, "an empty trace was accepted"),
        Err(error) => crate::assert_one_line(&error),
    }
}
