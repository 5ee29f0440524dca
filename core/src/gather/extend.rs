// SPDX-License-Identifier: Apache-2.0
//! The buffer of an extend step: gathered prefixes, then new tokens.

use super::GatherError;

/// Where the rows of a batch stand in an extend buffer: all prefixes in request order, then all
/// new tokens in request order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendLayout {
    prefix_starts: Vec<u64>,
    new_starts: Vec<u64>,
}

impl ExtendLayout {
    /// The layout of requests given as (prefix tokens, new tokens).
    ///
    /// # Errors
    /// More rows than can be counted.
    pub fn new(requests: &[(u64, u64)]) -> Result<Self, GatherError> {
        let mut at = 0u64;
        let mut starts = |part: fn(&(u64, u64)) -> u64| {
            let mut starts = Vec::with_capacity(requests.len() + 1);
            starts.push(at);
            for request in requests {
                let (start, tokens) = (at, part(request));
                at = at
                    .checked_add(tokens)
                    .ok_or(GatherError::TooLong { start, tokens })?;
                starts.push(at);
            }
            Ok(starts)
        };
        Ok(Self {
            prefix_starts: starts(|request| request.0)?,
            new_starts: starts(|request| request.1)?,
        })
    }

    /// Rows of all prefixes.
    #[must_use]
    pub fn prefix_rows(&self) -> u64 {
        self.new_starts.first().copied().unwrap_or(0)
    }

    /// Rows of the buffer.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.new_starts.last().copied().unwrap_or(0)
    }

    /// The buffer row of token `position` of `request`; none if it has no such token.
    #[must_use]
    pub fn row(&self, request: usize, position: u64) -> Option<u64> {
        let span = |starts: &[u64]| Some(*starts.get(request)?..*starts.get(request + 1)?);
        let (prefix, new) = (span(&self.prefix_starts)?, span(&self.new_starts)?);
        let prefix_tokens = prefix.end - prefix.start;
        if position < prefix_tokens {
            return Some(prefix.start + position);
        }
        let behind = position - prefix_tokens;
        (behind < new.end - new.start).then(|| new.start + behind)
    }
}
