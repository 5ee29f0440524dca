// SPDX-License-Identifier: Apache-2.0
//! Pools of several kinds: which rank holds which rows on both tiers, and what is refused when an
//! engine is made.

use std::sync::Arc;

use striata::core::plan::{CopyDirection, CopyPlan};
use striata::core::prefix::{Namespace, PageKey};
use striata::core::{
    L2Page, LayerId, PageGeometry, PagePair, PoolGeometry, PoolKind, Slot, Stripe,
};
use striata::gpu::Device;
use striata::gpu::planes::L1Planes;
use striata::gpu::sim::{SimConfig, SimDevice, SimStream};
use striata::gpu::transfer::TransferConfig;
use striata::host::{HostPool, HostPoolConfig, HugePages};
use striata::{
    Confirm, Error, HiCache, HiCacheSetup, Lease, PlannerConfig, PoolId, PoolShards, Prefix,
    Reserve, Shard, ShardGroup,
};

const C: u32 = 8;
const P: u32 = 4;
const W: u64 = 32;
const PAGES: u64 = 3;
const SIDE: PoolId = PoolId::side(0);

fn main_pool(dcp: u32) -> PoolGeometry {
    let stripe = Stripe::new(dcp, P).unwrap();
    let page = PageGeometry::new(P, 8, 3).unwrap();
    PoolGeometry::owned(PoolKind::Striped, stripe, page, 8 * u64::from(P)).unwrap()
}

/// An engine with index keys beside the latent rows: 12 bytes in 2 layers, on every rank.
struct Engine {
    cache: HiCache<SimDevice>,
    streams: Vec<SimStream>,
}

impl Engine {
    fn new() -> Self {
        let pool = main_pool(C);
        let mut planner = PlannerConfig::new(pool, 8);
        planner.load_back_threshold = 1;
        let setup = HiCacheSetup {
            side_pools: vec![pool.beside(PoolKind::Replicated, 12, 2).unwrap()],
            huge_pages: HugePages::Off,
            ..HiCacheSetup::new(planner)
        };
        let devices: Vec<_> = (0..C)
            .map(|rank| SimDevice::new(SimConfig::new(rank)))
            .collect();
        let streams = devices.iter().map(|d| d.stream("compute").unwrap());
        Self {
            streams: streams.collect(),
            cache: HiCache::new(&setup, devices).unwrap(),
        }
    }

    fn reserve(&mut self, tokens: u64) -> Lease {
        let keys: Vec<_> = (1..=PAGES).map(|n| PageKey::new(n.into())).collect();
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let namespace = Namespace::from_digest(11);
        match self.cache.reserve(namespace, prefix).unwrap() {
            Reserve::Granted(lease) => lease,
            refused => panic!("{refused:?}"),
        }
    }

    fn shards(&self) -> &[Shard<SimDevice>] {
        self.cache.shards().shards()
    }

    /// The row of a position on a rank in a pool: owner and floor by hand for the striped pool,
    /// the slot itself for the replicated one.
    fn row(pool: PoolId, rank: u64, slot: u64) -> Option<u64> {
        match pool {
            PoolId::MAIN => (slot % u64::from(C) == rank).then_some(slot / u64::from(C)),
            _ => Some(slot),
        }
    }

    /// Visits every place where a token of the lease's pages stands.
    fn for_each_row(
        &self,
        lease: &Lease,
        mut visit: impl FnMut(&SimDevice, &<SimDevice as Device>::Memory, u64, Vec<u8>),
    ) {
        for position in 0..PAGES * W {
            let page = lease.pages()[usize::try_from(position / W).unwrap()];
            let slot = u64::from(page.get()) * W + position % W;
            for (rank, shard) in (0..).zip(self.shards()) {
                for pool in shard.pools() {
                    let Some(row) = Self::row(pool.id(), rank, slot) else {
                        continue;
                    };
                    let page = pool.planes().geometry().page();
                    for layer in 0..page.layers() {
                        let plane = pool.planes().plane(LayerId::new(layer));
                        let (memory, base) = plane.unwrap();
                        let row_bytes = u64::from(page.row_bytes());
                        let bytes = content(pool.id(), layer, position, page.row_bytes());
                        visit(shard.device(), memory, base + row * row_bytes, bytes);
                    }
                }
            }
        }
    }

