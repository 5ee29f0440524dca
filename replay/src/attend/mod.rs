// SPDX-License-Identifier: Apache-2.0
//! Attention over what the engine stored, evicted and loaded back, checked against what it must be.
//!
//! Rows hold bf16 values that follow from namespace, position, token and layer alone. Computed rows
//! are written through the row writer of the decode path, layer by layer behind the gates; sampled
//! requests then attend for their last tokens, across the ranks of each DCP group. Some heads of
//! some layers are compared with attention over the whole request in f64, worked out from its tokens
//! and nothing else: a page that is not where the table says, a row of another request, a layer that
//! came too early all give another number.

mod group;
mod rows;
mod truth;

use striata::core::config::{AttentionKernel, CommBackend, DecodeSettings};
use striata::decode::{DcpMlaConfig, DecodeError};
use striata::{Error, HiCache, LayerGates};
use striata_core::{HeadShards, LayerId, RowFormat};
use striata_gpu::Device;
use striata_gpu::decode::{DecodeDevice, ValueDevice};
use striata_kernels::decode::{MAX_HEADS, OutputKind};
use striata_kernels::values::RowSeed;

use crate::config::ReplayConfig;
use crate::driver::engine::Step;
use crate::driver::plan::Plan;
use crate::report::AttendReport;
use group::Group;
use rows::RowMaker;

/// Queries of a sampled request: the last tokens that it stores.
const QUERIES: u32 = 2;
/// Factor of the scores: they spread by about 2.5, so that some rows matter much more than others.
const SCALE: f32 = 0.285;
/// What queries are named after, in place of a namespace.
const QUERY_NAMES: u64 = 0x0071_7565_7279;

/// What a replica does with layers in place of fingerprints.
pub(crate) trait Attendant<D: Device>: core::fmt::Debug + Send {
    /// Submits every layer of a request on every rank. Ends early where a load has failed.
    fn forward(
        &mut self,
        cache: &HiCache<D>,
        streams: &[D::Stream],
        gates: &[LayerGates<D>],
        plan: &Plan,
        step: Step<'_>,
    ) -> Result<(), Error>;

