// SPDX-License-Identifier: Apache-2.0
//! Numbers of dropped leases on their way from any thread to the planner.

use striata_core::sync::{AtomicU32, Ordering};

const EMPTY: u32 = u32::MAX;

/// Numbers of released leases, handed from any thread to the planner.
///
/// A push links a slot in front of the head; a take swaps the head for empty, so a slot is never
/// popped while another thread links it and no slot can be mistaken for an older use of itself.
#[derive(Debug)]
pub(crate) struct ReleaseStack {
    head: AtomicU32,
    next: Box<[AtomicU32]>,
}

impl ReleaseStack {
    /// A stack for lease numbers below `slots`.
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            head: AtomicU32::new(EMPTY),
            next: (0..slots).map(|_| AtomicU32::new(EMPTY)).collect(),
        }
    }

    /// Pushes a number. Each may be pushed once until it was taken.
    pub(crate) fn push(&self, slot: u32) {
        let Some(next) = self.next.get(slot as usize) else {
            return;
        };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            next.store(head, Ordering::Relaxed);
            match self
                .head
                .compare_exchange_weak(head, slot, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    /// Takes all numbers pushed so far into `out`, in ascending order.
    pub(crate) fn take(&self, out: &mut Vec<u32>) {
        let start = out.len();
        let mut at = self.head.swap(EMPTY, Ordering::Acquire);
        while let Some(next) = self.next.get(at as usize) {
            out.push(at);
            at = next.load(Ordering::Relaxed);
        }
        out[start..].sort_unstable();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use striata_core::sync::Arc;

    #[test]
    fn takes_what_threads_pushed_exactly_once() {
        let stack = Arc::new(ReleaseStack::new(64));
        let threads: Vec<_> = (0..4u32)
            .map(|t| {
                let stack = Arc::clone(&stack);
                std::thread::spawn(move || (0..16).for_each(|i| stack.push(t * 16 + i)))
            })
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            stack.take(&mut all);
            thread.join().unwrap();
        }
        stack.take(&mut all);
        all.sort_unstable();
        assert_eq!(all, (0..64).collect::<Vec<_>>());
        stack.take(&mut all);
        assert_eq!(all.len(), 64);
    }
}

/// Leases that are dropped on other threads while the owner of the planner takes them in. All models
/// run with two preemptions unless `LOOM_MAX_PREEMPTIONS` says otherwise.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use striata_core::sync::{Arc, thread};

    fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.check(model);
    }

    fn dropper(stack: &Arc<ReleaseStack>, slots: &'static [u32]) -> thread::JoinHandle<()> {
        let stack = Arc::clone(stack);
        thread::spawn(move || slots.iter().for_each(|slot| stack.push(*slot)))
    }

    /// Property: every number is taken exactly once, whenever the owner takes. Bounds: 3 threads,
    /// 3 numbers.
    // Seen to fail if `take` empties the stack by a load and a store, and if a push that has to
    // try again keeps the link of its first attempt.
    #[test]
    fn every_release_is_taken_once() {
        check(|| {
            let stack = Arc::new(ReleaseStack::new(3));
            let droppers = [dropper(&stack, &[0]), dropper(&stack, &[1, 2])];
            let mut all = Vec::new();
            stack.take(&mut all);
            for dropper in droppers {
                dropper.join().unwrap();
            }
            stack.take(&mut all);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        });
    }

    /// A number that was taken is granted again and dropped again, while another thread is in the
    /// middle of a push that has seen the number at the head in its earlier life. Property: a number
    /// is only taken while its lease is dropped, each time once: nobody's lease ends because of
    /// the one before it. Bounds: 3 threads, 3 numbers, one of them granted twice more.
    // Seen to fail if `take` empties the stack by a load and a store, and if a push that has to
    // try again keeps the link of its first attempt.
    #[test]
    fn a_number_that_is_granted_again_is_released_again_once() {
        check(|| {
            let stack = Arc::new(ReleaseStack::new(3));
            let droppers = [dropper(&stack, &[1]), dropper(&stack, &[2])];
            let mut released = [0; 3];
            let mut taken = Vec::new();
            for life in 1..=3 {
                stack.push(0);
                taken.clear();
                stack.take(&mut taken);
                taken.iter().for_each(|slot| released[*slot as usize] += 1);
                assert_eq!(released[0], life, "{taken:?}");
            }
            for dropper in droppers {
                dropper.join().unwrap();
            }
            taken.clear();
            stack.take(&mut taken);
            taken.iter().for_each(|slot| released[*slot as usize] += 1);
            assert_eq!(released, [3, 1, 1]);
        });
    }

    /// Shutdown in the middle: the planner goes while leases are alive. Property: drops neither wait
    /// nor fail, what the planner took before is not there again, and the rest stays as it was
    /// dropped, so that nothing is counted twice by whoever has the last handle. Bounds: 3 threads,
    /// 3 numbers.
    // Seen to fail if `take` empties the stack by a load and a store.
    #[test]
    fn leases_outlive_the_planner() {
        check(|| {
            let stack = Arc::new(ReleaseStack::new(3));
            let planner = {
                let stack = Arc::clone(&stack);
                thread::spawn(move || {
                    let mut taken = Vec::new();
                    stack.take(&mut taken);
                    taken
                })
            };
            let dropper = dropper(&stack, &[0, 1]);
            stack.push(2);
            let mut all = planner.join().unwrap();
            dropper.join().unwrap();
            stack.take(&mut all);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        });
    }
}
