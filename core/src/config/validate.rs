// SPDX-License-Identifier: Apache-2.0
//! Checks of a configuration, and what comes of it.

use super::{
    Capacity, CommBackend, ConfigError, EngineConfig, ExchangeMeans, Feature, IoBackend, MemLayout,
    PolicyName, WritePolicy,
};
use crate::geometry::{HostLayout, PageGeometry};
use crate::models::Model;
use crate::stripe::Stripe;
use crate::topology::{HeadShards, Topology};

/// Most ranks of a topology.
const MAX_TP: u32 = 4096;
/// Largest ratio of the tiers, and most gigabytes of a host tier.
const MAX_HOST: f64 = 1e6;
/// Most leases that a planner can be configured to hold: their slots are made at the start.
pub const MAX_LEASES: u32 = 1 << 20;
/// Longest namespace, in bytes.
const MAX_NAMESPACE: usize = 4096;

/// How large the host tier is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum L2Size {
    /// There is none.
    Off,
    /// This much.
    Capacity(Capacity),
    /// This many host pages a usable GPU page.
    Ratio(f64),
}

impl L2Size {
    /// Pages of the host tier beside `l1_pages` usable pages, if a page takes `page_bytes` bytes.
    #[must_use]
    pub fn pages(self, l1_pages: u64, stripe: Stripe, page_bytes: u64) -> u64 {
        match self {
            Self::Off => 0,
            Self::Capacity(capacity) => capacity.usable_pages(stripe, page_bytes, 0),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a float cast saturates, and no pool has 2^53 pages"
            )]
            Self::Ratio(ratio) => (l1_pages as f64 * ratio) as u64,
        }
    }
}

/// A configuration whose values fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Ranks, replicas and groups.
    pub topology: Topology,
    /// c, P and I.
    pub stripe: Stripe,
    /// The model.
    pub model: Model,
    /// Query heads of a rank and of its group.
    pub heads: HeadShards,
    /// Pages of the MLA pool on one rank.
    pub page: PageGeometry,
    /// What cached tokens mean beside their values.
    pub namespace: String,
    /// Capacity of the GPU tier, at least one usable page.
    pub l1: Capacity,
    /// Size of the host tier.
    pub l2: L2Size,
    /// Order of the host tier.
    pub host_layout: HostLayout,
    /// What copies between the tiers.
    pub io_backend: IoBackend,
    /// When pages are stored on the host tier.
    pub write_policy: WritePolicy,
    /// Which pages go first.
    pub eviction_policy: PolicyName,
    /// Fewest tokens that are worth a load-back.
    pub load_back_threshold: u64,
    /// Most tokens of one load-back.
    pub load_back_quota: Option<u64>,
    /// Whether a hit may be the whole prompt.
    pub hit_full_length: bool,
    /// Capacity that the host tier may grow to; none if it does not grow.
    pub l2_max: Option<Capacity>,
    /// Tokens of the GPU tier that are kept free.
    pub free_watermark: u64,
    /// Most tokens of stores in flight, a widened page at least.
    pub store_quota: Option<u64>,
    /// Whether host copies of pages that are on the GPU tier go first.
    pub duplicates_first: bool,
    /// Most leases at a time.
    pub max_leases: u32,
    /// Whether cache events are kept.
    pub kv_events: bool,
    /// How partial results cross ranks.
    pub comm_backend: CommBackend,
    /// Whether every rank projects the queries of its whole group.
    pub replicate_q_proj: bool,
}

impl EngineSettings {
    /// Usable widened pages of the GPU tier.
    #[must_use]
    pub fn l1_pages(&self) -> u64 {
        self.l1.usable_pages(self.stripe, self.page.page_bytes(), 1)
    }

    /// Widened pages of the host tier.
    #[must_use]
    pub fn l2_pages(&self) -> u64 {
        let page_bytes = self.page.page_bytes();
        self.l2.pages(self.l1_pages(), self.stripe, page_bytes)
    }

    /// Widened pages that the host tier may grow to, if it may grow.
    #[must_use]
    pub fn l2_max_pages(&self) -> Option<u64> {
        let page_bytes = self.page.page_bytes();
        self.l2_max
            .map(|most| most.usable_pages(self.stripe, page_bytes, 0))
    }
}

