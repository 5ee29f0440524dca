// SPDX-License-Identifier: Apache-2.0
//! The simulated device under a scheduler: races, deadlocks, faults by plan, random programs, and
//! the transfer engine in every order that seeds give.
#![cfg(not(loom))]
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of these tests"
)]

mod bench;
mod engine;
mod engine_faults;
mod faults;
mod hazards;
mod machine;
mod manual;
mod paths;
mod programs;
mod rig;
mod scheduler;
mod window;
