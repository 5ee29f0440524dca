// SPDX-License-Identifier: Apache-2.0
//! Faults by plan: what goes wrong with the n-th operation of a kind.
//!
//! A plan is worked out at submission, where it changes the operation or puts another before it;
//! workers and schedulers know nothing of it. Operations are counted in the order of the calls, so
//! a plan is exact where one thread submits.

use core::fmt;

use striata_core::sync::{AtomicBool, Mutex, Ordering};

use crate::device::{Direction, Piece};
use crate::error::GpuError;
use crate::sim::names::OpKind;
use crate::sim::op::{FailingCopy, Op};
use crate::sim::stream::{Hold, SimStream};

/// Operations that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Everything that is queued on a stream.
    Any,
    /// Copies.
    Copy,
    /// Copies of one direction.
    CopyOf(Direction),
    /// Kernels and busy time.
    Kernel,
    /// Records of events.
    Record,
    /// Waits of streams for events.
    Wait,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A copy delivers its first `good_pieces` pieces only, and the next event of the stream says
    /// so ([`crate::Device::copy_failures`]). Any other operation loses the device: there is
    /// nothing that the fault could be attributed to.
    Fail {
        /// Pieces that arrive.
        good_pieces: usize,
    },
    /// The call fails and nothing is queued.
    Refuse,
    /// The operation begins later, in modelled time.
    Delay {
        /// How much later.
        nanos: u64,
    },
    /// The operation begins after [`crate::sim::SimDevice::release_faults`].
    Hold,
    /// The device is lost when the operation's turn comes.
    Die,
}

/// Which operations of a device go wrong, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    faults: Vec<(OpClass, u64, Fault)>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    #[must_use]
    pub const fn new() -> Self {
        Self { faults: Vec::new() }
    }

    /// This plan, and `fault` with operation `nth` (from 0 on) of `class`.
    #[must_use]
    pub fn with(mut self, class: OpClass, nth: u64, fault: Fault) -> Self {
        self.faults.push((class, nth, fault));
        self
    }
}

impl OpClass {
    const fn holds(self, kind: OpKind) -> bool {
        match self {
            Self::Any => true,
            Self::Copy => matches!(kind, OpKind::CopyToDevice | OpKind::CopyToHost),
            Self::CopyOf(Direction::HostToDevice) => matches!(kind, OpKind::CopyToDevice),
            Self::CopyOf(Direction::DeviceToHost) => matches!(kind, OpKind::CopyToHost),
            Self::Kernel => kind.is_kernel(),
            Self::Record => matches!(kind, OpKind::Record),
            Self::Wait => matches!(kind, OpKind::Wait),
        }
    }
}

impl fmt::Display for OpClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "operation",
            Self::Copy => "copy",
            Self::CopyOf(Direction::HostToDevice) => "host-to-device copy",
            Self::CopyOf(Direction::DeviceToHost) => "device-to-host copy",
            Self::Kernel => "kernel",
            Self::Record => "event record",
            Self::Wait => "event wait",
        })
    }
}

/// A plan at work.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Whether there is anything to do: all that a device without faults looks at.
    armed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Each fault with the operations of its class that are still to pass.
    waiting: Vec<Waiting>,
    held: Vec<Hold>,
}

#[derive(Debug)]
struct Waiting {
    class: OpClass,
    nth: u64,
    left: u64,
    fault: Fault,
}

impl Faults {
    pub(crate) fn new(plan: &FaultPlan) -> Self {
        let faults = Self {
            armed: AtomicBool::new(false),
            state: Mutex::default(),
        };
        faults.arm(plan);
        faults
    }

    /// Follows `plan` from now on; what is held stays held.
    pub(crate) fn arm(&self, plan: &FaultPlan) {
        let waiting = plan.faults.iter().map(|&(class, nth, fault)| Waiting {
            class,
            nth,
            left: nth,
            fault,
        });
        let mut state = self.state.lock();
        state.waiting = waiting.collect();
        self.armed
            .store(!state.waiting.is_empty(), Ordering::Release);
    }

    /// Faults of the plan that have not struck yet.
    pub(crate) fn left(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Lets go what the plan held so far.
    pub(crate) fn release(&self) {
        let held = core::mem::take(&mut self.state.lock().held);
        drop(held);
    }

    /// Queues `op`, with what the plan has for it.
    #[inline]
    pub(crate) fn submit(
        &self,
        stream: &SimStream,
        op: Op,
        pieces: &[Piece],
    ) -> Result<(), GpuError> {
        if self.armed.load(Ordering::Acquire) {
            return self.submit_by_plan(stream, op, pieces);
        }
        stream.submit(op, pieces);
        Ok(())
    }

    #[cold]
    fn submit_by_plan(
        &self,
        stream: &SimStream,
        mut op: Op,
        pieces: &[Piece],
    ) -> Result<(), GpuError> {
        for (fault, name) in self.due(op.kind()) {
            let operation = format!("{name} of {}", stream.owner().name());
            op = self.apply(fault, operation, stream, op, pieces.len())?;
        }
        stream.submit(op, pieces);
        Ok(())
    }

    /// Counts an operation; the faults that it meets, and what each calls it.
    fn due(&self, kind: OpKind) -> Vec<(Fault, String)> {
        let mut state = self.state.lock();
        let mut due = Vec::new();
        state.waiting.retain_mut(|waiting| {
            if !waiting.class.holds(kind) {
                return true;
            }
            let Some(left) = waiting.left.checked_sub(1) else {
                due.push((waiting.fault, format!("{} {}", waiting.class, waiting.nth)));
                return false;
            };
            waiting.left = left;
            true
        });
        self.armed
            .store(!state.waiting.is_empty(), Ordering::Release);
        due
    }

    /// Puts before `op` what a fault needs there; returns what becomes of `op` itself.
    fn apply(
        &self,
        fault: Fault,
        operation: String,
        stream: &SimStream,
        op: Op,
        pieces: usize,
    ) -> Result<Op, GpuError> {
        let die = |cause: String| stream.submit(Op::Die(cause.into()), &[]);
        match (fault, op) {
            (Fault::Refuse, _) => Err(GpuError::Refused { operation }),
            (Fault::Fail { good_pieces }, Op::Copy(copy)) => {
                let good_pieces = good_pieces.min(pieces);
                let cause = GpuError::CopyFailed {
                    operation,
                    good: good_pieces,
                    pieces,
                };
                Ok(Op::FailingCopy(Box::new(FailingCopy {
                    copy,
                    good_pieces,
                    cause,
                })))
            }
            // It fails already.
            (Fault::Fail { .. }, op @ Op::FailingCopy(_)) => Ok(op),
            (Fault::Fail { .. }, op) => {
                die(format!("{operation} failed by plan"));
                Ok(op)
            }
            (Fault::Die, op) => {
                die(format!("{operation} met its end by plan"));
                Ok(op)
            }
            (Fault::Delay { nanos }, op) => {
                stream.submit(Op::Occupy(nanos), &[]);
                Ok(op)
            }
            (Fault::Hold, op) => {
                let hold = stream.hold();
                self.state.lock().held.push(hold);
                Ok(op)
            }
        }
    }
}
