// SPDX-License-Identifier: Apache-2.0
//! Why a call of the decode path fails.

use striata_core::ConfigError;
use striata_gpu::GpuError;
use striata_kernels::decode::{DecodeError as ContractError, PlanStatus};

use crate::error::Error;

/// Why a call of the decode path fails. What is refused has changed nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A configuration that is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Sizes that the kernels do not take.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// A number outside its range.
    #[error("{what} is {value}: it must be {range}")]
    Range {
        /// Which number.
        what: &'static str,
        /// The value.
        value: u64,
        /// What it may be.
        range: String,
    },
    /// Not as many of something as there are ranks.
    #[error("{given} {what} were given for the {ranks} ranks of a dcp group")]
    Ranks {
        /// What.
        what: &'static str,
        /// How many.
        given: usize,
        /// c.
        ranks: usize,
    },
    /// Planes of another pool than the one that was configured.
    #[error("rank {rank}: its pool has {what} {given}, the decode path was made for {expected}")]
    Pool {
        /// The rank.
        rank: usize,
        /// What differs.
        what: &'static str,
        /// The pool's.
        given: u64,
        /// As configured.
        expected: u64,
    },
    /// A request that cannot stand on its place.
    #[error("request {place}: {reason}")]
    Request {
        /// Its place in the batch.
        place: usize,
        /// What is wrong, with the numbers.
        reason: String,
    },
    /// A call of a layer outside a step, or of a step in a step.
    #[error("{call} was called {when}")]
    Order {
        /// The call.
        call: &'static str,
        /// When.
        when: &'static str,
    },
    /// A step whose numbers are wrong.
    #[error("rank {rank}: {fault}")]
    Fault {
        /// The DCP rank that found it.
        rank: usize,
        /// What was found.
        fault: StepFault,
    },
    /// The start-up check of known results.
    #[error(
        "the self-test of the decode path failed on rank {rank}: {case} gave {got} instead of \
         {expected}"
    )]
    SelfTest {
        /// The DCP rank.
        rank: usize,
        /// What was computed.
        case: &'static str,
        /// What came.
        got: f32,
        /// What is right.
        expected: f32,
    },
    /// An earlier call failed half-way: what the buffers hold is unknown.
    #[error("the decode path stopped at its first failure: {cause}")]
    Stopped {
        /// The first failure.
        cause: String,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] GpuError),
    /// A gate of a load failed.
    #[error("rank {rank}: {source}")]
    Gate {
        /// The DCP rank.
        rank: usize,
        /// What failed.
        source: Box<Error>,
    },
}

/// What is wrong with the numbers of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepFault {
    /// Log-sum-exps that are not numbers, or infinities that nobody declared.
    #[error(
        "{count} partial results have no log-sum-exp; the first is that of rank {partial} for \
         request {request}, query {query}, head {head}"
    )]
    LogSumExp {
        /// How many since the step before.
        count: u32,
        /// The DCP rank whose partial it is.
        partial: u32,
        /// Place in the batch.
        request: u32,
        /// Query of the request.
        query: u32,
        /// Head of the group: by DCP rank, then local head.
        head: u32,
    },
    /// New rows whose place lies outside the plane.
    #[error("{count} new rows lay outside their plane and were not written")]
    Rows {
        /// How many since the step before.
        count: u32,
    },
    /// A place that the plan kernel refused.
    #[error("request {request} was planned as padding: {status:?}")]
    Plan {
        /// Place in the batch.
        request: usize,
        /// Why.
        status: PlanStatus,
    },
    /// A status word that no kernel writes.
    #[error("request {request} has the plan status {word}")]
    Status {
        /// Place in the batch.
        request: usize,
        /// The word.
        word: u32,
    },
}
