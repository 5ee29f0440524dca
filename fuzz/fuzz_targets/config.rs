// SPDX-License-Identifier: Apache-2.0
//! See `striata_fuzz::config`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| striata_fuzz::config::run(text));
