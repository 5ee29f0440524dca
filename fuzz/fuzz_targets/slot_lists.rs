// SPDX-License-Identifier: Apache-2.0
//! See `striata_fuzz::slot_lists`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: striata_fuzz::slot_lists::Input| striata_fuzz::slot_lists::run(&input));
