// SPDX-License-Identifier: Apache-2.0
//! A replica on simulated devices, driven a request at a time.

use std::sync::Arc;

use striata::core::prefix::Namespace;
use striata::core::{LayerId, PageGeometry, PoolGeometry, PoolKind, Stripe, TokenPos};
use striata::gpu::Device;
use striata::gpu::L1Planes;
use striata::gpu::sim::{SimConfig, SimDevice, SimStream};
use striata::gpu::transfer::TransferConfig;
use striata::host::{HostPool, HostPoolConfig, PagePinner};
use striata::{Confirm, HiCache, HiCacheSetup, Lease, PlannerConfig, Prefix, Reserve, ShardGroup};

/// Sizes of a rig.
#[derive(Clone, Copy, Debug)]
pub struct RigConfig {
    /// c.
    pub dcp: u32,
    /// DCP groups of the replica; the attention-TP size is `groups * dcp`.
    pub groups: u32,
    /// P.
    pub page_rows: u32,
    /// Layers.
    pub layers: u32,
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Usable pages of L1.
    pub l1_pages: u64,
    /// Pages of L2.
    pub l2_pages: u32,
}

impl RigConfig {
    fn pool(&self) -> PoolGeometry {
        let stripe = Stripe::new(self.dcp, self.page_rows).expect("a stripe");
        let page = PageGeometry::new(self.page_rows, self.row_bytes, self.layers)
            .expect("a page geometry");
        let rows = self.l1_pages * u64::from(self.page_rows);
        PoolGeometry::owned(PoolKind::Striped, stripe, page, rows).expect("a pool")
    }

    fn devices(&self) -> Vec<SimDevice> {
        (0..self.groups * self.dcp)
            .map(|rank| SimDevice::new(SimConfig::new(rank)))
            .collect()
    }
}

/// What a request found and what was read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Tokens hit on L1.
    pub hit_tokens_l1: u64,
    /// Tokens loaded back from L2.
    pub hit_tokens_l2: u64,
    /// Rows of hit tokens that were read, over layers and DCP groups.
    pub rows_read: u64,
    /// Those that did not hold their bytes.
    pub wrong_rows: u64,
}

/// An engine with one compute stream a rank.
#[derive(Debug)]
pub struct Rig {
    /// The controller under test.
    pub cache: HiCache<SimDevice>,
    config: RigConfig,
    streams: Vec<SimStream>,
    namespace: Namespace,
}

/// The bytes that the row of `position` must hold in `layer`: of the tokens up to it, nothing else.
#[must_use]
pub fn row_content(tokens: &[u32], position: usize, layer: u32, row_bytes: u32) -> Vec<u8> {
    let mut state = 0xCBF2_9CE4_8422_2325_u64 ^ u64::from(layer);
    for token in &tokens[..=position] {
        state = (state ^ u64::from(*token))
            .wrapping_mul(0x0000_0100_0000_01B3)
            .rotate_left(17);
    }
    let mut bytes = Vec::with_capacity(row_bytes as usize);
    while bytes.len() < row_bytes as usize {
        state = state
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        bytes.extend_from_slice(&state.to_be_bytes()[..4]);
    }
    bytes
}

impl Rig {
    /// An empty engine.
    ///
    /// # Panics
    /// Sizes that the engine refuses.
    #[must_use]
    pub fn new(config: RigConfig) -> Self {
        let setup = HiCacheSetup::new(PlannerConfig::new(config.pool(), config.l2_pages));
        let cache = HiCache::new(&setup, config.devices()).expect("an engine");
        Self::over(config, cache)
    }

    /// An empty engine whose L2 may grow to `l2_max_pages` pages, in registrations of a page and
    /// `pinner`'s for each rank.
    ///
    /// # Panics
    /// Sizes that the engine refuses.
    #[must_use]
    pub fn growing(
        config: RigConfig,
        l2_max_pages: u32,
        pinner: impl Fn(usize) -> Arc<dyn PagePinner>,
    ) -> Self {
        let pool = config.pool();
        let mut planner = PlannerConfig::new(pool, config.l2_pages);
        planner.l2_max_pages = Some(l2_max_pages);
        let devices = config.devices();
        let planes = devices
            .iter()
            .map(|device| Arc::new(L1Planes::alloc(device, pool).expect("planes")));
        let hosts = (0..devices.len()).map(|rank| {
            let host = HostPoolConfig {
                max_pages: Some(l2_max_pages),
                chunk_bytes: 1,
                pinner: pinner(rank),
                ..HostPoolConfig::new(pool.page(), config.l2_pages)
            };
            Some(Arc::new(HostPool::new(&host).expect("a host pool")))
        });
        let (planes, hosts) = (planes.collect(), hosts.collect());
        let shards = ShardGroup::new(pool, devices, planes, hosts, &TransferConfig::default());
        let setup = HiCacheSetup::new(planner);
        let cache = HiCache::with_shards(&setup, shards.expect("ranks")).expect("an engine");
        Self::over(config, cache)
    }

