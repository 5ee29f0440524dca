// SPDX-License-Identifier: Apache-2.0
//! Pages whose store waits because too many are in flight, in the order in which they became due.

use std::collections::VecDeque;

use striata_core::L1Page;

use crate::page_set::PageSet;

/// Which pages wait, and which were counted as waiting.
#[derive(Debug)]
pub(super) struct Deferred {
    /// Parents before children. One whose number is not that of its page any more is stale.
    queue: VecDeque<(L1Page, u64)>,
    /// The number under which a page waits, by L1 page; 0 if it does not.
    numbers: Vec<u64>,
    next: u64,
    /// Pages whose store was put off since they became due, whether they are in the queue or an
    /// eviction asks for them again.
    counted: PageSet<striata_core::L1>,
}

impl Deferred {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            numbers: vec![0; pages as usize],
            next: 1,
            counted: PageSet::new(pages),
        }
    }

    /// Notes that a page's store was put off; false if that was noted before.
    pub(super) fn count(&mut self, page: L1Page) -> bool {
        let first = !self.counted.contains(page);
        self.counted.insert(page);
        first
    }

    /// Puts a page at the end of the queue, unless it is there.
    pub(super) fn push(&mut self, page: L1Page) {
        let Some(number) = self.numbers.get_mut(page.index()).filter(|n| **n == 0) else {
            return;
        };
        *number = self.next;
        self.queue.push_back((page, self.next));
        self.next += 1;
        if self.queue.len() > 2 * self.numbers.len() {
            let numbers = &self.numbers;
            self.queue
                .retain(|(page, number)| numbers[page.index()] == *number);
        }
    }

    /// Forgets a page: its store begins, or it leaves L1.
    pub(super) fn forget(&mut self, page: L1Page) {
        self.counted.remove(page);
        if let Some(number) = self.numbers.get_mut(page.index()) {
            *number = 0;
        }
    }

    /// Takes the first pages off the queue, at most `most`, and appends them to `out`.
    pub(super) fn take(&mut self, most: usize, out: &mut Vec<L1Page>) {
        let end = out.len() + most;
        while out.len() < end
            && let Some((page, number)) = self.queue.pop_front()
        {
            if self.numbers[page.index()] == number {
                self.numbers[page.index()] = 0;
                out.push(page);
            }
        }
    }

    /// Whether no page waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail if the queue is never rid of stale entries, or if a page is queued twice.
    #[test]
    fn the_queue_keeps_its_order_and_stays_as_short_as_the_pool() {
        let pages = [1, 2, 3].map(L1Page::new);
        let mut deferred = Deferred::new(4);
        for _ in 0..100 {
            for page in pages {
                deferred.forget(page);
                deferred.push(page);
                deferred.push(page);
            }
            assert!(deferred.queue.len() <= 8);
        }
        // Page 2 left, and came again after page 3.
        deferred.forget(pages[1]);
        deferred.push(pages[1]);
        let mut out = Vec::new();
        deferred.take(2, &mut out);
        assert_eq!(out, [pages[0], pages[2]]);
        deferred.take(9, &mut out);
        assert_eq!(out, [pages[0], pages[2], pages[1]]);
        assert!(deferred.is_empty());
        assert!(deferred.count(pages[0]) && !deferred.count(pages[0]));
    }
}
