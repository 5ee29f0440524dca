// SPDX-License-Identifier: Apache-2.0
//! Traces: requests with lengths and the identity of their prefix blocks.
//!
//! A block id stands for the whole prefix up to and with its block, so an id always has the same
//! predecessor and the same place; a trace that breaks this is refused.
//!
//! | format | block | shape of a line |
//! |---|---|---|
//! | `mooncake` | 512 | `{"timestamp", "input_length", "output_length", "hash_ids": [..]}`, ms |
//! | `agentic_sessions` | 64 | `{"conv", "agent", "t", "in", "out", "runs": [[first, count], ..]}`, s, ids and clock of each session's own |
//! | `agentic` | 64 | `{"t", "user", "conv", "agent", "in", "out", "runs"}` |
//! | `text_blocks` | 64 | `{"suite", "conv", "t", "in", "out", "runs"}`, clock of each session's own |
//! | `azure` | none | `TIMESTAMP,ContextTokens,GeneratedTokens` |

mod agentic;
mod azure;
mod bundled;
mod chain;
mod error;
mod format;
mod lines;
mod mooncake;
mod number;
mod reader;
mod request;
mod source;
mod zstd;

pub use bundled::Bundled;
pub use error::{TraceError, TraceProblem};
pub use format::Format;
pub use reader::{TraceReader, TraceSummary, parse_bytes};
pub use request::{Blocks, MAX_TOKENS, Request, Run};
