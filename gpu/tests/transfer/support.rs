// SPDX-License-Identifier: Apache-2.0
//! A rank's two tiers on a simulated device, and a device that can be slowed, broken and asked.

use std::sync::Arc;

use striata_core::{
    HostLayout, L1Page, L2Page, LayerId, OpId, PageGeometry, PagePair, PoolGeometry, PoolKind,
    Stripe,
};
use striata_gpu::sim::{SimConfig, SimDevice, SimEvent, SimMemory, SimStream};
use striata_gpu::transfer::{
    Completion, CopyPath, LayerCut, LoadJob, PageRule, StoreJob, TransferConfig, TransferEngine,
    TransferPaths,
};
use striata_gpu::{Device, L1Planes, PlaneSpan};
use striata_host::{HostPool, HostPoolConfig, HugePages};
use striata_kernels::rows::{PageSeed, RowParams, RowSpan, VerifyLog, read_log};

use crate::probe::Probe;

/// Which rows, where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) page_rows: u32,
    pub(crate) row_bytes: u32,
    pub(crate) layers: u32,
    pub(crate) l1_pages: u32,
    pub(crate) l2_pages: u32,
    pub(crate) host: HostLayout,
    /// One tensor, or an allocation a layer.
    pub(crate) uniform: bool,
    pub(crate) chunk_bytes: u64,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            page_rows: 4,
            row_bytes: 1152,
            layers: 5,
            l1_pages: 12,
            l2_pages: 12,
            host: HostLayout::PageFirst,
            uniform: true,
            chunk_bytes: 1 << 30,
        }
    }
}

/// Settings under which small pages move as those of 73,728 B in a layer and few pages as many,
/// but for one or two by rectangles, and the thread submits all.
pub(crate) fn config() -> TransferConfig {
    let mut paths = TransferPaths::built_in();
    // In groups of 1, 2 and 2 layers.
    let doubling = PageRule {
        path: CopyPath::Runs,
        cut: LayerCut::Growing(200),
    };
    for (side, many) in [
        (&mut paths.loads, Some(doubling)),
        (&mut paths.stores, None),
    ] {
        for (grid, most) in [(&mut side.uniform, 2), (&mut side.separate, 0)] {
            let mut rules = grid[grid.len() - 1];
            let many = many.unwrap_or(rules[4]);
            rules[most..].fill(many);
            *grid = [rules; TransferPaths::CHUNKS.len()];
        }
    }
    TransferConfig {
        paths,
        caller_pieces: 0,
        ..TransferConfig::default()
    }
}

/// Lets everything run that a test held, so that a failed test does not hang.
struct ReleaseOnDrop(Probe);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.go_on();
        self.0.release_all();
    }
}

pub(crate) struct Rig {
    // Dropped before the engine, which waits for its copies.
    _release: ReleaseOnDrop,
    pub(crate) device: Probe,
    pub(crate) planes: Arc<L1Planes<Probe>>,
    pub(crate) host: Arc<HostPool>,
    pub(crate) engine: TransferEngine<Probe>,
    pub(crate) compute: SimStream,
    layout: Layout,
}

pub(crate) fn pairs(list: &[(u32, u32)]) -> Arc<[PagePair]> {
    list.iter()
        .map(|&(l1, l2)| PagePair {
            l1: L1Page::new(l1),
            l2: L2Page::new(l2),
        })
        .collect()
}

impl Rig {
    pub(crate) fn new(layout: Layout, config: TransferConfig) -> Self {
        Self::on(SimConfig::new(0), layout, config)
    }

    pub(crate) fn on(sim: SimConfig, layout: Layout, config: TransferConfig) -> Self {
        let device = Probe::new(SimDevice::new(sim));
        let planes = Arc::new(planes_on(&device, layout));
        let mut pool = HostPoolConfig::new(planes.geometry().page(), layout.l2_pages);
        pool.layout = layout.host;
        pool.huge_pages = HugePages::Off;
        pool.prefault = false;
        pool.chunk_bytes = layout.chunk_bytes;
        pool.reserve_bytes = 0;
        let host = Arc::new(HostPool::new(&pool).unwrap());
        let engine =
            TransferEngine::new(device.clone(), planes.clone(), Some(host.clone()), config)
                .unwrap();
        let compute = device.stream("compute").unwrap();
        Self {
            _release: ReleaseOnDrop(device.clone()),
            device,
            planes,
            host,
            engine,
            compute,
            layout,
        }
    }

    pub(crate) fn with_defaults() -> Self {
        Self::new(Layout::default(), config())
    }

    fn params(&self, layer: u32) -> RowParams {
        RowParams {
            row_words: self.layout.row_bytes / 4,
            layer,
            rank: 0,
            stride: 1,
        }
    }