    /// All bytes of L1 of all ranks, a buffer a pool.
    fn l1_bytes(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for shard in self.shards() {
            for memory in shard
                .pools()
                .flat_map(|pool| pool.planes().memories().iter())
            {
                let len = usize::try_from(shard.device().memory_len(memory)).unwrap();
                let mut bytes = vec![0; len];
                shard.device().read(memory, 0, &mut bytes).unwrap();
                all.push(bytes);
            }
        }
        all
    }

    /// Checks the host pages of the prompt: striped ones hold every C-th token, replicated ones all.
    fn check_l2(&self, pages: &[PagePair]) {
        for (rank, shard) in (0_u64..).zip(self.shards()) {
            for pool in shard.pools() {
                let page = pool.planes().geometry().page();
                let row_bytes = page.row_bytes() as usize;
                for (number, pair) in (0..).zip(pages) {
                    for layer in 0..page.layers() {
                        let mut bytes = vec![0; usize::try_from(page.chunk_bytes()).unwrap()];
                        let host = pool.host().unwrap();
                        host.read_chunk(pair.l2, LayerId::new(layer), &mut bytes)
                            .unwrap();
                        for (row, bytes) in (0..).zip(bytes.chunks(row_bytes)) {
                            let token = match pool.id() {
                                PoolId::MAIN => row * u64::from(C) + rank,
                                _ => row,
                            };
                            let position = number * W + token;
                            let due = content(pool.id(), layer, position, page.row_bytes());
                            assert_eq!(bytes, due, "{:?} of rank {rank}", pool.id());
                        }
                    }
                }
            }
        }
    }
}

/// What the row of a position holds, other in each pool and layer.
fn content(pool: PoolId, layer: u32, position: u64, row_bytes: u32) -> Vec<u8> {
    let side = u64::from(pool != PoolId::MAIN);
    let word = position * 64 + u64::from(layer) * 2 + side + 1;
    let word = u32::try_from(word).unwrap().wrapping_mul(0x9E37_79B1);
    (0..row_bytes / 4)
        .flat_map(|at| word.wrapping_add(at).to_le_bytes())
        .collect()
}

/// 11: c = 8, v = 17: the striped pool has it on rank 1 in row 2, the replicated pool on all 8 ranks
/// in row 17; so it is written to L2, and so it comes back, and no other row changes.
///
/// Seen to fail if side pools are left out of loads or of stores.
#[test]
fn b11_a_replicated_pool_has_every_token_on_every_rank_and_comes_back_from_l2() {
    assert_eq!(Engine::row(PoolId::MAIN, 1, 17), Some(2));
    let mut engine = Engine::new();
    let lease = engine.reserve(PAGES * W);
    engine.cache.start_loads().unwrap();
    engine.for_each_row(&lease, |device, memory, offset, bytes| {
        device.write(memory, offset, &bytes).unwrap();
    });
    engine.cache.step_end(&engine.streams).unwrap();
    engine.cache.insert(&lease, PAGES * W).unwrap();
    drop(lease);
    engine.cache.drain().unwrap();
    engine.cache.evict(8).unwrap();
    // Wherever it comes back to, other bytes are there now.
    for shard in engine.shards() {
        for memory in shard
            .pools()
            .flat_map(|pool| pool.planes().memories().iter())
        {
            let len = usize::try_from(shard.device().memory_len(memory)).unwrap();
            shard.device().write(memory, 0, &vec![0xEE; len]).unwrap();
        }
    }
    let lease = engine.reserve(PAGES * W + 1);
    let order = engine.cache.planned_loads()[0].clone();
    assert_eq!(order.pages.len() as u64, PAGES);
    engine.check_l2(&order.pages);
    let before = engine.l1_bytes();
    engine.cache.start_loads().unwrap();
    assert_eq!(
        engine.cache.confirm_blocking(&lease).unwrap(),
        Confirm::Done
    );
    let mut moved = 0;
    engine.for_each_row(&lease, |device, memory, offset, due| {
        let mut bytes = vec![0; due.len()];
        device.read(memory, offset, &mut bytes).unwrap();
        assert_eq!(bytes, due);
        moved += due.len();
    });
    let changed = before.iter().zip(engine.l1_bytes()).map(|(before, after)| {
        let pairs = before.iter().zip(&after);
        pairs.filter(|(before, after)| before != after).count()
    });
    let changed: usize = changed.sum();
    assert!(changed <= moved, "{changed} bytes of {moved} changed");
    let per_rank = PAGES * (u64::from(P) * 8 * 3 + W * 12 * 2);
    assert_eq!(moved as u64, u64::from(C) * per_rank);
    let report = engine.cache.take_reports().last().unwrap();
    assert_eq!(report.bytes_per_rank, per_rank);
    engine.cache.check_invariants().unwrap();
}

