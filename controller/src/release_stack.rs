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

/// Model: two threads push, the owner takes meanwhile. Property: every number is taken exactly
/// once. Bounds: 3 threads, 2 preemptions.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use striata_core::sync::{Arc, thread};

    #[test]
    fn every_release_is_taken_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let stack = Arc::new(ReleaseStack::new(3));
            let pushers: Vec<_> = [0, 1]
                .into_iter()
                .map(|slot| {
                    let stack = Arc::clone(&stack);
                    thread::spawn(move || {
                        stack.push(slot);
                        if slot == 1 {
                            stack.push(2);
                        }
                    })
                })
                .collect();
            let mut all = Vec::new();
            stack.take(&mut all);
            for pusher in pushers {
                pusher.join().unwrap();
            }
            stack.take(&mut all);
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
        });
    }
}
