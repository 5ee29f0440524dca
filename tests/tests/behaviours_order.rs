// SPDX-License-Identifier: Apache-2.0
//! Behaviour 53: what a load burst delays, and what can be read before it is over.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use striata::core::{
    L1Page, L2Page, LayerId, OpId, PageGeometry, PagePair, PoolGeometry, PoolKind, Stripe,
};
use striata::gpu::sim::{CostModel, SimConfig, SimDevice, SimEvent, SimScheduler, SimStream};
use striata::gpu::transfer::{
    Completion, CopyPath, LayerCut, LoadJob, PageRule, Submission, TransferConfig, TransferEngine,
};
use striata::gpu::{CopyBatch, CopyForm, Device, DeviceTime, Direction, L1Planes, Piece};
use striata::host::{HostPool, HostPoolConfig, HugePages};

const LAYERS: u32 = 61;

/// Sizes of a burst. On a device that is `1 / scale` as fast as an H200, a load of 1 GiB / `scale`
/// takes as long as one of 1 GiB.
struct Size {
    scale: u64,
    page_rows: u32,
    row_bytes: u32,
    /// Pages of both tiers.
    pages: u32,
    /// Pages of a burst of 1 GiB / `scale`.
    burst: u32,
}

impl Size {
    /// The default settings to scale. Small pages go the way of large ones.
    fn transfer(&self) -> TransferConfig {
        let full = TransferConfig::default();
        let rule = PageRule {
            path: CopyPath::Runs,
            cut: LayerCut::Growing(200),
        };
        TransferConfig {
            submission: Submission::Manual,
            window_bytes: full.window_bytes / self.scale,
            group_bytes: full.group_bytes / self.scale,
            slice_bytes: full.slice_bytes / self.scale,
            paths: full.paths.forced(Direction::HostToDevice, rule),
            ..full
        }
    }
}

/// Small enough to be run under many schedules.
const SMALL: Size = Size {
    scale: 1024,
    page_rows: 8,
    row_bytes: 64,
    pages: 40,
    burst: 33,
};

/// The rows of DeepSeek-V3.1 on the link of an H200: a GiB on each tier.
const FULL: Size = Size {
    scale: 1,
    page_rows: 64,
    row_bytes: 1152,
    pages: 243,
    burst: 239,
};

/// An engine of one rank with 61 layers.
struct Burst {
    device: SimDevice,
    engine: TransferEngine<SimDevice>,
    scheduler: SimScheduler,
    planes: Arc<L1Planes<SimDevice>>,
    host: Arc<HostPool>,
}

impl Burst {
    fn new(seed: u64, size: &Size) -> Self {
        let scheduler = SimScheduler::new(seed);
        let full = CostModel::default();
        let cost = CostModel {
            host_to_device_bytes_per_s: full.host_to_device_bytes_per_s / size.scale,
            device_to_host_bytes_per_s: full.device_to_host_bytes_per_s / size.scale,
            ..full
        };
        let config = SimConfig {
            cost,
            ..SimConfig::stepped(0, &scheduler)
        };
        let device = SimDevice::new(config);
        let stripe = Stripe::new(1, size.page_rows).unwrap();
        let page = PageGeometry::new(size.page_rows, size.row_bytes, LAYERS).unwrap();
        let rows = u64::from(size.pages) * u64::from(size.page_rows);
        let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, rows).unwrap();
        let planes = Arc::new(L1Planes::alloc(&device, pool).unwrap());
        let host = HostPoolConfig {
            reserve_bytes: 0,
            prefault: false,
            huge_pages: HugePages::Off,
            ..HostPoolConfig::new(page, size.pages)
        };
        let host = Arc::new(HostPool::new(&host).unwrap());
        let transfer = size.transfer();
        let (l1, l2) = (Arc::clone(&planes), Arc::clone(&host));
        Self {
            engine: TransferEngine::new(device.clone(), l1, Some(l2), transfer).unwrap(),
            device,
            scheduler,
            planes,
            host,
        }
    }

    fn pump(&self) {
        while self.engine.pump() {}
    }

    fn poll(&self) -> Vec<Completion> {
        let mut done = Vec::new();
        self.engine.poll(&mut done);
        done
    }

    /// The operations that have ended since the last time.
    fn ended(&self) -> Vec<u64> {
        self.poll().iter().map(|done| done.op.get()).collect()
    }

    fn mark(&self, stream: &SimStream) -> SimEvent {
        let event = self.device.event().unwrap();
        self.device.record(&event, stream).unwrap();
        event
    }

    /// The last word of a page in a layer, on L2.
    fn set_last_word(&self, page: u32, layer: u32, value: u32) {
        let (page, layer) = (L2Page::new(page), LayerId::new(layer));
        let words = self.host.chunk_words(page, layer).unwrap();
        words.last().unwrap().store(value, Ordering::Relaxed);
    }

    /// The last word of a page in a layer, on L1.
    fn last_word(&self, page: u32, layer: u32) -> u32 {
        let (page, layer) = (L1Page::new(page), LayerId::new(layer));
        let chunk = self.planes.geometry().page().chunk_bytes();
        let (plane, _) = self.planes.plane(layer).unwrap();
        let at = self.planes.chunk_offset(layer, page).unwrap() + chunk - 4;
        let mut bytes = [0; 4];
        self.device.read(plane, at, &mut bytes).unwrap();
        u32::from_ne_bytes(bytes)
    }
}

