// SPDX-License-Identifier: Apache-2.0
//! Fixtures shared by the cross-crate tests: decode batches laid out over ranks for the references,
//! and a small engine whose rows are written and read from
//! the host, position by position, without any kernel of the project.
#![forbid(unsafe_code)]

pub mod mla;
pub mod rig;
