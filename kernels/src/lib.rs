// SPDX-License-Identifier: Apache-2.0
//! Kernel contracts of Striata and their CPU references. Nothing here launches anything.
//!
//! | entry | what it does | bytes it moves |
//! |---|---|---|
//! | [`rows::fill`] | writes fingerprints into row spans of one layer's plane | rows x row bytes |
//! | [`rows::verify`] | compares row spans with their fingerprints, lists the rows that differ | rows x row bytes |
//! | [`reference::decode`] | attention of one rank over its rows: (o, lse) | visible rows x row bytes |
//! | [`reference::merge()`] | merges the partials of the ranks | c x rows x (o + 4 B) |
//! | [`packed::PackedForm::pack`] | the message to one destination | rows x (o + 4 B) |
#![forbid(unsafe_code)]

pub mod lse;
pub mod packed;
mod real;
pub mod reference;
pub mod rows;

pub use lse::{Base, E, EmptySentinel, LogBase, Lse, Two, Verdict};
pub use real::Real;
