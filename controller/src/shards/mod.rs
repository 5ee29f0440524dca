// SPDX-License-Identifier: Apache-2.0
//! The Executors of one replica in one process: every rank runs the same orders on its own shard,
//! independently and without any collective. They know nothing of policy.

mod copy;
mod fences;
mod gates;
mod tally;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use striata_core::{FenceId, OpId, PoolGeometry, Rank, Stripe};
use striata_gpu::planes::L1Planes;
use striata_gpu::transfer::{
    Completion, GateError, LoadGate, LoadJob, StoreJob, TransferConfig, TransferEngine,
    TransferStats,
};
use striata_gpu::{Device, DeviceTime, Direction};
use striata_host::HostPool;

use crate::error::Error;
use crate::order::{Ack, Order, OrderKind};
use fences::Fences;
use tally::RankTally;

pub use copy::Copied;
pub use gates::LayerGates;

/// One rank: its device, its pools and the engine that copies between them.
#[derive(Debug)]
pub struct Shard<D: Device> {
    dcp_rank: Rank,
    device: D,
    planes: Arc<L1Planes<D>>,
    host: Option<Arc<HostPool>>,
    engine: TransferEngine<D>,
}

impl<D: Device> Shard<D> {
    /// The rank inside its DCP group.
    #[must_use]
    pub const fn dcp_rank(&self) -> Rank {
        self.dcp_rank
    }
    /// The device.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.device
    }
    /// The L1 shard.
    #[must_use]
    pub const fn planes(&self) -> &Arc<L1Planes<D>> {
        &self.planes
    }
    /// The L2 shard, if the tier is on.
    #[must_use]
    pub const fn host(&self) -> Option<&Arc<HostPool>> {
        self.host.as_ref()
    }
    /// What was copied so far.
    #[must_use]
    pub fn transfer_stats(&self) -> TransferStats {
        self.engine.stats()
    }
}

/// How an operation went, over all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpReport {
    /// The operation.
    pub op: OpId,
    /// Which way.
    pub direction: Direction,
    /// Pages asked for.
    pub pages: usize,
    /// Leading pages that arrived on every rank.
    pub good_pages: u32,
    /// Bytes that each rank copied.
    pub bytes_per_rank: u64,
    /// When the first rank was given the order.
    pub issued: DeviceTime,
    /// When the slowest rank had its first group of layers; loads only.
    pub first_layer: Option<DeviceTime>,
    /// When the slowest rank had everything.
    pub finished: DeviceTime,
    /// Why it did not bring every page: the first rank that failed, and what it said.
    pub cause: Option<Arc<str>>,
}

impl OpReport {
    /// The report of an operation of which nothing has failed yet.
    fn new(op: OpId, kind: OrderKind, pages: usize, issued: DeviceTime) -> Self {
        Self {
            op,
            direction: match kind {
                OrderKind::Store => Direction::DeviceToHost,
                OrderKind::Load | OrderKind::Cancel => Direction::HostToDevice,
            },
            pages,
            good_pages: u32::try_from(pages).unwrap_or(u32::MAX),
            bytes_per_rank: 0,
            issued,
            first_layer: None,
            finished: issued,
            cause: None,
        }
    }
}

#[derive(Debug)]
struct Pending {
    tally: RankTally,
    report: OpReport,
}

/// All ranks of a replica that live in this process.
#[derive(Debug)]
pub struct ShardGroup<D: Device> {
    pool: PoolGeometry,
    shards: Vec<Shard<D>>,
    fences: Fences<D>,
    /// Orders whose fence is not recorded yet.
    held: VecDeque<Order>,
    /// Orders that ended without a copy.
    ended: Vec<Ack>,
    /// By rank; none where the load was refused.
    gates: BTreeMap<OpId, Vec<Option<Arc<LoadGate<D>>>>>,
    pending: BTreeMap<OpId, Pending>,
    completions: Vec<Completion>,
    /// The first cause of any failed copy.
    fault: Option<String>,
}

