// SPDX-License-Identifier: Apache-2.0
//! Kernel contracts of Striata and their CPU references. Nothing here launches anything.
//!
//! | entry | what it does | bytes it moves |
//! |---|---|---|
//! | [`rows::fill`] | writes fingerprints into row spans of one layer's plane | rows x row bytes |
//! | [`rows::verify`] | compares row spans with their fingerprints, lists the rows that differ | rows x row bytes |
#![forbid(unsafe_code)]

pub mod rows;