/// The copy call of two slot lists and that of a plan, in every pool and in one.
#[test]
fn copy_calls_move_the_slots_of_every_pool_and_a_plan_those_of_its_own() {
    let mut engine = Engine::new();
    let lease = engine.reserve(PAGES * W);
    engine.for_each_row(&lease, |device, memory, offset, bytes| {
        device.write(memory, offset, &bytes).unwrap();
    });
    let slots = |first: u64| (first * W..(first + 1) * W).map(Slot::new);
    let device: Vec<_> = lease
        .pages()
        .iter()
        .flat_map(|page| slots(page.get().into()))
        .collect();
    let host: Vec<_> = (4..4 + PAGES).flat_map(slots).collect();
    let shards = engine.cache.shards();
    let copied = shards.copy_slots(CopyDirection::DeviceToHost, &device, &host);
    let side_bytes = W * 12 * 2;
    let per_rank = PAGES * (u64::from(P) * 8 * 3 + side_bytes);
    assert_eq!(copied.unwrap().bytes_per_rank, per_rank);
    let pairs: Vec<_> = lease
        .pages()
        .iter()
        .zip((4..).map(L2Page::new))
        .map(|(&l1, l2)| PagePair { l1, l2 })
        .collect();
    engine.check_l2(&pairs);
    // A plan carries the kind that it was made for.
    let stripe = shards.stripe();
    let load = CopyDirection::HostToDevice;
    let plan = |kind, stripe| CopyPlan::from_pages(kind, stripe, load, &pairs, 9, 8).unwrap();
    let copied = shards.copy_plan(SIDE, &plan(PoolKind::Replicated, stripe));
    assert_eq!(copied.unwrap().bytes_per_rank, PAGES * side_bytes);
    let refused = |pool, plan| shards.copy_plan(pool, &plan).unwrap_err().to_string();
    let other = Stripe::new(4, P).unwrap();
    assert!(refused(SIDE, plan(PoolKind::Striped, stripe)).contains("Striped"));
    assert!(refused(PoolId::MAIN, plan(PoolKind::Replicated, stripe)).contains("Replicated"));
    assert!(refused(SIDE, plan(PoolKind::Replicated, other)).contains("c 4"));
    let none = refused(PoolId::side(1), plan(PoolKind::Replicated, stripe));
    assert!(none.contains("side pool 1"), "{none}");
}

fn on_ranks(devices: &[SimDevice], geometry: PoolGeometry, l2_pages: u32) -> PoolShards<SimDevice> {
    let host = HostPoolConfig {
        reserve_bytes: 0,
        prefault: false,
        huge_pages: HugePages::Off,
        ..HostPoolConfig::new(geometry.page(), l2_pages)
    };
    PoolShards {
        geometry,
        planes: devices
            .iter()
            .map(|device| Arc::new(L1Planes::alloc(device, geometry).unwrap()))
            .collect(),
        hosts: devices
            .iter()
            .map(|_| Some(Arc::new(HostPool::new(&host).unwrap())))
            .collect(),
    }
}

