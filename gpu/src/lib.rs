// SPDX-License-Identifier: Apache-2.0
//! Devices, streams, events and copies of Striata, and the transfer engine that moves pages.
//!
//! [`Device`] is the seam: [`sim`] implements it on host memory with real bytes, `cuda` (a feature,
//! on by default) on GPUs. [`selftest`] checks either.
#![deny(unsafe_code)]

#[cfg(not(loom))]
pub mod calibrate;
pub mod cells;
#[cfg(not(loom))]
mod check;
#[cfg(not(loom))]
mod counts;
#[cfg(all(feature = "cuda", not(loom)))]
#[expect(
    unsafe_code,
    reason = "calls into the driver; see the obligations of the module"
)]
pub mod cuda;
#[cfg(not(loom))]
pub mod decode;
pub mod device;
mod error;
#[cfg(not(loom))]
pub mod exchange;
pub mod planes;
#[cfg(not(loom))]
pub mod selftest;
#[cfg(not(loom))]
pub mod sim;
pub mod transfer;
#[cfg(not(loom))]
mod user_cache;

pub use cells::{CellMove, FarSide};
pub use device::{
    CopyBatch, CopyFailure, CopyForm, Device, DeviceDescription, DeviceStats, DeviceTime,
    Direction, Piece,
};
pub use error::GpuError;
pub use planes::{L1Planes, PlaneSpan, PlanesError};
