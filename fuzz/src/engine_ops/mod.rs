// SPDX-License-Identifier: Apache-2.0
//! Programs of calls of the whole engine on stepped devices, with bytes, held against the reference
//! cache: the machine of the cross-crate random programs (`striata_tests::programs`), with programs
//! that the fuzzer makes up.

mod program;

pub use program::Input;
use striata_tests::programs::{Droppers, Machine};

/// Runs a program, and in the end the engine that breaks, if the program wants that.
pub fn run(input: &Input) {
    let (program, end) = input.program();
    // Leases are dropped by a thread that the program waits for, so that it is the same every time.
    let droppers = Droppers::new(0);
    let mut machine = Machine::new(&program, &droppers);
    let whole = if end.is_some() {
        program.ops.len() / 2
    } else {
        program.ops.len()
    };
    for op in &program.ops[..whole] {
        machine.step(op);
    }
    match end {
        Some(end) => {
            machine.break_down(end, &program.ops[whole..]);
        }
        None => {
            machine.finish();
        }
    }
}
