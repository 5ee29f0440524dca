// SPDX-License-Identifier: Apache-2.0
//! Errors of configuration and of a whole replay. Those of traces stand in [`crate::trace`].

use std::path::PathBuf;

use crate::trace::TraceError;

/// Why an option is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name that nothing has.
    #[error("unknown {what} {name:?}; known are {known}")]
    UnknownName {
        /// What kind of thing was named.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that would do.
        known: String,
    },
    /// A setting of the engine.
    #[error(transparent)]
    Engine(#[from] striata_core::ConfigError),
    /// A model file that cannot be read.
    #[error("model file {}: {reason}", path.display())]
    ModelFile {
        /// The file.
        path: PathBuf,
        /// What the platform said.
        reason: String,
    },
    /// Something that the engine does not do yet.
    #[error("{what} is not built yet")]
    NotBuilt {
        /// What was asked for.
        what: &'static str,
    },
    /// More memory than the machine can give.
    #[error(
        "{needed} bytes of memory are needed and {spare} are available: {ranks} ranks of \
         {l1_bytes} bytes of L1 and {l2_bytes} of L2 each; scale rows down or choose smaller tiers"
    )]
    TooMuchMemory {
        /// Bytes of all ranks.
        needed: u64,
        /// Bytes that the machine can give.
        spare: u64,
        /// Ranks.
        ranks: u32,
        /// L1 of a rank.
        l1_bytes: u64,
        /// L2 of a rank.
        l2_bytes: u64,
    },
    /// A tier that does not fit into the memory that it lives in.
    #[error(
        "{tier} does not fit: {ranks} ranks of {tier_bytes} bytes need {needed} bytes of {place} \
         memory and {spare} are free; scale rows down or choose a smaller {tier}"
    )]
    TierTooLarge {
        /// The tier.
        tier: &'static str,
        /// Whose memory.
        place: &'static str,
        /// Ranks.
        ranks: u32,
        /// The tier of a rank.
        tier_bytes: u64,
        /// Bytes of all ranks, with what goes with them.
        needed: u64,
        /// Bytes that are free.
        spare: u64,
    },
    /// A device that cannot be used.
    #[error(transparent)]
    Device(#[from] striata_gpu::GpuError),
    /// A fault that cannot be read.
    #[error("fault {text:?} cannot be read: write corrupt-page:N with N from 1")]
    Fault {
        /// What was written.
        text: String,
    },
    /// Random faults that cannot be read.
    #[error("faults {text:?} cannot be read: write SEED or SEED:RATE with a rate from 0 to 1")]
    RandomFaults {
        /// What was written.
        text: String,
    },
    /// A tier without a usable page.
    #[error(
        "{tier} of {capacity} holds no usable widened page: one has {page_tokens} tokens, \
         {page_bytes} bytes on each rank{sink}"
    )]
    NoPage {
        /// The tier.
        tier: &'static str,
        /// The capacity, as it was written.
        capacity: String,
        /// Tokens of a widened page.
        page_tokens: u64,
        /// Bytes of a page on one rank.
        page_bytes: u64,
        /// What else the tier holds.
        sink: &'static str,
    },
    /// More pages than page ids.
    #[error("{tier} of {capacity} is {pages} widened pages, more than the {max} that ids can name")]
    TooManyPages {
        /// The tier.
        tier: &'static str,
        /// The capacity, as it was written.
        capacity: String,
        /// The pages.
        pages: u64,
        /// The limit.
        max: u64,
    },
    /// A number outside its range.
    #[error("{what} {value} is out of range: it must be {range}")]
    OutOfRange {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        range: &'static str,
    },
    /// A rate of computing for a model whose work per token is not known.
    #[error("model {model} has no published number of active parameters: leave the rate out")]
    NoActiveParameters {
        /// The model.
        model: String,
    },
    /// Options that exclude each other.
    #[error("{first} and {second} exclude each other: {reason}")]
    Conflict {
        /// One option.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Why.
        reason: &'static str,
    },
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The options are refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] striata::Error),
}

impl ReplayError {
    /// Whether what was asked for is wrong, rather than what was done: an option or a trace.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Trace(_) | Self::Config(_))
    }
}
