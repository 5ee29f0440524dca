// SPDX-License-Identifier: Apache-2.0
//! An engine on stepped devices: the test decides when a copy is submitted and when it runs. Rows
//! are written and compared by the compute streams themselves, behind the gates.

use std::sync::Arc;

use striata::core::prefix::Namespace;
use striata::core::{L1Page, LayerId, PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::planes::L1Planes;
use striata::gpu::sim::{SimConfig, SimDevice, SimEvent, SimMemory, SimScheduler, SimStream};
use striata::gpu::transfer::{Submission, TransferConfig, TransferError};
use striata::gpu::{Device, GpuError};
use striata::host::{HostPool, HostPoolConfig, HugePages};
use striata::kernels::rows::{PageSeed, RowParams, RowSpan, VerifyLog, read_log};
use striata::{Error, HiCache, HiCacheSetup, Lease, PlannerConfig, PoolId, PoolShards, ShardGroup};

use crate::model::Content;

/// Rows that a log can name.
const RECORDS: usize = 64;

/// A pool beside the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Striped, or whole on every rank.
    pub kind: PoolKind,
    /// Words of a row.
    pub row_words: u32,
    /// Layers.
    pub layers: u32,
}

/// Sizes of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// c.
    pub dcp: u32,
    /// DCP groups; the replica has `groups * dcp` ranks.
    pub groups: u32,
    /// P.
    pub page_rows: u32,
    /// Layers.
    pub layers: u32,
    /// Usable pages of L1.
    pub l1_pages: u64,
    /// Pages of L2.
    pub l2_pages: u32,
    /// Most pieces of a copy call.
    pub call_pieces: usize,
    /// Side pools.
    pub sides: [Option<Side>; 2],
}

impl Sizes {
    /// All pools, the main one first.
    fn pools(self) -> Vec<(PoolId, Side)> {
        let main = Side {
            kind: PoolKind::Striped,
            row_words: ROW_WORDS,
            layers: self.layers,
        };
        let ids = std::iter::once(PoolId::MAIN).chain((0..).map(PoolId::side));
        let sides = self.sides.into_iter().flatten();
        ids.zip(std::iter::once(main).chain(sides)).collect()
    }
}

/// Words of a row of the main pool.
const ROW_WORDS: u32 = 2;

/// An engine, its scheduler, and a compute stream a rank.
#[derive(Debug)]
pub struct Stepped {
    /// Runs everything.
    pub scheduler: SimScheduler,
    /// The controller under test.
    pub cache: HiCache<SimDevice>,
    streams: Vec<SimStream>,
    sizes: Sizes,
}

/// A forward that was enqueued on every rank: what its comparisons will say, and when.
#[derive(Debug)]
pub struct Forward {
    ranks: Vec<(SimMemory, SimEvent)>,
}

/// Rows of one pool that a forward compares, and those that it writes.
struct Spans {
    read: Arc<[RowSpan]>,
    write: Arc<[RowSpan]>,
}

/// The namespace of a root.
#[must_use]
pub const fn namespace(root: u8) -> Namespace {
    Namespace::from_digest(0x5E_0000 + root as u128)
}

