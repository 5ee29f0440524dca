// SPDX-License-Identifier: Apache-2.0
//! A configuration after all units and defaults are resolved and everything is checked.

use striata::PlannerConfig;
use striata_core::config::Capacity;
use striata_core::models::MAX_LAYERS;
use striata_core::prefix::{Namespace, NamespaceParts};
use striata_core::{
    ConfigError as EngineConfigError, PageGeometry, PoolGeometry, PoolKind, RowFormat, Stripe,
    Topology,
};

use crate::compute::Compute;
use crate::config::{ComputeModel, KeySource, LoadWait, Outputs, ReplayConfig, VerifyPolicy};
use crate::error::ConfigError;
use crate::report::ConfigEcho;
use crate::workload::Workload;

/// Every n-th row that sampling verifies.
const SAMPLE_STRIDE: u32 = 8;
/// Most pages of a tier; one id stays free for the sink.
const MAX_PAGES: u64 = u32::MAX as u64 - 1;

/// What the driver works with.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) topology: Topology,
    pub(crate) stripe: Stripe,
    /// The L1 pool as it is replayed: with scaled rows, if they are scaled.
    pub(crate) pool: PoolGeometry,
    pub(crate) l2_pages: u32,
    pub(crate) namespace: Namespace,
    /// The namespace as it enters fingerprints.
    pub(crate) fingerprint_namespace: u64,
    pub(crate) workload: Workload,
    pub(crate) compute: Compute,
    pub(crate) keys: KeySource,
    /// Whether the driver hashes keys from tokens itself: a planner alone takes nothing else, and
    /// pages of generated tokens are named after the reservation.
    pub(crate) hashes_keys: bool,
    /// Every n-th row is verified; none if nothing is.
    pub(crate) verify_stride: Option<u32>,
    pub(crate) scaled: bool,
    /// How computing waits for loads.
    pub(crate) load_wait: LoadWait,
    planner: PlannerConfig,
}

impl Plan {
    /// Resolves and checks a configuration.
    pub(crate) fn new(config: &ReplayConfig) -> Result<Self, ConfigError> {
        check_options(config)?;
        let parallel = config.parallel;
        let topology = Topology::new(parallel.tp, parallel.dp, parallel.dcp)
            .map_err(EngineConfigError::from)?;
        let stripe = Stripe::with_interleave(parallel.dcp, parallel.page_rows, parallel.interleave)
            .map_err(EngineConfigError::from)?;
        let model = &config.model;
        let page_of = |row_bytes| {
            PageGeometry::new(parallel.page_rows, row_bytes, model.layers)
                .map_err(EngineConfigError::from)
        };
        // Tiers are as large as with the model's rows; only the rows shrink.
        let model_page = page_of(model.row_bytes)?;
        let l1_pages = l1_pages(config.l1, stripe, model_page)?;
        let l2_pages = l2_pages(config, l1_pages, stripe, model_page)?;
        let rows = (u64::from(l1_pages) + 1) * u64::from(parallel.page_rows);
        let page = page_of(config.scale_rows.unwrap_or(model.row_bytes))?;
        let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows)
            .map_err(EngineConfigError::from)?;
        let mut planner = PlannerConfig::new(pool, l2_pages);
        planner.policy = config.policy;
        planner.write_policy = config.write_policy;
        let namespace = Namespace::new(&NamespaceParts {
            model: &model.name,
            ..NamespaceParts::default()
        });
        let low = namespace.get() & u128::from(u64::MAX);
        Ok(Self {
            topology,
            stripe,
            pool,
            l2_pages,
            namespace,
            fingerprint_namespace: u64::try_from(low).unwrap_or_default(),
            workload: Workload::new(stripe, config.outputs),
            compute: Compute::new(&config.compute, model, topology.attention_tp())?,
            keys: config.keys,
            hashes_keys: config.metadata_only || config.outputs == Outputs::Keep,
            verify_stride: match config.verify {
                VerifyPolicy::All => Some(1),
                VerifyPolicy::Sample => Some(SAMPLE_STRIDE),
                VerifyPolicy::None => None,
            },
            scaled: page != model_page,
            load_wait: LoadWait::ByLayer,
            planner,
        })
    }

    /// The same for requests that only fill the tiers: they compute nothing and verify nothing.
    pub(crate) fn filling(&self, config: &ReplayConfig) -> Result<Self, ConfigError> {
        let ranks = self.topology.attention_tp();
        Ok(Self {
            compute: Compute::new(&ComputeModel::default(), &config.model, ranks)?,
            verify_stride: None,
            ..self.clone()
        })
    }

    /// What each replica's planner is made with.
    pub(crate) fn planner(&self) -> PlannerConfig {
        self.planner.clone()
    }

    /// Pages that a request may have at most.
    pub(crate) const fn usable_pages(&self) -> u64 {
        self.pool.usable_pages() as u64
    }

    /// Layers of the pool.
    pub(crate) const fn layers(&self) -> u32 {
        self.pool.page().layers()
    }

    /// Bytes of L1, its sink included, and of L2 on one rank.
    pub(crate) fn bytes_per_rank(&self) -> (u64, u64) {
        let page = self.pool.page().page_bytes();
        let of = |pages: u32| u64::from(pages).saturating_mul(page);
        (of(self.pool.pages()), of(self.l2_pages))
    }

    /// Words of a row.
    pub(crate) const fn row_words(&self) -> u32 {
        self.pool.page().row_bytes() / 4
    }

    /// The resolved numbers for the report.
    pub(crate) fn echo(&self, config: &ReplayConfig) -> ConfigEcho {
        let parallel = config.parallel;
        ConfigEcho {
            trace: config.source.to_string(),
            model: config.model.name.clone(),
            layers: self.layers(),
            row_bytes: self.pool.page().row_bytes(),
            model_row_bytes: config.model.row_bytes,
            tp: parallel.tp,
            dp: parallel.dp,
            dcp: parallel.dcp,
            page_size: parallel.page_rows,
            interleave: parallel.interleave,
            widened_page_tokens: self.stripe.widened_page(),
            l1: config.l1.to_string(),
            l2: config.l2.to_string(),
            policy: config.policy.to_string(),
            write_policy: config.write_policy.to_string(),
            keys: config.keys.to_string(),
            verify: config.verify.to_string(),
            outputs: config.outputs.to_string(),
            time_scale: config.compute.time_scale,
            layer_us: config.compute.layer_us,
            prefill_tflops: config.compute.prefill_tflops,
            attention_tflops: config.compute.attention_tflops,
            decode_steps: config.compute.decode_steps,
            decode_step_us: config.compute.decode_step_us,
            ..ConfigEcho::default()
        }
    }
}

