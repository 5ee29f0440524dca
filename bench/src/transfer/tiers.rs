// SPDX-License-Identifier: Apache-2.0
//! Both tiers of the benchmark, and what their pages hold.

use core::ops::Range;
use std::sync::Arc;

use striata_core::{L1Page, L2Page, LayerId, PagePair};
use striata_gpu::{Device, L1Planes};
use striata_host::{HostPool, HostPoolConfig};
use striata_kernels::rows::{PageSeed, RowParams, RowSpan, VerifyLog, read_log};

use super::error::BenchError;
use super::lists::Room;
use super::options::{Shape, TransferOptions};

/// Records of the log of comparisons; only the count is used.
const RECORDS: usize = 4;

/// Names what a page holds; no two fillings have one name.
pub(super) type Content = u64;

/// Planes, host pool, and streams of the benchmark's own.
#[derive(Debug)]
pub(super) struct Tiers<D: Device> {
    pub(super) device: D,
    pub(super) shape: Shape,
    pub(super) planes: Arc<L1Planes<D>>,
    pub(super) host: Arc<HostPool>,
    /// Fills, comparisons and compute.
    pub(super) compute: D::Stream,
    /// Idle but for marks.
    pub(super) marks: D::Stream,
    log: D::Memory,
    /// What each host page holds.
    held: Vec<Content>,
    next: Content,
}

impl<D: Device> Tiers<D> {
    /// Both tiers, with room for two of the largest job and for the copies of the ceilings.
    pub(super) fn new(device: &D, options: &TransferOptions) -> Result<Self, BenchError> {
        let page = options.shape.page()?;
        let page_bytes = page.page_bytes();
        let of_ceilings = options.ceiling_bytes.saturating_mul(2).div_ceil(page_bytes) + 2;
        let of_jobs = u64::from(options.most_pages()) * 2;
        let pages = u32::try_from(of_ceilings.max(of_jobs)).unwrap_or(u32::MAX);
        let pool = options.shape.pool(pages.saturating_add(1))?;
        let config = HostPoolConfig {
            chunk_bytes: options.registration_bytes,
            pinner: device.pinner(),
            ..HostPoolConfig::new(page, pages)
        };
        let log = device.alloc(4 * VerifyLog::words(RECORDS) as u64)?;
        Ok(Self {
            shape: options.shape,
            planes: Arc::new(L1Planes::alloc(device, pool)?),
            host: Arc::new(HostPool::new(&config)?),
            compute: device.stream("bench compute")?,
            marks: device.stream("bench marks")?,
            log,
            held: vec![0; pages as usize],
            next: 1,
            device: device.clone(),
        })
    }

    /// A host pool in which the copies of the ceilings cross no registration.
    pub(super) fn host_of_ceilings(
        &self,
        options: &TransferOptions,
    ) -> Result<Arc<HostPool>, BenchError> {
        let bytes = options.ceiling_bytes.saturating_mul(2);
        let first = self.host.report().chunk_bytes.min(self.host.bytes());
        if first >= bytes {
            return Ok(self.host.clone());
        }
        let page = options.shape.page()?;
        let pages = bytes.div_ceil(page.page_bytes());
        let config = HostPoolConfig {
            chunk_bytes: u64::MAX,
            pinner: self.device.pinner(),
            ..HostPoolConfig::new(page, u32::try_from(pages).unwrap_or(u32::MAX))
        };
        Ok(Arc::new(HostPool::new(&config)?))
    }

    /// Pages of both tiers.
    pub(super) fn room(&self) -> Room {
        Room {
            l1: self.planes.geometry().pages() - 1,
            l2: self.host.pages(),
        }
    }

    /// Bytes of `pages` pages.
    pub(super) fn bytes(&self, pages: usize) -> u64 {
        self.planes.geometry().page().page_bytes() * pages as u64
    }

    /// A point behind what `stream` holds.
    pub(super) fn fence(&self, stream: &D::Stream) -> Result<D::Event, BenchError> {
        let event = self.device.event()?;
        self.device.record(&event, stream)?;
        Ok(event)
    }