impl Stepped {
    /// An empty engine whose planner `set` configures.
    ///
    /// # Panics
    /// Sizes or a configuration that the engine refuses.
    #[must_use]
    pub fn new(seed: u64, sizes: Sizes, set: impl FnOnce(&mut PlannerConfig)) -> Self {
        let stripe = Stripe::new(sizes.dcp, sizes.page_rows).expect("a stripe");
        let page = PageGeometry::new(sizes.page_rows, ROW_WORDS * 4, sizes.layers);
        let page = page.expect("a page geometry");
        let rows = sizes.l1_pages * u64::from(sizes.page_rows);
        let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, rows).expect("a pool");
        let mut planner = PlannerConfig::new(pool, sizes.l2_pages);
        planner.load_back_threshold = 1;
        planner.events = true;
        set(&mut planner);
        let scheduler = SimScheduler::new(seed);
        let devices: Vec<_> = (0..sizes.groups * sizes.dcp)
            .map(|rank| SimDevice::new(SimConfig::stepped(rank, &scheduler)))
            .collect();
        let streams = devices
            .iter()
            .map(|d| d.stream("compute").expect("a stream"));
        let streams = streams.collect();
        let sides = sizes.sides.into_iter().flatten();
        let sides = sides.map(|side| pool.beside(side.kind, 4 * side.row_words, side.layers));
        let side_pools: Vec<_> = sides.collect::<Result<_, _>>().expect("side pools");
        let on_ranks = |geometry: PoolGeometry| PoolShards {
            geometry,
            planes: devices
                .iter()
                .map(|device| Arc::new(L1Planes::alloc(device, geometry).expect("planes")))
                .collect(),
            hosts: devices
                .iter()
                .map(|_| host_pool(geometry.page(), sizes.l2_pages))
                .collect(),
        };
        let main = on_ranks(pool);
        let sides: Vec<_> = side_pools.iter().copied().map(on_ranks).collect();
        let setup = HiCacheSetup {
            side_pools,
            transfer: TransferConfig {
                submission: Submission::Manual,
                call_pieces: sizes.call_pieces,
                ..TransferConfig::default()
            },
            ..HiCacheSetup::new(planner)
        };
        let shards = ShardGroup::with_pools(devices, &main, &sides, &setup.transfer);
        let cache = HiCache::with_shards(&setup, shards.expect("ranks"));
        Self {
            scheduler,
            cache: cache.expect("an engine"),
            streams,
            sizes,
        }
    }

    /// Tokens of a widened page.
    #[must_use]
    pub fn page_tokens(&self) -> u64 {
        self.cache.stripe().widened_page()
    }

    /// The device of a rank.
    ///
    /// # Panics
    /// No such rank.
    #[must_use]
    pub fn device(&self, rank: usize) -> &SimDevice {
        self.cache.shards().shard(rank).expect("a rank").device()
    }

    /// The compute stream of a rank.
    ///
    /// # Panics
    /// No such rank.
    #[must_use]
    pub fn stream(&self, rank: usize) -> &SimStream {
        &self.streams[rank]
    }

    /// Ranks of the replica.
    #[must_use]
    pub const fn ranks(&self) -> usize {
        self.streams.len()
    }

    /// Lets go what faults hold.
    pub fn release_faults(&self) {
        for shard in self.cache.shards().shards() {
            shard.device().release_faults();
        }
    }

    /// Ends a step.
    ///
    /// # Errors
    /// A device that fails.
    pub fn step_end(&mut self) -> Result<(), Error> {
        self.cache.step_end(&self.streams).map(|_| ())
    }

    /// Enqueues a forward: each layer of each pool on each rank waits for its gate, compares the
    /// first `known` pages of the lease with `contents`, and writes the others.
    ///
    /// # Errors
    /// Loads that were not started; a load that failed; a device that fails.
    pub fn forward(
        &self,
        lease: &Lease,
        contents: &[Content],
        known: usize,
    ) -> Result<Forward, Error> {
        let spans = |pool: (PoolId, Side)| -> Spans {
            let of = |pages: std::ops::Range<usize>| {
                let at = pages.clone();
                at.map(|at| self.span(pool, at, lease.pages()[at], contents[at]))
                    .collect()
            };
            Spans {
                read: of(0..known),
                write: of(known..lease.pages().len()),
            }
        };
        let pools = self.sizes.pools();
        let pools: Vec<_> = pools.into_iter().map(|pool| (pool, spans(pool))).collect();
        let most = pools.iter().map(|((_, side), _)| side.layers).max();
        let mut ranks = Vec::with_capacity(self.ranks());
        for rank in 0..self.ranks() {
            let device = self.device(rank);
            let log = device.alloc(4 * VerifyLog::words(RECORDS) as u64)?;
            device.write(&log, 0, &[0; 4])?;
            for layer in 0..most.unwrap_or(0) {
                let having = pools.iter().filter(|((_, side), _)| layer < side.layers);
                for (pool, spans) in having {
                    self.layer(lease, rank, *pool, layer, spans, &log)?;
                }
            }
            let end = device.event()?;
            device.record(&end, &self.streams[rank])?;
            ranks.push((log, end));
        }
        Ok(Forward { ranks })
    }

    fn layer(
        &self,
        lease: &Lease,
        rank: usize,
        (pool, side): (PoolId, Side),
        layer: u32,
        spans: &Spans,
        log: &SimMemory,
    ) -> Result<(), Error> {
        let (shard, stream) = (self.cache.shards().shard(rank)?, &self.streams[rank]);
        let id = LayerId::new(layer);
        self.cache.wait_layer_of(pool, lease, rank, id, stream)?;
        let planes = shard.pool(pool).expect("a pool of the rank").planes();
        let (plane, base) = planes.plane(id).expect("a layer of the pool");
        let rank = match side.kind {
            // The same bytes on every rank.
            PoolKind::Replicated => u32::MAX,
            _ => u32::try_from(rank).expect("few ranks"),
        };
        let params = RowParams {
            row_words: side.row_words,
            layer,
            rank,
            stride: 1,
        };
        let device = shard.device();
        let Spans { read, write } = spans;
        if !read.is_empty() {
            device.verify_rows(stream, plane, base, params, read, log)?;
        }
        if !write.is_empty() {
            device.fill_rows(stream, plane, base, params, write)?;
        }
        Ok(())
    }

    /// The rows of a page on a rank: P, or all W where every rank has every token.
    fn span(
        &self,
        (pool, side): (PoolId, Side),
        at: usize,
        page: L1Page,
        content: Content,
    ) -> RowSpan {
        let (stripe, w) = (self.cache.stripe(), self.page_tokens());
        let rows = match side.kind {
            PoolKind::Replicated => w,
            _ => u64::from(stripe.page_rows()),
        };
        let namespace = if pool == PoolId::MAIN { 1 } else { 2 };
        RowSpan {
            seed: PageSeed::new(namespace, content, at as u64 * w),
            first_row: u64::from(page.get()) * rows,
            rows: u32::try_from(rows).expect("a small page"),
            skip: 0,
        }
    }

    /// Pages, by their index in the table, of which a rank saw other bytes than it should; none
    /// while the forward runs. Pages beyond the first 64 rows that differ are not named.
    ///
    /// # Errors
    /// A lost device.
    pub fn differing(&self, forward: &Forward) -> Result<Option<Vec<usize>>, Error> {
        let mut pages = Vec::new();
        for (rank, (log, end)) in forward.ranks.iter().enumerate() {
            let device = self.device(rank);
            if !device.is_complete(end)? {
                return Ok(None);
            }
            let mut bytes = vec![0; 4 * VerifyLog::words(RECORDS)];
            device.read(log, 0, &mut bytes)?;
            let words = bytes.chunks_exact(4);
            let words: Vec<u32> = words
                .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
                .collect();
            pages.extend(read_log(&words).1.iter().map(|record| record.span as usize));
        }
        pages.sort_unstable();
        pages.dedup();
        Ok(Some(pages))
    }

    /// Lets go what faults hold, ends the step, and runs until no copy is in flight.
    ///
    /// # Errors
    /// A device that fails.
    ///
    /// # Panics
    /// Copies that do not end.
    pub fn settle(&mut self) -> Result<(), Error> {
        for _ in 0..16 {
            self.release_faults();
            self.cache.start_loads()?;
            self.step_end()?;
            match self.cache.drain() {
                // A fault has struck meanwhile that holds something.
                Err(Error::Transfer { source, .. })
                    if matches!(*source, TransferError::Device(GpuError::Deadlock { .. })) =>
                {
                    continue;
                }
                drained => drained?,
            }
            self.scheduler.run()?;
            self.cache.poll()?;
            if self.cache.stats().operations_in_flight == 0 {
                return Ok(());
            }
        }
        panic!("copies are in flight for ever: {:?}", self.cache.stats());
    }

    /// Empties both tiers, and says so: every page must be free again.
    ///
    /// # Errors
    /// A device that fails.
    ///
    /// # Panics
    /// A page that is lost.
    pub fn empty(&mut self, roots: u8) -> Result<(), Error> {
        self.settle()?;
        // Stores may be allowed one page at a time.
        for _ in 0..2 * self.sizes.l1_pages + 2 {
            if self.cache.stats().free_pages_l1 == self.sizes.l1_pages {
                break;
            }
            self.cache.evict(usize::MAX)?;
            self.settle()?;
        }
        let stats = self.cache.stats();
        assert_eq!(
            stats.free_pages_l1, self.sizes.l1_pages,
            "lost on L1: {stats:?}"
        );
        for root in 0..roots {
            self.cache.reset(namespace(root))?;
        }
        self.settle()?;
        let stats = self.cache.stats();
        let free = (stats.free_pages_l1, stats.free_pages_l2);
        let all = (self.sizes.l1_pages, u64::from(self.sizes.l2_pages));
        assert_eq!(free, all, "lost pages: {stats:?}");
        Ok(())
    }

    /// Checks what must hold after every call: the planner's invariants, and that no operation
    /// raced with another.
    ///
    /// # Panics
    /// What does not hold.
    pub fn check(&self) {
        if let Err(broken) = self.cache.check_invariants() {
            panic!("{broken}");
        }
        let bugs = self.scheduler.bugs();
        assert!(bugs.is_empty(), "{bugs:?}");
    }
}

fn host_pool(page: PageGeometry, pages: u32) -> Option<Arc<HostPool>> {
    let config = HostPoolConfig {
        reserve_bytes: 0,
        prefault: false,
        huge_pages: HugePages::Off,
        ..HostPoolConfig::new(page, pages)
    };
    (pages > 0).then(|| Arc::new(HostPool::new(&config).expect("a host pool")))
}
