// SPDX-License-Identifier: Apache-2.0
//! The Executors of one replica in one process: every rank runs the same orders on its own shard,
//! independently and without any collective. They know nothing of policy.

mod copy;
mod fences;
mod gates;
mod pool;
mod report;
mod tally;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use striata_core::{FenceId, OpId, PagePair, PoolGeometry, Stripe};
use striata_gpu::planes::L1Planes;
use striata_gpu::transfer::{
    Completion, GateError, LoadGate, LoadJob, StoreJob, TransferConfig, TransferError,
};
use striata_gpu::{Device, GpuError};
use striata_host::HostPool;

use crate::error::{Error, place};
use crate::order::{Ack, Order, OrderKind};
use fences::Fences;
use report::Pending;

pub use copy::Copied;
pub use gates::LayerGates;
pub(crate) use pool::check_beside;
pub use pool::{PoolId, PoolShards, Shard, ShardPool};
pub use report::OpReport;

/// All ranks of a replica that live in this process.
#[derive(Debug)]
pub struct ShardGroup<D: Device> {
    pool: PoolGeometry,
    sides: Vec<PoolGeometry>,
    shards: Vec<Shard<D>>,
    fences: Fences<D>,
    /// Orders whose fence is not recorded yet.
    held: VecDeque<Order>,
    /// Orders that ended without a copy.
    ended: Vec<Ack>,
    /// By rank, and by pool on each; none where the load was refused.
    gates: BTreeMap<OpId, Vec<Option<Arc<LoadGate<D>>>>>,
    pending: BTreeMap<OpId, Pending>,
    completions: Vec<Completion>,
    /// The first cause of any failed copy.
    fault: Option<String>,
}

impl<D: Device> ShardGroup<D> {
    /// Ranks over one given pool. Rank i of the replica has DCP rank i mod c, as the topology says.
    ///
    /// # Errors
    /// As [`ShardGroup::with_pools`].
    pub fn new(
        pool: PoolGeometry,
        devices: Vec<D>,
        planes: Vec<Arc<L1Planes<D>>>,
        hosts: Vec<Option<Arc<HostPool>>>,
        config: &TransferConfig,
    ) -> Result<Self, Error> {
        let main = PoolShards {
            geometry: pool,
            planes,
            hosts,
        };
        Self::with_pools(devices, &main, &[], config)
    }

    /// As [`ShardGroup::new`] with side pools, whose pages come and go with those of `main`. All
    /// pools of a rank together have in flight what `config` says.
    ///
    /// # Errors
    /// A kind that is not built; another stripe or fewer pages than the main pool; planes of
    /// another geometry, host pages of other rows; not one of each for every rank; a thread or
    /// stream that cannot be had.
    pub fn with_pools(
        devices: Vec<D>,
        main: &PoolShards<D>,
        sides: &[PoolShards<D>],
        config: &TransferConfig,
    ) -> Result<Self, Error> {
        let pool = main.geometry;
        let all = || std::iter::once(main).chain(sides);
        for (id, part) in PoolId::all().zip(all()) {
            part.check(id, pool, devices.len())?;
        }
        let dcp_ranks = pool.stripe().ranks().collect::<Vec<_>>();
        let shards = devices
            .into_iter()
            .zip(dcp_ranks.into_iter().cycle())
            .enumerate()
            .map(|(rank, (device, dcp_rank))| {
                Shard::start(rank, dcp_rank, device, (main, sides), config)
            });
        Ok(Self {
            pool,
            sides: sides.iter().map(|side| side.geometry).collect(),
            shards: shards.collect::<Result<_, _>>()?,
            fences: Fences::default(),
            held: VecDeque::new(),
            ended: Vec::new(),
            gates: BTreeMap::new(),
            pending: BTreeMap::new(),
            completions: Vec::new(),
            fault: None,
        })
    }

