// SPDX-License-Identifier: Apache-2.0
//! Relayout plans: the rows of a request that stands on one stripe, moved onto another.
//!
//! Any (c, P, I) on either side. Positions are exact, so rows behind the last token never travel,
//! and a request may be cut into any chunks: each position's two rows do not depend on the cut.

use core::ops::Range;

use crate::stripe::Stripe;
use crate::units::{PageId, Rank, Row, Tier, TokenPos};

/// Why a relayout is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayoutError {
    /// Pages that begin inside a widened page of the request.
    #[error(
        "the {side} pages begin at position {position}, which must align to the widened page of \
         {page_tokens} tokens"
    )]
    Alignment {
        /// Source or target.
        side: &'static str,
        /// Position of the first page's first token.
        position: u64,
        /// W of that side.
        page_tokens: u64,
    },
    /// Positions that a side has no page for.
    #[error(
        "positions [{start}, {end}) leave the {side} pages, which hold positions [{first}, {last})"
    )]
    OutOfPages {
        /// Source or target.
        side: &'static str,
        /// First position asked for.
        start: u64,
        /// Position after the last.
        end: u64,
        /// First position of the pages.
        first: u64,
        /// Position after their last.
        last: u64,
    },
}

/// A request's pages on one side, the first of which holds position `first` on.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a, T: Tier> {
    stripe: Stripe,
    pages: &'a [PageId<T>],
    first: u64,
}

impl<'a, T: Tier> Placement<'a, T> {
    /// Pages that hold the request from its beginning.
    #[must_use]
    pub const fn new(stripe: Stripe, pages: &'a [PageId<T>]) -> Self {
        Self {
            stripe,
            pages,
            first: 0,
        }
    }

    /// The same pages, the first of which holds position `first` on: a prefix is elsewhere.
    #[must_use]
    pub const fn from_position(self, first: TokenPos) -> Self {
        Self {
            first: first.get(),
            ..self
        }
    }

    fn span(self) -> Range<u64> {
        let tokens = (self.pages.len() as u64).saturating_mul(self.stripe.widened_page());
        self.first..self.first.saturating_add(tokens)
    }

    fn check(self, side: &'static str, positions: &Range<u64>) -> Result<(), RelayoutError> {
        if !self.stripe.is_whole_pages(self.first) {
            return Err(RelayoutError::Alignment {
                side,
                position: self.first,
                page_tokens: self.stripe.widened_page(),
            });
        }
        let span = self.span();
        let inside = positions.start >= span.start && positions.end <= span.end;
        if positions.is_empty() || inside {
            return Ok(());
        }
        Err(RelayoutError::OutOfPages {
            side,
            start: positions.start,
            end: positions.end,
            first: span.start,
            last: span.end,
        })
    }

    fn locate(self, position: u64) -> Option<(Rank, Row)> {
        let at = TokenPos::new(position.checked_sub(self.first)?);
        let slot = self.stripe.slot_at(self.pages, at)?;
        Some((
            self.stripe.owner_of_slot(slot),
            self.stripe.row_on_owner(slot),
        ))
    }
}

/// The relayout of the positions of a request from one placement to another.
#[derive(Clone, Debug)]
pub struct Relayout<'a, S: Tier, T: Tier> {
    source: Placement<'a, S>,
    target: Placement<'a, T>,
    positions: Range<u64>,
}

impl<'a, S: Tier, T: Tier> Relayout<'a, S, T> {
    /// Moves `positions` from `source` to `target`.
    ///
    /// # Errors
    /// Pages that do not begin at a widened page; positions that a side has no page for.
    pub fn new(
        source: Placement<'a, S>,
        target: Placement<'a, T>,
        positions: Range<u64>,
    ) -> Result<Self, RelayoutError> {
        source.check("source", &positions)?;
        target.check("target", &positions)?;
        Ok(Self {
            source,
            target,
            positions,
        })
    }

    /// The positions that move.
    #[must_use]
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Whether whole pages move from each rank to the rank of the same number: same stripe, and
    /// pages that begin together.
    #[must_use]
    pub fn is_page_copy(&self) -> bool {
        self.source.stripe == self.target.stripe
            && self.source.stripe.is_whole_pages(self.positions.start)
    }

