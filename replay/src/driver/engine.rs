// SPDX-License-Identifier: Apache-2.0
//! What serves one replica: the planner alone, or the whole engine with bytes.

use std::sync::Arc;

use striata::{Confirm, Error, Lease, PlannerStats, Reserve};
use striata_core::prefix::PageKey;
use striata_gpu::Direction;

use super::checks::Checks;
use super::identity::Identity;
use super::plan::Plan;
use crate::report::ReplayReport;
use crate::trace::Request;

/// One request's forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    pub(crate) request: &'a Request,
    pub(crate) replica: u32,
    pub(crate) identity: &'a Identity,
    pub(crate) lease: &'a Lease,
    /// Tokens whose rows exist afterwards: the prompt and what is kept of the outputs.
    pub(crate) stored_tokens: u64,
}

/// Device times and findings of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forward {
    /// From arrival to the end of the last layer.
    pub(crate) ttft_ns: u64,
    /// Waiting of layers for loads.
    pub(crate) stall_ns: u64,
    pub(crate) verified_rows: u64,
    pub(crate) mismatches: u64,
}

/// From the start of a request's loads to their first layer and to their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadTimes {
    pub(crate) first_layer_ns: u64,
    pub(crate) all_layers_ns: u64,
}

/// A copy that did not bring every page.
#[derive(Clone, Debug)]
pub(crate) struct FailedOp {
    pub(crate) direction: Direction,
    pub(crate) cause: Option<Arc<str>>,
}

/// The engine of one replica, in the order in which a step calls it.
pub(crate) trait Engine {
    /// The next request has its turn: one that does not say when it arrives arrives now.
    fn turn(&mut self);

    /// Reserves the prompt's page table.
    fn reserve(
        &mut self,
        plan: &Plan,
        identity: &Identity,
        prompt_tokens: u64,
    ) -> Result<Reserve, Error>;

    /// Grows a lease for generated tokens; false if there is no room.
    fn extend(&mut self, lease: &mut Lease, tokens: u64) -> Result<bool, Error>;

    /// Names further whole pages of a lease.
    fn append_keys(&mut self, lease: &Lease, keys: &[PageKey]) -> Result<(), Error>;

    /// Loads, verifies what was hit, computes, writes the rest.
    fn forward(
        &mut self,
        plan: &Plan,
        step: Step<'_>,
        checks: &mut Checks,
    ) -> Result<Forward, Error>;

    /// Computes a prompt without the cache.
    fn bypass(&mut self, plan: &Plan, request: &Request) -> Result<Forward, Error>;

    /// Waits for the lease's loads and says how they went.
    fn confirm(&mut self, lease: &Lease) -> Result<Confirm, Error>;

    /// How long the lease's loads took; none without a load.
    fn load_times(&mut self, lease: &Lease) -> Option<LoadTimes>;

    /// Gives whole pages to the index and starts their stores.
    fn insert(&mut self, lease: &Lease, tokens: u64) -> Result<(), Error>;

    /// Runs the decode steps between two requests.
    fn decode(&mut self, plan: &Plan) -> Result<(), Error>;

    /// Waits until no copy is in flight. The replay does so after each request, so that what the
    /// next one finds does not depend on how fast the machine is.
    fn settle(&mut self) -> Result<(), Error>;

    /// Appends the copies that have failed since the last call.
    fn take_failed(&mut self, out: &mut Vec<FailedOp>);

    /// Checks every invariant of the engine; the first broken one in words.
    fn check_invariants(&self) -> Result<(), String>;

    /// Forgets everything that is cached.
    fn forget(&mut self, plan: &Plan) -> Result<(), Error>;

    /// The planner's counters.
    fn stats(&self) -> PlannerStats;

    /// Adds what devices know: bytes, rates, times, calls across ranks.
    fn report(&self, replica: u32, report: &mut ReplayReport);
}