    /// The pools of every rank, the main one first.
    pub fn pools(&self) -> impl Iterator<Item = (PoolId, PoolGeometry)> + '_ {
        let all = std::iter::once(self.pool).chain(self.sides.iter().copied());
        PoolId::all().zip(all)
    }

    /// One pool.
    ///
    /// # Errors
    /// No such pool.
    pub fn pool(&self, pool: PoolId) -> Result<PoolGeometry, Error> {
        let sides = self.sides.len();
        let found = self.pools().find(|(id, _)| *id == pool);
        found
            .map(|(_, geometry)| geometry)
            .ok_or(Error::NoSuchPool { pool, sides })
    }

    /// Pages of L2 that every rank has in every pool.
    fn l2_pages(&self) -> u32 {
        let pages = self.pools().map(|(pool, _)| self.l2_pages_of(pool));
        pages.min().unwrap_or(0)
    }

    /// Pages of L2 that every rank has in one pool.
    fn l2_pages_of(&self, pool: PoolId) -> u32 {
        let host = |shard: &Shard<D>| shard.pool(pool).and_then(|pool| pool.host().cloned());
        let pages = self.shards.iter().map(host);
        let pages = pages.map(|host| host.map_or(0, |host| host.pages()));
        pages.min().unwrap_or(0)
    }

    /// Checks that every pool is what the planner's side describes, and has a page on both tiers
    /// for each id that the planner may name. `expected` begins with the main pool.
    pub(crate) fn check_setup(
        &self,
        expected: &[PoolGeometry],
        (l1_pages, l2_pages): (u32, u32),
    ) -> Result<(), Error> {
        let shape = |pool: PoolGeometry| (pool.kind(), pool.stripe(), pool.page());
        let given: Vec<_> = self.pools().collect();
        for (index, pool) in (0..given.len().max(expected.len())).zip(PoolId::all()) {
            let given = given.get(index).map(|(_, given)| *given);
            let expected = expected.get(index).copied();
            if given.map(shape) != expected.map(shape) {
                return Err(Error::PoolSetup {
                    pool,
                    given,
                    expected,
                });
            }
        }
        let l1 = given
            .iter()
            .map(|(pool, given)| (*pool, given.pages(), "L1", l1_pages));
        let l2 = given
            .iter()
            .map(|(pool, _)| (*pool, self.l2_pages_of(*pool), "L2", l2_pages));
        let mut short = l1.chain(l2).filter(|(_, given, _, needed)| given < needed);
        match short.next() {
            Some((pool, given, tier, needed)) => Err(Error::PoolPages {
                pool,
                tier,
                given,
                needed,
            }),
            None => Ok(()),
        }
    }

    /// The ranks, in order.
    #[must_use]
    pub fn shards(&self) -> &[Shard<D>] {
        &self.shards
    }

    /// The stripe of the widened space.
    #[must_use]
    pub const fn stripe(&self) -> Stripe {
        self.pool.stripe()
    }

    /// One rank.
    ///
    /// # Errors
    /// No such rank.
    pub fn shard(&self, rank: usize) -> Result<&Shard<D>, Error> {
        self.shards.get(rank).ok_or(Error::NoSuchRank {
            rank,
            ranks: self.shards.len(),
        })
    }

    /// Hands an order to every rank. One whose fence is not recorded yet is kept until it is.
    ///
    /// # Errors
    /// A rank that refuses it.
    pub fn submit(&mut self, order: Order) -> Result<(), Error> {
        match order.kind {
            OrderKind::Cancel => {
                self.cancel(order.op);
                return Ok(());
            }
            OrderKind::Raise => {
                self.raise(order.op);
                return Ok(());
            }
            OrderKind::Store | OrderKind::Load => {}
        }
        if order
            .after
            .is_some_and(|fence| !self.fences.is_recorded(fence))
        {
            tracing::debug!(op = %order.op, after = ?order.after, "operation waits for the end of a step");
            self.held.push_back(order);
            return Ok(());
        }
        let mut gates = Vec::new();
        let (op, pages): (_, Arc<[_]>) = (order.op, order.pages.as_slice().into());
        let issued = self.shards.iter().map(|s| s.device.now()).min();
        let parts = (self.shards.len(), 1 + self.sides.len());
        let what = (op, order.kind);
        tracing::debug!(%op, kind = ?order.kind, pages = pages.len(), "operation given to the ranks");
        let mut pending = Pending::new(what, pages.len(), issued.unwrap_or_default(), parts);
        let (mut none_took, mut submitted) = (false, Ok(()));
        for (rank, shard) in self.shards.iter().enumerate() {
            let after = order.after.and_then(|fence| self.fences.event(fence, rank));
            for pool in shard.pools() {
                let taken = pool.take(&order, &pages, after.clone());
                if taken.is_err() {
                    // It ends here for this pool of the rank, with nothing.
                    none_took = pending.tally.ended(0).is_some();
                }
                let taken = taken.map_err(|source| Error::Transfer {
                    rank,
                    pool: pool.id(),
                    source: Box::new(source),
                });
                gates.push(taken.as_ref().ok().cloned().flatten());
                submitted = submitted.and(taken.map(|_| ()));
            }
        }
        // What a rank refuses ends like any operation, once the ranks that took it are through.
        if let Err(error) = &submitted {
            let cause = format!("operation {op}: {error}");
            pending.failed(&cause);
            self.fault.get_or_insert(cause);
        }
        if order.kind == OrderKind::Load {
            self.gates.insert(op, gates);
        }
        if none_took {
            self.ended.push(Ack { op, good_pages: 0 });
            self.gates.remove(&op);
        } else {
            self.pending.insert(op, pending);
        }
        submitted
    }

    /// Whether an order waits for a fence that is not recorded yet.
    #[must_use]
    pub fn is_held(&self, op: OpId) -> bool {
        self.held.iter().any(|order| order.op == op)
    }

    /// Lets a store go before loads.
    fn raise(&mut self, op: OpId) {
        tracing::debug!(%op, "store raised");
        if let Some(order) = self.held.iter_mut().find(|order| order.op == op) {
            order.urgent = true;
            return;
        }
        for pool in self.shards.iter().flat_map(Shard::pools) {
            pool.engine.raise(op);
        }
    }

    /// Gives up what is not submitted of a load. One that a rank has submitted to its end runs on
    /// there; the least of all ranks counts.
    fn cancel(&mut self, op: OpId) {
        if let Some(at) = self.held.iter().position(|order| order.op == op) {
            self.held.remove(at);
            self.ended.push(Ack { op, good_pages: 0 });
            return;
        }
        for pool in self.shards.iter().flat_map(Shard::pools) {
            pool.engine.cancel(op);
        }
    }

    /// Records `fence` behind what each rank's stream holds now, and submits orders that waited
    /// for it. Where a rank does not record, the fence is not recorded at all: what waits for it
    /// goes on waiting, and the call can be made again. Once a device is lost nothing will ever
    /// be settled there, and what waits ends with no good page.
    ///
    /// # Errors
    /// Not one stream a rank; [`Error::Fence`], if a rank did not record; a rank that refuses an
    /// order that waited.
    pub fn record_fence(&mut self, fence: FenceId, streams: &[D::Stream]) -> Result<(), Error> {
        let (given, ranks) = (streams.len(), self.shards.len());
        if given != ranks {
            return Err(Error::RankCount {
                what: "streams",
                given,
                ranks,
            });
        }
        let mut events = Vec::with_capacity(ranks);
        for (rank, (shard, stream)) in self.shards.iter().zip(streams).enumerate() {
            let recorded = shard.device.event().and_then(|event| {
                shard.device.record(&event, stream)?;
                Ok(event)
            });
            match recorded {
                Ok(event) => events.push(event),
                Err(source) => return Err(self.not_recorded(fence, rank, source)),
            }
        }
        self.fences.record(fence, events);
        tracing::debug!(%fence, held = self.held.len(), "end of a step recorded");
        let mut done = Ok(());
        for order in std::mem::take(&mut self.held) {
            done = done.and(self.submit(order));
        }
        done
    }

    fn not_recorded(&mut self, fence: FenceId, rank: usize, source: GpuError) -> Error {
        let is_lost = matches!(source, GpuError::Lost { .. });
        let error = Error::Fence {
            rank,
            fence,
            source,
        };
        if is_lost {
            self.fault.get_or_insert_with(|| error.to_string());
            let ends = self.held.drain(..);
            self.ended.extend(ends.map(|order| Ack {
                op: order.op,
                good_pages: 0,
            }));
        }
        error
    }

    /// Whether a fence was recorded on every rank.
    #[must_use]
    pub fn is_recorded(&self, fence: FenceId) -> bool {
        self.fences.is_recorded(fence)
    }

    /// Collects what has ended on all ranks in all pools. Never blocks.
    ///
    /// # Errors
    /// A rank whose engine is broken.
    pub fn poll(&mut self, acks: &mut Vec<Ack>, reports: &mut Vec<OpReport>) -> Result<(), Error> {
        acks.append(&mut self.ended);
        let (first_ack, first_report) = (acks.len(), reports.len());
        for (rank, shard) in self.shards.iter().enumerate() {
            for pool in shard.pools() {
                self.completions.clear();
                pool.engine.poll(&mut self.completions);
                for done in &self.completions {
                    let op = done.op;
                    let Some(pending) = self.pending.get_mut(&op) else {
                        continue;
                    };
                    if let Some(error) = &done.error {
                        let place = place(rank, pool.id());
                        let cause = format!("operation {op} on {place}: {error}");
                        pending.failed(&cause);
                        self.fault.get_or_insert(cause);
                    }
                    let Some(good_pages) = pending.ended(rank, pool.id(), done) else {
                        continue;
                    };
                    tracing::debug!(%op, good_pages, "operation ended on every rank");
                    acks.push(Ack { op, good_pages });
                    let pending = self.pending.remove(&op);
                    reports.extend(pending.map(|pending| pending.into_report(good_pages)));
                    self.gates.remove(&op);
                }
            }
        }
        // In the order of planning, whichever rank was the last.
        acks[first_ack..].sort_unstable_by_key(|ack| ack.op);
        reports[first_report..].sort_unstable_by_key(|report| report.op);
        self.fences.forget_complete(&self.shards)?;
        Ok(())
    }

    /// Where no thread submits ([`striata_gpu::transfer::Submission::Manual`]): does one unit of
    /// submission in every pool of every rank that has one. False if none had.
    pub fn pump(&self) -> bool {
        let pools = self.shards.iter().flat_map(Shard::pools);
        let pumped = pools.map(|pool| pool.engine.pump());
        pumped.fold(false, |any, one| any | one)
    }

    /// Blocks until every submitted order has ended on its rank.
    ///
    /// # Errors
    /// A rank whose engine is broken.
    pub fn drain(&self) -> Result<(), Error> {
        let mut done = Ok(());
        for (rank, shard) in self.shards.iter().enumerate() {
            for pool in shard.pools() {
                let drained = pool.engine.drain();
                done = done.and(drained.map_err(|source| Error::Transfer {
                    rank,
                    pool: pool.id(),
                    source: Box::new(source),
                }));
            }
        }
        done
    }

    /// Blocks until the load `op` has ended on every rank, well or not; one that is not in flight
    /// is no wait.
    ///
    /// # Errors
    /// The load waits for a fence that nobody recorded; a lost device.
    pub fn wait_for(&self, op: OpId) -> Result<(), Error> {
        if self.held.iter().any(|order| order.op == op) {
            return Err(Error::NotStarted { op });
        }
        for rank in 0..self.shards.len() {
            for (pool, gate) in self.gates_of(op, rank) {
                match gate.synchronize() {
                    Ok(_) | Err(GateError::Failed { .. }) => {}
                    Err(source) => return Err(Error::Gate { rank, pool, source }),
                }
            }
        }
        Ok(())
    }

    /// The first fault that stopped a rank's engine for good.
    #[must_use]
    pub fn poisoned(&self) -> Option<String> {
        self.shards.iter().enumerate().find_map(|(rank, shard)| {
            shard.pools().find_map(|pool| {
                let cause = pool.engine.poisoned()?;
                Some(format!("{}: {cause}", place(rank, pool.id())))
            })
        })
    }

    /// The first cause of any copy that failed.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

impl<D: Device> ShardPool<D> {
    /// Hands an order to the engine; a load gives its gate.
    fn take(
        &self,
        order: &Order,
        pages: &Arc<[PagePair]>,
        after: Option<D::Event>,
    ) -> Result<Option<Arc<LoadGate<D>>>, TransferError> {
        let (op, pages) = (order.op, Arc::clone(pages));
        if order.kind == OrderKind::Store {
            let urgent = order.urgent;
            let job = StoreJob {
                op,
                pages,
                after,
                urgent,
            };
            return self.engine.store(job).map(|()| None);
        }
        self.engine.load(LoadJob { op, pages, after }).map(Some)
    }
}
