// SPDX-License-Identifier: Apache-2.0
//! See `striata_fuzz::prefix_ops`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: striata_fuzz::prefix_ops::Input| striata_fuzz::prefix_ops::run(&input));
