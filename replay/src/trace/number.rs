// SPDX-License-Identifier: Apache-2.0
//! Numbers of a trace: read as they stand, then checked with their name.

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::error::TraceProblem;
use super::request::MAX_TOKENS;

/// A whole number of any sign, so that a negative one can be refused by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(pub(super) i128);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor;
        impl Visitor<'_> for WholeVisitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Whole, E> {
                Ok(Whole(value.into()))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Whole, E> {
                Ok(Whole(value.into()))
            }
        }
        deserializer.deserialize_any(WholeVisitor)
    }
}

impl Whole {
    fn at_most(self, field: &'static str, most: u64) -> Result<u64, TraceProblem> {
        u64::try_from(self.0)
            .ok()
            .filter(|value| *value <= most)
            .ok_or_else(|| TraceProblem::OutOfRange {
                field,
                value: self.0.to_string(),
                range: format!("0 to {most}"),
            })
    }

    /// A number of prompt or generated tokens. Real traces have requests without a prompt.
    pub(super) fn tokens(self, field: &'static str) -> Result<u64, TraceProblem> {
        self.at_most(field, MAX_TOKENS)
    }

    /// An id or a number of a session, below `2^bits`.
    pub(super) fn below_bits(self, field: &'static str, bits: u32) -> Result<u64, TraceProblem> {
        self.at_most(field, (1 << bits) - 1)
    }
}

/// Checks an arrival and returns it in seconds.
pub(super) fn seconds(
    field: &'static str,
    value: f64,
    per_second: f64,
) -> Result<f64, TraceProblem> {
    const MOST: f64 = 1e12;
    if value.is_finite() && (0.0..=MOST).contains(&value) {
        return Ok(value / per_second);
    }
    Err(TraceProblem::OutOfRange {
        field,
        value: value.to_string(),
        range: format!("0 to {MOST:e}"),
    })
}

/// Checks that `blocks` ids fit `tokens` input tokens.
pub(super) fn check_blocks(
    blocks: u64,
    tokens: u64,
    block_tokens: u32,
    least: u64,
) -> Result<(), TraceProblem> {
    let most = tokens.div_ceil(u64::from(block_tokens));
    if (least..=most).contains(&blocks) {
        return Ok(());
    }
    Err(TraceProblem::BlockCount {
        blocks,
        tokens,
        least,
        most,
        block_tokens,
    })
}
