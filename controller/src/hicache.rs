// SPDX-License-Identifier: Apache-2.0
//! The controller that an engine embeds: one Planner and the Executors of all ranks of a replica,
//! in one process.
//!
//! One step, as an engine sees it: [`HiCache::reserve`] -> [`HiCache::start_loads`] once ->
//! forward, layer by layer behind [`HiCache::gates`] -> [`HiCache::step_end`] ->
//! [`HiCache::confirm`] -> [`HiCache::insert`] -> drop the lease -> [`HiCache::poll`].

use std::collections::VecDeque;

use striata_core::prefix::{Namespace, PageKey, page_keys};
use striata_core::{FenceId, LayerId, OpId, Stripe};
use striata_gpu::{Device, GpuError};

use crate::error::Error;
use crate::lease::Lease;
use crate::metrics::Meter;
use crate::order::{Ack, Order, OrderKind};
use crate::planner::{
    Confirm, Inserted, KvEvent, Lookup, Planner, PlannerStats, Reserve, Room, Stored,
};
use crate::setup::HiCacheSetup;
use crate::shards::{LayerGates, OpReport, PoolId, ShardGroup};

/// Reports kept for [`HiCache::take_reports`]; older ones are dropped.
const REPORTS_KEPT: usize = 1 << 16;

/// What names a request's content.
#[derive(Clone, Copy, Debug)]
pub enum Prefix<'a> {
    /// Its tokens; the keys of its pages are hashed from them.
    Tokens(&'a [u32]),
    /// The engine's own keys: one for each whole widened page, each naming the whole prefix up to
    /// the end of its page.
    Keys {
        /// The keys.
        keys: &'a [PageKey],
        /// Tokens of the request.
        tokens: u64,
    },
}

/// The controller of one attention-DP replica.
#[derive(Debug)]
pub struct HiCache<D: Device> {
    planner: Planner,
    shards: ShardGroup<D>,
    /// Loads planned since the last `start_loads`.
    loads: Vec<Order>,
    orders: Vec<Order>,
    acks: Vec<Ack>,
    new_reports: Vec<OpReport>,
    reports: VecDeque<OpReport>,
    meter: Meter,
    poisoned: Option<String>,
    keys: Vec<PageKey>,
}

impl<D: Device> HiCache<D> {
    /// A controller over `devices`, one for each attention-TP rank of the replica, with pools of
    /// its own.
    ///
    /// # Errors
    /// A setup that is refused; memory that cannot be had.
    pub fn new(setup: &HiCacheSetup, devices: Vec<D>) -> Result<Self, Error> {
        let shards = setup.shards(devices)?;
        Self::with_shards(setup, shards)
    }

    /// A controller over ranks whose pools exist already: an engine's own allocations.
    ///
    /// # Errors
    /// A setup that is refused; no rank at all, whose operations nobody would ever end; ranks with
    /// other pools, or with fewer pages, than the setup says.
    pub fn with_shards(setup: &HiCacheSetup, shards: ShardGroup<D>) -> Result<Self, Error> {
        if shards.shards().is_empty() {
            return Err(Error::Config(
                "an engine needs one rank at least".to_owned(),
            ));
        }
        let pools: Vec<_> = setup.pools().collect();
        let pages = (setup.planner.pool.pages(), setup.planner.l2_pages);
        shards.check_setup(&pools, pages)?;
        Ok(Self {
            planner: Planner::new(setup.planner.clone())?,
            shards,
            loads: Vec::new(),
            orders: Vec::new(),
            acks: Vec::new(),
            new_reports: Vec::new(),
            reports: VecDeque::new(),
            meter: Meter::default(),
            poisoned: None,
            keys: Vec::new(),
        })
    }

    /// The stripe of the widened space.
    #[must_use]
    pub const fn stripe(&self) -> Stripe {
        self.planner.stripe()
    }

    /// The ranks.
    #[must_use]
    pub const fn shards(&self) -> &ShardGroup<D> {
        &self.shards
    }

    pub(crate) const fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Takes the pages of L2 that every rank has into use, up to the configured maximum, and
    /// returns how many L2 has now.
    pub fn take_up_l2(&mut self) -> u32 {
        let pages = self.l2_grower().pages();
        self.planner.grow_l2(pages)
    }

    /// The planner's counters.
    #[must_use]
    pub fn stats(&self) -> PlannerStats {
        self.planner.stats()
    }

    /// How a prompt stands in the tiers; nothing is pinned. See [`Planner::lookup`].
    pub fn lookup(&mut self, namespace: Namespace, prefix: Prefix<'_>) -> Lookup {
        let (tokens, planner, keys) = self.resolve(namespace, prefix);
        planner.lookup(namespace, keys, tokens)
    }

