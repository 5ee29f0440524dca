// SPDX-License-Identifier: Apache-2.0
//! How much of a direction may be in flight, so that a small copy which comes now, or a job that is
//! more urgent, waits only for so much.

use std::collections::VecDeque;

use crate::device::Direction;

/// Units that may be in flight whatever their bytes: one runs while the next is prepared.
const LEAST_UNITS: usize = 2;
/// Most units that nobody waits for; their marks are kept until they were seen to end.
const MOST_UNITS: usize = 64;

/// The units of one direction that were submitted and not seen to end, oldest first; `M` tells
/// whether a unit has ended.
#[derive(Debug)]
pub(super) struct Window<M> {
    limit: u64,
    bytes: u64,
    units: VecDeque<(u64, M)>,
}

/// What a window has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    bytes: u64,
    units: usize,
}

/// What the windows of both directions have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rooms {
    pub(super) loads: Room,
    pub(super) stores: Room,
}

impl Room {
    /// Whether a unit of `bytes` bytes may be submitted.
    pub(super) const fn fits(self, bytes: u64) -> bool {
        self.units < LEAST_UNITS || (self.units < MOST_UNITS && bytes <= self.bytes)
    }
}

impl Rooms {
    pub(super) const fn of(self, direction: Direction) -> Room {
        match direction {
            Direction::HostToDevice => self.loads,
            Direction::DeviceToHost => self.stores,
        }
    }
}

impl<M> Window<M> {
    /// A window of `limit` bytes.
    pub(super) const fn new(limit: u64) -> Self {
        Self {
            limit,
            bytes: 0,
            units: VecDeque::new(),
        }
    }

    pub(super) fn room(&self) -> Room {
        Room {
            bytes: self.limit.saturating_sub(self.bytes),
            units: self.units.len(),
        }
    }

    /// Enters a submitted unit.
    pub(super) fn push(&mut self, bytes: u64, mark: M) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.units.push_back((bytes, mark));
    }

    /// The mark of the oldest unit.
    pub(super) fn oldest(&self) -> Option<&M> {
        self.units.front().map(|(_, mark)| mark)
    }

    /// The bytes of all units.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of the oldest unit; 0 if there is none.
    pub(super) fn oldest_bytes(&self) -> u64 {
        self.units.front().map_or(0, |(bytes, _)| *bytes)
    }

    /// Forgets units that have ended; they end in order. False if there is none.
    pub(super) fn retire(&mut self, mut has_ended: impl FnMut(&M) -> bool) -> bool {
        // The newest one first: mostly all have ended, and one question tells.
        if self.units.back().is_some_and(|(_, mark)| has_ended(mark)) {
            self.units.clear();
            self.bytes = 0;
            return true;
        }
        let before = self.units.len();
        while let Some((bytes, _)) = self.units.pop_front_if(|(_, mark)| has_ended(mark)) {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        self.units.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_groups_fit_whatever_their_size_and_more_by_their_bytes() {
        let mut window = Window::new(100);
        for mark in 0..2 {
            assert!(window.room().fits(u64::MAX));
            window.push(40, mark);
        }
        assert!(window.room().fits(20) && !window.room().fits(21));
        window.push(90, 2);
        assert!(window.room().fits(0) && !window.room().fits(1));
        assert!(window.retire(|&mark| mark < 2));
        assert_eq!(window.oldest(), Some(&2));
        assert!(window.room().fits(u64::MAX));
        assert!(!window.retire(|_| false));
        assert!(window.retire(|_| true));
        assert_eq!(
            (window.room(), window.oldest()),
            (Window::<u8>::new(100).room(), None)
        );
    }

    #[test]
    fn the_marks_are_bounded() {
        let mut window = Window::new(u64::MAX);
        let mut groups = 0;
        while window.room().fits(0) {
            window.push(0, groups);
            groups += 1;
        }
        assert_eq!(groups, MOST_UNITS);
    }
}
