// SPDX-License-Identifier: Apache-2.0
//! An engine of c ranks on one device that writes and verifies every row on the device.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use striata_core::prefix::{Namespace, PageKey, page_keys};
use striata_core::{L1Page, LayerId, PageGeometry, PoolGeometry, PoolKind, Rank, Stripe};
use striata_gpu::Device;
use striata_gpu::selftest::{Checked, Failure};
use striata_kernels::rows::{PageSeed, RowParams, RowSpan, VerifyLog, read_log};

use super::ensure;
use crate::{Confirm, HiCache, HiCacheSetup, Lease, PlannerConfig, PoolId, Prefix, Reserve};

/// P of every rig.
const PAGE_ROWS: u32 = 16;
const ROW_BYTES: u32 = 1152;
const LAYERS: u32 = 6;
/// Rows and layers of a side pool: index keys and their scales.
const SIDE_ROW_BYTES: u32 = 132;
const SIDE_LAYERS: u32 = 2;
/// Records of a log.
const RECORDS: usize = 4;
/// After this, something waits for ever.
const DEADLOCK: Duration = Duration::from_secs(20);
/// A millisecond of device time.
pub(super) const MILLI: u64 = 1_000_000;

/// Sizes of a rig, in ranks and widened pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) dcp: u32,
    pub(super) l1_pages: u32,
    pub(super) l2_pages: u32,
}

/// An engine and what its ranks compute on.
pub(super) struct Rig<D: Device> {
    pub(super) cache: HiCache<D>,
    pub(super) streams: Vec<D::Stream>,
    pub(super) namespace: Namespace,
    logs: Vec<D::Memory>,
}

/// Where the pages of a prompt came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) l1: u64,
    pub(super) l2: u64,
}

pub(super) fn setup(sizes: Sizes) -> Result<HiCacheSetup, Failure> {
    let stripe = Stripe::new(sizes.dcp, PAGE_ROWS)?;
    let page = PageGeometry::new(PAGE_ROWS, ROW_BYTES, LAYERS)?;
    let rows = u64::from(sizes.l1_pages) * u64::from(PAGE_ROWS);
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, rows)?;
    Ok(HiCacheSetup::new(PlannerConfig::new(pool, sizes.l2_pages)))
}

impl<D: Device> Rig<D> {
    pub(super) fn new(device: &D, sizes: Sizes) -> Result<Self, Failure> {
        Self::with_setup(device, sizes, &setup(sizes)?)
    }

    /// A rig with a pool beside the striped one, whole on every rank.
    pub(super) fn with_side_pool(device: &D, sizes: Sizes) -> Result<Self, Failure> {
        let mut setup = setup(sizes)?;
        let pool = setup.planner.pool;
        let side = pool.beside(PoolKind::Replicated, SIDE_ROW_BYTES, SIDE_LAYERS)?;
        setup.side_pools.push(side);
        Self::with_setup(device, sizes, &setup)
    }

    fn with_setup(device: &D, sizes: Sizes, setup: &HiCacheSetup) -> Result<Self, Failure> {
        let devices = (0..sizes.dcp).map(|_| device.clone()).collect();
        let cache = HiCache::new(setup, devices)?;
        let words = VerifyLog::words(RECORDS);
        let (mut streams, mut logs) = (Vec::new(), Vec::new());
        for rank in 0..sizes.dcp {
            streams.push(device.stream(&format!("compute {rank}"))?);
            let log = device.alloc(4 * words as u64)?;
            device.write(&log, 0, &vec![0; 4 * words])?;
            logs.push(log);
        }
        Ok(Self {
            cache,
            streams,
            namespace: Namespace::from_digest(0x5E1F),
            logs,
        })
    }

    /// Tokens of `pages` whole pages and one more: a hit never covers a whole prompt. Prompts of
    /// one `salt` share their beginning.
    pub(super) fn prompt(&self, salt: u32, pages: u32) -> Vec<u32> {
        let tokens = self.cache.stripe().widened_page() * u64::from(pages) + 1;
        let token = |at: u64| salt.wrapping_mul(0x9E37) ^ u32::try_from(at).unwrap_or(0);
        (0..tokens).map(token).collect()
    }