    /// Reserves a request's page table; see [`Planner::reserve`]. What only L2 has is loaded back
    /// from the next [`HiCache::start_loads`] on.
    ///
    /// # Errors
    /// As [`Planner::reserve`]; an engine that is poisoned.
    pub fn reserve(&mut self, namespace: Namespace, prefix: Prefix<'_>) -> Result<Reserve, Error> {
        self.poll()?;
        self.check_alive()?;
        let (tokens, planner, keys) = self.resolve(namespace, prefix);
        let outcome = planner.reserve(namespace, keys, tokens)?;
        self.collect_orders()?;
        Ok(outcome)
    }

    /// As [`HiCache::reserve`], and blocks while copies in flight hold the pages that are missing. A
    /// load that waits for [`HiCache::start_loads`] or for the end of a step is no reason to block:
    /// then the answer is `NotNow`.
    ///
    /// # Errors
    /// As [`HiCache::reserve`].
    pub fn reserve_blocking(
        &mut self,
        namespace: Namespace,
        prefix: Prefix<'_>,
    ) -> Result<Reserve, Error> {
        loop {
            match self.reserve(namespace, prefix)? {
                Reserve::NotNow { after } if self.runs(after) => self.shards.drain()?,
                outcome => return Ok(outcome),
            }
        }
    }

    /// Whether an operation will end by itself: it neither waits for `start_loads` nor for the end
    /// of a step.
    fn runs(&self, op: OpId) -> bool {
        !self.loads.iter().any(|order| order.op == op) && !self.shards.is_held(op)
    }

