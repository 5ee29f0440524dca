// SPDX-License-Identifier: Apache-2.0
//! Prefix gather for extend: rows of all ranks, back in token order.
//!
//! The gather covers whole cycles of I * c tokens, so every rank sends the same number of rows.
//! Rows that stand for no wanted token pad the ends:
//!
//! ```text
//! c = 4, start 5, 7 tokens (5..=11), 2 rows a rank
//! rank 0: pad(4) 8       rank 1: 5 9       rank 2: 6 10       rank 3: 7 11
//! gathered, by rank then row:  [pad 8 | 5 9 | 6 10 | 7 11]    index of 9: 1 * 2 + 1 = 3
//! ```
//!
//! A long prefix is gathered in pieces that fit a workspace; pieces meet at cycle edges.

mod extend;

pub use extend::ExtendLayout;

use core::ops::Range;

use crate::stripe::Stripe;
use crate::units::{L1Page, Rank, Row, TokenPos};

/// Why a gather cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// A workspace that cannot hold one row of each rank.
    #[error(
        "a workspace of {rows} rows for {requests} requests is less than {needed} rows for each"
    )]
    Workspace {
        /// Rows of the workspace.
        rows: u64,
        /// Requests that share it.
        requests: u64,
        /// Rows of the smallest piece.
        needed: u64,
    },
    /// Positions past the last that can be counted.
    #[error("{tokens} tokens from position {start} on are too many")]
    TooLong {
        /// First position.
        start: u64,
        /// Tokens.
        tokens: u64,
    },
    /// A request that is longer than its pages.
    #[error("position {position} has no page: the request has {pages} pages")]
    NoPage {
        /// The first position without one.
        position: u64,
        /// Pages of the request.
        pages: usize,
    },
}

/// Largest chunk that each of `requests` requests may gather at once in `workspace_rows` rows:
/// floor(rows / requests) rounded down to a multiple of I * c.
///
/// # Errors
/// A share of less than one cycle; the requests must take turns then.
pub const fn chunk_tokens(
    stripe: Stripe,
    workspace_rows: u64,
    requests: u64,
) -> Result<u64, GatherError> {
    let share = match workspace_rows.checked_div(requests) {
        Some(share) => stripe.round_down_to_cycle(share),
        None => stripe.round_down_to_cycle(workspace_rows),
    };
    if share == 0 {
        return Err(GatherError::Workspace {
            rows: workspace_rows,
            requests,
            needed: stripe.cycle_tokens(),
        });
    }
    Ok(share)
}

/// The gather of a span of positions, cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherPlan {
    stripe: Stripe,
    start: u64,
    end: u64,
    piece_tokens: u64,
}

impl GatherPlan {
    /// The gather of `tokens` tokens from `start` on, in pieces of at most `workspace_rows`
    /// gathered rows (padding counted).
    ///
    /// # Errors
    /// A workspace of less than one cycle; positions that cannot be counted.
    pub fn new(
        stripe: Stripe,
        start: TokenPos,
        tokens: u64,
        workspace_rows: u64,
    ) -> Result<Self, GatherError> {
        let start = start.get();
        let piece_tokens = chunk_tokens(stripe, workspace_rows, 1)?;
        // Lengths are signed elsewhere, and the padded end must be a length too.
        let end = start
            .checked_add(tokens)
            .filter(|&end| end <= (1 << 62))
            .ok_or(GatherError::TooLong { start, tokens })?;
        Ok(Self {
            stripe,
            start,
            end,
            piece_tokens,
        })
    }

    /// The pieces, in token order; none for a span of no tokens.
    pub fn pieces(self) -> impl Iterator<Item = GatherPiece> {
        let mut at = self.start;
        core::iter::from_fn(move || {
            if at >= self.end {
                return None;
            }
            let base = self.stripe.round_down_to_cycle(at);
            let end = base.saturating_add(self.piece_tokens).min(self.end);
            let piece = GatherPiece {
                stripe: self.stripe,
                start: at,
                end,
            };
            at = end;
            Some(piece)
        })
    }
}

/// Rows of one rank in a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceShard {
    /// Padding rows before the first wanted row.
    pub left_pad: u64,
    /// Wanted rows.
    pub local: u64,
    /// Padding rows behind the last wanted row.
    pub right_pad: u64,
}

/// One exchange of a gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherPiece {
    stripe: Stripe,
    start: u64,
    end: u64,
}

impl GatherPiece {
    /// The positions that the piece brings.
    #[must_use]
    pub const fn positions(self) -> Range<u64> {
        self.start..self.end
    }

    fn base(self) -> u64 {
        self.stripe.round_down_to_cycle(self.start)
    }

    /// Rows that each rank sends, padding counted.
    #[must_use]
    pub fn padded_rows(self) -> u64 {
        let cycles = self.stripe.cycles_for(self.end - self.base());
        cycles * u64::from(self.stripe.interleave())
    }

    /// Rows that all ranks send together.
    #[must_use]
    pub fn gathered_rows(self) -> u64 {
        self.padded_rows() * u64::from(self.stripe.dcp())
    }

    /// What `rank` sends: `left_pad + local + right_pad` equals [`GatherPiece::padded_rows`].
    #[must_use]
    pub fn shard(self, rank: Rank) -> PieceShard {
        let base = TokenPos::new(self.base());
        let owned = |from: TokenPos, to: u64| {
            let length = (to - from.get()).cast_signed();
            self.stripe.local_len_from(rank, from, length)
        };
        let left_pad = owned(base, self.start);
        let local = owned(TokenPos::new(self.start), self.end);
        PieceShard {
            left_pad,
            local,
            right_pad: self.padded_rows().saturating_sub(left_pad + local),
        }
    }

    /// Where the row of `position` stands in the gathered rows (rank-major: \[c\]\[padded rows\]);
    /// none if the piece does not bring it.
    #[must_use]
    pub fn index(self, position: TokenPos) -> Option<u64> {
        if !self.positions().contains(&position.get()) {
            return None;
        }
        let rank = u64::from(self.stripe.owner_of_position(position).get());
        let first = self.stripe.local_index(TokenPos::new(self.base()));
        Some(rank * self.padded_rows() + self.stripe.local_index(position) - first)
    }

    /// The gathered index of every position, in token order: the permutation that restores it.
    pub fn indices(self) -> impl Iterator<Item = u64> {
        self.positions()
            .filter_map(move |position| self.index(TokenPos::new(position)))
    }

    /// The wanted rows of `rank` in its buffer, for a request that stands on `pages`: ranges of
    /// rows in token order, one a page.
    ///
    /// # Errors
    /// A piece that reaches past the pages.
    pub fn source_rows(self, rank: Rank, pages: &[L1Page]) -> Result<Vec<Range<Row>>, GatherError> {
        if self.stripe.pages_for(self.end) > pages.len() as u64 {
            return Err(GatherError::NoPage {
                position: pages.len() as u64 * self.stripe.widened_page(),
                pages: pages.len(),
            });
        }
        let p = u64::from(self.stripe.page_rows());
        let mut at = self.stripe.local_len(rank, self.start.cast_signed());
        let end = at + self.shard(rank).local;
        let mut ranges = Vec::new();
        while at < end {
            let stop = ((at / p + 1) * p).min(end);
            let page = usize::try_from(at / p).ok().and_then(|k| pages.get(k));
            let Some(page) = page else {
                break;
            };
            let first = u64::from(page.get()) * p + at % p;
            ranges.push(Row::new(first)..Row::new(first + stop - at));
            at = stop;
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests;
