// SPDX-License-Identifier: Apache-2.0
//! The choices of a scheduler: a seeded generator, and what it led to.

use core::fmt;
use std::collections::VecDeque;

use crate::sim::names::OpName;

/// Operations that a trace keeps in words.
const KEPT: usize = 4096;

/// A generator of which a seed says all (splitmix64).
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices(u64);

impl Choices {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `count`, 0 if that is 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let drawn = (z ^ (z >> 31)).checked_rem(count as u64).unwrap_or(0);
        usize::try_from(drawn).unwrap_or(0)
    }
}

/// The order in which a scheduler ran operations. The seed and the program give it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleTrace {
    /// The seed of the scheduler.
    pub seed: u64,
    /// Operations that ran.
    pub steps: u64,
    /// A digest of the whole order: equal for equal orders.
    pub digest: u64,
    /// The last operations, oldest first: at most 4096.
    pub last: VecDeque<OpName>,
}

impl ScheduleTrace {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            seed,
            steps: 0,
            digest: 0xCBF2_9CE4_8422_2325,
            last: VecDeque::new(),
        }
    }

    /// Enters that `name` ran, of stream `stream`.
    pub(super) fn push(&mut self, stream: usize, name: OpName) {
        for value in [stream as u64, name.index] {
            self.digest = (self.digest ^ value)
                .wrapping_mul(0x0100_0000_01B3)
                .rotate_left(29);
        }
        self.steps += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(name);
    }
}

impl fmt::Display for ScheduleTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            steps,
            digest,
            last,
        } = self;
        write!(f, "seed {seed}, {steps} steps, digest {digest:016x}")?;
        let first = steps.saturating_sub(last.len() as u64);
        for (step, name) in (first..).zip(last) {
            write!(f, "\n{step:>6}  {name}")?;
        }
        Ok(())
    }
}
