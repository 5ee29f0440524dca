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
/// poller takes them out, as `ShardGroup::poll` does. All models run with two preemptions unless
/// `LOOM_MAX_PREEMPTIONS` says otherwise.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::PartTally;
    use loom::thread;
    use striata_core::sync::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering};

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(model);
    }

    /// An operation of 4 pages in two parts.
    struct Operation {
        boxes: Arc<[Mutex<Vec<usize>>; 2]>,
        ended: Arc<AtomicUsize>,
        tally: PartTally,
        acks: Vec<u32>,
    }

    impl Operation {
        fn new() -> Self {
            Self {
                boxes: Arc::default(),
                ended: Arc::new(AtomicUsize::new(0)),
                tally: PartTally::new(2, 4),
                acks: Vec::new(),
            }
        }

        /// A part that ends with as many good pages as `good` says.
        fn part(
            &self,
            part: usize,
            good: impl FnOnce() -> usize + Send + 'static,
        ) -> thread::JoinHandle<()> {
            let (boxes, ended) = (self.boxes.clone(), self.ended.clone());
            thread::spawn(move || {
                let good = good();
                ended.fetch_add(1, Ordering::Relaxed);
                boxes[part].lock().push(good);
            })
        }

        fn poll(&mut self) {
            for part in self.boxes.iter() {
                let done = std::mem::take(&mut *part.lock());
                let ended = done.into_iter().filter_map(|good| self.tally.ended(good));
                self.acks.extend(ended);
            }
            let ended = self.ended.load(Ordering::Relaxed);
            assert!(self.acks.is_empty() || ended == 2);
        }
    }

    /// Property: the acknowledgement comes once, not before every part has ended, and with the least
    /// of all parts. Bounds: 2 parts and a poller.
    // Seen to fail if `ended` acknowledges one part early, and if it gives the pages of the last
    // part.
    #[test]
    fn an_acknowledgement_comes_once_after_all_parts_with_the_least() {
        check(|| {
            let mut operation = Operation::new();
            let parts = [operation.part(0, || 3), operation.part(1, || 1)];
            operation.poll();
            for part in parts {
                part.join().unwrap();
            }
            operation.poll();
            operation.poll();
            assert_eq!(operation.acks, [1]);
        });
    }

    /// Shutdown in the middle: the engine of one part is closed while its copies may not have
    /// begun; it then ends that part without a page. Property: there is still one
    /// acknowledgement, with no page if the closing came first and with the least otherwise, and a
    /// poller that goes away in the middle keeps no part from ending. Bounds: 2 parts and a
    /// poller, which closes.
    // Seen to fail if `ended` gives the pages of the last part, and if a part without pages is not
    // counted.
    #[test]
    fn a_part_that_is_closed_ends_the_operation_all_the_same() {
        check(|| {
            let mut operation = Operation::new();
            let closed = Arc::new(AtomicBool::new(false));
            let dropped = Arc::new(AtomicBool::new(false));
            let parts = [
                operation.part(0, {
                    let (closed, dropped) = (closed.clone(), dropped.clone());
                    move || {
                        let is_closed = closed.load(Ordering::Acquire);
                        dropped.store(is_closed, Ordering::Relaxed);
                        if is_closed { 0 } else { 4 }
                    }
                }),
                operation.part(1, || 2),
            ];
            operation.poll();
            closed.store(true, Ordering::Release);
            operation.poll();
            for part in parts {
                part.join().unwrap();
            }
            operation.poll();
            let good = if dropped.load(Ordering::Relaxed) {
                0
            } else {
                2
            };
            assert_eq!(operation.acks, [good]);
        });
    }
}