impl<D: Device> ShardGroup<D> {
    /// Ranks over given pools. Rank i of the replica has DCP rank i mod c, as the topology says.
    ///
    /// # Errors
    /// Lists of different length, pools of another geometry, a thread or stream that cannot be
    /// had.
    pub fn new(
        pool: PoolGeometry,
        devices: Vec<D>,
        planes: Vec<Arc<L1Planes<D>>>,
        hosts: Vec<Option<Arc<HostPool>>>,
        config: &TransferConfig,
    ) -> Result<Self, Error> {
        let ranks = devices.len();
        let count = |what, given| {
            (given == ranks)
                .then_some(())
                .ok_or(Error::RankCount { what, given, ranks })
        };
        count("L1 pools", planes.len())?;
        count("L2 pools", hosts.len())?;
        let dcp_ranks = pool
            .stripe()
            .ranks()
            .collect::<Vec<_>>()
            .into_iter()
            .cycle();
        let mut shards = Vec::with_capacity(ranks);
        for ((device, planes), (host, dcp_rank)) in devices
            .into_iter()
            .zip(planes)
            .zip(hosts.into_iter().zip(dcp_ranks))
        {
            let rank = shards.len();
            let engine = TransferEngine::new(
                device.clone(),
                Arc::clone(&planes),
                host.clone(),
                TransferConfig {
                    rank: dcp_rank,
                    ..*config
                },
            )
            .map_err(|source| Error::Transfer { rank, source })?;
            shards.push(Shard {
                dcp_rank,
                device,
                planes,
                host,
                engine,
            });
        }
        Ok(Self {
            pool,
            shards,
            fences: Fences::default(),
            held: VecDeque::new(),
            ended: Vec::new(),
            gates: BTreeMap::new(),
            pending: BTreeMap::new(),
            completions: Vec::new(),
            fault: None,
        })
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

    /// Pages of L2 that every rank has.
    fn l2_pages(&self) -> u32 {
        let hosts = self.shards.iter().filter_map(Shard::host);
        hosts.map(|host| host.pages()).min().unwrap_or(0)
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
        if order.kind == OrderKind::Cancel {
            self.cancel(order.op);
            return Ok(());
        }
        if order
            .after
            .is_some_and(|fence| !self.fences.is_recorded(fence))
        {
            self.held.push_back(order);
            return Ok(());
        }
        let mut gates = Vec::new();
        let (op, pages): (_, Arc<[_]>) = (order.op, order.pages.into());
        let issued = self.shards.iter().map(|s| s.device.now()).min();
        let mut report = OpReport::new(op, order.kind, pages.len(), issued.unwrap_or_default());
        let mut tally = RankTally::new(self.shards.len(), pages.len());
        let (mut none_took, mut submitted) = (false, Ok(()));
        for (rank, shard) in self.shards.iter().enumerate() {
            let after = order.after.and_then(|fence| self.fences.event(fence, rank));
            let pages = Arc::clone(&pages);
            let taken = match order.kind {
                OrderKind::Store => {
                    let urgent = order.urgent;
                    let job = StoreJob {
                        op,
                        pages,
                        after,
                        urgent,
                    };
                    let stored = shard.engine.store(job);
                    stored.map(|()| None)
                }
                OrderKind::Load | OrderKind::Cancel => {
                    let loaded = shard.engine.load(LoadJob { op, pages, after });
                    loaded.map(Some)
                }
            };
            if taken.is_err() {
                // It ends here for this rank, with nothing.
                none_took = tally.ended(0).is_some();
            }
            let taken = taken.map_err(|source| Error::Transfer { rank, source });
            gates.push(taken.as_ref().ok().cloned().flatten());
            submitted = submitted.and(taken.map(|_| ()));
        }
        // What a rank refuses ends like any operation, once the ranks that took it are through.
        if let Err(error) = &submitted {
            report.good_pages = 0;
            let cause = format!("operation {op}: {error}");
            report.cause = Some(cause.as_str().into());
            self.fault.get_or_insert(cause);
        }
        if order.kind == OrderKind::Load {
            self.gates.insert(op, gates);
        }
        if none_took {
            self.ended.push(Ack { op, good_pages: 0 });
            self.gates.remove(&op);
        } else {
            self.pending.insert(op, Pending { tally, report });
        }
        submitted
    }

    /// Whether an order waits for a fence that is not recorded yet.
    #[must_use]
    pub fn is_held(&self, op: OpId) -> bool {
        self.held.iter().any(|order| order.op == op)
    }

    /// Gives up what is not submitted of a load. One that a rank has submitted to its end runs on
    /// there; the least of all ranks counts.
    fn cancel(&mut self, op: OpId) {
        if let Some(at) = self.held.iter().position(|order| order.op == op) {
            self.held.remove(at);
            self.ended.push(Ack { op, good_pages: 0 });
            return;
        }
        for shard in &self.shards {
            shard.engine.cancel(op);
        }
    }

    /// Records `fence` behind what each rank's stream holds now, and submits orders that waited
    /// for it.
    ///
    /// # Errors
    /// Not one stream a rank; a device that fails.
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
        let mut done = Ok(());
        for (shard, stream) in self.shards.iter().zip(streams) {
            let recorded = shard.device.event().and_then(|event| {
                shard.device.record(&event, stream)?;
                Ok(event)
            });
            events.push(recorded.as_ref().ok().cloned());
            done = done.and(recorded.map(|_| ()));
        }
        // A rank that fails settles nothing any more; the others go on.
        let mut done = done.map_err(Error::from);
        self.fences.record(fence, events);
        for order in std::mem::take(&mut self.held) {
            done = done.and(self.submit(order));
        }
        done
    }

