// SPDX-License-Identifier: Apache-2.0
//! The threaded form of a stream: a queue and the worker that empties it.
//!
//! The worker swaps the whole queue out at once, so a submission to a busy stream is one short
//! lock, two pushes into vectors that are reused, and no wake-up. A worker never blocks for ever:
//! it waits only for events that are recorded, whose stream has its own worker.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;

use striata_core::sync::{AtomicBool, Condvar, Mutex, Ordering, lock_while, thread};

use crate::device::Piece;
use crate::error::GpuError;
use crate::sim::lane::Lane;
use crate::sim::op::Op;
use crate::sim::shared::Shared;

/// A stream with a worker of its own. Dropping it blocks until what was submitted has ended.
#[derive(Debug)]
pub(crate) struct ThreadedStream {
    owner: Arc<Shared>,
    queue: Arc<Queue>,
    worker: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    /// The worker sleeps and must be woken.
    idle: bool,
    /// No handle is left: finish what is queued, ignore holds, end.
    closing: bool,
}

/// Operations and, beside them, the pieces of their copies.
#[derive(Debug, Default)]
struct Batch {
    ops: Vec<Op>,
    pieces: Vec<Piece>,
}

impl ThreadedStream {
    pub(crate) fn new(owner: &Arc<Shared>, name: &str) -> Result<Self, GpuError> {
        let queue = Arc::new(Queue::default());
        let mut worker = Worker {
            owner: Arc::clone(owner),
            queue: Arc::clone(&queue),
            lane: Lane::default(),
        };
        // The platform's names end at a zero byte.
        let what = format!("{}-{name}", owner.name()).replace('\0', " ");
        let worker = thread::Builder::new()
            .name(what.clone())
            .spawn(move || worker.run())
            .map_err(|error| GpuError::Thread {
                what,
                reason: error.to_string(),
            })?;
        Ok(Self {
            owner: Arc::clone(owner),
            queue,
            worker: Some(worker),
        })
    }

    pub(crate) const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Queues an operation; `pieces` are those of a copy.
    #[inline]
    pub(crate) fn submit(&self, mut op: Op, pieces: &[Piece]) {
        self.queue.submit(|batch| {
            op.set_pieces(|| {
                let first = batch.pieces.len();
                batch.pieces.extend_from_slice(pieces);
                first..batch.pieces.len()
            });
            batch.ops.push(op);
        });
    }
}

impl Drop for ThreadedStream {
    fn drop(&mut self) {
        self.queue.state.lock().closing = true;
        self.queue.changed.notify_all();
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            self.owner.lose("a stream worker ended early".to_owned());
        }
    }
}

impl Queue {
    /// Ends a hold.
    pub(crate) fn release(&self, released: &AtomicBool) {
        let guard = self.state.lock();
        released.store(true, Ordering::Relaxed);
        drop(guard);
        self.changed.notify_all();
    }

    #[inline]
    fn submit(&self, push: impl FnOnce(&mut Batch)) {
        let mut state = self.state.lock();
        push(&mut state.batch);
        let wake = core::mem::take(&mut state.idle);
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Swaps what is queued for the empty `batch`, after waiting for it; false at the end.
    fn take(&self, batch: &mut Batch) -> bool {
        let mut state = lock_while(&self.state, &self.changed, |state| {
            state.idle = state.batch.ops.is_empty() && !state.closing;
            state.idle
        });
        core::mem::swap(&mut state.batch, batch);
        !batch.ops.is_empty()
    }

    fn wait_for_release(&self, released: &AtomicBool) {
        let held = |state: &mut State| !state.closing && !released.load(Ordering::Relaxed);
        drop(lock_while(&self.state, &self.changed, held));
    }
}

struct Worker {
    owner: Arc<Shared>,
    queue: Arc<Queue>,
    lane: Lane,
}

impl Worker {
    fn run(&mut self) {
        let mut batch = Batch::default();
        while self.queue.take(&mut batch) {
            for op in batch.ops.drain(..) {
                let done = catch_unwind(AssertUnwindSafe(|| self.execute(&op, &batch.pieces)));
                if let Err(panic) = done {
                    self.owner
                        .lose(format!("a worker panicked: {}", words_of(&*panic)));
                }
            }
            batch.pieces.clear();
        }
    }

    fn execute(&mut self, op: &Op, pieces: &[Piece]) {
        match op {
            Op::Hold(released) if self.owner.is_alive() => self.queue.wait_for_release(released),
            op => self.lane.run(&self.owner, op, pieces),
        }
    }
}

/// The message of a panic.
fn words_of(panic: &(dyn core::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
