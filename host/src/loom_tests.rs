// SPDX-License-Identifier: Apache-2.0
//! Models of what the threads of a pool share: two or three threads, a few operations each.

use striata_core::sync::{Arc, AtomicU32, Ordering, thread};

use crate::frontier::Frontier;
use crate::published::Published;

/// Who sees a page sees what was done to it before it was published: here the mark of a
/// registration, which a copy could not do without. Two growths, two looks.
// Seen to fail if `Published` stores or loads with relaxed order.
#[test]
fn a_page_that_is_seen_is_registered() {
    loom::model(|| {
        let pages = Arc::new(Published::new(1));
        let registered: Arc<[AtomicU32; 3]> = Arc::new([1, 0, 0].map(AtomicU32::new));
        let grower = {
            let (pages, registered) = (pages.clone(), registered.clone());
            thread::spawn(move || {
                for page in 1..3 {
                    registered[page as usize].store(1, Ordering::Relaxed);
                    pages.raise(page + 1);
                }
            })
        };
        let mut before = 1;
        for _ in 0..2 {
            let seen = pages.get();
            assert!(seen >= before);
            before = seen;
            for page in 0..seen {
                assert_eq!(registered[page as usize].load(Ordering::Relaxed), 1);
            }
        }
        grower.join().expect("the grower ends");
        assert_eq!(pages.get(), 3);
    });
}

/// Two threads take three steps; who waits for the first two finds their work done, and never
/// waits for ever.
// Seen to fail if `end` counts steps that have a gap before them.
#[test]
fn a_step_that_was_waited_for_has_ended_with_all_before_it() {
    loom::model(|| {
        let frontier = Arc::new(Frontier::<()>::new(3));
        let work: Arc<[AtomicU32; 3]> = Arc::new([0, 0, 0].map(AtomicU32::new));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (frontier, work) = (frontier.clone(), work.clone());
                thread::spawn(move || {
                    while let Some(step) = frontier.take() {
                        work[step].fetch_add(1, Ordering::Relaxed);
                        frontier.end(step, Ok(()));
                    }
                })
            })
            .collect();
        assert_eq!(frontier.wait(2), Ok(true));
        for step in &work[..2] {
            assert_eq!(step.load(Ordering::Relaxed), 1);
        }
        for worker in workers {
            worker.join().expect("a worker ends");
        }
        assert_eq!(frontier.wait(3), Ok(true));
    });
}

/// A step that fails lets the waiter go, tells it why, and keeps later steps from being taken.
// Seen to fail if `end` wakes nobody after a failure.
#[test]
fn a_failure_reaches_who_waits() {
    loom::model(|| {
        let frontier = Arc::new(Frontier::new(2));
        let worker = {
            let frontier = frontier.clone();
            thread::spawn(move || {
                while let Some(step) = frontier.take() {
                    frontier.end(step, Err(step));
                }
            })
        };
        assert_eq!(frontier.wait(2), Err(0));
        worker.join().expect("the worker ends");
        assert_eq!(frontier.take(), None);
    });
}
