// SPDX-License-Identifier: Apache-2.0
//! A rank's two tiers with a transfer engine.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use striata_core::{
    L1Page, L2Page, LayerId, OpId, PageGeometry, PagePair, PoolGeometry, PoolKind, Stripe,
};
use striata_gpu::sim::{SimConfig, SimDevice, SimEvent, SimMemory, SimScheduler, SimStream};
use striata_gpu::transfer::{
    Completion, CopyPath, LayerCut, LoadJob, PageRule, StoreJob, Submission, TransferConfig,
    TransferEngine, TransferPaths,
};
use striata_gpu::{Device, GpuError, L1Planes};
use striata_host::HostPool;
use striata_kernels::rows::{PageSeed, RowParams, RowSpan, VerifyLog, fingerprint, read_log};

use crate::bench::host_pool;

const ROWS: u32 = 4;
const ROW_BYTES: u32 = 32;
pub(crate) const LAYERS: u32 = 5;
const PAGES: u32 = 12;

/// Settings under which small pages move as those of 73,728 B in a layer and few pages as many,
/// but for one or two by rectangles.
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
        ..TransferConfig::default()
    }
}

/// A rank with two tiers of 12 pages of 5 layers, and an engine that the test drives.
pub(crate) struct Rig {
    pub(crate) device: SimDevice,
    pub(crate) planes: Arc<L1Planes<SimDevice>>,
    pub(crate) host: Arc<HostPool>,
    pub(crate) engine: TransferEngine<SimDevice>,
    pub(crate) compute: SimStream,
}

impl Rig {
    pub(crate) fn stepped(seed: u64) -> (Self, SimScheduler) {
        let scheduler = SimScheduler::new(seed);
        let config = SimConfig::stepped(0, &scheduler);
        (Self::new(config, Submission::Manual), scheduler)
    }

    pub(crate) fn new(config: SimConfig, submission: Submission) -> Self {
        let transfer = TransferConfig {
            submission,
            ..self::config()
        };
        Self::with(config, transfer)
    }

    pub(crate) fn with(config: SimConfig, transfer: TransferConfig) -> Self {
        let device = SimDevice::new(config);
        let page = PageGeometry::new(ROWS, ROW_BYTES, LAYERS).unwrap();
        let stripe = Stripe::new(2, ROWS).unwrap();
        let rows = u64::from(PAGES * ROWS);
        let geometry = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows).unwrap();
        let planes = Arc::new(L1Planes::alloc(&device, geometry).unwrap());
        let host = host_pool(page, PAGES);
        let engine = TransferEngine::new(
            device.clone(),
            Arc::clone(&planes),
            Some(Arc::clone(&host)),
            transfer,
        );
        Self {
            compute: device.stream("compute").unwrap(),
            engine: engine.unwrap(),
            device,
            planes,
            host,
        }
    }

    /// Writes a page in all layers on the compute stream.
    pub(crate) fn fill(&self, page: u32, content: u64) {
        for layer in 0..LAYERS {
            let (plane, base) = self.planes.plane(LayerId::new(layer)).unwrap();
            let spans = span(page, content);
            self.device
                .fill_rows(&self.compute, plane, base, params(layer), &spans)
                .unwrap();
        }
    }

    /// Enqueues the comparison of one layer of a page on `stream`.
    pub(crate) fn verify(&self, stream: &SimStream, layer: u32, page: u32, log: &SimMemory) {
        let (plane, base) = self.planes.plane(LayerId::new(layer)).unwrap();
        let spans = span(page, 0);
        self.device
            .verify_rows(stream, plane, base, params(layer), &spans, log)
            .unwrap();
    }

    pub(crate) fn fence(&self) -> SimEvent {
        self.mark(&self.compute)
    }

    pub(crate) fn mark(&self, stream: &SimStream) -> SimEvent {
        let event = self.device.event().unwrap();
        self.device.record(&event, stream).unwrap();
        event
    }

    pub(crate) fn log(&self) -> SimMemory {
        let bytes = 4 * VerifyLog::words(8);
        let log = self.device.alloc(bytes as u64).unwrap();
        self.device.write(&log, 0, &vec![0; bytes]).unwrap();
        log
    }

    /// Rows that differed.
    pub(crate) fn mismatches(&self, log: &SimMemory) -> Result<u32, GpuError> {
        let mut bytes = vec![0; 4 * VerifyLog::words(8)];
        self.device.read(log, 0, &mut bytes)?;
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        Ok(read_log(&words).0)
    }

    /// Whether an L1 page holds `content` in all layers, read by the host.
    pub(crate) fn l1_holds(&self, page: u32, content: u64) -> bool {
        (0..LAYERS).all(|layer| {
            let (plane, _) = self.planes.plane(LayerId::new(layer)).unwrap();
            let offset = self
                .planes
                .chunk_offset(LayerId::new(layer), L1Page::new(page))
                .unwrap();
            let mut bytes = vec![0; (ROWS * ROW_BYTES) as usize];
            self.device.read(plane, offset, &mut bytes).unwrap();
            let words = bytes
                .chunks_exact(4)
                .map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
            words.eq(expected(layer, content))
        })
    }

    /// Whether an L2 page holds `content` in all layers.
    pub(crate) fn l2_holds(&self, page: u32, content: u64) -> bool {
        (0..LAYERS).all(|layer| {
            let words = self
                .host
                .chunk_words(L2Page::new(page), LayerId::new(layer))
                .unwrap();
            let words = words.iter().map(|word| word.load(Ordering::Relaxed));
            words.eq(expected(layer, content))
        })
    }

    /// Puts `content` into an L2 page.
    pub(crate) fn set_l2(&self, page: u32, content: u64) {
        for layer in 0..LAYERS {
            let words = self
                .host
                .chunk_words(L2Page::new(page), LayerId::new(layer))
                .unwrap();
            for (word, value) in words.iter().zip(expected(layer, content)) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn load_job(&self, op: u64, list: &[(u32, u32)]) -> LoadJob<SimDevice> {
        LoadJob {
            op: OpId::new(op),
            pages: pairs(list),
            after: None,
        }
    }

    pub(crate) fn store_job(&self, op: u64, list: &[(u32, u32)]) -> StoreJob<SimDevice> {
        StoreJob {
            op: OpId::new(op),
            pages: pairs(list),
            after: None,
            urgent: false,
        }
    }

    pub(crate) fn poll(&self) -> Vec<Completion> {
        let mut done = Vec::new();
        self.engine.poll(&mut done);
        done
    }
}

pub(crate) fn pairs(list: &[(u32, u32)]) -> Arc<[PagePair]> {
    list.iter()
        .map(|&(l1, l2)| PagePair {
            l1: L1Page::new(l1),
            l2: L2Page::new(l2),
        })
        .collect()
}

fn params(layer: u32) -> RowParams {
    RowParams {
        row_words: ROW_BYTES / 4,
        layer,
        rank: 0,
        stride: 1,
    }
}

fn seed_of(content: u64) -> PageSeed {
    PageSeed::new(1, u128::from(content), 0)
}

fn span(page: u32, content: u64) -> Arc<[RowSpan]> {
    Arc::from([RowSpan {
        seed: seed_of(content),
        first_row: u64::from(page * ROWS),
        rows: ROWS,
        skip: 0,
    }])
}

/// The words of a page in a layer.
fn expected(layer: u32, content: u64) -> impl Iterator<Item = u32> {
    let rows = (0..ROWS).flat_map(|row| (0..ROW_BYTES / 4).map(move |word| (row, word)));
    rows.map(move |(row, word)| fingerprint(seed_of(content), &params(layer), row, word))
}
