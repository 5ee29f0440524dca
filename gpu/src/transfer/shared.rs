// SPDX-License-Identifier: Apache-2.0
//! What the calls and the submission of an engine share, and how its jobs are shaped.

use std::sync::Arc;

use striata_core::sync::Mutex;
use striata_core::{L1, L2, PagePair, Tier};
use striata_host::HostPool;

use super::error::TransferError;
use super::groups::LayerGroups;
use super::job::{JobSize, Submission, TransferConfig};
use super::pieces::PieceShape;
use super::queue::Queue;
use super::submit::Submitter;
use crate::device::{CopyForm, Device, Direction};
use crate::error::GpuError;
use crate::planes::L1Planes;

/// What the calls and the submission share.
#[derive(Debug)]
pub(super) struct Core<D: Device> {
    pub(super) device: D,
    pub(super) planes: Arc<L1Planes<D>>,
    pub(super) config: TransferConfig,
    pub(super) queue: Queue<D>,
    /// Who submits, if there is no thread.
    pub(super) manual: Option<Mutex<Submitter<D>>>,
    load_stream: D::Stream,
    store_stream: D::Stream,
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
            queue: Queue::new(),
            manual: match config.submission {
                Submission::Thread => None,
                Submission::Manual => Some(Mutex::new(Submitter::new())),
            },
            device,
            planes,
            config,
        })
    }

    pub(super) const fn stream(&self, direction: Direction) -> &D::Stream {
        match direction {
            Direction::HostToDevice => &self.load_stream,
            Direction::DeviceToHost => &self.store_stream,
        }
    }

    /// Poisons the engine with a failure and says so.
    pub(super) fn fail(&self, cause: GpuError) -> TransferError {
        self.queue.poison(cause.clone());
        let cause = self.queue.cause().unwrap_or(cause);
        TransferError::Poisoned { cause }
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

    /// Nobody waits for a layer of a store, so it takes the fewest calls. A load opens its first
    /// layer early; growing groups of plain runs are fastest for it, but for a page or two.
    pub(super) fn form(&self, direction: Direction, pages: usize) -> (CopyForm, LayerGroups) {
        let page = self.planes.geometry().page();
        let layers = page.layers();
        let uniform = self.planes.uniform_stride().is_some();
        match direction {
            Direction::DeviceToHost => {
                let form = if uniform {
                    CopyForm::Rectangles
                } else {
                    CopyForm::Runs
                };
                (form, LayerGroups::whole(layers))
            }
            Direction::HostToDevice if uniform && pages <= self.config.rectangle_pages => {
                (CopyForm::Rectangles, LayerGroups::first_and_rest(layers))
            }
            Direction::HostToDevice => {
                let layer_bytes = page.chunk_bytes().saturating_mul(pages as u64);
                let cap = self.config.group_bytes;
                let groups = LayerGroups::progressive(layers, layer_bytes, cap);
                (CopyForm::Runs, groups)
            }
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
        planes: &L1Planes<D>,
        pool: Arc<HostPool>,
    ) -> Result<Self, TransferError> {
        let page = planes.geometry().page();
        page.check_same(pool.geometry())?;
        let shape = PieceShape {
            planes: planes.spans().into(),
            uniform: planes.uniform_stride(),
            page,
            host: pool.strides(),
            registration: pool.report().chunk_bytes,
        };
        Ok(Self {
            pool,
            shape,
            l1_pages: planes.geometry().pages(),
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
