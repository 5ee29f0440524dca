// SPDX-License-Identifier: Apache-2.0
//! What the calls and the submission of an engine share.

use core::ops::Range;
use std::sync::{Arc, OnceLock};

use striata_core::sync::{AtomicU64, Mutex, Ordering};
use striata_core::{L1, L2, PagePair, Tier};
use striata_host::HostPool;

use super::error::TransferError;
use super::job::{Job, RowPair, Submission, TransferConfig};
use super::ledger::Ledger;
use super::pieces::PieceShape;
use super::plan::JobSize;
use super::queue_entry::JobId;
use super::staging::Staging;
use super::submit::Submitter;
use super::targets::Targets;
use super::work_queue::WorkQueue;
use crate::device::{Device, Direction};
use crate::error::GpuError;
use crate::planes::L1Planes;

/// What the calls and the submission share.
#[derive(Debug)]
pub(super) struct Core<D: Device> {
    pub(super) device: D,
    pub(super) planes: Arc<L1Planes<D>>,
    pub(super) config: TransferConfig,
    /// Jobs that are not submitted to their end, and the first failure.
    pub(super) work: WorkQueue<Job<D>, GpuError>,
    /// Jobs that are.
    pub(super) ledger: Ledger<D>,
    /// Held by who submits: the thread, or a caller.
    pub(super) submitter: Mutex<Submitter<D>>,
    /// Reused by every row list.
    pub(super) targets: Mutex<Targets>,
    next_id: AtomicU64,
    load_stream: D::Stream,
    store_stream: D::Stream,
    /// Made when the first job may need them.
    load_staging: OnceLock<Staging<D>>,
    store_staging: OnceLock<Staging<D>>,
}

impl<D: Device> Core<D> {
    pub(super) fn new(
        device: D,
        planes: Arc<L1Planes<D>>,
        config: TransferConfig,
    ) -> Result<Self, GpuError> {
        let rank = config.rank;
        Ok(Self {
            load_stream: device.stream(&format!("load {rank}"))?,
            store_stream: device.stream(&format!("store {rank}"))?,
            work: WorkQueue::new(),
            ledger: Ledger::new(),
            load_staging: OnceLock::new(),
            store_staging: OnceLock::new(),
            submitter: Mutex::new(Submitter::new(&config)),
            targets: Mutex::new(Targets::default()),
            next_id: AtomicU64::new(0),
            device,
            planes,
            config,
        })
    }

    /// Whether no thread submits.
    pub(super) fn is_manual(&self) -> bool {
        self.config.submission == Submission::Manual
    }

    pub(super) const fn stream(&self, direction: Direction) -> &D::Stream {
        match direction {
            Direction::HostToDevice => &self.load_stream,
            Direction::DeviceToHost => &self.store_stream,
        }
    }

    /// The ring of a direction, if it was made.
    pub(super) fn staging(&self, direction: Direction) -> Option<&Staging<D>> {
        self.staging_cell(direction).get()
    }

    const fn staging_cell(&self, direction: Direction) -> &OnceLock<Staging<D>> {
        match direction {
            Direction::HostToDevice => &self.load_staging,
            Direction::DeviceToHost => &self.store_staging,
        }
    }

    /// Makes the ring of a direction unless it is there.
    pub(super) fn reserve_staging(&self, direction: Direction) -> Result<(), GpuError> {
        if self.staging(direction).is_some() || self.config.staging_bytes == 0 {
            return Ok(());
        }
        let rank = self.config.rank;
        let name = match direction {
            Direction::HostToDevice => format!("load staging {rank}"),
            Direction::DeviceToHost => format!("store staging {rank}"),
        };
        let staging = Staging::new(&self.device, self.config.staging_bytes, &name)?;
        // Another caller may have been faster; then there is one already.
        drop(self.staging_cell(direction).set(staging));
        Ok(())
    }

