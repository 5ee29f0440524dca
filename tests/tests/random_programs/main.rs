// SPDX-License-Identifier: Apache-2.0
//! Random programs of calls against the reference cache, on stepped devices: after every call all
//! invariants hold and no operation has raced with another; every page that a request was given as
//! a hit holds the bytes of its prefix on every rank in every layer of every pool; in the end no page
//! is lost.
//!
//! Engines have the striped pool alone, or others beside it: replicated ones, of other rows and
//! layers, and striped ones. Leases are dropped by the owner, by another thread that the owner waits
//! for, or, in half of the programs, by threads that it does not wait for. Such a program is not the
//! same twice, so a failing one is shrunk to a program that waits if that fails as well, and else
//! each smaller one is given several chances.
//!
//! 2 * 10^5 calls by default, ten times as many with `STRIATA_LONG=1`. A program that fails is shrunk and kept in
//! `tests/tests/proptest-regressions`.
//!
//! Seen to fail, each within seconds, when a load does not wait for the fence of its targets, when
//! sources of loads are not pinned, and when a released page forgets its fence; when an operation
//! ends with its main pool, when the gates or the fences of side pools are not waited for, and when
//! side pools are left out of stores or loads; when the stack of dropped leases is emptied by a load
//! and a store instead of a swap.

mod strategies;

use std::cell::{Cell, RefCell};

use proptest::prelude::{ProptestConfig, Strategy};
use proptest::test_runner::TestRunner;
use striata::PlannerStats;
use striata_tests::programs::{Droppers, End, Machine, Program};

use strategies::{end, program};

/// Calls of a program.
const CALLS: usize = 100;
/// Programs of each of the two tests: 10^5 calls.
const PROGRAMS: u32 = 1000;

/// Runs of a program that may go differently each time, once one has failed.
const CHANCES: u32 = 20;

fn run(program: &Program, droppers: &Droppers) -> (PlannerStats, u64) {
    let mut machine = Machine::new(program, droppers);
    for op in &program.ops {
        machine.step(op);
    }
    machine.finish()
}

/// Notes that a program has failed.
struct Watch<'a>(&'a Cell<bool>);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() || std::thread::panicking());
    }
}

/// Runs many programs, and sees that all that matters has occurred in them.
fn run_all(test_name: &'static str, resets: bool) {
    let long = std::env::var_os("STRIATA_LONG").is_some_and(|value| value == "1");
    let config = ProptestConfig {
        cases: if long { 10 * PROGRAMS } else { PROGRAMS },
        max_shrink_iters: 20_000,
        max_shrink_time: 240_000,
        source_file: Some(file!()),
        test_name: Some(test_name),
        ..ProptestConfig::default()
    };
    let occurred = RefCell::new([0; 10]);
    let (droppers, shrinking) = (Droppers::new(2), Cell::new(false));
    let done = TestRunner::new(config).run(&program(CALLS, resets), |program| {
        let _watch = Watch(&shrinking);
        if shrinking.get() && program.concurrent {
            for _ in 1..CHANCES {
                run(&program, &droppers);
            }
        }
        let (stats, overlaps) = run(&program, &droppers);
        let mixed = program.sizes.sides.iter().any(Option::is_some);
        let counts = [
            overlaps,
            if mixed { stats.loaded_pages } else { 0 },
            stats.loaded_pages,
            stats.failed_load_pages,
            stats.cancelled_loads,
            stats.failed_store_pages,
            stats.duplicate_pages,
            stats.skipped_store_pages,
            stats.deferred_store_pages,
            stats.evicted_pages_l2,
        ];
        let mut occurred = occurred.borrow_mut();
        occurred
            .iter_mut()
            .zip(counts)
            .for_each(|(sum, n)| *sum += n);
        Ok(())
    });
    if let Err(failed) = done {
        panic!("{failed}");
    }
    let occurred = occurred.into_inner();
    eprintln!("{occurred:?}");
    assert!(occurred.iter().all(|sum| *sum > 20), "{occurred:?}");
}

/// What cache events tell and what lookups find is the same as well.
#[test]
fn what_is_readable_is_right() {
    run_all("what_is_readable_is_right", false);
}

#[test]
fn what_is_readable_after_resets_is_right() {
    run_all("what_is_readable_after_resets_is_right", true);
}

/// Programs in which a device dies, or a copy is refused, after a half of the calls.
const BROKEN_PROGRAMS: u32 = 300;

/// A device dies at any operation, or a copy is refused, in the middle of a program: whoever asks
/// afterwards is told the first cause, nothing that was read is wrong, and every page and operation
/// is accounted for.
///
/// Seen to fail if a device that is found lost by a poll does not poison the engine, if an order that
/// is refused does not, and if an event that could not be recorded is passed over.
#[test]
fn a_broken_engine_says_so_and_loses_nothing() {
    let config = ProptestConfig {
        cases: BROKEN_PROGRAMS,
        max_shrink_time: 120_000,
        source_file: Some(file!()),
        test_name: Some("a_broken_engine_says_so_and_loses_nothing"),
        ..ProptestConfig::default()
    };
    let struck = Cell::new(0);
    let droppers = Droppers::new(2);
    let programs = (program(CALLS / 2, true), end()).prop_map(|(program, end)| {
        let (rank, class, nth, fault) = end;
        let end = End {
            rank,
            class,
            nth,
            fault,
        };
        (program, end)
    });
    let done = TestRunner::new(config).run(&programs, |(program, end)| {
        let mut machine = Machine::new(&program, &droppers);
        let (whole, broken) = program.ops.split_at(program.ops.len() / 2);
        whole.iter().for_each(|op| machine.step(op));
        if machine.break_down(end, broken) {
            struck.set(struck.get() + 1);
        }
        Ok(())
    });
    if let Err(failed) = done {
        panic!("{failed}");
    }
    assert!(struck.get() > BROKEN_PROGRAMS / 4, "{}", struck.get());
}
