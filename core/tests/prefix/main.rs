// SPDX-License-Identifier: Apache-2.0
//! The prefix index against required behaviours, a flat model and a page-level LRU.
#![allow(
    clippy::cast_possible_truncation,
    reason = "tests count pages of small pools"
)]

mod behaviours;
mod keys;
mod life;
mod lru;
mod machine;
mod machine_life;
mod model;
mod tiers;
