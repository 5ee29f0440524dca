// SPDX-License-Identifier: Apache-2.0
//! Which format a trace has, told from its first line.

use serde_json::{Map, Value};

use super::azure;
use super::error::{TraceProblem, short};
use crate::names::named;

named! {
    /// A format of traces.
    pub enum Format("trace format") {
        /// Blocks of 512 tokens, global clock.
        Mooncake = "mooncake",
        /// Agent sessions with ids and clocks of their own.
        AgenticSessions = "agentic_sessions",
        /// Agent sessions with global ids and clock.
        Agentic = "agentic",
        /// Agent sessions with shared ids and clocks of their own.
        TextBlocks = "text_blocks",
        /// Arrivals and lengths only.
        Azure = "azure",
    }
}

/// What the first line must hold, most particular first.
const JSON_FORMATS: [(Format, &[&str]); 4] = [
    (
        Format::Mooncake,
        &["timestamp", "input_length", "output_length", "hash_ids"],
    ),
    (Format::Agentic, &["t", "user", "conv", "in", "out", "runs"]),
    (
        Format::TextBlocks,
        &["suite", "conv", "t", "in", "out", "runs"],
    ),
    (Format::AgenticSessions, &["conv", "t", "in", "out", "runs"]),
];

impl Format {
    /// Tells the format from the first line that is not blank.
    pub(super) fn detect(line: &str) -> Result<Self, TraceProblem> {
        if azure::is_header(line) {
            return Ok(Self::Azure);
        }
        if !line.starts_with('{') {
            return Err(TraceProblem::UnknownFormat {
                reason: "the first line is neither a JSON object nor the header of an Azure trace"
                    .to_owned(),
            });
        }
        let record: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| json_problem("JSON", &error))?;
        JSON_FORMATS
            .iter()
            .find(|(_, keys)| keys.iter().all(|key| record.contains_key(*key)))
            .map(|(format, _)| *format)
            .ok_or_else(|| TraceProblem::UnknownFormat {
                reason: nearest(&record),
            })
    }

    /// What a reader of figures should know of traces of this format.
    #[must_use]
    pub const fn notice(self) -> Option<&'static str> {
        match self {
            Self::Mooncake | Self::Agentic => None,
            Self::AgenticSessions | Self::TextBlocks => Some(
                "sessions of this trace have clocks of their own; they are played one after the \
                 other, in file order",
            ),
            Self::Azure => Some(
                "this trace tells no prefixes: every request is replayed as unshared, so no hit \
                 is possible",
            ),
        }
    }
}

/// The format that lacks the fewest keys, and the keys.
fn nearest(record: &Map<String, Value>) -> String {
    let lacking = |keys: &'static [&'static str]| {
        keys.iter()
            .copied()
            .filter(|key| !record.contains_key(*key))
            .collect::<Vec<_>>()
    };
    JSON_FORMATS
        .iter()
        .map(|(format, keys)| (format, lacking(keys)))
        .min_by_key(|(_, lacks)| lacks.len())
        .map(|(format, lacks)| format!("the first line lacks {} of {format}", lacks.join(", ")))
        .unwrap_or_default()
}

/// A JSON error of one line, without the line number of its own.
pub(super) fn json_problem(format: &'static str, error: &serde_json::Error) -> TraceProblem {
    let reason = short(error.to_string().replacen("line 1 ", "", 1));
    if error.is_eof() {
        TraceProblem::Truncated { reason }
    } else {
        TraceProblem::BadRecord { format, reason }
    }
}