    pub(super) fn keys(&self, tokens: &[u32]) -> Vec<PageKey> {
        let mut keys = Vec::new();
        page_keys(self.namespace, self.cache.stripe(), tokens, &mut keys);
        keys
    }

    pub(super) fn ask(&mut self, tokens: &[u32]) -> Result<Reserve, Failure> {
        Ok(self.cache.reserve(self.namespace, Prefix::Tokens(tokens))?)
    }

    pub(super) fn reserve(&mut self, tokens: &[u32]) -> Result<Lease, Failure> {
        let prefix = Prefix::Tokens(tokens);
        match self.cache.reserve_blocking(self.namespace, prefix)? {
            Reserve::Granted(lease) => Ok(lease),
            refused => Err(Failure::Wrong(format!(
                "{} tokens do not fit: {refused:?}",
                tokens.len()
            ))),
        }
    }

    /// Keeps every rank's stream busy.
    pub(super) fn hold(&self, nanos: u64) -> Checked {
        for (shard, stream) in self.cache.shards().shards().iter().zip(&self.streams) {
            shard.device().occupy(stream, nanos)?;
        }
        Ok(())
    }

    /// Submits every layer of every pool on every rank: verifies the pages that were hit, behind
    /// their gates, and writes the others.
    pub(super) fn forward(&self, lease: &Lease, keys: &[PageKey]) -> Checked {
        let hits = self.cache.stripe().whole_pages(lease.hit_tokens());
        let hits = usize::try_from(hits)?;
        for (id, geometry) in self.cache.shards().pools() {
            let pool = (id, geometry);
            let pages = lease.pages().iter().zip(keys);
            let spans: Vec<_> = pages.map(|(page, key)| span(pool, *page, *key)).collect();
            let (hit, computed) = spans.split_at(hits.min(spans.len()));
            let (hit, computed): (Arc<[_]>, Arc<[_]>) = (hit.into(), computed.into());
            for rank in 0..self.streams.len() {
                for layer in (0..geometry.page().layers()).map(LayerId::new) {
                    let stream = &self.streams[rank];
                    self.cache.wait_layer_of(id, lease, rank, layer, stream)?;
                    self.layer(rank, pool, layer, [&hit, &computed])?;
                }
            }
        }
        Ok(())
    }

    fn layer(
        &self,
        rank: usize,
        (id, geometry): (PoolId, PoolGeometry),
        layer: LayerId,
        [hit, computed]: [&Arc<[RowSpan]>; 2],
    ) -> Checked {
        let shard = self.cache.shards().shard(rank)?;
        let plane = shard.pool(id).and_then(|pool| pool.planes().plane(layer));
        let Some((plane, base)) = plane else {
            return ensure(false, format_args!("layer {layer} of {id} has no plane"));
        };
        let (device, stream, log) = (shard.device(), &self.streams[rank], &self.logs[rank]);
        let params = params(geometry, layer, shard.dcp_rank());
        device.verify_rows(stream, plane, base, params, hit, log)?;
        Ok(device.fill_rows(stream, plane, base, params, computed)?)
    }

    /// Ends the step of a lease and publishes its pages.
    pub(super) fn publish(&mut self, lease: &Lease) -> Checked {
        self.cache.step_end(&self.streams)?;
        let confirmed = self.cache.confirm_blocking(lease)?;
        ensure(
            confirmed == Confirm::Done,
            format_args!("the loads of a lease: {confirmed:?}"),
        )?;
        self.cache.insert(lease, lease.tokens())?;
        Ok(())
    }

