// SPDX-License-Identifier: Apache-2.0
//! A replica with bytes: the whole engine on one device a rank.

use striata::{
    Confirm, Error, HiCache, HiCacheSetup, Lease, OpReport, PlannerStats, Reserve, Shard,
};
use striata_core::prefix::PageKey;
use striata_gpu::{Device, DeviceTime, Direction};

use super::checks::Checks;
use super::engine::{Engine, FailedOp, Forward, LoadTimes, Step};
use super::fault;
use super::identity::Identity;
use super::layers::{RankWork, verified_rows};
use super::plan::Plan;
use super::replica::EXTEND_ATTEMPTS;
use super::row_log::RowLog;
use super::totals::CopyTotals;
use crate::attend::Attendant;
use crate::report::ReplayReport;
use crate::trace::Request;

/// The engine of a replica and what its ranks compute on.
#[derive(Debug)]
pub(crate) struct WholeEngine<D: Device> {
    pub(super) cache: HiCache<D>,
    /// What each rank computes on.
    pub(super) streams: Vec<D::Stream>,
    /// Where each rank's verifier writes; none if nothing is verified.
    pub(super) logs: Vec<RowLog<D>>,
    /// What attends to the rows, where that is asked for.
    pub(super) attend: Option<Box<dyn Attendant<D>>>,
    /// When the replay began.
    origin: DeviceTime,
    /// When the request that is served had its turn.
    turn: DeviceTime,
    /// Ends of loads of the request that is served.
    loads: Vec<OpReport>,
    failed: Vec<FailedOp>,
    totals: CopyTotals,
}

impl<D: Device> WholeEngine<D> {
    /// An engine over `devices`, one for each attention-TP rank.
    pub(crate) fn new(plan: &Plan, setup: &HiCacheSetup, devices: Vec<D>) -> Result<Self, Error> {
        Self::over(plan, HiCache::new(setup, devices)?)
    }

    /// An engine over a cache that is there already.
    pub(crate) fn over(plan: &Plan, cache: HiCache<D>) -> Result<Self, Error> {
        let shards = cache.shards().shards();
        let mut streams = Vec::with_capacity(shards.len());
        let mut logs = Vec::with_capacity(shards.len());
        for shard in shards {
            streams.push(shard.device().stream("compute")?);
            if plan.verify_stride.is_some() {
                logs.push(RowLog::new(shard.device())?);
            }
        }
        let now = now(shards);
        Ok(Self {
            cache,
            streams,
            logs,
            attend: None,
            origin: now,
            turn: now,
            loads: Vec::new(),
            failed: Vec::new(),
            totals: CopyTotals::default(),
        })
    }

    pub(super) fn shards(&self) -> &[Shard<D>] {
        self.cache.shards().shards()
    }

    /// Lets the request arrive, and every rank wait for it. Returns when it arrives.
    fn arrive(&self, plan: &Plan, request: &Request) -> Result<DeviceTime, Error> {
        let now = now(self.shards());
        let arrival = plan.compute.arrival_nanos(request.arrival);
        let arrival = arrival.map_or(self.turn, |nanos| self.origin.plus(nanos));
        for (shard, stream) in self.shards().iter().zip(&self.streams) {
            shard.device().advance_to(now.max(arrival));
            shard.device().not_before(stream, now.max(arrival))?;
        }
        Ok(arrival)
    }

    /// Waits until every rank has ended its work; the host goes on from there.
    fn finish(&self) -> Result<DeviceTime, Error> {
        let mut ends = Vec::with_capacity(self.streams.len());
        for (shard, stream) in self.shards().iter().zip(&self.streams) {
            let end = shard.device().event()?;
            shard.device().record(&end, stream)?;
            ends.push(end);
        }
        let mut last = self.origin;
        for (shard, end) in self.shards().iter().zip(&ends) {
            last = last.max(shard.device().synchronize(end)?);
        }
        for shard in self.shards() {
            shard.device().advance_to(last);
        }
        Ok(last)
    }

    /// Reads what the ranks' logs hold of the first `readable` pages into the checks; returns the
    /// rows that differed.
    fn read_logs(
        &self,
        plan: &Plan,
        step: Step<'_>,
        readable: u64,
        checks: &mut Checks,
    ) -> Result<u64, Error> {
        let mut differing = 0;
        for ((rank, shard), log) in (0..).zip(self.shards()).zip(&self.logs) {
            differing += log.drain(shard, rank, plan, step, readable, checks)?;
        }
        Ok(differing)
    }

    /// Takes the ends of copies into the totals and keeps those of loads.
    fn take_reports(&mut self) {
        for report in self.cache.take_reports() {
            self.totals.add(&report);
            if (report.good_pages as usize) < report.pages {
                self.failed.push(FailedOp {
                    direction: report.direction,
                    cause: report.cause.clone(),
                });
            }
            if report.direction == Direction::HostToDevice {
                self.loads.push(report);
            }
        }
    }
}

fn now<D: Device>(shards: &[Shard<D>]) -> DeviceTime {
    let times = shards.iter().map(|shard| shard.device().now());
    times.max().unwrap_or_default()
}

