// SPDX-License-Identifier: Apache-2.0
//! Page allocators: whole widened pages of a tier, and on top of them the tokens of requests.
//!
//! Invariants:
//! 1. free + handed out + reserved = total, and a page is in one of the three.
//! 2. Every call is all or nothing: a refused call changes nothing.
//! 3. Memory is fixed at construction (one bit a page and its summaries), whatever the history.
//!
//! Nothing here knows of copies in flight: a page whose copy has not ended must not be freed yet.

mod bitmap;
mod pages;
mod widened;

pub use pages::{AllocError, PageAllocator, Shortage};
pub use widened::{AllocOutcome, Growing, SlotRuns, WidenedAllocator, WidenedError};
