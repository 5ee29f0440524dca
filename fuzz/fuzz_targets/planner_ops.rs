// SPDX-License-Identifier: Apache-2.0
//! See `striata_fuzz::planner_ops`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: striata_fuzz::planner_ops::Input| striata_fuzz::planner_ops::run(&input));
