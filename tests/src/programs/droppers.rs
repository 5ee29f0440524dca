// SPDX-License-Identifier: Apache-2.0
//! Threads that drop what they are handed while the engine's owner goes on with its calls.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

/// Something to drop, and who waits for that.
type Handed = (Box<dyn Send>, Arc<AtomicUsize>);

/// Threads that drop things; they end with this.
#[derive(Debug)]
pub struct Droppers {
    threads: Vec<(Sender<Handed>, JoinHandle<()>)>,
}

/// Things of one program that were handed over and may still be there.
#[derive(Clone, Default)]
pub(crate) struct Away(Arc<AtomicUsize>);

impl fmt::Debug for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} away", self.count())
    }
}

impl Away {
    /// How many are not known to be dropped.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until all are.
    pub(crate) fn join(&self) {
        while self.count() > 0 {
            thread::yield_now();
        }
    }
}

impl Droppers {
    /// So many threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let spawn = |_| {
            let (sender, receiver) = channel::<Handed>();
            let thread = thread::spawn(move || {
                for (nth, (thing, away)) in receiver.into_iter().enumerate() {
                    // Some at once, some after a while.
                    (0..nth % 8).for_each(|_| thread::yield_now());
                    drop(thing);
                    away.fetch_sub(1, Ordering::Release);
                }
            });
            (sender, thread)
        };
        Self {
            threads: (0..threads).map(spawn).collect(),
        }
    }

    /// Hands a thing over, to be dropped at some time from now on.
    pub(crate) fn hand(&self, thing: impl Send + 'static, turn: u64, away: &Away) {
        let thread = usize::try_from(turn).unwrap() % self.threads.len();
        away.0.fetch_add(1, Ordering::Relaxed);
        let handed = (Box::new(thing) as Box<dyn Send>, Arc::clone(&away.0));
        self.threads[thread].0.send(handed).unwrap();
    }
}

impl Drop for Droppers {
    fn drop(&mut self) {
        for (sender, thread) in self.threads.drain(..) {
            drop(sender);
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}
