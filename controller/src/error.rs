// SPDX-License-Identifier: Apache-2.0
//! Errors of the engine. Misses, short space and 'not yet' are outcomes, not errors.

use striata_core::OpId;

use crate::residency::PageState;
use crate::shards::PoolId;

/// A rank, and which of its pools, if that is not the main one.
pub(crate) fn place(rank: usize, pool: PoolId) -> String {
    if pool == PoolId::MAIN {
        format!("rank {rank}")
    } else {
        format!("rank {rank}, {pool}")
    }
}

/// Why a call on the engine failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong.
    #[error("configuration: {0}")]
    Config(String),
    /// A geometry is refused.
    #[error(transparent)]
    Geometry(#[from] striata_core::geometry::GeometryError),
    /// A stripe is refused.
    #[error(transparent)]
    Stripe(#[from] striata_core::StripeError),
    /// A copy plan is refused; nothing was copied.
    #[error(transparent)]
    Plan(#[from] striata_core::plan::PlanError),
    /// A copy names the sink.
    #[error("L1 page 0 is the sink of padded writes and is never copied")]
    Sink,
    /// The L1 pool of a rank is refused.
    #[error(transparent)]
    Planes(#[from] striata_gpu::planes::PlanesError),
    /// The host pool failed.
    #[error(transparent)]
    Host(#[from] std::sync::Arc<striata_host::HostError>),
    /// A device failed.
    #[error(transparent)]
    Gpu(#[from] striata_gpu::GpuError),
    /// The transfer engine of a rank failed.
    #[error("{}: {source}", place(*rank, *pool))]
    Transfer {
        /// Index of the rank in the replica.
        rank: usize,
        /// Which of its pools.
        pool: PoolId,
        /// What failed.
        source: Box<striata_gpu::transfer::TransferError>,
    },
    /// The gate of a layer failed.
    #[error("{}: {source}", place(*rank, *pool))]
    Gate {
        /// Index of the rank in the replica.
        rank: usize,
        /// Which of its pools.
        pool: PoolId,
        /// What failed.
        source: striata_gpu::transfer::GateError,
    },
    /// A rank did not record the end of a step. Nothing of the step is settled; unless the device is
    /// lost, the call can be made again.
    #[error("rank {rank}: the end of step {fence} was not recorded: {source}")]
    Fence {
        /// Index of the rank in the replica.
        rank: usize,
        /// The fence that stands for the step.
        fence: striata_core::FenceId,
        /// Why.
        source: striata_gpu::GpuError,
    },
    /// The engine was given another number of devices or streams than it has ranks.
    #[error("{given} {what} were given for {ranks} ranks")]
    RankCount {
        /// What was counted.
        what: &'static str,
        /// How many were given.
        given: usize,
        /// Ranks of the replica.
        ranks: usize,
    },
    /// No such pool.
    #[error("{pool} is not one of the main pool and {sides} side pools")]
    NoSuchPool {
        /// The refused pool.
        pool: PoolId,
        /// Side pools of every rank.
        sides: usize,
    },
    /// A side pool that is divided otherwise than the main pool.
    #[error(
        "{pool} is divided by c {} P {} I {}, the main pool by c {} P {} I {}",
        given.dcp(), given.page_rows(), given.interleave(),
        expected.dcp(), expected.page_rows(), expected.interleave()
    )]
    PoolStripe {
        /// The refused pool.
        pool: PoolId,
        /// Its stripe.
        given: striata_core::Stripe,
        /// That of the main pool.
        expected: striata_core::Stripe,
    },
    /// A pool without a page for each page id.
    #[error(
        "{pool} has {given} pages on {tier} and needs {needed}: a page id stands for a page in every pool"
    )]
    PoolPages {
        /// The refused pool.
        pool: PoolId,
        /// The tier.
        tier: &'static str,
        /// Its pages.
        given: u32,
        /// Pages that the planner names.
        needed: u32,
    },
    /// Planes that were made for another pool.
    #[error("{}: the planes are of {given:?}, the pool is {expected:?}", place(*rank, *pool))]
    PoolPlanes {
        /// Index of the rank in the replica.
        rank: usize,
        /// Which of its pools.
        pool: PoolId,
        /// What the planes hold.
        given: striata_core::PoolGeometry,
        /// What they should hold.
        expected: striata_core::PoolGeometry,
    },
    /// The ranks have other pools than the setup describes.
    #[error("the setup describes {pool} as {expected:?}, the ranks have {given:?}")]
    PoolSetup {
        /// Which pool.
        pool: PoolId,
        /// What the ranks have; none if they lack it.
        given: Option<striata_core::PoolGeometry>,
        /// What the setup says; none if it knows no such pool.
        expected: Option<striata_core::PoolGeometry>,
    },
    /// No such rank.
    #[error("rank {rank} is not below the {ranks} ranks of the replica")]
    NoSuchRank {
        /// The refused rank.
        rank: usize,
        /// Ranks of the replica.
        ranks: usize,
    },
    /// The lease is of another planner, or was released.
    #[error("lease {slot} (generation {generation}) is not held here")]
    UnknownLease {
        /// Its slot.
        slot: u32,
        /// Its generation.
        generation: u32,
    },
    /// All preallocated lease slots are taken.
    #[error("{limit} leases are held already: release some, or raise max_leases")]
    TooManyLeases {
        /// The limit.
        limit: u32,
    },
    /// A request of no tokens.
    #[error("a request of 0 tokens is refused")]
    EmptyRequest,
    /// More tokens are claimed than the page table covers.
    #[error("{tokens} tokens are more than the {covered} that the lease's pages cover")]
    BeyondLease {
        /// The claimed tokens.
        tokens: u64,
        /// What the page table covers.
        covered: u64,
    },
    /// Keys are missing for whole pages.
    #[error("{keys} page keys do not name the {pages} whole pages of {tokens} tokens")]
    KeysShort {
        /// Keys given.
        keys: usize,
        /// Whole pages.
        pages: u64,
        /// The tokens.
        tokens: u64,
    },
    /// Insert came before the lease's loads were confirmed.
    #[error("operation {op} of the lease is not confirmed: call confirm first")]
    Unconfirmed {
        /// The load in flight or failed.
        op: OpId,
    },
    /// A load was asked for that `start_loads` has not started.
    #[error(
        "load {op} is planned and not started: call start_loads, and step_end of earlier steps"
    )]
    NotStarted {
        /// The load.
        op: OpId,
    },
    /// An acknowledgement names no operation in flight.
    #[error("operation {op} is not in flight")]
    UnknownOperation {
        /// The operation.
        op: OpId,
    },
    /// An acknowledgement claims more pages than the operation has.
    #[error("operation {op} of {pages} pages is acknowledged with {good} good pages")]
    AckTooLarge {
        /// The operation.
        op: OpId,
        /// Its pages.
        pages: usize,
        /// What was claimed.
        good: u32,
    },
    /// A page would make a move that the residency table does not have.
    #[error("{tier} page {page} may not go from {from:?} to {to:?}")]
    IllegalMove {
        /// The tier.
        tier: &'static str,
        /// The page.
        page: u32,
        /// Its state.
        from: PageState,
        /// The refused next state.
        to: PageState,
    },
    /// An allocator refused pages that the planner believed to own.
    #[error(transparent)]
    Alloc(#[from] striata_core::alloc::AllocError),
    /// An allocator lacks pages that the planner has just made free.
    #[error(transparent)]
    Shortage(#[from] striata_core::alloc::Shortage),
    /// The prefix index refused a call of the planner.
    #[error(transparent)]
    Index(#[from] striata_core::prefix::IndexError),
    /// The decode path failed.
    #[error(transparent)]
    Decode(Box<crate::decode::DecodeError>),
    /// A feature that is not built.
    #[error("{what} is not built in this version")]
    NotBuilt {
        /// The feature.
        what: String,
    },
    /// An earlier fault has stopped the engine.
    #[error("the engine is poisoned; first cause: {cause}")]
    Poisoned {
        /// The first cause.
        cause: String,
    },
}

impl From<crate::decode::DecodeError> for Error {
    fn from(error: crate::decode::DecodeError) -> Self {
        Self::Decode(Box::new(error))
    }
}