    fn over(config: RigConfig, cache: HiCache<SimDevice>) -> Self {
        let streams = cache
            .shards()
            .shards()
            .iter()
            .map(|shard| shard.device().stream("compute").expect("a stream"))
            .collect();
        Self {
            cache,
            config,
            streams,
            namespace: Namespace::from_digest(0x51A7),
        }
    }

    /// Serves a prompt from start to end: reserve, load, read every hit row, write every computed
    /// row, insert, release, drain.
    ///
    /// # Panics
    /// Anything that fails.
    pub fn serve(&mut self, tokens: &[u32]) -> Served {
        let outcome = self
            .cache
            .reserve(self.namespace, Prefix::Tokens(tokens))
            .expect("a reservation");
        let Reserve::Granted(lease) = outcome else {
            panic!("not granted: {outcome:?}")
        };
        self.cache.start_loads().expect("loads to start");
        assert_eq!(
            self.cache.confirm_blocking(&lease).expect("a confirmation"),
            Confirm::Done
        );
        let mut served = Served {
            hit_tokens_l1: lease.hit_tokens_l1(),
            hit_tokens_l2: lease.hit_tokens_l2(),
            ..Served::default()
        };
        self.read_hits(&lease, tokens, &mut served);
        self.write_computed(&lease, tokens);
        self.cache.step_end(&self.streams).expect("a fence");
        self.cache
            .insert(&lease, tokens.len() as u64)
            .expect("an insert");
        drop(lease);
        self.cache.drain().expect("a drain");
        self.cache
            .check_invariants()
            .expect("every invariant to hold");
        served
    }

    /// Byte offset of a position's row in its owner's plane of a layer, with the owner.
    fn place(&self, lease: &Lease, position: usize) -> (usize, u64) {
        let stripe = self.cache.stripe();
        let slot = stripe
            .slot_at(lease.pages(), TokenPos::new(position as u64))
            .expect("a slot");
        let row = stripe.row_on_owner(slot).get();
        (
            stripe.owner_of_slot(slot).get() as usize,
            row * u64::from(self.config.row_bytes),
        )
    }

    fn for_each_copy(
        &self,
        lease: &Lease,
        positions: std::ops::Range<usize>,
        mut visit: impl FnMut(&SimDevice, &<SimDevice as Device>::Memory, u64, usize, u32),
    ) {
        for position in positions {
            let (owner, offset) = self.place(lease, position);
            for group in 0..self.config.groups as usize {
                let rank = group * self.config.dcp as usize + owner;
                let shard = self.cache.shards().shard(rank).expect("a rank");
                assert_eq!(shard.dcp_rank().get() as usize, owner);
                for layer in 0..self.config.layers {
                    let (plane, base) = shard
                        .planes()
                        .plane(LayerId::new(layer))
                        .expect("a layer of the pool");
                    visit(shard.device(), plane, base + offset, position, layer);
                }
            }
        }
    }

    fn read_hits(&self, lease: &Lease, tokens: &[u32], served: &mut Served) {
        let hits = usize::try_from(lease.hit_tokens()).expect("a small prompt");
        let mut bytes = vec![0; self.config.row_bytes as usize];
        self.for_each_copy(lease, 0..hits, |device, plane, offset, position, layer| {
            device.read(plane, offset, &mut bytes).expect("a read");
            let want = row_content(tokens, position, layer, self.config.row_bytes);
            served.rows_read += 1;
            served.wrong_rows += u64::from(bytes != want);
        });
    }

    fn write_computed(&self, lease: &Lease, tokens: &[u32]) {
        let hits = usize::try_from(lease.hit_tokens()).expect("a small prompt");
        self.for_each_copy(
            lease,
            hits..tokens.len(),
            |device, plane, offset, position, layer| {
                let row = row_content(tokens, position, layer, self.config.row_bytes);
                device.write(plane, offset, &row).expect("a write");
            },
        );
    }
}
