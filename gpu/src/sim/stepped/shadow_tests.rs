// SPDX-License-Identifier: Apache-2.0

use super::*;
use proptest::prelude::*;

const BYTES: u64 = 24;
const AGENTS: usize = 3;

/// Every access so far and what its agent knew, byte by byte.
#[derive(Default)]
struct Naive(Vec<(Range<u64>, Access)>);

impl Naive {
    fn races(&self, bytes: &Range<u64>, access: &Access, clock: &VectorClock) -> bool {
        self.0.iter().any(|(other, old)| {
            let overlap = other.start.max(bytes.start) < other.end.min(bytes.end);
            overlap && old.mode.conflicts(access.mode) && !old.is_before(access, clock)
        })
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Read), Just(Mode::Write), Just(Mode::Append)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Up to the first race the shadow says what a list of all accesses says: an access races with
    /// the past, or with none of it.
    #[test]
    fn the_shadow_finds_what_a_list_of_all_accesses_finds(
        program in prop::collection::vec(
            (0..AGENTS, 0..BYTES, 0..BYTES, mode(), prop::option::weighted(0.8, 0..AGENTS)), 1..60,
        ),
    ) {
        let mut clocks = vec![VectorClock::default(); AGENTS];
        let mut counts = [0; AGENTS];
        let (mut shadow, mut naive) = (Shadow::default(), Naive::default());
        for (agent, a, b, mode, learns_from) in program {
            if let Some(other) = learns_from {
                let theirs = clocks[other].clone();
                clocks[agent].join(&theirs);
            }
            counts[agent] += 1;
            clocks[agent].advance(Agent::stream(agent), counts[agent]);
            let access = Access {
                agent: Agent::stream(agent),
                count: counts[agent],
                kind: OpKind::Fill,
                mode,
            };
            let bytes = a.min(b)..a.max(b);
            let clock = &clocks[agent];
            let races = !bytes.is_empty() && naive.races(&bytes, &access, clock);
            let found = shadow.touch(bytes.clone(), access, clock);
            prop_assert_eq!(found.is_err(), races);
            if let Err(clash) = found {
                prop_assert!(bytes.start <= clash.bytes.start && clash.bytes.end <= bytes.end);
                prop_assert!(!clash.bytes.is_empty());
                prop_assert!(!clash.first.is_before(&access, clock));
                break;
            }
            naive.0.push((bytes, access));
        }
    }
}

#[test]
fn one_operation_that_writes_bytes_twice_races_with_itself() {
    let mut clock = VectorClock::default();
    clock.advance(Agent::HOST, 1);
    let access = Access {
        agent: Agent::HOST,
        count: 1,
        kind: OpKind::CopyToDevice,
        mode: Mode::Write,
    };
    let mut shadow = Shadow::default();
    shadow.touch(0..8, access, &clock).unwrap();
    shadow.touch(8..12, access, &clock).unwrap();
    let clash = shadow.touch(4..16, access, &clock).unwrap_err();
    assert_eq!((clash.first, clash.bytes), (access, 4..8));
}

#[test]
fn a_write_over_many_segments_leaves_one() {
    let mut clock = VectorClock::default();
    let mut shadow = Shadow::default();
    for count in 1..=100 {
        clock.advance(Agent::HOST, count);
        let access = Access {
            agent: Agent::HOST,
            count,
            kind: OpKind::HostWrite,
            mode: if count == 100 {
                Mode::Write
            } else {
                Mode::Read
            },
        };
        let bytes = if count == 100 {
            0..200
        } else {
            count..count + 3
        };
        shadow.touch(bytes, access, &clock).unwrap();
    }
    assert_eq!(shadow.segments.len(), 1);
}
