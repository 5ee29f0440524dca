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
//! | [`row_list::gather`] | rows of a plane by list to a dense buffer | 2 x rows x row bytes |
//! | [`row_list::scatter`] | rows of a dense buffer by list to a plane | 2 x rows x row bytes |
//! | [`cells::places`] | cells of the planes of many layers, to and from a far side | 2 x cells x layers x cell bytes |
//! | [`table::TableParams`] | page tables of a batch on one rank | cells x 4 |
//! | [`page_copy::PageCopyParams`] | pages between planes and mapped host memory in one launch | pages x page bytes |
//! | [`page_copy::READ_UNIT`] | memory is read and nothing is kept, for measurements of bandwidth | all of it |
//! | [`decode::PlanShape::build`] | the plan of a step | cells x 4, rounded to what changed |
//! | [`decode::write::WriteShape::write`] | new rows into a plane of any format | rows x (1152 B + row bytes) |
//! | [`decode::attend::HostAttend::run`] | attention over planes of any format | visible rows x row bytes |
//! | [`decode::message::HostMerge::run`] | the merge of packed messages | c x rows x (o + 4 B) |
//! | [`decode::prefix::HostPrefix::run`] | a prefix in token order | rows x (row bytes + 1152 B) |
//! | [`values::fill`] | rows of bf16 values that follow from seeds | rows x row bytes |
//! | [`stripe_twin::reference`] | the stripe, asked for comparison | - |
//!
//! [`source`] holds the CUDA text of all of them.
#![forbid(unsafe_code)]

pub mod cells;
pub mod decode;
pub mod lse;
pub mod packed;
pub mod page_copy;
mod real;
pub mod reference;
pub mod row_list;
pub mod rows;
pub mod source;
pub mod spans;
pub mod stripe_twin;
pub mod table;
pub mod values;

pub use lse::{Base, E, EmptySentinel, LogBase, Lse, Two, Verdict};
pub use real::Real;