    pub(super) fn next_id(&self) -> JobId {
        JobId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps the first failure and fails what is not submitted.
    pub(super) fn poison(&self, cause: GpuError) {
        let text = cause.to_string();
        if self.work.fail(cause) {
            tracing::error!(cause = text, "the transfer engine is poisoned");
        }
    }

    /// Poisons the engine with a failure and says so.
    pub(super) fn fail(&self, cause: GpuError) -> TransferError {
        self.poison(cause.clone());
        let cause = self.work.failed().unwrap_or(cause);
        TransferError::Poisoned { cause }
    }

    /// Fails once the engine is poisoned.
    pub(super) fn check(&self) -> Result<(), TransferError> {
        match self.work.failed() {
            Some(cause) => Err(TransferError::Poisoned { cause }),
            None => Ok(()),
        }
    }

    /// Pieces of one copy call.
    pub(super) fn call_pieces(&self) -> usize {
        self.config.call_pieces.max(1)
    }

    pub(super) fn size(&self, pages: usize) -> JobSize {
        JobSize {
            pages,
            page_bytes: self.planes.geometry().page().page_bytes(),
        }
    }
}

/// The host pool, and how its bytes stand beside those of the planes.
#[derive(Debug)]
pub(super) struct HostSide {
    pub(super) pool: Arc<HostPool>,
    pub(super) shape: PieceShape,
    l1_pages: u32,
}

impl HostSide {
    /// Joins a pool with planes that hold the same rows.
    pub(super) fn new<D: Device>(
        device: &D,
        planes: &L1Planes<D>,
        pool: Arc<HostPool>,
    ) -> Result<Self, TransferError> {
        let page = planes.geometry().page();
        page.check_same(pool.geometry())?;
        let host = pool.strides();
        // A rectangle steps from layer to layer on both sides.
        let most = device.most_pitch();
        let uniform = planes.uniform_stride();
        let shape = PieceShape {
            planes: planes.spans().into(),
            uniform: uniform.filter(|stride| *stride <= most && host.layer <= most),
            page,
            host,
            registration: pool.report().chunk_bytes,
        };
        Ok(Self {
            pool,
            shape,
            l1_pages: planes.geometry().pages(),
        })
    }

    /// Rows of the pool that a direction writes, the sink's with them.
    pub(super) fn rows_of(&self, direction: Direction) -> u64 {
        let pages = match direction {
            Direction::HostToDevice => self.l1_pages,
            Direction::DeviceToHost => self.pool.pages(),
        };
        u64::from(pages) * u64::from(self.shape.page.page_rows())
    }

    /// Checks that both pools have the rows and the layers. Rows of the sink of L1 are never copied.
    pub(super) fn check_rows(
        &self,
        rows: &[RowPair],
        layers: &Range<u32>,
    ) -> Result<(), TransferError> {
        let page = self.shape.page;
        if layers.start >= layers.end || layers.end > page.layers() {
            return Err(TransferError::Layers {
                start: layers.start,
                end: layers.end,
                layers: page.layers(),
            });
        }
        let page_rows = u64::from(page.page_rows());
        let (l1_end, l2_end) = (
            self.rows_of(Direction::HostToDevice),
            self.rows_of(Direction::DeviceToHost),
        );
        let check = |tier, row: u64, first: u64, end: u64| {
            if (first..end).contains(&row) {
                return Ok(());
            }
            Err(TransferError::RowOutOfRange {
                tier,
                row,
                first,
                end,
            })
        };
        rows.iter().try_for_each(|pair| {
            check(L1::NAME, pair.l1.get(), page_rows, l1_end)?;
            check(L2::NAME, pair.l2.get(), 0, l2_end)
        })
    }

    /// Checks that both pools have the pages. The sink of L1 is never copied.
    pub(super) fn check_pages(&self, pages: &[PagePair]) -> Result<(), TransferError> {
        let check = |tier, page, first, end| {
            if (first..end).contains(&page) {
                return Ok(());
            }
            Err(TransferError::PageOutOfRange {
                tier,
                page,
                first,
                end,
            })
        };
        for pair in pages {
            check(L1::NAME, pair.l1.get(), 1, self.l1_pages)?;
            check(L2::NAME, pair.l2.get(), 0, self.pool.pages())?;
        }
        Ok(())
    }
}
