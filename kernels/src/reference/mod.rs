// SPDX-License-Identifier: Apache-2.0
//! Plain CPU references of the decode contract: what any backend must compute, as simply as it
//! can be said. They are oracles, not a fast path.
//!
//! Shapes: B requests, s_q queries a request, H heads (those of the whole DCP group), dv latent
//! lanes, drope rotary lanes, dv + drope lanes of a row.

pub mod attention;
pub mod dense;
pub mod merge;

pub use attention::{DecodeArgs, decode};
pub use dense::DenseAttention;
pub use merge::{LseFault, MergeReport, PartialRef, merge};

use striata_core::StripeError;

use crate::decode::DecodeError;

/// The sizes of one decode call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeShape {
    /// B, requests of the batch, the padding included.
    pub batch: usize,
    /// s_q, queries of a request.
    pub queries: usize,
    /// H, query heads.
    pub heads: usize,
    /// dv, lanes of the value: the first lanes of a row.
    pub dv: usize,
    /// drope, lanes that only the scores read.
    pub drope: usize,
}

impl DecodeShape {
    /// Lanes of a row and of a query.
    #[must_use]
    pub const fn lanes(self) -> usize {
        self.dv.saturating_add(self.drope)
    }

    /// Output rows: B * s_q * H. Saturates.
    #[must_use]
    pub const fn rows(self) -> usize {
        self.batch
            .saturating_mul(self.queries)
            .saturating_mul(self.heads)
    }

    /// Request, query and head of an output row; `None` past the last one.
    #[must_use]
    pub const fn place(self, row: usize) -> Option<(usize, usize, usize)> {
        if row >= self.rows() {
            return None;
        }
        let token = row / self.heads;
        Some((token / self.queries, token % self.queries, row % self.heads))
    }
}

/// Why arguments break the contract.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// A slice has not the length that the shape asks for.
    #[error("{what} has {actual} elements, its shape asks for {expected}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// Elements that the shape asks for.
        expected: usize,
        /// Elements given.
        actual: usize,
    },
    /// A local length is not what the rank owns of the global one.
    #[error(
        "request {request}: local length {given} is wrong, rank {rank} owns {owned} of {global} \
         tokens"
    )]
    LocalLength {
        /// Index in the batch.
        request: usize,
        /// The rank.
        rank: u32,
        /// The refused local length.
        given: i32,
        /// What it owns.
        owned: u64,
        /// The global length.
        global: i32,
    },
    /// The page table is too narrow for the visible rows.
    #[error("request {request}: {pages} pages hold its visible rows, the table has {width} a row")]
    TableWidth {
        /// Index in the batch.
        request: usize,
        /// Pages needed.
        pages: u64,
        /// Entries of a table row.
        width: usize,
    },
    /// A table entry that is read names no page of the plane.
    #[error("request {request}: table entry {index} is {entry}, the plane has {pages} pages")]
    Page {
        /// Index in the batch.
        request: usize,
        /// Index in the table row.
        index: usize,
        /// The entry.
        entry: i32,
        /// Whole pages of the plane.
        pages: usize,
    },
    /// The rank is not in the group.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// A call that the decode path refuses.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

const fn check_len(
    what: &'static str,
    actual: usize,
    expected: usize,
) -> Result<(), ContractError> {
    if actual == expected {
        Ok(())
    } else {
        Err(ContractError::Length {
            what,
            expected,
            actual,
        })
    }
}
