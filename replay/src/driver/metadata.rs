// SPDX-License-Identifier: Apache-2.0
//! A replica without bytes: the planner alone, whose orders are acknowledged at once. Loads take no
//! time here; computing takes what the compute model says.

use striata::{Ack, Confirm, Error, Lease, Order, Planner, PlannerStats, Reserve};

use striata_core::prefix::PageKey;

use super::checks::Checks;
use super::engine::{Engine, FailedOp, Forward, LoadTimes, Step};
use super::identity::Identity;
use super::plan::Plan;
use super::replica::EXTEND_ATTEMPTS;
use crate::report::ReplayReport;
use crate::trace::Request;

/// The planner of a replica and the time at which it is free.
#[derive(Debug)]
pub(crate) struct PlannerOnly {
    planner: Planner,
    orders: Vec<Order>,
    free_at_ns: u64,
}

impl PlannerOnly {
    pub(crate) fn new(plan: &Plan) -> Result<Self, Error> {
        Ok(Self {
            planner: Planner::new(plan.planner())?,
            orders: Vec::new(),
            free_at_ns: 0,
        })
    }

    /// Computes `computed` tokens behind `prefix` tokens from the arrival on, or from when the
    /// replica is free.
    fn compute(&mut self, plan: &Plan, request: &Request, computed: u64, prefix: u64) -> Forward {
        let arrival = plan.compute.arrival_nanos(request.arrival);
        let arrival = arrival.unwrap_or(self.free_at_ns);
        let layer = plan.compute.layer_nanos(computed, prefix);
        let nanos = layer.saturating_mul(plan.layers().into());
        self.free_at_ns = self.free_at_ns.max(arrival).saturating_add(nanos);
        Forward {
            ttft_ns: self.free_at_ns - arrival,
            ..Forward::default()
        }
    }
}

impl Engine for PlannerOnly {
    fn turn(&mut self) {}

    fn reserve(
        &mut self,
        plan: &Plan,
        identity: &Identity,
        prompt_tokens: u64,
    ) -> Result<Reserve, Error> {
        let keys = identity.keys(plan.stripe.whole_pages(prompt_tokens));
        self.planner.reserve(plan.namespace, keys, prompt_tokens)
    }

    fn extend(&mut self, lease: &mut Lease, tokens: u64) -> Result<bool, Error> {
        for _ in 0..EXTEND_ATTEMPTS {
            match self.planner.extend(lease, tokens)? {
                None => return Ok(true),
                Some(Reserve::NotNow { .. }) => self.settle()?,
                Some(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    fn append_keys(&mut self, lease: &Lease, keys: &[PageKey]) -> Result<(), Error> {
        self.planner.append_keys(lease, keys)
    }

    fn forward(&mut self, plan: &Plan, step: Step<'_>, _: &mut Checks) -> Result<Forward, Error> {
        self.planner.step_begin();
        self.settle()?;
        self.planner.step_end();
        let prefix = step.lease.hit_tokens();
        let computed = step.request.input_tokens - prefix;
        Ok(self.compute(plan, step.request, computed, prefix))
    }

    fn bypass(&mut self, plan: &Plan, request: &Request) -> Result<Forward, Error> {
        Ok(self.compute(plan, request, request.input_tokens, 0))
    }

    fn confirm(&mut self, lease: &Lease) -> Result<Confirm, Error> {
        self.planner.confirm(lease)
    }

    fn load_times(&mut self, _: &Lease) -> Option<LoadTimes> {
        None
    }

    fn insert(&mut self, lease: &Lease, tokens: u64) -> Result<(), Error> {
        self.planner.insert(lease, tokens, true)?;
        self.settle()
    }

    fn decode(&mut self, plan: &Plan) -> Result<(), Error> {
        for nanos in plan.compute.decode_steps() {
            self.free_at_ns = self.free_at_ns.saturating_add(nanos);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.planner.take_orders(&mut self.orders);
        for Order { op, pages, .. } in self.orders.drain(..) {
            let good_pages = u32::try_from(pages.len()).unwrap_or(u32::MAX);
            self.planner.acknowledge(Ack { op, good_pages })?;
        }
        Ok(())
    }

    fn take_failed(&mut self, _: &mut Vec<FailedOp>) {}

    fn check_invariants(&self) -> Result<(), String> {
        self.planner.check_invariants()
    }

    fn forget(&mut self, plan: &Plan) -> Result<(), Error> {
        self.planner.reset(plan.namespace)
    }

    fn stats(&self) -> PlannerStats {
        self.planner.stats()
    }

    fn report(&self, _: u32, report: &mut ReplayReport) {
        let seconds = crate::compute::float(self.free_at_ns) / 1e9;
        report.device_seconds = report.device_seconds.max(seconds);
    }
}
