// SPDX-License-Identifier: Apache-2.0
//! t
#![forbid(unsafe_code)]
mod plot;
fn main() {}
