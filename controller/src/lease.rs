// SPDX-License-Identifier: Apache-2.0
//! What an engine holds for a request. Dropping it, on any thread, gives everything back without
//! blocking or allocating: the lease's number is pushed on a stack of preallocated slots, and the
//! owner of the planner takes the whole stack at its next call.

use striata_core::sync::{Arc, AtomicU32, Ordering};
use striata_core::{L1Page, OpId};

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

/// Which lease of a planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A request's hold on its pages. Drop releases.
#[derive(Debug)]
pub struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) releases: Arc<ReleaseStack>,
    pub(crate) pages: Vec<L1Page>,
    pub(crate) tokens: u64,
    pub(crate) hit_tokens_l1: u64,
    pub(crate) hit_tokens_l2: u64,
    pub(crate) loads: Vec<OpId>,
}

impl Lease {
    /// Its id in the planner.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// The request's page table: one widened page for each W tokens, the last perhaps in part.
    #[must_use]
    pub fn pages(&self) -> &[L1Page] {
        &self.pages
    }

    /// Tokens that the page table was made for.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Leading tokens that were on L1: whole widened pages.
    #[must_use]
    pub const fn hit_tokens_l1(&self) -> u64 {
        self.hit_tokens_l1
    }

    /// Tokens after those that are loaded back from L2: whole widened pages.
    #[must_use]
    pub const fn hit_tokens_l2(&self) -> u64 {
        self.hit_tokens_l2
    }

    /// Tokens that need no computation once the loads have arrived.
    #[must_use]
    pub const fn hit_tokens(&self) -> u64 {
        self.hit_tokens_l1 + self.hit_tokens_l2
    }

    /// Operations whose gates this request has to pass: its own load, and loads of others that
    /// bring pages it shares.
    #[must_use]
    pub fn loads(&self) -> &[OpId] {
        &self.loads
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.releases.push(self.id.slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
    use striata_core::sync::thread;

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
