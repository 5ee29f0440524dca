// SPDX-License-Identifier: Apache-2.0
//! Contracts of the decode path on one rank, and what its kernels must compute, byte for byte
//! where that is possible.
//!
//! | file | contract |
//! |---|---|
//! | `e4m3`, `row_codec` | one byte of fp8; rows of every [`KernelFormat`] |
//! | `schedule` | who works on which tiles of which request |
//! | `plan` | the plan of a step: lengths, table, destinations, work list |
//! | `write` | new rows into a plane |
//! | `attend` | attention of one rank over its rows |
//! | `message` | packed partials and their merge |
//! | `prefix` | rows of a prefix in token order |
//!
//! Every struct that ends in `Params` is a kernel argument by value; its twin stands in
//! `kernels/cuda/decode.cuh` or in the source of its kernel. The tensor-core kernels are in
//! `kernels/cuda/attend_mma.cuh` and `attend_tiles.cuh`; their shared-memory sizes are checked against
//! [`crate::source::Kernel::shared_bytes`] where they are compiled.

pub mod attend;
pub mod e4m3;
pub mod message;
pub mod plan;
pub mod prefix;
pub mod row_codec;
pub mod schedule;
pub mod write;

pub use attend::{AttendKernel, AttendParams, AttendShape, OutputForm, OutputKind, WorkWords};
pub use message::{MAX_PARTIALS, MergeParams, MergeTally, PackParams};
pub use plan::{PlanLayout, PlanParams, PlanPlace, PlanShape, PlanSource, PlanStatus};
pub use prefix::PrefixParams;
pub use row_codec::{KernelFormat, RowScale};
pub use schedule::{MmaSize, Schedule, WorkStart};
pub use write::{Destination, WriteParams};

/// Latent lanes of a row: its value, and the first lanes of its key.
pub const LATENT: usize = 512;
/// Rotary lanes of a row.
pub const ROPE: usize = 64;
/// Lanes of a row and of a query.
pub const LANES: usize = LATENT + ROPE;
/// Most queries of a request in one call of the tensor-core kernel.
pub const MAX_QUERIES: u32 = 8;
/// Most heads in one call of the tensor-core kernel.
pub const MAX_HEADS: u32 = 128;

/// Why a call of the decode path is refused before anything runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A number that is outside what the kernels take.
    #[error("{what} is {value}, it must be {least}..={most}")]
    Range {
        /// Which number.
        what: &'static str,
        /// The value.
        value: u64,
        /// The least that is taken.
        least: u64,
        /// The most that is taken.
        most: u64,
    },
    /// A row format that no kernel reads.
    #[error("rows of {bytes} bytes without a format can be copied, and no kernel reads them")]
    Format {
        /// Bytes of a row.
        bytes: u32,
    },
    /// Heads that the destinations cannot share.
    #[error("{heads} heads cannot be shared by {destinations} destinations")]
    Heads {
        /// Heads of the group.
        heads: u32,
        /// Destinations.
        destinations: u32,
    },
    /// A kernel page that does not fit the physical page or the kernel.
    #[error("a kernel page of {kernel_rows} rows: it must divide the physical page of {page_rows}")]
    KernelPage {
        /// Rows of the kernel page.
        kernel_rows: u32,
        /// P.
        page_rows: u32,
    },
    /// A slice or a buffer of the wrong size.
    #[error("{what} has {actual} elements, its shape asks for {expected}")]
    Length {
        /// Which argument.
        what: &'static str,
        /// Elements that the shape asks for.
        expected: u64,
        /// Elements given.
        actual: u64,
    },
    /// A rank outside the group.
    #[error(transparent)]
    Stripe(#[from] striata_core::StripeError),
}

pub(crate) const fn in_range(
    what: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), DecodeError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(DecodeError::Range {
        what,
        value,
        least,
        most,
    })
}

pub(crate) const fn same_len(
    what: &'static str,
    actual: u64,
    expected: u64,
) -> Result<(), DecodeError> {
    if actual == expected {
        return Ok(());
    }
    Err(DecodeError::Length {
        what,
        expected,
        actual,
    })
}