/// What a group of ranks says of a side pool, and then an engine that was told of another.
#[test]
fn pools_that_do_not_fit_together_are_refused_with_the_numbers() {
    let pool = main_pool(2);
    let devices: Vec<_> = (0..2)
        .map(|rank| SimDevice::new(SimConfig::new(rank)))
        .collect();
    let main = on_ranks(&devices, pool, 8);
    let config = TransferConfig::default();
    let group = |side: PoolShards<SimDevice>| {
        ShardGroup::with_pools(devices.clone(), &main, &[side], &config)
    };
    let refused = |side| group(side).unwrap_err().to_string();
    let draft = pool.beside(PoolKind::Replicated, 12, 1).unwrap();
    let says = |error: String, words: &[&str]| {
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    // A slot a request, another stripe, too few pages.
    let owned = |kind, dcp, rows| {
        let stripe = Stripe::new(dcp, P).unwrap();
        let page = PageGeometry::new(P, 12, 1).unwrap();
        on_ranks(
            &devices,
            PoolGeometry::owned(kind, stripe, page, rows).unwrap(),
            8,
        )
    };
    says(
        refused(owned(PoolKind::PerRequest, 2, 32)),
        &["side pool 0", "PerRequest"],
    );
    says(
        refused(owned(PoolKind::Striped, 4, 32)),
        &["c 4 P 4 I 1", "c 2 P 4 I 1"],
    );
    says(
        refused(owned(PoolKind::Striped, 2, 16)),
        &["has 5 pages on L1", "needs 9"],
    );
    // Planes and host pages of other rows, and one rank without.
    let mut side = on_ranks(&devices, draft, 8);
    side.planes[1] = Arc::clone(&main.planes[1]);
    says(
        refused(side),
        &["rank 1, side pool 0", "row_bytes: 8", "row_bytes: 12"],
    );
    let mut side = on_ranks(&devices, draft, 8);
    side.hosts[1] = main.hosts[1].clone();
    says(refused(side), &["rank 1, side pool 0", "12", "8"]);
    let mut side = on_ranks(&devices, draft, 8);
    side.hosts.pop();
    says(refused(side), &["1 L2 pools", "2 ranks"]);

    let engine = |side_pools: &[PoolGeometry], l2_pages, side: PoolShards<SimDevice>| {
        let setup = HiCacheSetup {
            side_pools: side_pools.to_vec(),
            ..HiCacheSetup::new(PlannerConfig::new(pool, l2_pages))
        };
        HiCache::with_shards(&setup, group(side).unwrap())
    };
    let refused = |side_pools: &[PoolGeometry], l2_pages, side| {
        engine(side_pools, l2_pages, side).unwrap_err().to_string()
    };
    let side = || on_ranks(&devices, draft, 8);
    says(refused(&[], 8, side()), &["side pool 0 as None"]);
    let two = pool.beside(PoolKind::Replicated, 12, 2).unwrap();
    says(refused(&[two], 8, side()), &["layers: 2", "layers: 1"]);
    says(refused(&[draft; 2], 8, side()), &["side pool 1", "None"]);
    let short = on_ranks(&devices, draft, 5);
    says(
        refused(&[draft], 8, short),
        &["side pool 0 has 5 pages on L2", "needs 8"],
    );
    assert!(engine(&[draft], 8, side()).is_ok());

    // An engine that allocates refuses before it does.
    let setup = HiCacheSetup {
        side_pools: vec![main_pool(4)],
        ..HiCacheSetup::new(PlannerConfig::new(pool, 8))
    };
    let refused = HiCache::new(&setup, devices.clone()).unwrap_err();
    assert!(matches!(refused, Error::PoolStripe { .. }), "{refused}");
}
