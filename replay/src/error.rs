// SPDX-License-Identifier: Apache-2.0
//! Errors of configuration and of a whole replay. Those of traces stand in [`crate::trace`].

use crate::trace::TraceError;

/// Why an option is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// A capacity that cannot be read.
    #[error(
        "capacity {text:?} cannot be read ({reason}): write bytes as 64GiB, tokens as 5120000t, \
         widened pages as 10000p"
    )]
    Capacity {
        /// What was written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A fault that cannot be read.
    #[error("fault {text:?} cannot be read: write corrupt-page:N with N from 1")]
    Fault {
        /// What was written.
        text: String,
    },
    /// A tier without a usable page.
    #[error(
        "{tier} capacity {capacity} holds no widened page of {page_tokens} tokens ({page_bytes} bytes a rank)"
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
    },
    /// More pages than page ids.
    #[error(
        "{tier} capacity {capacity} is {pages} widened pages, more than the {max} that page ids can name"
    )]
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
}
