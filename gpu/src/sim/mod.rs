// SPDX-License-Identifier: Apache-2.0
//! A device in host memory: real bytes, modelled time; real threads or a scheduler.
//!
//! - In the threaded mode each stream is a worker thread with a queue. Operations of a stream run
//!   in order; operations of different streams run at the same time and are ordered by events only,
//!   so a missing event is a real race here too.
//! - Completion is real: an event completes when the bytes before it have moved. Time is modelled:
//!   each stream keeps a clock that only its own operations and the events that it waits for move,
//!   so modelled times do not depend on how fast the machine is. An operation begins when the one
//!   before it, the events waited for and [`crate::Device::not_before`] allow; the host's clock
//!   ([`crate::Device::now`]) delays nothing by itself.
//! - In the stepped mode there are no threads: a [`SimScheduler`] runs one operation at a time and
//!   reports races. Calls that block run operations meanwhile; no other call does.
//! - A [`FaultPlan`] says what goes wrong, in either mode.
//! - Every device has a link of its own. What else the model leaves out stands in [`CostModel`]'s
//!   file.
//! - Events and memory of other simulated devices work everywhere and are counted.

mod config;
mod decode;
mod device;
mod event;
mod fault;
mod lane;
mod memory;
mod names;
mod op;
mod shared;
mod stepped;
mod stream;
mod time;
mod worker;

pub use config::{SimConfig, SimMode};
pub use device::SimDevice;
pub use event::SimEvent;
pub use fault::{Fault, FaultPlan, OpClass};
pub use memory::SimMemory;
pub use names::{OpKind, OpName};
pub use stepped::{BlockedHead, ScheduleTrace, SimScheduler, Step};
pub use stream::{Hold, SimStream};
pub use time::CostModel;
