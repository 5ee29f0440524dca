// SPDX-License-Identifier: Apache-2.0
//! Handles of streams of simulated devices.

use std::sync::Arc;

use striata_core::sync::{AtomicBool, Ordering};

use crate::device::Piece;
use crate::error::GpuError;
use crate::sim::names::OpKind;
use crate::sim::op::Op;
use crate::sim::shared::Shared;
use crate::sim::stepped::SteppedStream;
use crate::sim::worker::{Queue, ThreadedStream};

/// An ordered queue of operations; clones share it.
///
/// Dropping the last clone blocks until what was submitted has ended. Under a scheduler it does
/// not block: the scheduler still runs what is queued, and holds in it end at once.
#[derive(Clone, Debug)]
pub struct SimStream(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    owner: Arc<Shared>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Threaded(ThreadedStream),
    Stepped(SteppedStream),
}

/// Keeps a stream at one operation until it is released or dropped.
#[derive(Debug)]
pub struct Hold {
    released: Arc<AtomicBool>,
    /// Whose worker is to be woken.
    queue: Option<Arc<Queue>>,
}

impl Hold {
    /// Lets the stream go on.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match &self.queue {
            Some(queue) => queue.release(&self.released),
            None => self.released.store(true, Ordering::Release),
        }
    }
}

impl SimStream {
    pub(crate) fn new(owner: &Arc<Shared>, name: &str) -> Result<Self, GpuError> {
        let kind = match owner.scheduler() {
            None => Kind::Threaded(ThreadedStream::new(owner, name)?),
            Some(scheduler) => Kind::Stepped(scheduler.stream(owner.name(), name)),
        };
        let owner = Arc::clone(owner);
        Ok(Self(Arc::new(Handle { owner, kind })))
    }

    /// The device that it was made on.
    pub(crate) fn owner(&self) -> &Arc<Shared> {
        &self.0.owner
    }

    /// Queues an operation; `pieces` are those of a copy.
    #[inline]
    pub(crate) fn submit(&self, op: Op, pieces: &[Piece]) {
        match &self.0.kind {
            Kind::Threaded(stream) => stream.submit(op, pieces),
            Kind::Stepped(stream) => stream.submit(self.owner(), op, pieces),
        }
    }

    /// Queues an operation that ends when the returned value is dropped.
    pub(crate) fn hold(&self) -> Hold {
        let released = Arc::new(AtomicBool::new(false));
        self.submit(Op::Hold(Arc::clone(&released)), &[]);
        let queue = match &self.0.kind {
            Kind::Threaded(stream) => Some(Arc::clone(stream.queue())),
            Kind::Stepped(_) => None,
        };
        Hold { released, queue }
    }

    /// Names an operation that would be queued now.
    pub(crate) fn name_next(&self, kind: OpKind) -> String {
        let name = match &self.0.kind {
            Kind::Threaded(_) => None,
            Kind::Stepped(stream) => stream.next_name(kind),
        };
        name.map_or_else(
            || format!("a {kind} of {}", self.owner().name()),
            |name| name.to_string(),
        )
    }
}
