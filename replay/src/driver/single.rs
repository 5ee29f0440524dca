// SPDX-License-Identifier: Apache-2.0
//! One replica that a program drives itself, request by request: what benchmarks are made of.

use std::sync::Arc;

use striata::{HiCache, HiCacheSetup, ShardGroup};
use striata_gpu::transfer::TransferConfig;
use striata_gpu::{Device, L1Planes};
use striata_host::HostPool;

use super::bytes::WholeEngine;
use super::checks::Checks;
use super::metadata::PlannerOnly;
use super::plan::Plan;
use super::replica::Replica;
use crate::compute::Compute;
use crate::config::{LoadWait, ReplayConfig};
use crate::error::{ConfigError, ReplayError};
use crate::report::{ReplayReport, RequestRecord};
use crate::tally::Tally;
use crate::trace::Request;

/// A rank's device and pools; clones share them, so that several runs allocate and page-lock once.
/// What an earlier run has left in the pools is nothing to a later one.
#[derive(Clone, Debug)]
pub struct RankPools<D: Device> {
    device: D,
    planes: Arc<L1Planes<D>>,
    host: Option<Arc<HostPool>>,
}

impl<D: Device> RankPools<D> {
    /// Allocates the pools that each rank of `config` has.
    ///
    /// # Errors
    /// Options that are refused; memory that cannot be had.
    pub fn alloc(config: &ReplayConfig, device: D) -> Result<Self, ReplayError> {
        let plan = Plan::new(config)?;
        let planes = L1Planes::alloc(&device, plan.pool).map_err(striata::Error::from)?;
        let planes = Arc::new(planes);
        let host = setup(config, &plan).host_pool(&device, plan.pool)?;
        Ok(Self {
            device,
            planes,
            host,
        })
    }

    /// The L2 shard, if the tier is on.
    #[must_use]
    pub const fn host(&self) -> Option<&Arc<HostPool>> {
        self.host.as_ref()
    }
}

/// How a replica loads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadStyle {
    /// What computing waits for.
    pub wait: LoadWait,
    /// How copies are grouped.
    pub transfer: TransferConfig,
}

/// Bytes that the ranks of a replica have copied since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedBytes {
    /// From L2 to L1.
    pub to_device: u64,
    /// From L1 to L2.
    pub to_host: u64,
}

/// One attention-DP replica. Requests are served one after the other, each to its end: reserve,
/// load, compute layer by layer behind the gates, confirm, insert, decode, and wait until every
/// copy has ended.
#[derive(Debug)]
pub struct OneReplica<D: Device> {
    plan: Plan,
    filling: Plan,
    inner: Inner<D>,
    checks: Checks,
    tally: Tally,
}

#[derive(Debug)]
enum Inner<D: Device> {
    Bytes(Box<Replica<WholeEngine<D>>>),
    Planner(Box<Replica<PlannerOnly>>),
}