fn check_options(config: &ReplayConfig) -> Result<(), ConfigError> {
    let conflict = |first, second, reason| {
        Err(ConfigError::Conflict {
            first,
            second,
            reason,
        })
    };
    let layers = config.model.layers;
    if layers > MAX_LAYERS {
        return Err(ConfigError::OutOfRange {
            what: "layers",
            value: layers.to_string(),
            range: "1 to 4096",
        });
    }
    let verifies = config.verify != VerifyPolicy::None;
    if config.metadata_only && config.fault.is_some() {
        return conflict(
            "a fault",
            "a replay without bytes",
            "there is nothing to corrupt",
        );
    }
    if config.metadata_only && config.faults.is_some() {
        return conflict(
            "random faults",
            "a replay without bytes",
            "nothing is copied that could fail",
        );
    }
    if config.metadata_only && verifies {
        return conflict(
            "verify",
            "a replay without bytes",
            "there is nothing to compare",
        );
    }
    if config.attend.is_some() {
        if config.metadata_only {
            return conflict(
                "attention",
                "a replay without bytes",
                "there are no rows to read",
            );
        }
        if verifies {
            return conflict(
                "attention",
                "verify other than none",
                "rows hold values in place of fingerprints",
            );
        }
        let row_bytes = config.scale_rows.unwrap_or(config.model.row_bytes);
        if row_bytes != RowFormat::Bf16.row_bytes() {
            return conflict(
                "attention",
                "rows that are not of 1152 bytes",
                "kernels read 576 lanes of bf16",
            );
        }
    }
    if config.fault.is_some() && config.verify != VerifyPolicy::All {
        return conflict("a fault", "verify other than all", "rows would go unseen");
    }
    Ok(())
}

fn l1_pages(capacity: Capacity, stripe: Stripe, page: PageGeometry) -> Result<u32, ConfigError> {
    let pages = capacity.usable_pages(stripe, page.page_bytes(), 1);
    checked_pages("L1", capacity.to_string(), pages, stripe, page)
}

fn l2_pages(
    config: &ReplayConfig,
    l1_pages: u32,
    stripe: Stripe,
    page: PageGeometry,
) -> Result<u32, ConfigError> {
    let size = config.l2.size();
    if size == striata_core::config::L2Size::Off {
        return Ok(0);
    }
    let pages = size.pages(l1_pages.into(), stripe, page.page_bytes());
    checked_pages("L2", config.l2.to_string(), pages, stripe, page)
}

fn checked_pages(
    tier: &'static str,
    capacity: String,
    pages: u64,
    stripe: Stripe,
    page: PageGeometry,
) -> Result<u32, ConfigError> {
    if pages == 0 {
        return Err(ConfigError::NoPage {
            tier,
            capacity,
            page_tokens: stripe.widened_page(),
            page_bytes: page.page_bytes(),
            sink: if tier == "L1" {
                ", and L1 has a sink page beside"
            } else {
                ""
            },
        });
    }
    u32::try_from(pages)
        .ok()
        .filter(|pages| u64::from(*pages) <= MAX_PAGES)
        .ok_or(ConfigError::TooManyPages {
            tier,
            capacity,
            pages,
            max: MAX_PAGES,
        })
}
