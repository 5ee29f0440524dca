// SPDX-License-Identifier: Apache-2.0
//! Which pages a measurement moves.

use std::sync::Arc;

use striata_core::{L1Page, L2Page, PagePair};

/// Pages of a job.
pub(super) type Pairs = Arc<[PagePair]>;

/// Pages of both tiers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Pages of L1, from page 1 on: page 0 is the sink.
    pub(super) l1: u32,
    /// Pages of L2.
    pub(super) l2: u32,
}

/// Draws pages; the same seed draws the same.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    state: u64,
}

impl Lists {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A well-mixed word (SplitMix64).
    const fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// `count` different numbers below `room`, in no order; all of them if there are fewer.
    pub(super) fn draw(&mut self, count: u32, room: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..room).collect();
        let len = all.len();
        let count = (count as usize).min(len);
        for at in 0..count {
            let left = (len - at) as u64;
            // The remainder's bias is below 2^-32.
            let skip = self.word().checked_rem(left).unwrap_or(0);
            all.swap(at, at + usize::try_from(skip).unwrap_or(0));
        }
        all.truncate(count);
        all
    }

    /// `count` pages, scattered over both tiers.
    pub(super) fn scattered(&mut self, count: u32, room: Room) -> Pairs {
        let (l1, l2) = (self.draw(count, room.l1), self.draw(count, room.l2));
        let pairs = l1.into_iter().zip(l2);
        pairs.map(|(l1, l2)| pair(l1, l2)).collect()
    }

    /// Two scattered lists that share no page.
    pub(super) fn two_scattered(&mut self, count: u32, room: Room) -> (Pairs, Pairs) {
        let all = self.scattered(count.saturating_mul(2), room);
        let (first, second) = all.split_at(all.len() / 2);
        (first.into(), second.into())
    }
}

/// `count` neighbours on both tiers.
pub(super) fn run(count: u32, room: Room) -> Pairs {
    let l1 = room.l1.saturating_sub(count) / 2;
    let l2 = room.l2.saturating_sub(count);
    (0..count.min(room.l1).min(room.l2))
        .map(|index| pair(l1 + index, l2 + index))
        .collect()
}

/// The pair of the `l1`-th usable page.
const fn pair(l1: u32, l2: u32) -> PagePair {
    PagePair {
        l1: L1Page::new(l1 + 1),
        l2: L2Page::new(l2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { l1: 40, l2: 60 };

    fn sorted(pages: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut pages: Vec<u32> = pages.collect();
        pages.sort_unstable();
        pages
    }

    // Seen to fail if a number that was drawn stays among those that are left.
    #[test]
    fn drawn_pages_are_different_inside_their_tier_and_not_in_order() {
        let mut lists = Lists::new(7);
        let pairs = lists.scattered(40, ROOM);
        assert_eq!(
            sorted(pairs.iter().map(|p| p.l1.get())),
            (1..41).collect::<Vec<_>>()
        );
        let l2 = sorted(pairs.iter().map(|p| p.l2.get()));
        assert!(l2.windows(2).all(|two| two[0] < two[1]) && *l2.last().unwrap() < 60);
        assert!(!pairs.is_sorted_by_key(|p| p.l1));
        let (a, b) = lists.two_scattered(20, ROOM);
        let both = a.iter().chain(b.iter()).map(|p| p.l1.get());
        assert_eq!(sorted(both), (1..41).collect::<Vec<_>>());
        assert_eq!(lists.draw(9, 3).len(), 3);
        assert_eq!(Lists::new(7).draw(5, 40), Lists::new(7).draw(5, 40));
    }

    #[test]
    fn a_run_is_of_neighbours_on_both_tiers() {
        let pairs = run(8, ROOM);
        assert_eq!(
            (pairs[0].l1.get(), pairs[0].l2.get(), pairs.len()),
            (17, 52, 8)
        );
        for two in pairs.windows(2) {
            assert_eq!(two[1].l1.get(), two[0].l1.get() + 1);
            assert_eq!(two[1].l2.get(), two[0].l2.get() + 1);
        }
    }
}
