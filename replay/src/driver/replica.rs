// SPDX-License-Identifier: Apache-2.0
//! One data-parallel replica: serves its requests one after the other.

use striata::{Confirm, Error, Lease, Reserve};

use super::checks::Checks;
use super::engine::{Engine, FailedOp, Forward, LoadTimes, Step};
use super::identity::Identity;
use super::plan::Plan;
use super::random_faults::FaultSource;
use crate::compute::float;
use crate::report::{Outcome, ReplayReport, RequestRecord};
use crate::trace::Request;

const NANOS_PER_MICRO: f64 = 1e3;
const NANOS_PER_MILLI: f64 = 1e6;
/// How often a request is served whose loads fail, before it is computed without the cache.
const ATTEMPTS: usize = 3;
/// How often a lease is grown while copies hold the pages that it needs: planned loads, which only
/// start with the step, could hold them for ever.
pub(crate) const EXTEND_ATTEMPTS: usize = 3;

/// A replica and the most pages that it ever used.
#[derive(Debug)]
pub(crate) struct Replica<E> {
    number: u32,
    engine: E,
    identity: Identity,
    peak_l1: u64,
    peak_l2: u64,
}

/// How a served request ended.
struct Served {
    outcome: Outcome,
    hit_tokens_l2: u64,
    times: Option<LoadTimes>,
    forward: Forward,
}

impl<E: Engine> Replica<E> {
    pub(crate) fn new(number: u32, engine: E) -> Self {
        Self {
            number,
            engine,
            identity: Identity::default(),
            peak_l1: 0,
            peak_l2: 0,
        }
    }

    /// What serves it.
    pub(crate) const fn engine(&self) -> &E {
        &self.engine
    }

    /// Serves a request to its end; afterwards nothing is held and no copy is in flight.
    pub(crate) fn serve(
        &mut self,
        plan: &Plan,
        request: &Request,
        checks: &mut Checks,
    ) -> Result<RequestRecord, Error> {
        let prompt = request.input_tokens;
        self.engine.turn();
        // A request that cannot fit is not even named: its keys could be more than memory holds.
        if plan.stripe.pages_for(prompt) > plan.usable_pages() {
            return self.bypass(plan, request, Outcome::Refused);
        }
        if prompt == 0 {
            return self.bypass(plan, request, Outcome::Served);
        }
        self.identity.fill(plan, request);
        for _ in 0..ATTEMPTS {
            let Some(mut lease) = self.reserve(plan, prompt)? else {
                return self.bypass(plan, request, Outcome::Refused);
            };
            let stored = self.hold_outputs(plan, request, &mut lease)?;
            let served = self.step(plan, request, &lease, stored, checks)?;
            let hit_tokens_l1 = lease.hit_tokens_l1();
            drop(lease);
            self.engine.settle()?;
            if served.outcome != Outcome::Failed {
                return Ok(self.record(request, hit_tokens_l1, served));
            }
            checks.recomputes();
        }
        self.bypass(plan, request, Outcome::Failed)
    }

    /// Looks at the engine after a request: copies that failed, and invariants if they are wanted.
    pub(crate) fn look(&mut self, request: u64, source: Option<&FaultSource>, checks: &mut Checks) {
        let mut failed: Vec<FailedOp> = Vec::new();
        self.engine.take_failed(&mut failed);
        for failed in &failed {
            checks.op_failed(failed, source);
        }
        if checks.is_paranoid() {
            checks.checked(request, self.engine.check_invariants());
        }
    }

    /// Forgets everything, and counts the pages that do not come back.
    pub(crate) fn forget(&mut self, plan: &Plan, checks: &mut Checks) -> Result<(), Error> {
        self.engine.forget(plan)?;
        let stats = self.engine.stats();
        let all = plan.usable_pages() + u64::from(plan.l2_pages);
        let free = stats.free_pages_l1 + stats.free_pages_l2;
        checks.lost(self.number, all.saturating_sub(free));
        Ok(())
    }

    /// Reserves the prompt; none if it does not fit.
    fn reserve(&mut self, plan: &Plan, prompt: u64) -> Result<Option<Lease>, Error> {
        loop {
            match self.engine.reserve(plan, &self.identity, prompt)? {
                Reserve::Granted(lease) => return Ok(Some(lease)),
                Reserve::OutOfSpace { .. } => return Ok(None),
                Reserve::NotNow { .. } => self.engine.settle()?,
            }
        }
    }

