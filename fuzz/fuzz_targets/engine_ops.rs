// SPDX-License-Identifier: Apache-2.0
//! See `striata_fuzz::engine_ops`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: striata_fuzz::engine_ops::Input| striata_fuzz::engine_ops::run(&input));
