// SPDX-License-Identifier: Apache-2.0
//! Streams of simulated devices: a queue and the worker that empties it.
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
use crate::sim::op::{Copy, Op};
use crate::sim::shared::Shared;
use crate::sim::time::StreamClock;

/// An ordered queue of operations; clones share it.
///
/// Dropping the last clone blocks until what was submitted has ended.
#[derive(Clone, Debug)]
pub struct SimStream(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    owner: Arc<Shared>,
    queue: Arc<Queue>,
    worker: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
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

/// Keeps a stream at one operation until it is released or dropped.
#[derive(Debug)]
pub struct Hold {
    queue: Arc<Queue>,
    released: Arc<AtomicBool>,
}

impl Hold {
    /// Lets the stream go on.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let guard = self.queue.state.lock();
        self.released.store(true, Ordering::Relaxed);
        drop(guard);
        self.queue.changed.notify_all();
    }
}

impl SimStream {
    pub(crate) fn new(owner: &Arc<Shared>, name: &str) -> Result<Self, GpuError> {
        let queue = Arc::new(Queue::default());
        let mut worker = Worker {
            owner: Arc::clone(owner),
            queue: Arc::clone(&queue),
            clock: StreamClock::default(),
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
        Ok(Self(Arc::new(Handle {
            owner: Arc::clone(owner),
            queue,
            worker: Some(worker),
        })))
    }

    /// The device that it was made on.
    pub(crate) fn owner(&self) -> &Arc<Shared> {
        &self.0.owner
    }

    /// Queues one operation.
    pub(crate) fn submit(&self, op: Op) {
        self.0.queue.submit(|batch| batch.ops.push(op));
    }

    /// Queues a copy of `pieces`.
    pub(crate) fn submit_copy(&self, mut copy: Copy, pieces: &[Piece]) {
        self.0.queue.submit(|batch| {
            let first = batch.pieces.len();
            batch.pieces.extend_from_slice(pieces);
            copy.pieces = first..batch.pieces.len();
            batch.ops.push(Op::Copy(copy));
        });
    }

    /// Queues an operation that ends when the returned value is dropped.
    pub(crate) fn hold(&self) -> Hold {
        let released = Arc::new(AtomicBool::new(false));
        self.submit(Op::Hold(Arc::clone(&released)));
        Hold {
            queue: Arc::clone(&self.0.queue),
            released,
        }
    }
}

impl Drop for Handle {
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
    clock: StreamClock,
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
        let clock = &mut self.clock;
        match op {
            Op::Record(event) => event.complete(clock.now()),
            // A lost device does nothing but complete events, so that nobody waits for ever.
            _ if !self.owner.is_alive() => {}
            Op::Wait(event) => clock.wait(event.wait()),
            Op::Copy(copy) => copy.run(&pieces[copy.pieces.clone()], clock),
            Op::Fill(work, nanos) => work.fill(clock, *nanos),
            Op::Verify(work, log, nanos) => work.verify(log, clock, *nanos),
            Op::Occupy(nanos) => clock.run(*nanos),
            Op::NotBefore(time) => clock.not_before(*time),
            Op::Hold(released) => self.queue.wait_for_release(released),
        }
    }
}

/// The message of a panic.
fn words_of(panic: &(dyn core::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
