// SPDX-License-Identifier: Apache-2.0
//! Moves of single tokens inside a tier: local on one rank, or refused.

use crate::stripe::Stripe;
use crate::units::{Rank, Row, Slot};

/// A move that one rank makes alone; every other rank does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenMove {
    /// The owner of both slots.
    pub rank: Rank,
    /// Row that is read.
    pub from: Row,
    /// Row that is written.
    pub to: Row,
}

/// Why a token move is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// A slot outside the widened space.
    #[error("{side} slot {slot} is out of range: the widened space has {capacity} slots")]
    SlotRange {
        /// Source or target.
        side: &'static str,
        /// The slot.
        slot: u64,
        /// Slots of the widened space.
        capacity: u64,
    },
    /// A row outside a rank's buffer, although its slot is in the widened space.
    #[error("{side} row {row} of slot {slot} is outside the {rows} rows of a rank's buffer")]
    RowRange {
        /// Source or target.
        side: &'static str,
        /// The slot.
        slot: u64,
        /// The row on its owner.
        row: u64,
        /// Rows of the buffer.
        rows: u64,
    },
    /// A move between ranks, which needs an exchange.
    #[error(
        "slot {from} belongs to rank {from_owner} and slot {to} to rank {to_owner}: a move \
         between ranks needs an exchange"
    )]
    Owner {
        /// Source slot.
        from: u64,
        /// Target slot.
        to: u64,
        /// Owner of the source.
        from_owner: u32,
        /// Owner of the target.
        to_owner: u32,
    },
}

/// Checks the move of the token at slot `from` to slot `to` of a striped pool.
///
/// Slots are checked against the `capacity_slots` of the widened space, rows against the
/// `buffer_rows` of a rank.
///
/// # Errors
/// A slot or row out of range; slots of different owners.
pub fn check_move(
    stripe: Stripe,
    from: Slot,
    to: Slot,
    capacity_slots: u64,
    buffer_rows: u64,
) -> Result<TokenMove, MoveError> {
    for (side, slot) in [("source", from), ("target", to)] {
        if slot.get() >= capacity_slots {
            return Err(MoveError::SlotRange {
                side,
                slot: slot.get(),
                capacity: capacity_slots,
            });
        }
        let row = stripe.row_on_owner(slot).get();
        if row >= buffer_rows {
            return Err(MoveError::RowRange {
                side,
                slot: slot.get(),
                row,
                rows: buffer_rows,
            });
        }
    }
    let (rank, to_owner) = (stripe.owner_of_slot(from), stripe.owner_of_slot(to));
    if rank != to_owner {
        return Err(MoveError::Owner {
            from: from.get(),
            to: to.get(),
            from_owner: rank.get(),
            to_owner: to_owner.get(),
        });
    }
    Ok(TokenMove {
        rank,
        from: stripe.row_on_owner(from),
        to: stripe.row_on_owner(to),
    })
}