impl<D: Device> OneReplica<D> {
    /// A replica with bytes on `ranks`. They may be fewer than the attention-TP ranks of the
    /// configuration: then those ranks run and the others are left out, which is no less exact,
    /// since ranks copy independently.
    ///
    /// # Errors
    /// Options that are refused: more than one replica, no rank or more than the replica has; an
    /// engine that cannot be made.
    pub fn with_bytes(
        config: &ReplayConfig,
        ranks: Vec<RankPools<D>>,
        style: LoadStyle,
    ) -> Result<Self, ReplayError> {
        let mut plan = Plan::new(config)?;
        plan.load_wait = style.wait;
        let most = plan.topology.attention_tp();
        let given = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        if plan.topology.replicas() != 1 || !(1..=most).contains(&given) {
            return Err(ReplayError::Config(ConfigError::OutOfRange {
                what: "ranks of one replica",
                value: given.to_string(),
                range: "1 to the attention-TP size, of a single replica",
            }));
        }
        let setup = HiCacheSetup {
            transfer: style.transfer,
            ..setup(config, &plan)
        };
        let (mut devices, mut planes, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for rank in ranks {
            devices.push(rank.device);
            planes.push(rank.planes);
            hosts.push(rank.host);
        }
        let shards = ShardGroup::new(plan.pool, devices, planes, hosts, &setup.transfer)?;
        let engine = WholeEngine::over(&plan, HiCache::with_shards(&setup, shards)?)?;
        Self::over(
            config,
            plan,
            Inner::Bytes(Box::new(Replica::new(0, engine))),
        )
    }

    /// A replica without bytes: loads take no time, computing takes what the compute model says.
    ///
    /// # Errors
    /// Options that are refused.
    pub fn without_bytes(config: &ReplayConfig) -> Result<Self, ReplayError> {
        let plan = Plan::new(config)?;
        let planner = PlannerOnly::new(&plan)?;
        Self::over(
            config,
            plan,
            Inner::Planner(Box::new(Replica::new(0, planner))),
        )
    }

    fn over(config: &ReplayConfig, plan: Plan, inner: Inner<D>) -> Result<Self, ReplayError> {
        Ok(Self {
            filling: plan.filling(config)?,
            plan,
            inner,
            checks: Checks::new(config),
            tally: Tally::new(1),
        })
    }

    /// Serves a request that only fills the tiers: it computes nothing, verifies nothing and is in
    /// no report.
    ///
    /// # Errors
    /// An engine that fails.
    pub fn fill(&mut self, request: &Request) -> Result<(), ReplayError> {
        self.step(request, true).map(|_| ())
    }

    /// Serves a request.
    ///
    /// # Errors
    /// An engine that fails. A row that differs and a load that fails are in the report instead.
    pub fn serve(&mut self, request: &Request) -> Result<RequestRecord, ReplayError> {
        let record = self.step(request, false)?;
        self.tally.add(&record);
        Ok(record)
    }

    fn step(&mut self, request: &Request, filling: bool) -> Result<RequestRecord, ReplayError> {
        let plan = if filling { &self.filling } else { &self.plan };
        let checks = &mut self.checks;
        let record = match &mut self.inner {
            Inner::Bytes(replica) => {
                let record = replica.serve(plan, request, checks)?;
                replica.look(request.index, None, checks);
                record
            }
            Inner::Planner(replica) => {
                let record = replica.serve(plan, request, checks)?;
                replica.look(request.index, None, checks);
                record
            }
        };
        Ok(record)
    }

    /// The compute model.
    #[must_use]
    pub const fn compute(&self) -> Compute {
        self.plan.compute
    }

    /// Pages that a request may have at most.
    #[must_use]
    pub const fn usable_pages(&self) -> u64 {
        self.plan.usable_pages()
    }

    /// Tokens of a widened page.
    #[must_use]
    pub const fn page_tokens(&self) -> u64 {
        self.plan.stripe.widened_page()
    }

    /// What the ranks have copied so far.
    #[must_use]
    pub fn copied(&self) -> CopiedBytes {
        let Inner::Bytes(replica) = &self.inner else {
            return CopiedBytes::default();
        };
        let mut copied = CopiedBytes::default();
        for shard in replica.engine().shards() {
            let stats = shard.transfer_stats();
            copied.to_device += stats.loads.done_bytes;
            copied.to_host += stats.stores.done_bytes;
        }
        copied
    }

    /// The report of what was served; what filled the tiers counts only as bytes of ranks, pages
    /// moved and pages in use.
    #[must_use]
    pub fn finish(self) -> ReplayReport {
        let mut report = ReplayReport::default();
        match &self.inner {
            Inner::Bytes(replica) => replica.report(&self.plan, &mut report),
            Inner::Planner(replica) => replica.report(&self.plan, &mut report),
        }
        self.tally.finish(&mut report);
        self.checks.finish(&mut report);
        report
    }
}

fn setup(config: &ReplayConfig, plan: &Plan) -> HiCacheSetup {
    let mut setup = HiCacheSetup::new(plan.planner());
    setup.host_layout = config.host_layout;
    setup
}
