// SPDX-License-Identifier: Apache-2.0
//! The stripe of core and its twin on the device, asked the same questions.

use bytemuck::{Pod, Zeroable};
use striata_core::{Rank, Row, Slot, Stripe, TokenPos};

/// A stripe as kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StripeWords {
    /// c.
    pub dcp: u32,
    /// P.
    pub page_rows: u32,
    /// I.
    pub interleave: u32,
}

impl From<Stripe> for StripeWords {
    fn from(stripe: Stripe) -> Self {
        Self {
            dcp: stripe.dcp(),
            page_rows: stripe.page_rows(),
            interleave: stripe.interleave(),
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StripeCase {
    /// The stripe.
    pub stripe: StripeWords,
    /// A rank.
    pub rank: u32,
    /// A position, a slot, or a row.
    pub index: u64,
    /// Tokens.
    pub length: i64,
    /// Queries of a step.
    pub queries: u32,
    /// One of them.
    pub query: u32,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StripeAnswer {
    /// The rank that owns `index`.
    pub owner: u64,
    /// The row of slot `index` on its owner.
    pub row_on_owner: u64,
    /// The slot at row `index` of `rank`.
    pub slot_of: u64,
    /// Rows that `rank` owns of `length` tokens.
    pub local_len: u64,
    /// The first position from `index` on that `rank` owns.
    pub first_owned: u64,
    /// Rows that `query` of `queries` sees.
    pub visible_rows: u64,
    /// The widened page of slot `index`.
    pub page_number: u64,
    /// Offset of slot `index` in it.
    pub offset_in_page: u64,
}

const _: () = assert!(size_of::<StripeCase>() == 40 && size_of::<StripeAnswer>() == 64);

/// The answers of core. `case` must name the fields of `stripe`.
#[must_use]
pub const fn reference(stripe: Stripe, case: &StripeCase) -> StripeAnswer {
    let rank = Rank::new(case.rank);
    let slot = Slot::new(case.index);
    StripeAnswer {
        owner: stripe.owner_of_slot(slot).get() as u64,
        row_on_owner: stripe.row_on_owner(slot).get(),
        slot_of: stripe.slot_of(rank, Row::new(case.index)).get(),
        local_len: stripe.local_len(rank, case.length),
        first_owned: stripe.first_owned(rank, TokenPos::new(case.index)).get(),
        visible_rows: stripe.visible_rows(rank, case.length, case.queries, case.query),
        page_number: stripe.page_number(slot),
        offset_in_page: stripe.offset_in_page(slot),
    }
}
