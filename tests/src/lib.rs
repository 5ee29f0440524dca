// SPDX-License-Identifier: Apache-2.0
//! Fixtures shared by the cross-crate tests: a small engine whose rows are written and read from
//! the host, position by position, without any kernel of the project.
#![forbid(unsafe_code)]

pub mod rig;
