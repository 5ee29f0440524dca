// SPDX-License-Identifier: Apache-2.0
//! The end of one operation over its ranks and their pools: the least of all, said once, by the
//! last of them.

/// Parts of an operation (a pool of a rank each) that have not ended, and the leading pages that
/// arrived in those that have.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartTally {
    parts_left: usize,
    good_pages: u32,
}

impl PartTally {
    /// An operation of `pages` pages that runs in `parts` parts.
    pub(super) fn new(parts: usize, pages: usize) -> Self {
        Self {
            parts_left: parts,
            good_pages: u32::try_from(pages).unwrap_or(u32::MAX),
        }
    }

    /// Enters the end of one part. The last one gives the good leading pages of all; nothing comes
    /// after that.
    pub(super) fn ended(&mut self, good_pages: usize) -> Option<u32> {
        let good_pages = u32::try_from(good_pages).unwrap_or(u32::MAX);
        self.good_pages = self.good_pages.min(good_pages);
        let left = self.parts_left;
        self.parts_left = left.saturating_sub(1);
        (left == 1).then_some(self.good_pages)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_gives_the_least_once() {
        let mut tally = PartTally::new(3, 5);
        let said = [5, 2, 4, 0].map(|good| tally.ended(good));
        assert_eq!(said, [None, None, Some(2), None]);
    }
}

/// Completion over parts: the engine of every pool of a rank enters its end in its own box, one
/// poller takes them out, as `ShardGroup::poll` does.
///
/// Property: the acknowledgement comes once, not before every part has ended, and with the least of
/// all parts. Bounds: 2 parts and a poller, at most two preemptions.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::PartTally;
    use loom::thread;
    use striata_core::sync::{Arc, AtomicUsize, Mutex, Ordering};

    #[test]
    fn an_acknowledgement_comes_once_after_all_parts_with_the_least() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let boxes: Arc<[Mutex<Vec<usize>>; 2]> = Arc::default();
            let ended = Arc::new(AtomicUsize::new(0));
            let parts = [3, 1].into_iter().enumerate().map(|(part, good)| {
                let (boxes, ended) = (boxes.clone(), ended.clone());
                thread::spawn(move || {
                    ended.fetch_add(1, Ordering::Relaxed);
                    boxes[part].lock().push(good);
                })
            });
            let parts: Vec<_> = parts.collect();
            let mut tally = PartTally::new(2, 4);
            let mut acks = Vec::new();
            let mut poll = |acks: &mut Vec<u32>| {
                for part in boxes.iter() {
                    let done = std::mem::take(&mut *part.lock());
                    acks.extend(done.into_iter().filter_map(|good| tally.ended(good)));
                }
            };
            poll(&mut acks);
            assert!(acks.is_empty() || ended.load(Ordering::Relaxed) == 2);
            for part in parts {
                part.join().unwrap();
            }
            poll(&mut acks);
            poll(&mut acks);
            assert_eq!(acks, [1]);
        });
    }
}
