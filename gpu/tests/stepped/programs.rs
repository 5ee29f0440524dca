// SPDX-License-Identifier: Apache-2.0
//! Random programs on three devices, against the models of [`Machine`].

use proptest::prelude::*;
use striata_gpu::sim::ScheduleTrace;
use striata_gpu::{Direction, GpuError};

use crate::machine::{Act, DEVICES, HOST_PAGES, Machine, PAGES, STREAMS, Where};

fn device_page() -> impl Strategy<Value = Where> {
    (0..DEVICES, 0..PAGES)
}

fn act() -> impl Strategy<Value = Act> {
    let direction = prop_oneof![Just(Direction::HostToDevice), Just(Direction::DeviceToHost)];
    prop_oneof![
        1 => (device_page(), any::<u8>()).prop_map(|(at, value)| Act::Write(at, value)),
        1 => device_page().prop_map(Act::Read),
        6 => (0..STREAMS, direction, device_page(), 0..HOST_PAGES)
            .prop_map(|(stream, direction, at, host)| Act::Copy(stream, direction, at, host)),
        1 => (0..STREAMS, any::<usize>()).prop_map(|(stream, copy)| Act::Wait(stream, copy)),
        1 => any::<usize>().prop_map(Act::Sync),
        2 => (0..6usize).prop_map(Act::Steps),
    ]
}

/// Runs a program; whether a race was reported and whether there is one, and the order.
fn run(seed: u64, program: &[(Act, bool)]) -> (bool, bool, ScheduleTrace) {
    let mut machine = Machine::new(seed);
    let acts = program.iter();
    let result = acts
        .clone()
        .try_for_each(|(act, careful)| machine.act(act, *careful))
        .and_then(|()| machine.finish());
    let bugs = machine.scheduler.bugs();
    match &result {
        Ok(()) => assert_eq!(bugs, []),
        Err(bug @ GpuError::Hazard { .. }) => assert_eq!(bugs, core::slice::from_ref(bug)),
        Err(other) => panic!("{other}"),
    }
    (result.is_err(), machine.raced, machine.scheduler.trace())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A race is reported if and only if there is one, whatever the order; without one, all bytes
    /// are those of the model. The seed gives the same order again.
    #[test]
    fn random_programs_equal_a_sequential_model_or_are_reported(
        seed in any::<u64>(),
        program in prop::collection::vec((act(), prop::bool::weighted(0.98)), 1..60),
    ) {
        let first = run(seed, &program);
        prop_assert_eq!(first.0, first.1);
        prop_assert_eq!(&run(seed, &program), &first);
        let other = run(seed ^ 1, &program);
        prop_assert_eq!(other.0, first.0);
    }
}
