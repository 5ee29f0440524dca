// SPDX-License-Identifier: Apache-2.0
//! Both tiers of a rank on the device under test, with an engine between them.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use striata_core::{
    HostLayout, L1Page, L2Page, LayerId, OpId, PageGeometry, PagePair, PoolGeometry, PoolKind,
    Stripe,
};
use striata_host::{HostPool, HostPoolConfig, HugePages};
use striata_kernels::rows::{self, PageSeed, RowParams, RowSpan, VerifyLog, read_log};

use super::Failure;
use crate::device::Device;
use crate::planes::{L1Planes, PlaneSpan};
use crate::transfer::{Completion, LoadJob, StoreJob, TransferConfig, TransferEngine};

/// Records of the logs of these checks.
const RECORDS: usize = 16;

/// Which rows, where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) page_rows: u32,
    pub(super) row_bytes: u32,
    pub(super) layers: u32,
    pub(super) l1_pages: u32,
    pub(super) l2_pages: u32,
    pub(super) host: HostLayout,
    /// One tensor, or an allocation a layer, as an engine may have.
    pub(super) uniform: bool,
    pub(super) chunk_bytes: u64,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            page_rows: 64,
            row_bytes: 1152,
            layers: 4,
            l1_pages: 16,
            l2_pages: 16,
            host: HostLayout::PageFirst,
            uniform: true,
            chunk_bytes: 64 << 20,
        }
    }
}

/// A page and what it holds.
pub(super) type Content = (u32, u64);

pub(super) struct Rig<D: Device> {
    pub(super) device: D,
    pub(super) planes: Arc<L1Planes<D>>,
    pub(super) host: Arc<HostPool>,
    pub(super) engine: TransferEngine<D>,
    pub(super) compute: D::Stream,
    pub(super) layout: Layout,
}

impl<D: Device> Rig<D> {
    pub(super) fn new(device: &D, layout: Layout) -> Result<Self, Failure> {
        Self::with_config(device, layout, TransferConfig::default())
    }

    pub(super) fn with_config(
        device: &D,
        layout: Layout,
        config: TransferConfig,
    ) -> Result<Self, Failure> {
        let planes = Arc::new(planes(device, layout)?);
        let page = planes.geometry().page();
        let host = Arc::new(HostPool::new(&pool_config(device, page, layout))?);
        let engine =
            TransferEngine::new(device.clone(), planes.clone(), Some(host.clone()), config)?;
        Ok(Self {
            compute: device.stream("compute")?,
            device: device.clone(),
            planes,
            host,
            engine,
            layout,
        })
    }

    fn params(&self, layer: u32) -> RowParams {
        RowParams {
            row_words: self.layout.row_bytes / 4,
            layer,
            rank: 0,
            stride: 1,
        }
    }

    fn spans(&self, pages: &[Content]) -> Arc<[RowSpan]> {
        let rows = self.layout.page_rows;
        let span = |&(page, seed): &Content| RowSpan {
            seed: seed_of(seed),
            first_row: u64::from(page) * u64::from(rows),
            rows,
            skip: 0,
        };
        pages.iter().map(span).collect()
    }

    /// Writes pages in all layers on the compute stream.
    pub(super) fn fill(&self, pages: &[Content]) -> Result<(), Failure> {
        let spans = self.spans(pages);
        for layer in 0..self.layout.layers {
            let (plane, base) = self.plane(layer)?;
            let params = self.params(layer);
            self.device
                .fill_rows(&self.compute, plane, base, params, &spans)?;
        }
        Ok(())
    }

    /// A point behind what the compute stream holds.
    pub(super) fn fence(&self) -> Result<D::Event, Failure> {
        let event = self.device.event()?;
        self.device.record(&event, &self.compute)?;
        Ok(event)
    }

    /// An empty log.
    pub(super) fn log(&self) -> Result<D::Memory, Failure> {
        log(&self.device, RECORDS)
    }

