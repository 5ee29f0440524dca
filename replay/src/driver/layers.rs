// SPDX-License-Identifier: Apache-2.0
//! The layers of a forward on every rank.
//!
//! A layer on a rank waits at its gate, verifies the rows that were hit, computes for as long as
//! the compute model says, and writes the rows of the computed tokens. Where compute begins only
//! after the whole load, the first layer waits for the last one.

use std::sync::Arc;

use striata::{Error, LayerGates};
use striata_core::LayerId;
use striata_gpu::Device;
use striata_kernels::rows::{RowParams, RowSpan};

use super::bytes::WholeEngine;
use super::engine::Step;
use super::plan::Plan;
use super::spans::{computed_spans, hit_spans};
use crate::config::LoadWait;

/// What one rank does in every layer of a step.
pub(super) struct RankWork<D: Device> {
    gates: LayerGates<D>,
    computed: Arc<[RowSpan]>,
    waits: Vec<Wait<D>>,
}

/// A wait at a gate.
struct Wait<D: Device> {
    /// What was waited for.
    layer: LayerId,
    before: D::Event,
    behind: D::Event,
}

impl<D: Device> RankWork<D> {
    /// The gates of the rank.
    pub(super) fn gates(&self) -> LayerGates<D> {
        self.gates.clone()
    }
}

impl<D: Device> WholeEngine<D> {
    /// What each rank will do; the loads must be started.
    pub(super) fn works(&self, plan: &Plan, step: Step<'_>) -> Result<Vec<RankWork<D>>, Error> {
        let ranks = self.shards().iter().enumerate();
        ranks
            .map(|(rank, shard)| {
                Ok(RankWork {
                    gates: self.cache.gates(step.lease, rank)?,
                    computed: computed_spans(plan, step, shard.dcp_rank()),
                    waits: Vec::new(),
                })
            })
            .collect()
    }

    /// Submits every layer on every rank. Ends early where a load has failed: nothing that rests
    /// on it is used.
    pub(super) fn submit_layers(
        &self,
        plan: &Plan,
        step: Step<'_>,
        works: &mut [RankWork<D>],
    ) -> Result<(), Error> {
        let hits = hit_spans(plan, step);
        let prefix = step.lease.hit_tokens();
        let layer_nanos = plan
            .compute
            .layer_nanos(step.request.input_tokens - prefix, prefix);
        // Rank after rank: a simulated stream is a thread, which wakes once for all layers so.
        for (rank, work) in works.iter_mut().enumerate() {
            for layer in (0..plan.layers()).map(LayerId::new) {
                match self.submit_layer(plan, rank, layer, &hits, layer_nanos, work) {
                    Err(Error::Gate { .. }) => return Ok(()),
                    submitted => submitted?,
                }
            }
        }
        Ok(())
    }

    fn submit_layer(
        &self,
        plan: &Plan,
        rank: usize,
        layer: LayerId,
        hits: &Arc<[RowSpan]>,
        layer_nanos: u64,
        work: &mut RankWork<D>,
    ) -> Result<(), Error> {
        let (shard, stream) = (self.cache.shards().shard(rank)?, &self.streams[rank]);
        let device = shard.device();
        match plan.load_wait {
            LoadWait::ByLayer => wait_at_gate(device, stream, layer, work)?,
            LoadWait::Whole if layer.get() == 0 => {
                let last = LayerId::new(plan.layers().saturating_sub(1));
                wait_at_gate(device, stream, last, work)?;
            }
            LoadWait::Whole => {}
        }
        let Some((plane, base)) = shard.planes().plane(layer) else {
            return Ok(());
        };
        let params = |stride| RowParams {
            row_words: plan.row_words(),
            layer: layer.get(),
            rank: shard.dcp_rank().get(),
            stride,
        };
        if let (Some(stride), Some(log)) = (plan.verify_stride, self.logs.get(rank))
            && !hits.is_empty()
        {
            device.verify_rows(stream, plane, base, params(stride), hits, log.memory())?;
        }
        if layer_nanos > 0 {
            device.occupy(stream, layer_nanos)?;
        }
        if !work.computed.is_empty() {
            device.fill_rows(stream, plane, base, params(1), &work.computed)?;
        }
        Ok(())
    }

    /// The longest that a rank's layers waited for loads. A wait for what is there already is none,
    /// though passing it takes the device a moment.
    pub(super) fn stall(&self, works: &[RankWork<D>]) -> Result<u64, Error> {
        let mut longest = 0;
        for (shard, work) in self.shards().iter().zip(works) {
            let mut stall = 0u64;
            for wait in &work.waits {
                let before = shard.device().synchronize(&wait.before)?;
                let loaded = work.gates.layer_time(wait.layer)?;
                if loaded.is_some_and(|loaded| loaded > before) {
                    stall += shard.device().synchronize(&wait.behind)?.since(before);
                }
            }
            longest = longest.max(stall);
        }
        Ok(longest)
    }
}

/// Waits for a layer; with a load to wait for, notes when the wait began and ended.
fn wait_at_gate<D: Device>(
    device: &D,
    stream: &D::Stream,
    layer: LayerId,
    work: &mut RankWork<D>,
) -> Result<(), Error> {
    if work.gates.is_open() {
        return Ok(());
    }
    let (before, behind) = (device.event()?, device.event()?);
    device.record(&before, stream)?;
    work.gates.wait_layer(layer, stream)?;
    device.record(&behind, stream)?;
    work.waits.push(Wait {
        layer,
        before,
        behind,
    });
    Ok(())
}

/// Rows that verifying every `stride`-th row of the hit pages compares, on all ranks and layers.
pub(super) fn verified_rows(plan: &Plan, step: Step<'_>, ranks: usize) -> u64 {
    let Some(stride) = plan.verify_stride else {
        return 0;
    };
    let pages = plan.stripe.whole_pages(step.lease.hit_tokens());
    let rows = u64::from(plan.stripe.page_rows().div_ceil(stride));
    pages * rows * u64::from(plan.layers()) * ranks as u64
}