    /// Makes room for generated tokens that are kept; returns the tokens that the lease holds.
    fn hold_outputs(
        &mut self,
        plan: &Plan,
        request: &Request,
        lease: &mut Lease,
    ) -> Result<u64, Error> {
        let (prompt, stored) = (request.input_tokens, plan.workload.stored_tokens(request));
        if stored == prompt || !self.engine.extend(lease, stored)? {
            return Ok(prompt);
        }
        let keys = self.identity.keys_after(plan, prompt);
        self.engine.append_keys(lease, keys)?;
        Ok(stored)
    }

    fn step(
        &mut self,
        plan: &Plan,
        request: &Request,
        lease: &Lease,
        stored_tokens: u64,
        checks: &mut Checks,
    ) -> Result<Served, Error> {
        let step = Step {
            request,
            replica: self.number,
            identity: &self.identity,
            lease,
            stored_tokens,
        };
        let forward = self.engine.forward(plan, step, checks)?;
        let (outcome, hit_tokens_l2) = match self.engine.confirm(lease)? {
            Confirm::Done => {
                self.engine.insert(lease, stored_tokens)?;
                let whole = stored_tokens == plan.workload.stored_tokens(request);
                let outcome = if whole {
                    Outcome::Served
                } else {
                    Outcome::Truncated
                };
                (outcome, lease.hit_tokens_l2())
            }
            Confirm::LoadFailed { .. } => (Outcome::Failed, 0),
            Confirm::Pending { op } => return Err(Error::Unconfirmed { op }),
        };
        self.watch_levels(plan);
        self.engine.decode(plan)?;
        Ok(Served {
            outcome,
            hit_tokens_l2,
            times: self.engine.load_times(lease),
            forward,
        })
    }

    fn watch_levels(&mut self, plan: &Plan) {
        let stats = self.engine.stats();
        let used_l1 = plan.usable_pages().saturating_sub(stats.free_pages_l1);
        let used_l2 = u64::from(plan.l2_pages).saturating_sub(stats.free_pages_l2);
        self.peak_l1 = self.peak_l1.max(used_l1);
        self.peak_l2 = self.peak_l2.max(used_l2);
    }

    /// Computes a request without the cache.
    fn bypass(
        &mut self,
        plan: &Plan,
        request: &Request,
        outcome: Outcome,
    ) -> Result<RequestRecord, Error> {
        let served = Served {
            outcome,
            hit_tokens_l2: 0,
            times: None,
            forward: self.engine.bypass(plan, request)?,
        };
        Ok(self.record(request, 0, served))
    }

    fn record(&self, request: &Request, hit_tokens_l1: u64, served: Served) -> RequestRecord {
        let Served {
            outcome,
            hit_tokens_l2,
            times,
            forward,
        } = served;
        let micros = |nanos: u64| float(nanos) / NANOS_PER_MICRO;
        RequestRecord {
            index: request.index,
            replica: self.number,
            arrival_s: request.arrival,
            outcome,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            hit_tokens_l1,
            hit_tokens_l2,
            computed_tokens: request.input_tokens - hit_tokens_l1 - hit_tokens_l2,
            first_layer_us: times.map(|times| micros(times.first_layer_ns)),
            all_layers_us: times.map(|times| micros(times.all_layers_ns)),
            stall_us: micros(forward.stall_ns),
            ttft_ms: float(forward.ttft_ns) / NANOS_PER_MILLI,
            verified_rows: forward.verified_rows,
            mismatches: forward.mismatches,
        }
    }

    /// Adds this replica's counters to the report.
    pub(crate) fn report(&self, plan: &Plan, report: &mut ReplayReport) {
        let stats = self.engine.stats();
        report.loaded_pages += stats.loaded_pages;
        report.stored_pages += stats.stored_pages;
        report.l1.capacity_pages = plan.usable_pages();
        report.l1.evicted_pages += stats.evicted_pages_kept_on_l2 + stats.evicted_pages_dropped;
        report.l1.peak_pages = report.l1.peak_pages.max(self.peak_l1);
        report.l2.capacity_pages = plan.l2_pages.into();
        report.l2.evicted_pages += stats.evicted_pages_l2;
        report.l2.peak_pages = report.l2.peak_pages.max(self.peak_l2);
        self.engine.report(self.number, report);
    }
}
