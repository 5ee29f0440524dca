// SPDX-License-Identifier: Apache-2.0
//! What the pinning benchmark reports; the fields are the keys of `--json`.

use serde::{Deserialize, Serialize};

use crate::transfer::{Stats, Verdict};

/// How many times as fast as the peer a pool must be.
pub const BAR: f64 = 5.0;
/// Bytes that the bar is for.
pub const BAR_BYTES: u64 = 16 << 30;

/// Why something could not be measured.
pub type Absent = String;

/// Pools of ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ours {
    /// GiB that become usable a second: bytes over the time of the whole call.
    pub gib_per_s: Stats,
    /// Seconds of the whole call.
    pub seconds: Stats,
    /// Seconds until all memory was present.
    pub prefault_seconds: Stats,
    /// Seconds in registrations, which run beside the prefault.
    pub register_seconds: Stats,
    /// Milliseconds of the longest registration of each.
    pub longest_register_ms: Stats,
    /// Seconds to give it back.
    pub free_seconds: Stats,
    /// Which memory pages it lies on: explicit, transparent, ordinary.
    pub backing: String,
    /// Bytes on huge pages, as the kernel counts them; null where it does not say.
    pub huge_bytes: Option<u64>,
    /// Threads that made it present.
    pub threads: usize,
    /// Bytes of a registration.
    pub chunk_bytes: u64,
}

/// Allocations of the peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerFigures {
    /// The call.
    pub name: String,
    /// GiB a second.
    pub gib_per_s: Stats,
    /// Seconds of the call.
    pub seconds: Stats,
    /// Seconds to give it back.
    pub free_seconds: Stats,
}

/// A pool that grew in steps of one size beside loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GrowthFigures {
    /// Bytes of a step: whole pages.
    pub chunk_bytes: u64,
    /// Steps.
    pub steps: usize,
    /// Pages that were added.
    pub pages: u32,
    /// Pages added a second.
    pub pages_per_s: f64,
    /// GiB added a second.
    pub gib_per_s: f64,
    /// Milliseconds of the longest registration: so long other calls into the driver waited.
    pub longest_stall_ms: f64,
    /// Milliseconds of the longest step.
    pub longest_step_ms: f64,
    /// Pages of a load.
    pub load_pages: u32,
    /// Milliseconds of loads before the growth.
    pub load_ms_quiet: Stats,
    /// Milliseconds of loads beside it; null if the growth ended before a load did.
    pub load_ms_beside: Option<Stats>,
    /// Milliseconds of the longest load beside it.
    pub longest_load_ms: Option<f64>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinningReport {
    /// Backend.
    pub device: String,
    /// Name of the device.
    pub device_name: String,
    /// Whether times of copies are modelled. Times of pools are real on every device.
    pub simulated: bool,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes of each pool and allocation.
    pub bytes: u64,
    /// Measurements of each.
    pub reps: usize,
    /// Pools of ours.
    pub ours: Ours,
    /// Allocations of the peer, the same bytes in turn with ours.
    pub peer: Option<PeerFigures>,
    /// Why there is no peer.
    pub peer_absent: Option<Absent>,
    /// Our median rate over the peer's.
    pub ratio: Option<f64>,
    /// What the ratio must reach.
    pub bar: f64,
    /// Whether it did.
    pub verdict: Verdict,
    /// Growth, by size of a step.
    pub growth: Vec<GrowthFigures>,
    /// Seconds of the whole run.
    pub seconds: f64,
}