fn load_job(op: u64, pages: Range<u32>) -> LoadJob<SimDevice> {
    let pair = |page| PagePair {
        l1: L1Page::new(page + 1),
        l2: L2Page::new(page),
    };
    LoadJob {
        op: OpId::new(op),
        pages: pages.map(pair).collect(),
        after: None,
    }
}

/// 53: Of a load of 61 layers no more is in flight than the window or two slices.
///
/// Seen to fail if the window has room for everything.
#[test]
fn b53_perf_order_no_more_than_the_window_is_in_flight() {
    let burst = Burst::new(1, &SMALL);
    let gate = burst.engine.load(load_job(1, 0..SMALL.burst)).unwrap();
    let transfer = SMALL.transfer();
    let most = transfer.window_bytes.max(2 * transfer.slice_bytes);
    let (mut rounds, mut copied) = (0, 0);
    while !gate.is_complete().unwrap() {
        burst.pump();
        let submitted = burst.device.stats().bytes_to_device;
        assert!(submitted - copied <= most);
        assert!(submitted > copied);
        copied = submitted;
        burst.scheduler.run().unwrap();
        rounds += 1;
    }
    // 1 GiB is about 20 ms.
    assert!(rounds >= 10, "{rounds}");
    let done = burst.poll();
    assert!(done[0].finished.since(done[0].issued) > 18_000_000);
}

/// 53: A copy of one page that comes right after the burst, and that somebody waits for, has ended
/// within the window, long before the burst.
///
/// Seen to fail if the window has room for everything, or if a load that somebody waits for is not
/// preferred.
#[test]
fn b53_perf_order_a_small_copy_right_after_a_burst_ends_within_the_window() {
    for seed in 0..5 {
        let burst = Burst::new(seed, &SMALL);
        let big = burst.engine.load(load_job(1, 0..SMALL.burst)).unwrap();
        burst.pump();
        let small = burst.engine.load(load_job(2, 39..40)).unwrap();
        let reader = burst.device.stream("reader").unwrap();
        small.wait_all(&reader).unwrap();
        burst.pump();
        let ended = small.synchronize().unwrap();
        // What was in flight, and the small copy itself, whose rows are as slow as all here.
        let alone = Burst::new(seed, &SMALL);
        let own = alone
            .engine
            .load(load_job(2, 39..40))
            .unwrap()
            .synchronize()
            .unwrap();
        let own = own.last.since(own.issued);
        assert!(ended.last.since(ended.issued) <= 2_000_000 + own);
        assert!(!big.is_complete().unwrap());
        assert_eq!(
            burst.ended(),
            [2],
            "visible at the next poll, whatever is queued before it"
        );
        let whole = big.synchronize().unwrap();
        assert!(whole.last.since(DeviceTime::default()) > 18_000_000);
        assert_eq!(burst.scheduler.bugs(), []);
    }
}

/// 53: Layer 0 is seen ready before layer 60 is copied, or even submitted.
///
/// Seen to fail if the window has room for everything, or if a load goes in one group of all
/// layers.
#[test]
fn b53_perf_order_layer_0_is_ready_before_layer_60_is_copied() {
    let burst = Burst::new(7, &SMALL);
    let gate = burst.engine.load(load_job(1, 0..SMALL.burst)).unwrap();
    let reader = burst.device.stream("reader").unwrap();
    gate.wait_layer(LayerId::new(0), &reader).unwrap();
    let ready = burst.device.event().unwrap();
    burst.device.record(&ready, &reader).unwrap();
    burst.pump();
    let at = burst.device.synchronize(&ready).unwrap();
    assert!(gate.submitted_groups().unwrap() < gate.groups().len());
    assert!(!gate.is_complete().unwrap());
    let times = gate.synchronize().unwrap();
    assert!(at.since(times.issued) < 1_000_000 && at < times.last);
    assert_eq!(burst.poll()[0].first_layer, Some(times.first));
}