impl EngineConfig {
    /// Checks every value and resolves those that are not set.
    ///
    /// # Errors
    /// The first value out of range, contradiction, or feature that is not there, by name.
    pub fn validate(&self) -> Result<EngineSettings, ConfigError> {
        self.check_ranges()?;
        let topology = Topology::new(self.tp, self.dp, self.dcp_size)?;
        let stripe = Stripe::with_interleave(self.dcp_size, self.page_size, self.interleave)?;
        self.check_features()?;
        let model = self.model.resolve()?;
        if model.full_layers() > 0 {
            return Err(not_built(Feature::NonMlaHostPools));
        }
        let heads = topology.heads(model.heads())?;
        let page = model.page_geometry(self.page_size)?;
        let (comm_backend, replicate_q_proj) = self.exchange(ExchangeMeans::UNKNOWN)?;
        if let Some(backend) = self.attention_backend {
            backend.kernel(model.row_format()?)?;
        }
        let (host_layout, io_backend) = self.host_io()?;
        let settings = EngineSettings {
            l2: self.l2_size()?,
            topology,
            stripe,
            model,
            heads,
            page,
            namespace: self.namespace.clone(),
            l1: self.l1,
            host_layout,
            io_backend,
            write_policy: self.write_policy,
            eviction_policy: self.eviction_policy,
            load_back_threshold: self.load_back_threshold,
            load_back_quota: self.load_back_quota,
            hit_full_length: self.hit_full_length,
            l2_max: self.l2_max,
            free_watermark: self.free_watermark,
            store_quota: self.store_quota,
            duplicates_first: self.duplicates_first,
            max_leases: self.max_leases,
            kv_events: self.kv_events,
            comm_backend,
            replicate_q_proj,
        };
        check_pages(&settings)?;
        check_limits(&settings)?;
        Ok(settings)
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let in_range = |ok: bool, field, value: &dyn core::fmt::Display, range| {
            if ok {
                return Ok(());
            }
            let value = value.to_string();
            Err(ConfigError::Range {
                field,
                value,
                range,
            })
        };
        in_range((1..=MAX_TP).contains(&self.tp), "tp", &self.tp, "1..=4096")?;
        in_range(self.dp >= 1, "dp", &self.dp, "at least 1")?;
        in_range(
            self.attention_cp >= 1,
            "attention_cp",
            &self.attention_cp,
            "at least 1",
        )?;
        let ratio = self.hicache_ratio;
        in_range(
            ratio > 0.0 && ratio <= MAX_HOST,
            "hicache_ratio",
            &ratio,
            "above 0 and at most 1000000",
        )?;
        let size = self.hicache_size.unwrap_or(1.0);
        in_range(
            size > 0.0 && size <= MAX_HOST,
            "hicache_size",
            &size,
            "above 0 and at most 1000000 GB",
        )?;
        let quota = self.load_back_quota.unwrap_or(1);
        in_range(quota >= 1, "load_back_quota", &quota, "at least 1 token")?;
        in_range(
            (1..=MAX_LEASES).contains(&self.max_leases),
            "max_leases",
            &self.max_leases,
            "1..=1048576",
        )?;
        in_range(
            self.namespace.len() <= MAX_NAMESPACE,
            "length of namespace",
            &self.namespace.len(),
            "at most 4096 bytes",
        )
    }

    fn check_features(&self) -> Result<(), ConfigError> {
        let wanted = [
            (self.hicache_storage_backend.is_some(), Feature::L3),
            (self.enable_lmcache, Feature::LmCache),
            (self.enable_hisparse, Feature::HiSparse),
            (self.attention_cp > 1, Feature::PrefillContextParallel),
            (self.speculative_algorithm.is_some(), Feature::Speculative),
            (self.disaggregation_mode.is_some(), Feature::PrefillDecode),
            (self.tier_recurrent_state, Feature::RecurrentState),
        ];
        match wanted.into_iter().find(|(wanted, _)| *wanted) {
            Some((_, feature)) => Err(not_built(feature)),
            None => Ok(()),
        }
    }

