// SPDX-License-Identifier: Apache-2.0
//! Fixtures shared by the cross-crate tests: decode batches laid out over ranks for the references,
//! a small engine whose rows are written and read from the host, position by position, without any
//! kernel of the project, a planner whose copies the test ends, an engine whose every operation the
//! test runs, the reference cache that it is compared with, and programs that do the comparing.
#![forbid(unsafe_code)]

pub mod decode;
pub mod mla;
pub mod model;
pub mod planned;
pub mod programs;
pub mod rig;
pub mod stepped;
