// SPDX-License-Identifier: Apache-2.0
//! Copy plans: which rows of which tier go where, checked once for an operation and the same on
//! every rank.
//!
//! The call takes the two slot lists of the widened space or a list of page pairs; both forms of
//! the same copy give equal plans. What a plan guarantees:
//!
//! 1. It names whole widened pages; no row is filtered, and a page's rows are contiguous.
//! 2. Every page is in range on its tier, and no destination is written twice.
//! 3. It carries the pool kind and the stripe that it was made for ([`CopyPlan::check_for`]).
//!
//! Planning may name L1 page 0; who hands out pages refuses the sink.

mod error;
mod moves;
mod pages;
mod slots;

pub use error::PlanError;
pub use moves::{MoveError, TokenMove, check_move};

use serde::{Deserialize, Serialize};

use crate::geometry::PoolKind;
use crate::stripe::Stripe;
use crate::units::{PagePair, Rank, Row};

/// Which way a planned copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// L2 to L1, a load-back.
    HostToDevice,
    /// L1 to L2, a store.
    DeviceToHost,
}

/// Rows that one rank copies as one piece in every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowRun {
    /// First row of the L1 buffer.
    pub device_row: Row,
    /// First row of the L2 buffer.
    pub host_row: Row,
    /// Rows, at least one.
    pub rows: u64,
}

/// A checked copy of whole widened pages between the tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    kind: PoolKind,
    stripe: Stripe,
    direction: CopyDirection,
    pages: Vec<PagePair>,
}

/// The stripe by which slots of a pool of `kind` fall into pages.
const fn paging(kind: PoolKind, stripe: Stripe) -> Stripe {
    match kind {
        PoolKind::Striped | PoolKind::Replicated => stripe,
        // A slot a request: never widened, never translated.
        PoolKind::PerRequest => stripe.alone(),
    }
}

/// Rows of a page on one rank of a pool of `kind`.
const fn page_rows(kind: PoolKind, stripe: Stripe) -> u64 {
    match kind {
        PoolKind::Striped | PoolKind::PerRequest => stripe.page_rows() as u64,
        PoolKind::Replicated => stripe.widened_page(),
    }
}

impl CopyPlan {
    /// The kind of pool that the plan was made for.
    #[must_use]
    pub const fn kind(&self) -> PoolKind {
        self.kind
    }
    /// The stripe that the plan was made for.
    #[must_use]
    pub const fn stripe(&self) -> Stripe {
        self.stripe
    }
    /// Which way it goes.
    #[must_use]
    pub const fn direction(&self) -> CopyDirection {
        self.direction
    }
    /// The pages, in the order given.
    #[must_use]
    pub fn pages(&self) -> &[PagePair] {
        &self.pages
    }
    /// Whether nothing is to be copied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
    /// Rows that each rank copies in each layer.
    #[must_use]
    pub fn rows_per_rank(&self) -> u64 {
        self.pages.len() as u64 * page_rows(self.kind, self.stripe)
    }

    /// Tokens (slots of a `PerRequest` pool) in the first `pages` pages of the plan.
    #[must_use]
    pub fn tokens_of(&self, pages: usize) -> u64 {
        let pages = pages.min(self.pages.len()) as u64;
        pages * paging(self.kind, self.stripe).widened_page()
    }

    /// What is left when the first `tokens` tokens are copied: the plan from the first page that
    /// they do not fill wholly. The unit is tokens so that pools of other page sizes resume at
    /// the same token, each at a page of its own.
    #[must_use]
    pub fn resume_at(&self, tokens: u64) -> Self {
        let done = paging(self.kind, self.stripe).whole_pages(tokens);
        let done = usize::try_from(done).unwrap_or(usize::MAX);
        Self {
            pages: self.pages.get(done..).unwrap_or_default().to_vec(),
            ..*self
        }
    }

    /// Checks that the plan was made for pools of `kind` divided by `stripe`.
    ///
    /// # Errors
    /// Another kind or another stripe, with both.
    pub fn check_for(&self, kind: PoolKind, stripe: Stripe) -> Result<(), PlanError> {
        if self.kind != kind {
            return Err(PlanError::Kind {
                planned: self.kind,
                actual: kind,
            });
        }
        if self.stripe != stripe {
            return Err(PlanError::Stripe {
                planned: self.stripe,
                actual: stripe,
            });
        }
        Ok(())
    }

    /// The rows that `rank` copies, adjacent pages joined; nothing for a rank outside the group.
    ///
    /// A page stands at the same rows on every rank, so the runs of all ranks are equal.
    ///
    /// **Cost** O(pages), no allocation.
    pub fn runs(&self, rank: Rank) -> Runs<'_> {
        let ours = self.stripe.check_rank(rank).is_ok();
        Runs {
            pages: if ours { &self.pages } else { &[] },
            rows: page_rows(self.kind, self.stripe),
        }
    }
}

/// Iterator of [`CopyPlan::runs`].
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    pages: &'a [PagePair],
    rows: u64,
}

impl Iterator for Runs<'_> {
    type Item = RowRun;

    fn next(&mut self) -> Option<RowRun> {
        let first = *self.pages.first()?;
        let joined = self
            .pages
            .windows(2)
            .take_while(|pair| {
                pair[0].l1.get().checked_add(1) == Some(pair[1].l1.get())
                    && pair[0].l2.get().checked_add(1) == Some(pair[1].l2.get())
            })
            .count()
            + 1;
        self.pages = &self.pages[joined..];
        Some(RowRun {
            device_row: Row::new(u64::from(first.l1.get()) * self.rows),
            host_row: Row::new(u64::from(first.l2.get()) * self.rows),
            rows: joined as u64 * self.rows,
        })
    }
}

#[cfg(test)]
mod tests;