/// 53, the vector itself: a load of 1 GiB in 61 layers at the rate of the link, and in virtual time.
/// A copy of 4 KiB right after it, on a stream of its own, ends within 1 ms; layer 0 is ready then,
/// and most of the load not even submitted; a load that was queued last is seen at the next poll,
/// while one before it waits for its fence and the burst is not over.
///
/// Seen to fail if the window has room for everything, if a load goes in one group of all layers,
/// if a load that somebody waits for is not preferred, or if loads behind one whose fence is open
/// wait with it.
#[test]
fn b53_perf_order_of_a_load_of_1_gib() {
    let burst = Burst::new(53, &FULL);
    let layers = [0, 29, LAYERS - 1];
    for (page, layer) in (0..FULL.pages).flat_map(|page| layers.map(|layer| (page, layer))) {
        burst.set_last_word(page, layer, page << 8 | layer);
    }
    let stream = |name| burst.device.stream(name).unwrap();
    let (compute, reader, own) = (stream("compute"), stream("reader"), stream("own"));
    let hold = burst.device.hold(&compute).unwrap();
    let busy = burst.mark(&compute);
    let begun = burst.device.now();

    let big = burst.engine.load(load_job(1, 0..FULL.burst)).unwrap();
    let mut waiting = load_job(2, FULL.burst..FULL.burst + 1);
    waiting.after = Some(busy);
    let waiting = burst.engine.load(waiting).unwrap();
    let last = FULL.burst + 1;
    let last = burst.engine.load(load_job(3, last..last + 1)).unwrap();
    big.wait_layer(LayerId::new(0), &reader).unwrap();
    let layer_0 = burst.mark(&reader);
    burst.pump();
    let submitted = big.submitted_groups().unwrap();
    assert!(burst.device.stats().bytes_to_device <= FULL.transfer().window_bytes);
    assert!(submitted > 1 && submitted < big.groups().len());

    // The model's link serves streams side by side. A copy engine serves them in turn, so the copy
    // is put behind all that is in flight.
    let before_it = LayerId::new(big.groups().range(submitted - 1).start);
    big.wait_layer(before_it, &own).unwrap();
    copy_4_kib(&burst, &own);
    let ended = burst.device.synchronize(&burst.mark(&own)).unwrap();
    assert_eq!(big.submitted_groups(), Ok(submitted));
    // Until the first descriptors are prepared, the link has nothing to do.
    let prepared = u64::from(FULL.burst) * CostModel::default().descriptor_ns;
    let took = ended.since(begun);
    assert!(took <= 1_000_000 + prepared, "{took}");
    assert!(burst.device.is_complete(&layer_0).unwrap());
    assert!(!big.is_complete().unwrap());

    last.wait_all(&reader).unwrap();
    last.synchronize().unwrap();
    assert_eq!(burst.ended(), [3]);
    assert!(!big.is_complete().unwrap() && !waiting.is_complete().unwrap());
    hold.release();
    burst.engine.drain().unwrap();
    let mut rest = burst.ended();
    rest.sort_unstable();
    assert_eq!(rest, [1, 2]);
    // 1 GiB at 55.4 GB/s.
    let took = big.synchronize().unwrap().last.since(begun);
    assert!((19_000_000..21_000_000).contains(&took), "{took}");
    for (page, layer) in (0..FULL.burst).flat_map(|page| layers.map(|layer| (page, layer))) {
        assert_eq!(burst.last_word(page + 1, layer), page << 8 | layer);
    }
    assert_eq!(burst.scheduler.bugs(), []);
}

/// Copies the first 4 KiB of the last page of L2.
fn copy_4_kib(burst: &Burst, stream: &SimStream) {
    let (l1, l2) = (L1Page::new(FULL.pages), L2Page::new(FULL.pages - 1));
    let layer = LayerId::new(0);
    let piece = Piece {
        plane: 0,
        height: 1,
        device: burst.planes.chunk_offset(layer, l1).unwrap(),
        host: burst.host.offset_of(l2, layer).unwrap(),
        width: 4096,
        device_pitch: 4096,
        host_pitch: 4096,
    };
    let batch = CopyBatch {
        direction: Direction::HostToDevice,
        form: CopyForm::Runs,
        planes: burst.planes.memories(),
        host: &burst.host,
        pieces: &[piece],
    };
    burst.device.copy(stream, &batch).unwrap();
}