    /// Tokens after which source and target pages begin together: lcm(W, W').
    #[must_use]
    pub const fn common_span(&self) -> u64 {
        self.source.stripe.common_span(self.target.stripe)
    }

    /// The moves of the part of `positions` that lies in the relayout, by pair of ranks.
    ///
    /// **Cost** O(positions).
    #[must_use]
    pub fn chunk(&self, positions: Range<u64>) -> RelayoutChunk {
        let start = positions.start.max(self.positions.start);
        let end = positions.end.min(self.positions.end);
        let mut chunk = RelayoutChunk {
            pairs: Vec::new(),
            targets: self.target.stripe.dcp(),
        };
        for position in start..end {
            let (Some((from, source)), Some((to, target))) =
                (self.source.locate(position), self.target.locate(position))
            else {
                break;
            };
            let at = chunk
                .pairs
                .binary_search_by_key(&(from, to), |pair| (pair.from, pair.to));
            let at = at.unwrap_or_else(|at| {
                let pair = PairMoves::between(from, to);
                chunk.pairs.insert(at, pair);
                at
            });
            chunk.pairs[at].source_rows.push(source);
            chunk.pairs[at].target_rows.push(target);
        }
        chunk
    }

    /// All moves as one chunk.
    #[must_use]
    pub fn whole(&self) -> RelayoutChunk {
        self.chunk(self.positions())
    }
}

/// Rows that one source rank sends to one target rank, in token order: row i of one list goes to
/// row i of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairMoves {
    from: Rank,
    to: Rank,
    source_rows: Vec<Row>,
    target_rows: Vec<Row>,
}

impl PairMoves {
    const fn between(from: Rank, to: Rank) -> Self {
        Self {
            from,
            to,
            source_rows: Vec::new(),
            target_rows: Vec::new(),
        }
    }

    /// The source rank.
    #[must_use]
    pub const fn from(&self) -> Rank {
        self.from
    }
    /// The target rank.
    #[must_use]
    pub const fn to(&self) -> Rank {
        self.to
    }
    /// Rows of the source rank's buffer.
    #[must_use]
    pub fn source_rows(&self) -> &[Row] {
        &self.source_rows
    }
    /// Rows of the target rank's buffer; as many.
    #[must_use]
    pub fn target_rows(&self) -> &[Row] {
        &self.target_rows
    }
}

/// The moves of one send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayoutChunk {
    pairs: Vec<PairMoves>,
    targets: u32,
}

impl RelayoutChunk {
    /// The pairs of ranks that have rows to move, by source, then target.
    #[must_use]
    pub fn pairs(&self) -> &[PairMoves] {
        &self.pairs
    }

