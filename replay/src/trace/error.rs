// SPDX-License-Identifier: Apache-2.0
//! Why a trace is refused, with its name and, where there is one, the line.

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// Reading failed.
    #[error("cannot be read: {reason}")]
    Io {
        /// What the platform said.
        reason: String,
    },
    /// The name is that of a folder.
    #[error("is a folder, not a trace")]
    Folder,
    /// There is no request in it.
    #[error("is empty: a trace has at least one request")]
    Empty,
    /// The first line is of no known format.
    #[error("is of no known trace format: {reason}")]
    UnknownFormat {
        /// What the first line lacks.
        reason: String,
    },
    /// The packing is damaged.
    #[error("the zstd packing is damaged: {reason}")]
    Packing {
        /// What the decoder said.
        reason: String,
    },
    /// A line is not text.
    #[error("is not UTF-8 text")]
    NotText,
    /// A line is longer than any request needs.
    #[error("is longer than {max} bytes")]
    LineTooLong {
        /// The limit.
        max: usize,
    },
    /// A line ends too early.
    #[error("is truncated: {reason}")]
    Truncated {
        /// What the parser said.
        reason: String,
    },
    /// A line is not a record of its format.
    #[error("is not a {format} record: {reason}")]
    BadRecord {
        /// The format.
        format: &'static str,
        /// What the parser said.
        reason: String,
    },
    /// A number outside its range.
    #[error("{field} {value} is out of range: it must be {range}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        range: String,
    },
    /// The list of block ids does not fit the length.
    #[error(
        "{blocks} block ids do not fit {tokens} input tokens: {least} to {most} blocks of \
         {block_tokens} tokens do"
    )]
    BlockCount {
        /// Ids listed.
        blocks: u64,
        /// Input tokens.
        tokens: u64,
        /// Fewest ids that fit.
        least: u64,
        /// Most ids that fit.
        most: u64,
        /// Tokens of a block.
        block_tokens: u32,
    },
    /// A block id at another place than before.
    #[error("block id {id} stands at place {place}, but stood at place {before} before")]
    MovedBlock {
        /// The id.
        id: u64,
        /// Its place now.
        place: u64,
        /// Its place before.
        before: u64,
    },
    /// A block id behind another block than before.
    #[error("block id {id} follows {predecessor}, but followed {before} before")]
    ChangedPredecessor {
        /// The id.
        id: u64,
        /// What stands before it now.
        predecessor: String,
        /// What stood before it before.
        before: String,
    },
}

/// A refused trace: one clear line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{trace}{}: {problem}", .line.map(|n| format!(":{n}")).unwrap_or_default())]
pub struct TraceError {
    /// Name of the trace.
    pub trace: String,
    /// The line, from 1, if the problem is one of a line.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: TraceProblem,
}

/// Most characters of a reason that quotes a trace.
const MAX_REASON: usize = 200;

/// Cuts a reason that quotes a line, so that a message stays a line that can be read.
pub(super) fn short(reason: String) -> String {
    match reason.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{} ..", &reason[..end]),
        None => reason,
    }
}
