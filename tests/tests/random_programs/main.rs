// SPDX-License-Identifier: Apache-2.0
//! Random programs of calls against the reference cache, on stepped devices: after every call all
//! invariants hold and no operation has raced with another; every page that a request was given as
//! a hit holds the bytes of its prefix on every rank and layer; in the end no page is lost.
//!
//! 10^5 calls by default and 10^6 with `STRIATA_LONG=1`. A program that fails is shrunk and kept in
//! `tests/tests/proptest-regressions`.

mod machine;
mod ops;

use proptest::prelude::*;

use machine::Machine;
use ops::{Program, program};

/// Calls of a program.
const CALLS: usize = 100;
/// Programs of each of the two tests: 10^5 calls together.
const PROGRAMS: u32 = 1000;

fn programs() -> ProptestConfig {
    let long = std::env::var_os("STRIATA_LONG").is_some_and(|value| value == "1");
    ProptestConfig {
        cases: if long { 10 * PROGRAMS } else { PROGRAMS },
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

fn run(program: &Program) {
    let mut machine = Machine::new(program);
    for op in &program.ops {
        machine.step(op);
    }
    machine.finish();
}

proptest! {
    #![proptest_config(programs())]

    /// What cache events tell and what lookups find is the same as well.
    #[test]
    fn what_is_readable_is_right(program in program(CALLS, false)) {
        run(&program);
    }

    #[test]
    fn what_is_readable_after_resets_is_right(program in program(CALLS, true)) {
        run(&program);
    }
}