    /// Collects what has ended on all ranks. Never blocks.
    ///
    /// # Errors
    /// A rank whose engine is broken.
    pub fn poll(&mut self, acks: &mut Vec<Ack>, reports: &mut Vec<OpReport>) -> Result<(), Error> {
        acks.append(&mut self.ended);
        let (first_ack, first_report) = (acks.len(), reports.len());
        for (rank, shard) in self.shards.iter().enumerate() {
            self.completions.clear();
            shard.engine.poll(&mut self.completions);
            for done in &self.completions {
                let Some(pending) = self.pending.get_mut(&done.op) else {
                    continue;
                };
                merge(&mut pending.report, done);
                if let Some(error) = &done.error {
                    let cause = format!("operation {} on rank {rank}: {error}", done.op);
                    pending
                        .report
                        .cause
                        .get_or_insert_with(|| cause.as_str().into());
                    self.fault.get_or_insert(cause);
                }
                let Some(good_pages) = pending.tally.ended(done.good_pages) else {
                    continue;
                };
                let op = done.op;
                acks.push(Ack { op, good_pages });
                reports.extend(self.pending.remove(&op).map(|pending| OpReport {
                    good_pages,
                    ..pending.report
                }));
                self.gates.remove(&op);
            }
        }
        // In the order of planning, whichever rank was the last.
        acks[first_ack..].sort_unstable_by_key(|ack| ack.op);
        reports[first_report..].sort_unstable_by_key(|report| report.op);
        self.fences.forget_complete(&self.shards)?;
        Ok(())
    }

    /// Where no thread submits ([`striata_gpu::transfer::Submission::Manual`]): does one unit of
    /// submission on every rank that has one. False if none had.
    pub fn pump(&self) -> bool {
        let pumped = self.shards.iter().map(|shard| shard.engine.pump());
        pumped.fold(false, |any, one| any | one)
    }

    /// Blocks until every submitted order has ended on its rank.
    ///
    /// # Errors
    /// A rank whose engine is broken.
    pub fn drain(&self) -> Result<(), Error> {
        let mut done = Ok(());
        for (rank, shard) in self.shards.iter().enumerate() {
            let drained = shard.engine.drain();
            done = done.and(drained.map_err(|source| Error::Transfer { rank, source }));
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
        for (rank, gate) in self.gates.get(&op).into_iter().flatten().enumerate() {
            let Some(gate) = gate else { continue };
            match gate.synchronize() {
                Ok(_) | Err(GateError::Failed { .. }) => {}
                Err(source) => return Err(Error::Gate { rank, source }),
            }
        }
        Ok(())
    }

    /// The first fault that stopped a rank's engine for good.
    #[must_use]
    pub fn poisoned(&self) -> Option<String> {
        self.shards.iter().enumerate().find_map(|(rank, shard)| {
            shard
                .engine
                .poisoned()
                .map(|cause| format!("rank {rank}: {cause}"))
        })
    }

    /// The first cause of any copy that failed.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

/// Adds a rank's completion to the operation's report: the slowest rank counts.
fn merge(report: &mut OpReport, done: &Completion) {
    report.bytes_per_rank = report.bytes_per_rank.max(done.bytes);
    report.first_layer = report.first_layer.max(done.first_layer);
    report.finished = report.finished.max(done.finished);
}
