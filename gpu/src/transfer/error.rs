// SPDX-License-Identifier: Apache-2.0
//! Why a transfer is refused.

use striata_core::OpId;
use striata_core::geometry::GeometryError;

use crate::device::Direction;
use crate::error::GpuError;

/// Why the transfer engine refuses a job, or to start. Nothing of a refused job was copied, but
/// for [`TransferError::Partial`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The tiers hold different rows.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// There is no host pool to copy to or from.
    #[error("operation {op} needs a host pool and the engine has none")]
    NoHostPool {
        /// The operation.
        op: OpId,
    },
    /// A page that its pool cannot hand out.
    #[error("page {page} of {tier} is not one of the pages {first}..{end} of the pool")]
    PageOutOfRange {
        /// The pool's tier.
        tier: &'static str,
        /// The page.
        page: u32,
        /// First page that can be copied.
        first: u32,
        /// Page after the last.
        end: u32,
    },
    /// A row that its pool does not have, or one of the sink.
    #[error("row {row} of {tier} is not one of the rows {first}..{end} of the pool")]
    RowOutOfRange {
        /// The pool's tier.
        tier: &'static str,
        /// The row.
        row: u64,
        /// First row that can be copied.
        first: u64,
        /// Row after the last.
        end: u64,
    },
    /// Layers that the pool does not have, or none.
    #[error("layers {start}..{end} are not layers of a pool of {layers}")]
    Layers {
        /// First layer.
        start: u32,
        /// Layer after the last.
        end: u32,
        /// Layers of the pool.
        layers: u32,
    },
    /// Two sources for one row.
    #[error("row {row} is named twice as the target of one {} copy", target(*direction))]
    DuplicateRow {
        /// Which way the copy goes.
        direction: Direction,
        /// The row.
        row: u64,
    },
    /// Row lists need kernels that reach host memory.
    #[error("operation {op} is a row list, and kernels of this device do not reach host memory")]
    NotMapped {
        /// The operation.
        op: OpId,
    },
    /// Two sources for one page.
    #[error("page {page} is named twice as the target of one {} copy", target(*direction))]
    DuplicateTarget {
        /// Which way the copy goes.
        direction: Direction,
        /// The page.
        page: u32,
    },
    /// A job was to wait for an event that nobody recorded.
    #[error("operation {op} waits for an event that was never recorded")]
    FenceNotRecorded {
        /// The operation.
        op: OpId,
    },
    /// A copy did not deliver every page; those before the first missing one arrived.
    #[error("operation {op} copied {good_pages} of {pages} pages: {cause}")]
    Partial {
        /// The operation.
        op: OpId,
        /// Leading pages that arrived.
        good_pages: usize,
        /// Pages that were to be copied.
        pages: usize,
        /// Why.
        cause: GpuError,
    },
    /// A device call failed earlier; the engine takes no more jobs.
    #[error("the transfer engine is poisoned: {cause}")]
    Poisoned {
        /// The first failure.
        cause: GpuError,
    },
    /// The engine could not start, or a wait can never end.
    #[error(transparent)]
    Device(#[from] GpuError),
}

const fn target(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "host-to-device",
        Direction::DeviceToHost => "device-to-host",
    }
}