impl<D: Device> Engine for WholeEngine<D> {
    fn turn(&mut self) {
        self.turn = now(self.shards());
    }

    fn reserve(
        &mut self,
        plan: &Plan,
        identity: &Identity,
        prompt_tokens: u64,
    ) -> Result<Reserve, Error> {
        let prefix = identity.prefix(plan, prompt_tokens);
        self.cache.reserve(plan.namespace, prefix)
    }

    fn extend(&mut self, lease: &mut Lease, tokens: u64) -> Result<bool, Error> {
        for _ in 0..EXTEND_ATTEMPTS {
            match self.cache.extend(lease, tokens)? {
                None => return Ok(true),
                Some(Reserve::NotNow { .. }) => self.settle()?,
                Some(_) => return Ok(false),
            }
        }
        Ok(false)
    }

    fn append_keys(&mut self, lease: &Lease, keys: &[PageKey]) -> Result<(), Error> {
        self.cache.append_keys(lease, keys)
    }

    fn forward(
        &mut self,
        plan: &Plan,
        step: Step<'_>,
        checks: &mut Checks,
    ) -> Result<Forward, Error> {
        self.loads.clear();
        let arrival = self.arrive(plan, step.request)?;
        fault::plant(&self.cache, plan, step, checks)?;
        self.cache.start_loads()?;
        let mut works = self.works(plan, step)?;
        match &mut self.attend {
            Some(attend) => {
                let gates: Vec<_> = works.iter().map(RankWork::gates).collect();
                attend.forward(&self.cache, &self.streams, &gates, plan, step)?;
            }
            None => self.submit_layers(plan, step, &mut works)?,
        }
        self.cache.step_end(&self.streams)?;
        let end = self.finish()?;
        // Rows that a load did not bring are nobody's.
        let readable = match self.cache.confirm_blocking(step.lease)? {
            Confirm::LoadFailed { valid_tokens } => valid_tokens,
            Confirm::Done | Confirm::Pending { .. } => step.lease.hit_tokens(),
        };
        let off = match &mut self.attend {
            Some(attend) => attend.compare(plan, step, readable == step.lease.hit_tokens())?,
            None => 0,
        };
        let readable = plan.stripe.whole_pages(readable);
        Ok(Forward {
            ttft_ns: end.since(arrival),
            stall_ns: self.stall(&works)?,
            verified_rows: verified_rows(plan, step, works.len()),
            mismatches: self.read_logs(plan, step, readable, checks)? + off,
        })
    }

    fn bypass(&mut self, plan: &Plan, request: &Request) -> Result<Forward, Error> {
        let arrival = self.arrive(plan, request)?;
        let layer = plan.compute.layer_nanos(request.input_tokens, 0);
        let nanos = layer.saturating_mul(plan.layers().into());
        for (shard, stream) in self.shards().iter().zip(&self.streams) {
            if nanos > 0 {
                shard.device().occupy(stream, nanos)?;
            }
        }
        Ok(Forward {
            ttft_ns: self.finish()?.since(arrival),
            ..Forward::default()
        })
    }

    fn confirm(&mut self, lease: &Lease) -> Result<Confirm, Error> {
        let confirmed = self.cache.confirm_blocking(lease)?;
        self.take_reports();
        Ok(confirmed)
    }

    fn load_times(&mut self, lease: &Lease) -> Option<LoadTimes> {
        let own = |report: &&OpReport| lease.loads().contains(&report.op);
        let report = self.loads.iter().find(own)?;
        Some(LoadTimes {
            first_layer_ns: report.first_layer?.since(report.issued),
            all_layers_ns: report.finished.since(report.issued),
        })
    }

    fn insert(&mut self, lease: &Lease, tokens: u64) -> Result<(), Error> {
        self.cache.insert(lease, tokens).map(|_| ())
    }

    fn decode(&mut self, plan: &Plan) -> Result<(), Error> {
        let mut steps = 0;
        for nanos in plan.compute.decode_steps() {
            for (shard, stream) in self.shards().iter().zip(&self.streams) {
                shard.device().occupy(stream, nanos)?;
            }
            steps += 1;
        }
        if steps > 0 {
            self.finish()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.cache.drain()?;
        self.take_reports();
        Ok(())
    }

    fn take_failed(&mut self, out: &mut Vec<FailedOp>) {
        out.append(&mut self.failed);
    }

    fn check_invariants(&self) -> Result<(), String> {
        self.cache.check_invariants()
    }

    fn forget(&mut self, plan: &Plan) -> Result<(), Error> {
        self.cache.reset(plan.namespace)?;
        self.settle()
    }

    fn stats(&self) -> PlannerStats {
        self.cache.stats()
    }

    fn report(&self, replica: u32, report: &mut ReplayReport) {
        let seconds = crate::compute::float(now(self.shards()).since(self.origin)) / 1e9;
        report.device_seconds = report.device_seconds.max(seconds);
        self.totals.report(self.shards(), replica, report);
        if let Some(attend) = &self.attend {
            attend.report(report.attend.get_or_insert_default());
        }
    }
}