    /// Spans of whole pages; a page holds the rows of the seed beside it.
    fn spans(&self, pages: &[(u32, u64)]) -> Arc<[RowSpan]> {
        let rows = self.layout.page_rows;
        pages
            .iter()
            .map(|&(page, seed)| RowSpan {
                seed: PageSeed::new(1, u128::from(seed), 0),
                first_row: u64::from(page) * u64::from(rows),
                rows,
                skip: 0,
            })
            .collect()
    }

    /// Writes pages in all layers on the compute stream; returns the end of that.
    pub(crate) fn fill(&self, pages: &[(u32, u64)]) -> SimEvent {
        let spans = self.spans(pages);
        for layer in 0..self.layout.layers {
            let (plane, base) = self.planes.plane(LayerId::new(layer)).unwrap();
            self.device
                .fill_rows(&self.compute, plane, base, self.params(layer), &spans)
                .unwrap();
        }
        self.fence()
    }

    pub(crate) fn fence(&self) -> SimEvent {
        let event = self.device.event().unwrap();
        self.device.record(&event, &self.compute).unwrap();
        event
    }

    pub(crate) fn log(&self) -> SimMemory {
        let bytes = 4 * VerifyLog::words(8);
        let log = self.device.alloc(bytes as u64).unwrap();
        self.device.write(&log, 0, &vec![0; bytes]).unwrap();
        log
    }

    /// Enqueues the comparison of pages of one layer on `stream`; returns its end.
    pub(crate) fn verify(
        &self,
        stream: &SimStream,
        layer: u32,
        pages: &[(u32, u64)],
        log: &SimMemory,
    ) -> SimEvent {
        let (plane, base) = self.planes.plane(LayerId::new(layer)).unwrap();
        let (params, spans) = (self.params(layer), self.spans(pages));
        self.device
            .verify_rows(stream, plane, base, params, &spans, log)
            .unwrap();
        let event = self.device.event().unwrap();
        self.device.record(&event, stream).unwrap();
        event
    }

    /// Rows that differed.
    pub(crate) fn mismatches(&self, log: &SimMemory) -> u32 {
        let mut bytes = vec![0; 4 * VerifyLog::words(8)];
        self.device.read(log, 0, &mut bytes).unwrap();
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        read_log(&words).0
    }

    /// Compares pages in all layers now; rows that differ.
    pub(crate) fn wrong_rows(&self, pages: &[(u32, u64)]) -> u32 {
        let log = self.log();
        for layer in 0..self.layout.layers {
            self.verify(&self.compute, layer, pages, &log);
        }
        self.device.synchronize(&self.fence()).unwrap();
        self.mismatches(&log)
    }

    pub(crate) fn load(
        &self,
        op: u64,
        list: &[(u32, u32)],
        after: Option<SimEvent>,
    ) -> LoadJob<Probe> {
        LoadJob {
            op: OpId::new(op),
            pages: pairs(list),
            after,
        }
    }

    pub(crate) fn store(
        &self,
        op: u64,
        list: &[(u32, u32)],
        after: Option<SimEvent>,
    ) -> StoreJob<Probe> {
        StoreJob {
            op: OpId::new(op),
            pages: pairs(list),
            after,
            urgent: false,
        }
    }

    /// What `poll` says once everything has ended.
    pub(crate) fn finish(&self) -> Vec<Completion> {
        let _ = self.engine.drain();
        self.poll()
    }

    pub(crate) fn poll(&self) -> Vec<Completion> {
        let mut done = Vec::new();
        self.engine.poll(&mut done);
        done
    }
}

pub(crate) fn ops(completions: &[Completion]) -> Vec<u64> {
    completions.iter().map(|done| done.op.get()).collect()
}

pub(crate) fn planes_on<D: Device>(device: &D, layout: Layout) -> L1Planes<D> {
    let page = PageGeometry::new(layout.page_rows, layout.row_bytes, layout.layers).unwrap();
    let stripe = Stripe::new(2, layout.page_rows).unwrap();
    let rows = u64::from(layout.l1_pages) * u64::from(layout.page_rows);
    let geometry = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows).unwrap();
    if layout.uniform {
        return L1Planes::alloc(device, geometry).unwrap();
    }
    let plane = rows * u64::from(layout.row_bytes);
    // Every second layer at an offset, as in an engine's own tensors.
    let offset = |layer: u32| if layer.is_multiple_of(2) { 0 } else { 16 };
    let memories = (0..layout.layers).map(|layer| device.alloc(plane + offset(layer)).unwrap());
    let memories: Arc<[D::Memory]> = memories.collect();
    let spans = (0..layout.layers).map(|layer| PlaneSpan {
        memory: layer,
        offset: offset(layer),
    });
    L1Planes::adopt(device, geometry, spans.collect(), memories).unwrap()
}