    /// Rows that each target rank receives, in rank order. A rank with 0 rows still gets its
    /// completion.
    #[must_use]
    pub fn completions(&self) -> Vec<(Rank, u64)> {
        let mut rows: Vec<_> = (0..self.targets).map(|to| (Rank::new(to), 0)).collect();
        for pair in &self.pairs {
            rows[pair.to.get() as usize].1 += pair.target_rows.len() as u64;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::units::L1;
    use proptest::prelude::*;

    fn pages(ids: &[u32]) -> Vec<PageId<L1>> {
        ids.iter().map(|&id| PageId::new(id)).collect()
    }

    #[test]
    fn a_prefix_on_either_side_shifts_the_pages() {
        let (one, two) = (Stripe::new(1, 2).unwrap(), Stripe::new(2, 2).unwrap());
        let (src, dst) = (pages(&[9, 3]), pages(&[4, 6]));
        let source = Placement::new(one, &src).from_position(TokenPos::new(6));
        let target = Placement::new(two, &dst).from_position(TokenPos::new(4));
        let plan = Relayout::new(source, target, 6..10).unwrap();
        let rows: Vec<_> = plan
            .whole()
            .pairs()
            .iter()
            .map(|pair| {
                let list = |rows: &[Row]| rows.iter().map(|r| r.get()).collect::<Vec<_>>();
                (list(pair.source_rows()), list(pair.target_rows()))
            })
            .collect();
        assert_eq!(
            rows,
            [(vec![18, 6], vec![9, 12]), (vec![19, 7], vec![9, 12])]
        );
        let odd = Placement::new(two, &dst).from_position(TokenPos::new(1));
        let error = Relayout::new(source, odd, 6..10).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("target pages begin at position 1, which must align")
        );
        let error = Relayout::new(source, target, 6..11).unwrap_err();
        assert_eq!(
            error.to_string(),
            "positions [6, 11) leave the source pages, which hold positions [6, 10)"
        );
    }

    #[test]
    fn equal_stripes_take_the_page_path() {
        let stripe = Stripe::new(4, 2).unwrap();
        let ids = pages(&[5, 2]);
        let place = Placement::new(stripe, &ids);
        assert!(Relayout::new(place, place, 0..9).unwrap().is_page_copy());
        assert!(!Relayout::new(place, place, 1..9).unwrap().is_page_copy());
        let other = Placement::new(Stripe::new(3, 2).unwrap(), &ids);
        let plan = Relayout::new(place, other, 0..9).unwrap();
        assert!(!plan.is_page_copy());
        assert_eq!(plan.common_span(), 24);
    }

    #[allow(clippy::reversed_empty_ranges, reason = "a caller may pass one")]
    #[test]
    fn an_empty_chunk_still_completes_on_every_rank() {
        let (one, four) = (Stripe::new(1, 2).unwrap(), Stripe::new(4, 2).unwrap());
        let (src, dst) = (pages(&[1, 2]), pages(&[3]));
        let plan =
            Relayout::new(Placement::new(one, &src), Placement::new(four, &dst), 0..3).unwrap();
        for range in [3..4, 2..2, 9..1] {
            let chunk = plan.chunk(range);
            assert!(chunk.pairs().is_empty());
            let want: Vec<_> = (0..4).map(|r| (Rank::new(r), 0)).collect();
            assert_eq!(chunk.completions(), want);
        }
    }

    proptest! {
        #[test]
        fn b47_any_cut_moves_every_position_once_to_the_same_place(
            c1 in 1u32..6, p1 in 1u32..5, c2 in 1u32..6, p2 in 1u32..5,
            tokens in 0u64..80,
            mut cuts in proptest::collection::vec(0u64..80, 0..5),
        ) {
            let (a, b) = (Stripe::new(c1, p1).unwrap(), Stripe::new(c2, p2).unwrap());
            let ids = |stripe: Stripe| -> Vec<PageId<L1>> {
                let n = u32::try_from(stripe.pages_for(tokens)).unwrap();
                (0..n).rev().map(PageId::new).collect()
            };
            let (src, dst) = (ids(a), ids(b));
            let plan =
                Relayout::new(Placement::new(a, &src), Placement::new(b, &dst), 0..tokens).unwrap();
            cuts.push(tokens);
            cuts.sort_unstable();
            let mut moved = BTreeMap::new();
            let mut from = 0;
            for to in cuts {
                let to = to.min(tokens);
                let chunk = plan.chunk(from..to);
                let rows: u64 = chunk.completions().iter().map(|c| c.1).sum();
                prop_assert_eq!(rows, to - from);
                for pair in chunk.pairs() {
                    for (s, d) in pair.source_rows().iter().zip(pair.target_rows()) {
                        let again = moved.insert((pair.to(), *d), (pair.from(), *s));
                        prop_assert!(again.is_none());
                    }
                }
                from = to;
            }
            for p in (0..tokens).map(TokenPos::new) {
                let s = a.slot_at(&src, p).unwrap();
                let d = b.slot_at(&dst, p).unwrap();
                let to = (b.owner_of_slot(d), b.row_on_owner(d));
                let from = (a.owner_of_slot(s), a.row_on_owner(s));
                prop_assert_eq!(moved.remove(&to), Some(from));
            }
            prop_assert!(moved.is_empty());
        }
    }
}