    /// Blocks until everything on `stream` has ended.
    pub(super) fn finish(&self, stream: &D::Stream) -> Result<(), BenchError> {
        self.device.synchronize(&self.fence(stream)?)?;
        Ok(())
    }

    /// Fills the L1 pages of `pairs` with something new; returns what each holds now.
    pub(super) fn refill(
        &mut self,
        planes: &L1Planes<D>,
        pairs: &[PagePair],
    ) -> Result<Vec<Content>, BenchError> {
        let first = self.next;
        self.next += pairs.len() as u64;
        let contents: Vec<Content> = (first..self.next).collect();
        let pages = pairs.iter().map(|pair| pair.l1);
        let spans = self.spans(pages.zip(contents.iter().copied()));
        self.fill(planes, 0..self.shape.layers, &spans)?;
        Ok(contents)
    }

    /// Writes rows of some layers.
    pub(super) fn fill(
        &self,
        planes: &L1Planes<D>,
        layers: Range<u32>,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(), BenchError> {
        for layer in layers {
            let Some((plane, base)) = planes.plane(LayerId::new(layer)) else {
                continue;
            };
            let params = self.params(layer);
            self.device
                .fill_rows(&self.compute, plane, base, params, spans)?;
        }
        self.finish(&self.compute)
    }

    /// A name for something new.
    pub(super) const fn fresh(&mut self) -> Content {
        self.next += 1;
        self.next - 1
    }

    /// Notes that the host pages of `pairs` hold `contents`.
    pub(super) fn stored(&mut self, pairs: &[PagePair], contents: &[Content]) {
        for (pair, content) in pairs.iter().zip(contents) {
            if let Some(held) = self.held.get_mut(pair.l2.get() as usize) {
                *held = *content;
            }
        }
    }

    /// What a host page holds.
    pub(super) fn held(&self, page: L2Page) -> Content {
        let held = self.held.get(page.get() as usize);
        held.copied().unwrap_or(0)
    }

    /// Rows of the L1 pages of `pairs` that do not hold what their host pages do, and how many were
    /// compared.
    pub(super) fn wrong_rows(
        &self,
        planes: &L1Planes<D>,
        pairs: &[PagePair],
    ) -> Result<(u64, u64), BenchError> {
        let spans = self.spans(pairs.iter().map(|pair| (pair.l1, self.held(pair.l2))));
        self.wrong(planes, 0..self.shape.layers, &spans)
    }

    /// Rows of some layers that do not hold what they must, and how many were compared.
    pub(super) fn wrong(
        &self,
        planes: &L1Planes<D>,
        layers: Range<u32>,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(u64, u64), BenchError> {
        let mut words = vec![0u32; VerifyLog::words(RECORDS)];
        self.device
            .write(&self.log, 0, bytemuck::cast_slice(&words))?;
        let mut rows = 0;
        for layer in layers {
            let Some((plane, base)) = planes.plane(LayerId::new(layer)) else {
                continue;
            };
            let (params, log) = (self.params(layer), &self.log);
            self.device
                .verify_rows(&self.compute, plane, base, params, spans, log)?;
            rows += spans.iter().map(|span| u64::from(span.rows)).sum::<u64>();
        }
        self.finish(&self.compute)?;
        self.device
            .read(&self.log, 0, bytemuck::cast_slice_mut(&mut words))?;
        Ok((u64::from(read_log(&words).0), rows))
    }

    fn params(&self, layer: u32) -> RowParams {
        RowParams {
            row_words: self.shape.row_bytes / 4,
            layer,
            rank: 0,
            stride: 1,
        }
    }

    fn spans(&self, pages: impl Iterator<Item = (L1Page, Content)>) -> Arc<[RowSpan]> {
        let rows = self.shape.page_rows;
        pages
            .map(|(page, content)| RowSpan {
                seed: seed_of(content),
                first_row: u64::from(page.get()) * u64::from(rows),
                rows,
                skip: 0,
            })
            .collect()
    }
}

/// The seed of the rows of a content.
pub(super) const fn seed_of(content: Content) -> PageSeed {
    PageSeed::new(1, content as u128, 0)
}