    fn host_io(&self) -> Result<(HostLayout, IoBackend), ConfigError> {
        let layout = match self.mem_layout {
            Some(MemLayout::LayerFirst) => HostLayout::LayerFirst,
            Some(MemLayout::PageFirst | MemLayout::PageFirstDirect) | None => HostLayout::PageFirst,
        };
        let pair = match (self.mem_layout, self.io_backend) {
            (Some(layout @ MemLayout::PageFirst), Some(io @ IoBackend::Direct)) => Some((
                layout,
                io,
                "page_first is for kernels, page_first_direct for copy engines",
            )),
            (Some(layout @ MemLayout::PageFirstDirect), Some(io @ IoBackend::Kernel)) => Some((
                layout,
                io,
                "page_first_direct is for copy engines, page_first for kernels",
            )),
            _ => None,
        };
        if let Some((layout, io, reason)) = pair {
            return Err(ConfigError::Conflict {
                first: format!("mem_layout {layout}"),
                second: format!("io_backend {io}"),
                reason,
            });
        }
        let io = self.io_backend.unwrap_or(match self.mem_layout {
            Some(MemLayout::PageFirst) => IoBackend::Kernel,
            _ => IoBackend::Direct,
        });
        Ok((layout, io))
    }

    fn l2_size(&self) -> Result<L2Size, ConfigError> {
        match (self.l2, self.hicache_size) {
            (Some(capacity), Some(gigabytes)) => Err(ConfigError::Conflict {
                first: format!("l2 {capacity}"),
                second: format!("hicache_size {gigabytes}"),
                reason: "both are the size of the host tier",
            }),
            (Some(capacity), None) if capacity.is_zero() => Ok(L2Size::Off),
            (Some(capacity), None) => Ok(L2Size::Capacity(capacity)),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be positive and at most 10^6 gigabytes"
            )]
            (None, Some(gigabytes)) => {
                Ok(L2Size::Capacity(Capacity::Bytes((gigabytes * 1e9) as u64)))
            }
            (None, None) => Ok(L2Size::Ratio(self.hicache_ratio)),
        }
    }
}

fn check_pages(settings: &EngineSettings) -> Result<(), ConfigError> {
    let pages = settings.l1_pages();
    if pages == 0 {
        return Err(ConfigError::Range {
            field: "l1",
            value: settings.l1.to_string(),
            range: "room for the sink page and one usable page at least",
        });
    }
    let off = matches!(settings.l2, L2Size::Off);
    let host = settings.l2_pages();
    if !off && host == 0 {
        return Err(ConfigError::Range {
            field: "l2",
            value: format!("less than one page of {} bytes", settings.page.page_bytes()),
            range: "0 for none, or room for one page at least",
        });
    }
    // The sink is one page more.
    let most = u64::from(u32::MAX) - 1;
    for (field, pages) in [("pages of l1", pages), ("pages of l2", host)] {
        if pages > most {
            return Err(ConfigError::Range {
                field,
                value: pages.to_string(),
                range: "at most 4294967294",
            });
        }
    }
    Ok(())
}

/// Checks the limits of copies and room, in widened pages.
fn check_limits(settings: &EngineSettings) -> Result<(), ConfigError> {
    let refused = |field, value: u64, range| {
        Err(ConfigError::Range {
            field,
            value: value.to_string(),
            range,
        })
    };
    let pages = |tokens| settings.stripe.whole_pages(tokens);
    let (watermark, quota) = (settings.free_watermark, settings.store_quota);
    if pages(watermark) >= settings.l1_pages() {
        let range = "less than all of l1, which would never hold anything";
        return refused("free_watermark", watermark, range);
    }
    if let Some(quota) = quota.filter(|quota| pages(*quota) == 0) {
        return refused(
            "store_quota",
            quota,
            "at least the tokens of a widened page",
        );
    }
    let host = settings.l2_pages();
    match settings.l2_max_pages() {
        Some(most) if most < host || host == 0 || most > u64::from(u32::MAX) - 1 => {
            let range = "from the pages of l2, which must be on, to 4294967294";
            refused("pages of l2_max", most, range)
        }
        _ => Ok(()),
    }
}

const fn not_built(feature: Feature) -> ConfigError {
    ConfigError::NotBuilt { feature }
}