    /// Serves a prompt from start to end; copies may still be in flight.
    pub(super) fn serve(&mut self, tokens: &[u32]) -> Result<Served, Failure> {
        let lease = self.reserve(tokens)?;
        self.cache.start_loads()?;
        self.forward(&lease, &self.keys(tokens))?;
        self.publish(&lease)?;
        let pages = |tokens| self.cache.stripe().whole_pages(tokens);
        let served = Served {
            l1: pages(lease.hit_tokens_l1()),
            l2: pages(lease.hit_tokens_l2()),
        };
        drop(lease);
        self.cache.poll()?;
        Ok(served)
    }

    /// Pushes everything that no lease holds out of L1.
    pub(super) fn empty_l1(&mut self) -> Checked {
        self.cache.drain()?;
        self.cache.evict(usize::MAX)?;
        self.cache.drain()?;
        Ok(())
    }

    /// A point behind what each rank's stream holds.
    pub(super) fn fence(&self) -> Result<Vec<D::Event>, Failure> {
        let ranks = self.cache.shards().shards().iter().zip(&self.streams);
        ranks
            .map(|(shard, stream)| {
                let event = shard.device().event()?;
                shard.device().record(&event, stream)?;
                Ok(event)
            })
            .collect()
    }

    /// Whether every rank has passed a point.
    pub(super) fn has_passed(&self, fence: &[D::Event]) -> Result<bool, Failure> {
        for (shard, event) in self.cache.shards().shards().iter().zip(fence) {
            if !shard.device().is_complete(event)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks for a prompt until it is granted, which may be only once `fence` has passed. Returns how
    /// often it was refused for now.
    pub(super) fn granted_after(
        &mut self,
        tokens: &[u32],
        fence: &[D::Event],
    ) -> Result<(Lease, u32), Failure> {
        let (begin, mut refused) = (Instant::now(), 0);
        loop {
            match self.ask(tokens)? {
                Reserve::Granted(lease) => {
                    let passed = self.has_passed(fence)?;
                    ensure(
                        passed,
                        format_args!("pages were given out while a copy was to use them"),
                    )?;
                    return Ok((lease, refused));
                }
                Reserve::NotNow { .. } => refused += 1,
                full @ Reserve::OutOfSpace { .. } => {
                    return Err(Failure::Wrong(format!(
                        "pages under a copy are lost: {full:?}"
                    )));
                }
            }
            ensure(
                begin.elapsed() < DEADLOCK,
                format_args!("pages under a copy did not come back within {DEADLOCK:?}"),
            )?;
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits for everything; nothing may have differed, and the books must be right.
    pub(super) fn check(&mut self, what: &str) -> Checked {
        self.cache.drain()?;
        let fence = self.fence()?;
        for ((rank, shard), event) in (0..).zip(self.cache.shards().shards()).zip(&fence) {
            shard.device().synchronize(event)?;
            let mut words = vec![0u32; VerifyLog::words(RECORDS)];
            let log: &D::Memory = &self.logs[rank];
            shard
                .device()
                .read(log, 0, bytemuck::cast_slice_mut(&mut words))?;
            let (wrong, records) = read_log(&words);
            ensure(
                wrong == 0,
                format_args!("{what}: {wrong} rows of rank {rank} are wrong: {records:?}"),
            )?;
        }
        self.cache
            .check_invariants()
            .map_err(|broken| Failure::Wrong(format!("{what}: {broken}")))
    }
}

fn params(pool: PoolGeometry, layer: LayerId, rank: Rank) -> RowParams {
    RowParams {
        row_words: pool.page().row_bytes() / 4,
        layer: layer.get(),
        rank: match pool.kind() {
            PoolKind::Striped | PoolKind::PerRequest => rank.get(),
            // The same rows on every rank.
            PoolKind::Replicated => u32::MAX,
        },
        stride: 1,
    }
}

/// The rows of a whole page, at the same place on every rank.
fn span((id, pool): (PoolId, PoolGeometry), page: L1Page, key: PageKey) -> RowSpan {
    let rows = pool.page().page_rows();
    RowSpan {
        seed: PageSeed::new(7 + id.index() as u64, key.get(), 0),
        first_row: u64::from(page.get()) * u64::from(rows),
        rows,
        skip: 0,
    }
}