    /// Enqueues the comparison of pages of one layer.
    pub(super) fn verify(
        &self,
        stream: &D::Stream,
        layer: u32,
        pages: &[Content],
        log: &D::Memory,
    ) -> Result<(), Failure> {
        let (plane, base) = self.plane(layer)?;
        let (params, spans) = (self.params(layer), self.spans(pages));
        Ok(self
            .device
            .verify_rows(stream, plane, base, params, &spans, log)?)
    }

    /// Rows that a log counts.
    pub(super) fn count(&self, log: &D::Memory) -> Result<u32, Failure> {
        Ok(read_records(&self.device, log, RECORDS)?.0)
    }

    /// Compares pages in all layers on the compute stream and waits; rows that differ.
    pub(super) fn wrong_rows(&self, pages: &[Content]) -> Result<u32, Failure> {
        let log = self.log()?;
        for layer in 0..self.layout.layers {
            self.verify(&self.compute, layer, pages, &log)?;
        }
        self.device.synchronize(&self.fence()?)?;
        self.count(&log)
    }

    pub(super) fn load_job(
        &self,
        op: u64,
        list: &[(u32, u32)],
        after: Option<D::Event>,
    ) -> LoadJob<D> {
        LoadJob {
            op: OpId::new(op),
            pages: pairs(list),
            after,
        }
    }

    pub(super) fn store_job(
        &self,
        op: u64,
        list: &[(u32, u32)],
        after: Option<D::Event>,
    ) -> StoreJob<D> {
        StoreJob {
            op: OpId::new(op),
            pages: pairs(list),
            after,
            urgent: false,
        }
    }

    /// Waits for every job; what became of those that were not polled.
    pub(super) fn finish(&self) -> Result<Vec<Completion>, Failure> {
        self.engine.drain()?;
        let mut done = Vec::new();
        self.engine.poll(&mut done);
        Ok(done)
    }

    /// Words of a host page that do not hold a content, in all layers.
    pub(super) fn wrong_host_words(&self, page: u32, seed: u64) -> Result<usize, Failure> {
        let mut wrong = 0;
        for layer in 0..self.layout.layers {
            let words = self
                .host
                .chunk_words(L2Page::new(page), LayerId::new(layer))?;
            let expected = expected(words.len(), seed_of(seed), self.params(layer));
            let pairs = words.iter().zip(&expected);
            wrong += pairs
                .filter(|(a, b)| a.load(Ordering::Relaxed) != b.load(Ordering::Relaxed))
                .count();
        }
        Ok(wrong)
    }

    pub(super) fn plane(&self, layer: u32) -> Result<(&D::Memory, u64), Failure> {
        let plane = self.planes.plane(LayerId::new(layer));
        plane.ok_or_else(|| Failure::Wrong(format!("layer {layer} has no plane")))
    }

    /// All bytes of both tiers.
    pub(super) fn bytes(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let mut all = Vec::new();
        for memory in self.planes.memories().iter() {
            let len = usize::try_from(self.device.memory_len(memory))?;
            let mut bytes = vec![0; len];
            self.device.read(memory, 0, &mut bytes)?;
            all.push(bytes);
        }
        let words = self
            .host
            .words()
            .iter()
            .map(|word| word.load(Ordering::Relaxed));
        all.push(words.flat_map(u32::to_ne_bytes).collect());
        Ok(all)
    }

