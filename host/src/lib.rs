// SPDX-License-Identifier: Apache-2.0
//! The pinned host tier: one anonymous mapping a pool, huge pages where the machine has them,
//! parallel prefault, registration with a device through [`PagePinner`], and checked views.
//!
//! | file | room |
//! |---|---|
//! | `budget` | figures of the machine's memory, read once, for decisions and messages |
//! | `region` | the mapping and the only `unsafe` of this crate |
//! | `backing` | which kind of memory pages is tried, in which order |
//! | `prefault` | who touches the memory first, and from which NUMA node |
//! | `chunks` | where one registration ends and the next begins |
//! | `pin` | the seam to a device's page-locking |
//! | `pool` | [`HostPool`], which joins them |
//!
//! Drop order: registrations are taken back in reverse, then the memory is unmapped. Whoever
//! submits copies keeps the pool's `Arc` until they have ended.
#![deny(unsafe_code)]

mod backing;
mod budget;
mod chunks;
mod error;
mod pin;
mod pool;
mod prefault;
mod region;

pub use backing::{Backing, HugePages};
pub use budget::{HostMemory, TransparentMode};
pub use error::HostError;
pub use pin::{NoPin, PagePinner, PinError, PinRegion};
pub use pool::{HostPool, HostPoolConfig, PoolReport};
pub use prefault::{NumaPlacement, PrefaultWay};
