// SPDX-License-Identifier: Apache-2.0
//! The transfer engine on a simulated device.
#![cfg(not(loom))]

mod bytes;
mod failures;
mod order;
mod paths;
mod probe;
mod refusals;
mod rows;
mod support;
