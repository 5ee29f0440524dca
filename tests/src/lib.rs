// SPDX-License-Identifier: Apache-2.0
//! Fixtures shared by the cross-crate tests.

pub mod mla;
