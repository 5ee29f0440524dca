// SPDX-License-Identifier: Apache-2.0
//! Who touched which bytes of one memory last: the shadow that a race shows in.
//!
//! Bytes that are touched together are one segment, so a segment is as coarse as the copies and
//! kernels are: a page of a layer, as a rule. A segment keeps the last write and what came since,
//! without what an access of the same kind that knew of it has replaced. The first race of a
//! program on any byte is always seen, whatever order the operations happened to run in.

use core::ops::Range;
use std::collections::BTreeMap;

use super::clock::{Agent, VectorClock};
use crate::sim::names::OpKind;

/// What an access does. Two appends may be unordered: they are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
    Append,
}

impl Mode {
    /// Whether two unordered accesses are a race.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write || self != other
    }
}

/// An access by the `count`-th operation of an agent, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) agent: Agent,
    pub(crate) count: u64,
    pub(crate) kind: OpKind,
    pub(crate) mode: Mode,
}

impl Access {
    /// Whether who has `clock` came after this access. An operation never comes after itself.
    fn is_before(&self, later: &Self, clock: &VectorClock) -> bool {
        let same = self.agent == later.agent && self.count == later.count;
        !same && self.count <= clock.get(self.agent)
    }
}

/// The accesses to one memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// By their first bytes; they do not overlap.
    segments: BTreeMap<u64, Segment>,
}

#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    accesses: Vec<Access>,
}

/// An earlier access that races, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clash {
    pub(crate) first: Access,
    pub(crate) bytes: Range<u64>,
}

impl Shadow {
    /// Enters an access by who has `clock`, or finds what it races with; then nothing is entered.
    pub(crate) fn touch(
        &mut self,
        bytes: Range<u64>,
        access: Access,
        clock: &VectorClock,
    ) -> Result<(), Clash> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.check(&bytes, access, clock)?;
        self.split(bytes.start);
        self.split(bytes.end);
        if access.mode == Mode::Write {
            self.replace(bytes, access);
        } else {
            self.add(bytes, access, clock);
        }
        Ok(())
    }

    fn check(&self, bytes: &Range<u64>, access: Access, clock: &VectorClock) -> Result<(), Clash> {
        let before = self.segments.range(..=bytes.start).next_back();
        let inside = self.segments.range(bytes.start..bytes.end);
        for (start, segment) in before.into_iter().chain(inside) {
            let shared = bytes.start.max(*start)..bytes.end.min(segment.end);
            let races =
                |old: &&Access| old.mode.conflicts(access.mode) && !old.is_before(&access, clock);
            let race = segment.accesses.iter().find(races);
            if let Some(first) = race.filter(|_| !shared.is_empty()) {
                return Err(Clash {
                    first: *first,
                    bytes: shared,
                });
            }
        }
        Ok(())
    }

    /// Makes `at` the edge of segments.
    fn split(&mut self, at: u64) {
        let Some((_, segment)) = self.segments.range_mut(..at).next_back() else {
            return;
        };
        if segment.end > at {
            let rest = segment.clone();
            segment.end = at;
            self.segments.insert(at, rest);
        }
    }

    /// A write that is behind everything else takes its place.
    fn replace(&mut self, bytes: Range<u64>, access: Access) {
        let old: Vec<u64> = self
            .segments
            .range(bytes.clone())
            .map(|(start, _)| *start)
            .collect();
        for start in old {
            self.segments.remove(&start);
        }
        self.insert(bytes, access);
    }

    fn add(&mut self, bytes: Range<u64>, access: Access, clock: &VectorClock) {
        let mut gaps = Vec::new();
        let mut at = bytes.start;
        for (start, segment) in self.segments.range_mut(bytes.clone()) {
            if at < *start {
                gaps.push(at..*start);
            }
            at = segment.end;
            segment
                .accesses
                .retain(|old| old.mode != access.mode || !old.is_before(&access, clock));
            segment.accesses.push(access);
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        for gap in gaps {
            self.insert(gap, access);
        }
    }

    fn insert(&mut self, bytes: Range<u64>, access: Access) {
        let segment = Segment {
            end: bytes.end,
            accesses: vec![access],
        };
        self.segments.insert(bytes.start, segment);
    }
}

#[cfg(test)]
#[path = "shadow_tests.rs"]
mod tests;