    /// Compares what the request's attention gave, unless its rows did not come; how many outputs
    /// are off.
    fn compare(&mut self, plan: &Plan, step: Step<'_>, rows_came: bool) -> Result<u64, Error>;

    /// Adds what was found to the report.
    fn report(&self, report: &mut AttendReport);
}

/// The attention of one replica.
#[derive(Debug)]
pub(crate) struct Attending<D: DecodeDevice> {
    every: u64,
    groups: Vec<Group<D>>,
    makers: Vec<RowMaker<D>>,
    /// Layers whose outputs are compared.
    layers: Vec<LayerId>,
    tokens: Vec<u32>,
    found: AttendReport,
}

impl<D: DecodeDevice + ValueDevice> Attending<D> {
    /// Attention over the pools of a replica.
    pub(crate) fn new(
        config: &ReplayConfig,
        plan: &Plan,
        every: u64,
        cache: &HiCache<D>,
    ) -> Result<Self, Error> {
        let shards = cache.shards().shards();
        let simulated = shards
            .first()
            .is_some_and(|shard| shard.device().describe().simulated_time);
        let mla = mla_config(config, plan, simulated);
        let ranks = plan.stripe.dcp() as usize;
        let groups = shards.chunks(ranks).map(|shards| Group::new(mla, shards));
        let groups = groups.collect::<Result<_, DecodeError>>()?;
        let makers = shards.iter().map(|shard| RowMaker::new(shard.device()));
        let last = plan.layers().saturating_sub(1);
        let mut layers = vec![LayerId::new(0), LayerId::new(last / 2), LayerId::new(last)];
        layers.dedup();
        Ok(Self {
            every: every.max(1),
            groups,
            makers: makers.collect::<Result<_, _>>()?,
            layers,
            tokens: Vec::new(),
            found: AttendReport {
                every,
                heads: mla.settings.heads.gathered,
                queries: QUERIES,
                kernel: group::kernel_name(&mla, shards).to_owned(),
                tolerance: group::tolerance(&mla, shards),
                ..AttendReport::default()
            },
        })
    }
}

/// The decode path of a group: as many heads as the model's on a GPU, one a rank where they are
/// simulated.
fn mla_config(config: &ReplayConfig, plan: &Plan, simulated: bool) -> DcpMlaConfig {
    let dcp = plan.stripe.dcp();
    let of_model = config.model.heads / plan.topology.attention_tp().max(1);
    let fits = |heads: &u32| heads.saturating_mul(dcp) <= MAX_HEADS;
    let most = (1..=MAX_HEADS).rev().find(fits).unwrap_or(1);
    let local = if simulated {
        1
    } else {
        of_model.clamp(1, most)
    };
    let settings = DecodeSettings {
        exchange: (dcp > 1).then_some(CommBackend::Stream),
        replicate_q_proj: false,
        kernel: AttentionKernel::Auto,
        heads: HeadShards {
            local,
            gathered: local * dcp,
        },
        format: RowFormat::Bf16,
    };
    DcpMlaConfig {
        queries: QUERIES,
        partials: OutputKind::F32,
        outputs: OutputKind::F32,
        ..DcpMlaConfig::new(settings, plan.pool, 1, SCALE)
    }
}

/// The seed of a token's row.
pub(crate) const fn row_seed(plan: &Plan, position: u64, token: u32) -> RowSeed {
    RowSeed::new(plan.fingerprint_namespace, position, token)
}

/// The seed of a query of `request`.
pub(crate) const fn query_seed(request: u64, query: u32, head: u32) -> RowSeed {
    RowSeed::new(QUERY_NAMES, request, query << 16 | head)
}

impl<D: DecodeDevice + ValueDevice> Attendant<D> for Attending<D> {
    fn forward(
        &mut self,
        cache: &HiCache<D>,
        streams: &[D::Stream],
        gates: &[LayerGates<D>],
        plan: &Plan,
        step: Step<'_>,
    ) -> Result<(), Error> {
        plan.workload.tokens(step.request, &mut self.tokens);
        let stored = usize::try_from(step.stored_tokens).unwrap_or(usize::MAX);
        self.tokens.truncate(stored);
        let hit = usize::try_from(step.lease.hit_tokens()).unwrap_or(usize::MAX);
        let sampled = step.request.index.is_multiple_of(self.every);
        let computed = self.tokens.len().saturating_sub(hit);
        let new = if sampled {
            computed.min(QUERIES as usize)
        } else {
            0
        };
        let bulk = hit..self.tokens.len() - new;
        for maker in &mut self.makers {
            maker.take(plan, step.lease.pages(), bulk.clone(), &self.tokens)?;
        }
        let ranks = plan.stripe.dcp() as usize;
        if sampled {
            for (group, streams) in self.groups.iter_mut().zip(streams.chunks(ranks)) {
                group.begin(plan, step, new, &self.tokens, streams)?;
            }
        }
        let submitted = self.submit(cache, streams, gates, plan, sampled);
        if sampled {
            for (group, streams) in self.groups.iter_mut().zip(streams.chunks(ranks)) {
                group.end(streams)?;
            }
        }
        submitted
    }

    fn compare(&mut self, plan: &Plan, step: Step<'_>, rows_came: bool) -> Result<u64, Error> {
        let before = self.found.off;
        for group in &mut self.groups {
            group.compare(plan, step, &self.tokens, rows_came, &mut self.found)?;
        }
        Ok(self.found.off - before)
    }

    fn report(&self, report: &mut AttendReport) {
        report.add(&self.found);
    }
}

impl<D: DecodeDevice + ValueDevice> Attending<D> {
    fn submit(
        &mut self,
        cache: &HiCache<D>,
        streams: &[D::Stream],
        gates: &[LayerGates<D>],
        plan: &Plan,
        sampled: bool,
    ) -> Result<(), Error> {
        let ranks = plan.stripe.dcp() as usize;
        for layer in (0..plan.layers()).map(LayerId::new) {
            for (rank, (gates, stream)) in gates.iter().zip(streams).enumerate() {
                match gates.wait_layer(layer, stream) {
                    // Nothing that rests on a load that failed is used.
                    Err(Error::Gate { .. }) => return Ok(()),
                    waited => waited?,
                }
                let to = cache.shards().shard(rank)?;
                self.makers[rank].write(layer, to, stream)?;
            }
            if sampled {
                let wanted = self.layers.contains(&layer);
                for (group, streams) in self.groups.iter_mut().zip(streams.chunks(ranks)) {
                    group.layer(layer, streams, wanted)?;
                }
            }
        }
        Ok(())
    }
}
