// SPDX-License-Identifier: Apache-2.0
//! The stepped mode: no threads. Streams of all devices of a program are queues, and a scheduler
//! runs one ready operation at a time, chosen by a seeded generator.
//!
//! | file | room |
//! |---|---|
//! | `scheduler` | queues, clocks, how one operation is chosen and run |
//! | `clock` | vector clocks over the host and all streams |
//! | `access` | which bytes an operation touches |
//! | `shadow`, `memories` | who touched which bytes last |
//! | `hazard` | races, and what becomes of them |
//! | `trace` | the generator and the order that it led to |
//!
//! - Order: within a stream, from a record to a wait for it, from the host to what it submits, and
//!   from what was recorded to the host once [`crate::Device::synchronize`] returned or
//!   [`crate::Device::is_complete`] said true. Accesses of the same bytes that this order leaves
//!   open are reported as a bug, whatever order they ran in, if one of them writes.
//! - The host's accesses are [`crate::Device::read`] and [`crate::Device::write`]; for host pools,
//!   which the device does not see, the program says what it does ([`SimScheduler::host_reads`]).
//! - The same program and the same seed give the same order. That needs one thread: threads that
//!   share a scheduler are safe, but their calls come in an order of their own, and a deadlock is
//!   what no operation of any stream can end.

mod access;
mod clock;
mod hazard;
mod memories;
mod scheduler;
mod shadow;
mod trace;

use core::fmt;
use core::ops::Range;
use std::sync::Arc;

use striata_core::sync::Mutex;
use striata_host::HostPool;

use crate::device::Piece;
use crate::error::GpuError;
use crate::sim::event::SimEvent;
use crate::sim::memory::SimMemory;
use crate::sim::names::{OpKind, OpName};
use crate::sim::op::Op;
use crate::sim::shared::Shared;

use access::{Place, Touch};
use clock::VectorClock;
use scheduler::State;
use shadow::Mode;

pub use trace::ScheduleTrace;

/// What came before an event, in the clocks of one scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    scheduler: Arc<()>,
    clock: Arc<VectorClock>,
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation ran.
    Ran(OpName),
    /// Every stream is empty.
    Idle,
    /// Every stream that is not empty waits.
    Blocked(Vec<BlockedHead>),
}

/// The next operation of a stream, which cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedHead {
    /// The operation.
    pub operation: OpName,
    /// What it waits for.
    pub waits_for: String,
}

impl fmt::Display for BlockedHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {}", self.operation, self.waits_for)
    }
}

/// Runs the operations of stepped devices. Clones are the same scheduler.
///
/// Operations that are never run are never freed, and what they use neither.
#[derive(Clone)]
pub struct SimScheduler(Arc<Inner>);

struct Inner {
    seed: u64,
    state: Mutex<State>,
}

impl fmt::Debug for SimScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimScheduler")
            .field("seed", &self.0.seed)
            .finish_non_exhaustive()
    }
}

impl PartialEq for SimScheduler {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SimScheduler {}

impl SimScheduler {
    /// A scheduler whose choices `seed` decides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = Mutex::new(State::new(seed));
        Self(Arc::new(Inner { seed, state }))
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Runs one operation that is ready, if there is one.
    ///
    /// # Errors
    /// A race of that operation with another; it did not run, and its device is lost.
    pub fn step(&self) -> Result<Step, GpuError> {
        let (step, ran) = self.0.state.lock().step();
        // What the operation kept alive may go with it, and that without the lock.
        drop(ran);
        step
    }

    /// Steps until nothing is ready; returns [`Step::Idle`] or [`Step::Blocked`].
    ///
    /// # Errors
    /// As [`SimScheduler::step`].
    pub fn run(&self) -> Result<Step, GpuError> {
        loop {
            match self.step()? {
                Step::Ran(_) => {}
                end => return Ok(end),
            }
        }
    }

    /// All bugs of the program so far: races, waits for events that nobody recorded, copies from
    /// or to memory that is not registered.
    #[must_use]
    pub fn bugs(&self) -> Vec<GpuError> {
        self.0.state.lock().bugs.clone()
    }