    fn resolve<'a>(
        &'a mut self,
        namespace: Namespace,
        prefix: Prefix<'a>,
    ) -> (u64, &'a mut Planner, &'a [PageKey]) {
        match prefix {
            Prefix::Keys { keys, tokens } => (tokens, &mut self.planner, keys),
            Prefix::Tokens(tokens) => {
                self.keys.clear();
                page_keys(namespace, self.planner.stripe(), tokens, &mut self.keys);
                (tokens.len() as u64, &mut self.planner, &self.keys)
            }
        }
    }

    /// Brings a prefix to L1 without reserving anything beside; see [`Planner::load`]. The load
    /// starts with the next [`HiCache::start_loads`].
    ///
    /// # Errors
    /// As [`Planner::load`].
    pub fn load(
        &mut self,
        namespace: Namespace,
        prefix: Prefix<'_>,
    ) -> Result<Option<Reserve>, Error> {
        self.poll()?;
        self.check_alive()?;
        let (tokens, planner, keys) = self.resolve(namespace, prefix);
        let outcome = planner.load(namespace, keys, tokens)?;
        self.collect_orders()?;
        Ok(outcome)
    }

    /// Stores what of the lease's path L2 lacks; see [`Planner::store`].
    ///
    /// # Errors
    /// An unknown lease; a rank that refuses the store.
    pub fn store(&mut self, lease: &Lease) -> Result<Stored, Error> {
        self.poll()?;
        self.check_alive()?;
        let stored = self.planner.store(lease)?;
        self.collect_orders()?;
        Ok(stored)
    }

    /// Evicts up to `pages` pages from L1; see [`Planner::evict`].
    ///
    /// # Errors
    /// Only broken bookkeeping, or a rank that refuses a store.
    pub fn evict(&mut self, pages: usize) -> Result<Room, Error> {
        self.poll()?;
        self.check_alive()?;
        let room = self.planner.evict(pages)?;
        self.collect_orders()?;
        Ok(room)
    }

    /// Forgets everything cached under a namespace; see [`Planner::reset`].
    ///
    /// # Errors
    /// Only broken bookkeeping. Whatever fails, the namespace is forgotten.
    pub fn reset(&mut self, namespace: Namespace) -> Result<(), Error> {
        let polled = self.poll();
        polled.and(self.planner.reset(namespace))
    }

    /// Takes the cache events since the last call; see [`Planner::take_events`].
    pub fn take_events(&mut self, out: &mut Vec<KvEvent>) {
        self.planner.take_events(out);
    }

    /// Grows a lease to `tokens` tokens; see [`Planner::extend`].
    ///
    /// # Errors
    /// As [`Planner::extend`].
    pub fn extend(&mut self, lease: &mut Lease, tokens: u64) -> Result<Option<Reserve>, Error> {
        self.poll()?;
        self.check_alive()?;
        let outcome = self.planner.extend(lease, tokens)?;
        self.collect_orders()?;
        Ok(outcome)
    }

    /// Names further whole pages of a lease's request.
    ///
    /// # Errors
    /// An unknown lease.
    pub fn append_keys(&mut self, lease: &Lease, keys: &[PageKey]) -> Result<(), Error> {
        self.planner.append_keys(lease, keys)
    }

    /// Begins a step: starts the loads planned since the last one, on every rank. Call it once a
    /// step, before forward.
    ///
    /// # Errors
    /// A rank that refuses a load.
    pub fn start_loads(&mut self) -> Result<(), Error> {
        self.check_alive()?;
        self.planner.step_begin();
        let mut done = Ok(());
        for order in std::mem::take(&mut self.loads) {
            done = done.and(self.submit(order));
        }
        done
    }

    /// The gates of a lease on one rank, for the thread that runs it.
    ///
    /// # Errors
    /// An unknown lease; no such rank; loads that were not started.
    pub fn gates(&self, lease: &Lease, rank: usize) -> Result<LayerGates<D>, Error> {
        self.planner.own(lease)?;
        if let Some(order) = self
            .loads
            .iter()
            .find(|order| lease.loads().contains(&order.op))
        {
            return Err(Error::NotStarted { op: order.op });
        }
        self.shards.gates(rank, lease.loads())
    }

    /// Makes `stream` of `rank` wait until `layer` of the main pool may be read on the lease's
    /// pages.
    ///
    /// # Errors
    /// As [`HiCache::gates`]; a load that failed.
    pub fn wait_layer(
        &self,
        lease: &Lease,
        rank: usize,
        layer: LayerId,
        stream: &D::Stream,
    ) -> Result<(), Error> {
        self.wait_layer_of(PoolId::MAIN, lease, rank, layer, stream)
    }

    /// As [`HiCache::wait_layer`], for `layer` of `pool`: every pool has gates of its own.
    ///
    /// # Errors
    /// Likewise; no such pool.
    pub fn wait_layer_of(
        &self,
        pool: PoolId,
        lease: &Lease,
        rank: usize,
        layer: LayerId,
        stream: &D::Stream,
    ) -> Result<(), Error> {
        self.shards.pool(pool)?;
        if lease.loads().is_empty() {
            return Ok(());
        }
        self.gates(lease, rank)?.wait_layer_of(pool, layer, stream)
    }

    /// Ends the step whose work was submitted to `streams`, one a rank: what it read and wrote is
    /// settled once the fence has completed.
    ///
    /// Where a rank does not record the fence, the step goes on and nothing that waits for its end
    /// is submitted: call again, with the streams of the ranks and outside a capture. A lost device
    /// poisons the engine.
    ///
    /// # Errors
    /// Not one stream a rank; [`Error::Fence`]; a rank that refuses what waited for the fence, which
    /// poisons the engine.
    pub fn step_end(&mut self, streams: &[D::Stream]) -> Result<FenceId, Error> {
        let (given, ranks) = (streams.len(), self.shards.shards().len());
        if given != ranks {
            return Err(Error::RankCount {
                what: "streams",
                given,
                ranks,
            });
        }
        let fence = self.planner.open_fence();
        let recorded = self.shards.record_fence(fence, streams);
        let is_recorded = self.shards.is_recorded(fence);
        if is_recorded {
            self.planner.step_end();
        }
        if let Err(error) = &recorded {
            let lost = |source: &GpuError| matches!(source, GpuError::Lost { .. });
            if is_recorded || matches!(error, Error::Fence { source, .. } if lost(source)) {
                self.poison(self.shards.poisoned().unwrap_or_else(|| error.to_string()));
            }
        }
        recorded.map(|()| fence)
    }

    /// Whether the lease's loads have arrived on all ranks; ask before the step's tokens are
    /// published.
    ///
    /// # Errors
    /// An unknown lease.
    pub fn confirm(&mut self, lease: &Lease) -> Result<Confirm, Error> {
        self.poll()?;
        self.planner.confirm(lease)
    }

    /// As [`HiCache::confirm`], and blocks while a load is in flight.
    ///
    /// # Errors
    /// An unknown lease.
    pub fn confirm_blocking(&mut self, lease: &Lease) -> Result<Confirm, Error> {
        loop {
            match self.confirm(lease)? {
                Confirm::Pending { op } if !self.runs(op) => return Err(Error::NotStarted { op }),
                Confirm::Pending { op } => self.shards.wait_for(op)?,
                confirmed => return Ok(confirmed),
            }
        }
    }

    /// Makes the whole pages of the lease's first `tokens` tokens matchable and starts their
    /// write-through; see [`Planner::insert`].
    ///
    /// # Errors
    /// As [`Planner::insert`]; a rank that refuses a store.
    pub fn insert(&mut self, lease: &Lease, tokens: u64) -> Result<Inserted, Error> {
        self.check_alive()?;
        let inserted = self.planner.insert(lease, tokens, true)?;
        self.collect_orders()?;
        Ok(inserted)
    }

    /// As [`HiCache::insert`] for a chunk that is not the prefill's last: it does not count as
    /// reuse of the pages before it.
    ///
    /// # Errors
    /// As [`HiCache::insert`].
    pub fn insert_chunk(&mut self, lease: &Lease, tokens: u64) -> Result<Inserted, Error> {
        self.check_alive()?;
        let inserted = self.planner.insert(lease, tokens, false)?;
        self.collect_orders()?;
        Ok(inserted)
    }

    /// Loads wait for `start_loads`; stores and cancellations act at once.
    fn collect_orders(&mut self) -> Result<(), Error> {
        self.planner.take_orders(&mut self.orders);
        let mut done = Ok(());
        for order in std::mem::take(&mut self.orders) {
            match order.kind {
                OrderKind::Load => self.loads.push(order),
                OrderKind::Store => done = done.and(self.submit(order)),
                OrderKind::Raise => done = done.and(self.shards.submit(order)),
                OrderKind::Cancel => done = done.and(self.cancel(order)),
            }
        }
        done
    }

    fn cancel(&mut self, order: Order) -> Result<(), Error> {
        let op = order.op;
        let Some(at) = self.loads.iter().position(|planned| planned.op == op) else {
            return self.submit(order);
        };
        self.loads.remove(at);
        self.planner.acknowledge(Ack { op, good_pages: 0 })
    }

    /// The first fault that stopped the engine: every later call that would begin something names
    /// it. What is held can still be released.
    #[must_use]
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    fn poison(&mut self, cause: String) {
        if self.poisoned.is_none() {
            tracing::error!(%cause, "the engine is poisoned");
            self.poisoned = Some(cause);
        }
    }

    /// Hands an order to the ranks. What a rank refuses ends with no good page, and the engine is
    /// poisoned, so that none of its pages is ever used again.
    fn submit(&mut self, order: Order) -> Result<(), Error> {
        let submitted = self.shards.submit(order);
        if let Err(error) = &submitted {
            self.poison(self.shards.poisoned().unwrap_or_else(|| error.to_string()));
        }
        submitted
    }

    pub(crate) fn check_alive(&mut self) -> Result<(), Error> {
        if let Some(cause) = self.shards.poisoned() {
            self.poison(cause);
        }
        match &self.poisoned {
            Some(cause) => Err(Error::Poisoned {
                cause: cause.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Takes in what has ended, and leases that were dropped. Never blocks. Call it every step. A
    /// rank that fails poisons the engine, which [`HiCache::poisoned`] and later calls tell.
    ///
    /// # Errors
    /// Broken bookkeeping; a rank that refuses a store.
    pub fn poll(&mut self) -> Result<(), Error> {
        // What ended is taken in also where a rank has failed, so that its pages come back.
        if let Err(error) = self.shards.poll(&mut self.acks, &mut self.new_reports) {
            self.poison(self.shards.poisoned().unwrap_or_else(|| error.to_string()));
        }
        let mut done = Ok(());
        for ack in self.acks.drain(..) {
            done = done.and(self.planner.acknowledge(ack));
        }
        self.meter
            .operations(&self.new_reports, self.shards.shards().len());
        let excess = (self.reports.len() + self.new_reports.len()).saturating_sub(REPORTS_KEPT);
        self.reports.drain(..excess.min(self.reports.len()));
        self.reports.extend(self.new_reports.drain(..));
        done = done.and(self.planner.apply_releases());
        // A poisoned engine begins nothing.
        if self.check_alive().is_ok() {
            done = done.and(self.planner.maintain().map(|_| ()));
        }
        self.meter.planner(&self.planner.stats());
        done.and(self.collect_orders())
    }

    /// Does one unit of submission on every rank, where no thread submits; see
    /// [`ShardGroup::pump`].
    pub fn pump(&self) -> bool {
        self.shards.pump()
    }

    /// Blocks until every order that was submitted has ended, and takes the ends in.
    ///
    /// # Errors
    /// A rank whose engine is broken.
    pub fn drain(&mut self) -> Result<(), Error> {
        let drained = self.shards.drain();
        let polled = self.poll();
        drained.and(polled)
    }

    /// How operations went since the last call; at most the last 65,536.
    pub fn take_reports(&mut self) -> impl Iterator<Item = OpReport> + '_ {
        self.reports.drain(..)
    }

    /// The loads that wait for the next [`HiCache::start_loads`].
    #[must_use]
    pub fn planned_loads(&self) -> &[Order] {
        &self.loads
    }

    /// Checks the planner's invariants; for tests. See [`Planner::check_invariants`].
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.planner.check_invariants()
    }
}
