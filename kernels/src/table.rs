// SPDX-License-Identifier: Apache-2.0
//! The contract of the page-table kernel; its reference is `striata_core::TableLayout`.

use bytemuck::{Pod, Zeroable};

use crate::stripe_twin::StripeWords;

/// What is the same for all places of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TableParams {
    /// The stripe.
    pub stripe: StripeWords,
    /// The rank whose tables are built.
    pub rank: u32,
    /// Rows of a kernel page; divides P.
    pub kernel_rows: u32,
    /// Cells of a place.
    pub width: u32,
    /// Places.
    pub places: u32,
    /// 0: a request's source is its widened pages; 1: the slots of its positions.
    pub from_slots: u32,
    /// 1: cells behind the live ones become empty; 0: they stay.
    pub clear: u32,
}

const _: () = assert!(size_of::<TableParams>() == 36);

/// What became of a place. Every place but a good one keeps its cells and has length 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PlaceStatus {
    /// Written.
    Good = 0,
    /// More live cells than the width.
    TooWide = 1,
    /// The request is longer than its source.
    NoSlot = 2,
    /// A slot that does not begin a widened page.
    NotPageStart = 3,
    /// A page without a cell number of 31 bits.
    PageNumber = 4,
}

impl PlaceStatus {
    /// The status of a word that the kernel wrote.
    #[must_use]
    pub const fn of(word: u32) -> Option<Self> {
        Some(match word {
            0 => Self::Good,
            1 => Self::TooWide,
            2 => Self::NoSlot,
            3 => Self::NotPageStart,
            4 => Self::PageNumber,
            _ => return None,
        })
    }
}