    /// The order in which operations ran.
    #[must_use]
    pub fn trace(&self) -> ScheduleTrace {
        self.0.state.lock().trace.clone()
    }

    /// Says that the host reads `bytes` of `pool` now.
    ///
    /// # Errors
    /// A race with an operation, also with one that is queued.
    pub fn host_reads(&self, pool: &Arc<HostPool>, bytes: Range<u64>) -> Result<(), GpuError> {
        self.host_access(None, Place::Host(pool), bytes, Mode::Read)
    }

    /// Says that the host writes `bytes` of `pool` now.
    ///
    /// # Errors
    /// A race with an operation, also with one that is queued.
    pub fn host_writes(&self, pool: &Arc<HostPool>, bytes: Range<u64>) -> Result<(), GpuError> {
        self.host_access(None, Place::Host(pool), bytes, Mode::Write)
    }

    /// The host reads memory of a device, by a call of `caller`.
    pub(crate) fn reads(
        &self,
        caller: &Arc<Shared>,
        memory: &SimMemory,
        bytes: Range<u64>,
    ) -> Result<(), GpuError> {
        self.host_access(Some(caller), Place::Device(memory), bytes, Mode::Read)
    }

    /// The host writes memory of a device, by a call of `caller`.
    pub(crate) fn writes(
        &self,
        caller: &Arc<Shared>,
        memory: &SimMemory,
        bytes: Range<u64>,
    ) -> Result<(), GpuError> {
        self.host_access(Some(caller), Place::Device(memory), bytes, Mode::Write)
    }

    fn host_access(
        &self,
        caller: Option<&Arc<Shared>>,
        place: Place<'_>,
        bytes: Range<u64>,
        mode: Mode,
    ) -> Result<(), GpuError> {
        let touch = Touch { place, bytes, mode };
        self.0.state.lock().host_access(caller, &touch)
    }

    /// Steps until `event` is complete.
    pub(crate) fn run_until(&self, event: &SimEvent, what: &str) -> Result<(), GpuError> {
        while !event.is_complete() {
            let blocked = match self.step()? {
                Step::Ran(_) => continue,
                Step::Idle => "every stream is empty".to_owned(),
                Step::Blocked(heads) => {
                    let heads: Vec<_> = heads.iter().map(BlockedHead::to_string).collect();
                    heads.join("; ")
                }
            };
            let what = event
                .recorded()
                .map_or_else(|| what.to_owned(), |record| format!("{what} of {record}"));
            return Err(GpuError::Deadlock { what, blocked });
        }
        Ok(())
    }

    /// The host learns of everything before a complete event.
    pub(crate) fn observe(&self, event: &SimEvent) {
        self.0.state.lock().observe(event);
    }

    /// Keeps a bug that was found at submission.
    pub(crate) fn note(&self, bug: &GpuError) {
        self.0.state.lock().bugs.push(bug.clone());
    }

    pub(crate) fn stream(&self, device: &str, name: &str) -> SteppedStream {
        SteppedStream {
            index: self.0.state.lock().open(device, name),
            scheduler: self.clone(),
        }
    }
}

/// The stepped form of a stream: a place in the scheduler's list.
#[derive(Debug)]
pub(crate) struct SteppedStream {
    scheduler: SimScheduler,
    index: usize,
}

impl SteppedStream {
    /// Queues an operation; `pieces` are those of a copy.
    pub(crate) fn submit(&self, owner: &Arc<Shared>, op: Op, pieces: &[Piece]) {
        let mut state = self.scheduler.0.state.lock();
        state.submit(self.index, owner, op, pieces);
    }

    /// The name of an operation that would be submitted now.
    pub(crate) fn next_name(&self, kind: OpKind) -> Option<OpName> {
        self.scheduler.0.state.lock().next_name(self.index, kind)
    }
}

impl Drop for SteppedStream {
    fn drop(&mut self) {
        self.scheduler.0.state.lock().close(self.index);
    }
}
