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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shards(start: u64, tokens: u64, dcp: u32) -> (u64, Vec<(u64, u64, u64)>) {
        let stripe = Stripe::new(dcp, 64).unwrap();
        let plan = GatherPlan::new(stripe, TokenPos::new(start), tokens, 1 << 20).unwrap();
        let piece = plan.pieces().next().unwrap();
        let shard = |rank| {
            let shard = piece.shard(rank);
            (shard.left_pad, shard.local, shard.right_pad)
        };
        (piece.padded_rows(), stripe.ranks().map(shard).collect())
    }

    #[test]
    fn padding_by_phase() {
        let (l, m, r) = ((1, 0, 0), (0, 1, 0), (0, 0, 1));
        let two = (0, 2, 0);
        assert_eq!(shards(5, 7, 4), (2, vec![(1, 1, 0), two, two, two]));
        assert_eq!(shards(1, 2, 4), (1, vec![l, m, m, r]));
        assert_eq!(shards(3, 1, 4), (1, vec![l, l, l, m]));
        let mut want = vec![(1, 1, 0); 6];
        want.extend([two, two]);
        assert_eq!(shards(6, 10, 8), (2, want));
    }

    #[test]
    fn a_million_tokens_in_pieces_of_a_workspace() {
        let stripe = Stripe::new(16, 64).unwrap();
        let plan = GatherPlan::new(stripe, TokenPos::new(0), 976_384, 1 << 18).unwrap();
        let pieces: Vec<_> = plan.pieces().collect();
        let rows: Vec<_> = pieces.iter().map(|p| p.gathered_rows()).collect();
        assert_eq!(rows, [262_144, 262_144, 262_144, 189_952]);
        let local: Vec<_> = pieces.iter().map(|p| p.shard(Rank::new(0)).local).collect();
        assert_eq!(local, [16_384, 16_384, 16_384, 11_872]);
        let batch = ExtendLayout::new(&[(976_384, 16_384)]).unwrap();
        assert_eq!(batch.rows(), 992_768);
    }

    #[test]
    fn rows_of_a_batch_are_prefixes_then_new_tokens() {
        let stripe = Stripe::new(4, 1).unwrap();
        // Requests at slots 56.. and 40.., one row a page on each rank.
        let pages = |first: u32, n: u32| (first..first + n).map(L1Page::new).collect::<Vec<_>>();
        for rank in stripe.ranks() {
            let mut rows = Vec::new();
            for (tokens, pages) in [(4, pages(14, 2)), (8, pages(10, 2))] {
                let plan = GatherPlan::new(stripe, TokenPos::new(0), tokens, 64).unwrap();
                for piece in plan.pieces() {
                    rows.extend(piece.source_rows(rank, &pages).unwrap());
                }
            }
            let starts: Vec<_> = rows.iter().map(|r| r.start.get()).collect();
            assert_eq!(starts, [14, 10, 11]);
        }
        let batch = ExtendLayout::new(&[(4, 2), (8, 3)]).unwrap();
        assert_eq!((batch.prefix_rows(), batch.rows()), (12, 17));
        assert_eq!(batch.row(1, 7), Some(11));
        assert_eq!(batch.row(0, 5), Some(13));
        assert_eq!(batch.row(1, 8), Some(14));
        assert_eq!(batch.row(1, 11), None);
        assert_eq!(batch.row(2, 0), None);
    }

    #[test]
    fn too_small_too_long_and_too_few_pages_are_refused() {
        let stripe = Stripe::new(8, 2).unwrap();
        let error = GatherPlan::new(stripe, TokenPos::new(0), 9, 7).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a workspace of 7 rows for 1 requests is less than 8 rows for each"
        );
        assert!(GatherPlan::new(stripe, TokenPos::new(u64::MAX), 1, 8).is_err());
        let plan = GatherPlan::new(stripe, TokenPos::new(15), 2, 64).unwrap();
        let piece = plan.pieces().next().unwrap();
        let error = piece.source_rows(Rank::new(0), &[L1Page::new(3)]);
        let position = 16;
        assert_eq!(error, Err(GatherError::NoPage { position, pages: 1 }));
        assert!(ExtendLayout::new(&[(u64::MAX, 1)]).is_err());
    }

    proptest! {
        #[test]
        fn b16_any_span_in_any_pieces_comes_back_in_token_order(
            dcp in 1u32..9,
            interleave in 1u32..4,
            parts in 1u32..4,
            start in 0u64..200,
            tokens in 0u64..200,
            extra in 0u64..90,
        ) {
            let stripe = Stripe::with_interleave(dcp, interleave * parts, interleave).unwrap();
            let workspace = stripe.cycle_tokens() + extra;
            let pages: Vec<_> = (0..stripe.pages_for(start + tokens))
                .map(|k| L1Page::new(u32::try_from(k * 7 % 101 + 1).unwrap()))
                .collect();
            let plan = GatherPlan::new(stripe, TokenPos::new(start), tokens, workspace).unwrap();
            let mut restored = Vec::new();
            for piece in plan.pieces() {
                prop_assert!(piece.gathered_rows() <= workspace);
                let mut gathered = Vec::new();
                for rank in stripe.ranks() {
                    let shard = piece.shard(rank);
                    prop_assert_eq!(
                        shard.left_pad + shard.local + shard.right_pad,
                        piece.padded_rows()
                    );
                    gathered.extend((0..shard.left_pad).map(|_| None));
                    for rows in piece.source_rows(rank, &pages).unwrap() {
                        gathered.extend((rows.start.get()..rows.end.get()).map(|row| {
                            Some((rank, row))
                        }));
                    }
                    gathered.extend((0..shard.right_pad).map(|_| None));
                }
                prop_assert_eq!(gathered.len() as u64, piece.gathered_rows());
                restored.extend(piece.indices().map(|i| gathered[usize::try_from(i).unwrap()]));
            }
            let want: Vec<_> = (start..start + tokens)
                .map(|p| {
                    let slot = stripe.slot_at(&pages, TokenPos::new(p)).unwrap();
                    Some((stripe.owner_of_slot(slot), stripe.row_on_owner(slot).get()))
                })
                .collect();
            prop_assert_eq!(restored, want);
        }
    }
}
