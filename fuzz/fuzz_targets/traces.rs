// SPDX-License-Identifier: Apache-2.0
//! See `striata_fuzz::traces`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| striata_fuzz::traces::run(bytes));
