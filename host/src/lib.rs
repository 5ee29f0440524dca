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
//! | `frontier` | how far several threads have come without a gap, checked by loom |
//! | `chunks` | where one registration ends and the next begins |
//! | `pin` | the seam to a device's page-locking |
//! | `pinning` | chunks made present and registered behind |
//! | `published` | how many pages may be used, checked by loom |
//! | `config` | [`HostPoolConfig`] |
//! | `pool`, `grow` | [`HostPool`], which joins them; its growth while it is in use |
//!
//! Drop order: registrations are taken back in reverse, then the memory is unmapped. Whoever
//! submits copies keeps the pool's `Arc` until they have ended.
#![deny(unsafe_code)]

mod backing;
mod budget;
mod chunks;
mod config;
mod error;
mod frontier;
mod grow;
#[cfg(all(loom, test))]
mod loom_tests;
mod pin;
mod pinning;
mod pool;
mod prefault;
mod published;
mod region;

pub use backing::{Backing, HugePages};
pub use budget::{HostMemory, TransparentMode};
pub use config::HostPoolConfig;
pub use error::HostError;
pub use grow::Growth;
pub use pin::{NoPin, PagePinner, PinError, PinRegion};
pub use pool::{HostPool, PoolReport};
pub use prefault::{NumaPlacement, PrefaultWay};
