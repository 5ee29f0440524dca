// SPDX-License-Identifier: Apache-2.0
//! The transfer engine on a simulated device.
#![cfg(not(loom))]

mod bytes;
mod failures;
mod order;
mod probe;
mod refusals;
mod support;