    /// Writes all bytes of both tiers.
    pub(super) fn set_bytes(&self, byte: impl Fn(usize, usize) -> u8) -> Result<(), Failure> {
        let memories = self.planes.memories();
        for (index, memory) in memories.iter().enumerate() {
            let len = usize::try_from(self.device.memory_len(memory))?;
            let bytes: Vec<u8> = (0..len).map(|at| byte(index, at)).collect();
            self.device.write(memory, 0, &bytes)?;
        }
        for (at, word) in self.host.words().iter().enumerate() {
            let bytes = [0, 1, 2, 3].map(|part| byte(memories.len(), 4 * at + part));
            word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The seed of a content.
pub(super) const fn seed_of(content: u64) -> PageSeed {
    PageSeed::new(1, content as u128, 0)
}

/// The words of a page.
pub(super) fn expected(words: usize, seed: PageSeed, params: RowParams) -> Vec<AtomicU32> {
    let page: Vec<AtomicU32> = (0..words).map(|_| AtomicU32::new(0)).collect();
    let rows = words.checked_div(params.row_words as usize).unwrap_or(0);
    let span = RowSpan {
        seed,
        first_row: 0,
        rows: u32::try_from(rows).unwrap_or(0),
        skip: 0,
    };
    let inside = rows::fill(&page, &params, &[span]);
    debug_assert!(inside);
    page
}

/// An empty log with room for `records`.
pub(super) fn log<D: Device>(device: &D, records: usize) -> Result<D::Memory, Failure> {
    let bytes = 4 * VerifyLog::words(records);
    let log = device.alloc(bytes as u64)?;
    device.write(&log, 0, &vec![0; bytes])?;
    Ok(log)
}

/// The count and the records of a log, in order.
pub(super) fn read_records<D: Device>(
    device: &D,
    log: &D::Memory,
    records: usize,
) -> Result<(u32, Vec<rows::Mismatch>), Failure> {
    let mut words = vec![0u32; VerifyLog::words(records)];
    device.read(log, 0, bytemuck::cast_slice_mut(&mut words))?;
    let (count, found) = read_log(&words);
    let mut found = found.to_vec();
    found.sort_unstable();
    Ok((count, found))
}

/// Blocks until everything on `stream` has ended.
pub(super) fn finish<D: Device>(device: &D, stream: &D::Stream) -> Result<(), Failure> {
    let event = device.event()?;
    device.record(&event, stream)?;
    device.synchronize(&event)?;
    Ok(())
}

pub(super) fn pairs(list: &[(u32, u32)]) -> Arc<[PagePair]> {
    let pair = |&(l1, l2): &(u32, u32)| PagePair {
        l1: L1Page::new(l1),
        l2: L2Page::new(l2),
    };
    list.iter().map(pair).collect()
}

pub(super) fn pool_config<D: Device>(
    device: &D,
    page: PageGeometry,
    layout: Layout,
) -> HostPoolConfig {
    let mut config = HostPoolConfig::new(page, layout.l2_pages);
    config.layout = layout.host;
    config.huge_pages = HugePages::Off;
    config.prefault = false;
    config.chunk_bytes = layout.chunk_bytes;
    config.reserve_bytes = 0;
    config.pinner = device.pinner();
    config
}

fn planes<D: Device>(device: &D, layout: Layout) -> Result<L1Planes<D>, Failure> {
    let page = PageGeometry::new(layout.page_rows, layout.row_bytes, layout.layers)?;
    let stripe = Stripe::new(2, layout.page_rows)?;
    let rows = u64::from(layout.l1_pages) * u64::from(layout.page_rows);
    let geometry = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows)?;
    if layout.uniform {
        return Ok(L1Planes::alloc(device, geometry)?);
    }
    let plane = rows * u64::from(layout.row_bytes);
    // Every second layer at an offset, as in an engine's own tensors.
    let offset = |layer: u32| if layer.is_multiple_of(2) { 0 } else { 16 };
    let memories = (0..layout.layers).map(|layer| device.alloc(plane + offset(layer)));
    let memories: Arc<[D::Memory]> = memories.collect::<Result<_, _>>()?;
    let spans = (0..layout.layers).map(|layer| PlaneSpan {
        memory: layer,
        offset: offset(layer),
    });
    Ok(L1Planes::adopt(
        device,
        geometry,
        spans.collect(),
        memories,
    )?)
}
