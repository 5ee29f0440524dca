// SPDX-License-Identifier: Apache-2.0
//! The attention of one DCP group for sampled requests.

use std::sync::Arc;

use striata::decode::{
    DcpMla, DcpMlaConfig, DecodeError, LayerInput, RequestPages, StepKind, StepRequest, StepStreams,
};
use striata::{Error, Shard};
use striata_core::LayerId;
use striata_gpu::decode::{DecodeDevice, FillValues, ValueDevice, View};
use striata_kernels::decode::{AttendKernel, LATENT};
use striata_kernels::values::RowSeed;

use super::rows::{ROW_BYTES, ROW_WORDS};
use super::{QUERIES, query_seed, row_seed, truth};
use crate::driver::engine::Step;
use crate::driver::plan::Plan;
use crate::report::AttendReport;

/// Heads of a group that are compared in a request and layer.
const COMPARED: u32 = 2;
/// Relative error of f32 sums, and of bf16 products in the matrix units.
const PLAIN: f64 = 1e-4;
const MATRIX: f64 = 1e-2;

/// What one rank is given.
#[derive(Debug)]
struct RankInput<D: DecodeDevice> {
    /// Seeds of queries, then of new rows.
    seeds: D::Memory,
    query: D::Memory,
    new_rows: D::Memory,
}

/// What came of a layer: outputs of all ranks, rank by rank.
#[derive(Debug)]
struct Outcome {
    layer: LayerId,
    ranks: Vec<Vec<f32>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group<D: DecodeDevice> {
    mla: DcpMla<D>,
    devices: Vec<D>,
    inputs: Vec<RankInput<D>>,
    outcomes: Vec<Outcome>,
}

/// Which kernel attends.
pub(super) fn kernel_name<D: DecodeDevice>(
    config: &DcpMlaConfig,
    shards: &[Shard<D>],
) -> &'static str {
    match kernel(config, shards) {
        AttendKernel::Simt => "simt",
        AttendKernel::Mma => "mma",
    }
}

/// The relative error that it may have.
pub(super) fn tolerance<D: DecodeDevice>(config: &DcpMlaConfig, shards: &[Shard<D>]) -> f64 {
    match kernel(config, shards) {
        AttendKernel::Simt => PLAIN,
        AttendKernel::Mma => MATRIX,
    }
}

fn kernel<D: DecodeDevice>(config: &DcpMlaConfig, shards: &[Shard<D>]) -> AttendKernel {
    let first = shards.first();
    config.kernel(first.is_some_and(|shard| shard.device().has_mma()))
}

impl<D: DecodeDevice + ValueDevice> Group<D> {
    pub(super) fn new(config: DcpMlaConfig, shards: &[Shard<D>]) -> Result<Self, DecodeError> {
        let devices: Vec<D> = shards.iter().map(|shard| shard.device().clone()).collect();
        let planes: Vec<_> = shards
            .iter()
            .map(|shard| Arc::clone(shard.planes()))
            .collect();
        let mla = DcpMla::new(config, devices.clone(), &planes)?;
        let shape = config.attend_shape();
        let input = |device: &D| -> Result<_, DecodeError> {
            let seeds = u64::from(QUERIES) * (u64::from(shape.heads) + 1) * SEED_BYTES;
            Ok(RankInput {
                seeds: device.alloc(seeds)?,
                query: device.alloc(shape.rows() * ROW_BYTES)?,
                new_rows: device.alloc(shape.tokens() * ROW_BYTES)?,
            })
        };
        let inputs = devices.iter().map(input).collect::<Result<_, _>>()?;
        Ok(Self {
            mla,
            devices,
            inputs,
            outcomes: Vec::new(),
        })
    }

    /// Begins the step of a request whose last `new` tokens it will write.
    pub(super) fn begin(
        &mut self,
        plan: &Plan,
        step: Step<'_>,
        new: usize,
        tokens: &[u32],
        streams: &[D::Stream],
    ) -> Result<(), Error> {
        self.outcomes.clear();
        let heads = self.mla.config().settings.heads.gathered;
        let request = step.request.index;
        let queries = (0..QUERIES)
            .flat_map(|query| (0..heads).map(move |head| query_seed(request, query, head)));
        let mut seeds: Vec<RowSeed> = queries.collect();
        for query in 0..QUERIES as usize {
            let position = (tokens.len() + query).checked_sub(QUERIES as usize);
            let seed = position.map_or(query_seed(request, 0, 0), |position| {
                row_seed(plan, position as u64, tokens[position])
            });
            seeds.push(seed);
        }
        for (device, input) in self.devices.iter().zip(&self.inputs) {
            device.write(&input.seeds, 0, bytemuck::cast_slice(&seeds))?;
        }
        let requests = [StepRequest {
            pages: RequestPages::Pages(step.lease.pages()),
            tokens: tokens.len() as u64,
            new_tokens: u32::try_from(new).unwrap_or(u32::MAX),
        }];
        let streams = StepStreams::Each(streams);
        let kind = StepKind::Eager;
        Ok(self
            .mla
            .begin_step(kind, &requests, Vec::new(), &[], streams)?)
    }

    /// Attends in a layer; keeps its outputs if they are `wanted`.
    pub(super) fn layer(
        &mut self,
        layer: LayerId,
        streams: &[D::Stream],
        wanted: bool,
    ) -> Result<(), Error> {
        let queries = u64::from(QUERIES) * u64::from(self.mla.config().settings.heads.gathered);
        for ((device, input), stream) in self.devices.iter().zip(&self.inputs).zip(streams) {
            let seeds = View::all(&input.seeds);
            let fill = |dense, seeds, rows| FillValues {
                dense: View::all(dense),
                seeds,
                rows,
                row_words: ROW_WORDS,
                layer: layer.get(),
            };
            device.fill_values(stream, &fill(&input.query, seeds, queries))?;
            let behind = seeds.plus(queries * SEED_BYTES);
            device.fill_values(stream, &fill(&input.new_rows, behind, QUERIES.into()))?;
        }
        let query_strides = self.mla.dense_query_strides();
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|input| LayerInput {
                query: View::all(&input.query),
                query_strides,
                latent: View::all(&input.new_rows),
                latent_stride: ROW_BYTES,
                rope: Some(View::all(&input.new_rows).plus(LATENT as u64 * 2)),
                rope_stride: ROW_BYTES,
            })
            .collect();
        self.mla.layer(layer, &inputs, StepStreams::Each(streams))?;
        if wanted {
            let ranks = self.read(streams)?;
            self.outcomes.push(Outcome { layer, ranks });
        }
        Ok(())
    }

    /// The merged outputs of all ranks, once they are there.
    fn read(&self, streams: &[D::Stream]) -> Result<Vec<Vec<f32>>, Error> {
        let words = self.mla.config().merged_bytes() / 4;
        let mut all = Vec::with_capacity(self.devices.len());
        for (rank, (device, stream)) in self.devices.iter().zip(streams).enumerate() {
            let event = device.event()?;
            device.record(&event, stream)?;
            device.synchronize(&event)?;
            let mut values = vec![0f32; usize::try_from(words).unwrap_or(0)];
            if let Some(output) = self.mla.output(rank) {
                let bytes = bytemuck::cast_slice_mut(&mut values);
                device.read(output.memory, output.offset, bytes)?;
            }
            all.push(values);
        }
        Ok(all)
    }

    pub(super) fn end(&mut self, streams: &[D::Stream]) -> Result<(), Error> {
        Ok(self.mla.end_step(StepStreams::Each(streams))?)
    }

    /// Compares what was kept with what the tokens say, unless the rows did not come.
    pub(super) fn compare(
        &mut self,
        plan: &Plan,
        step: Step<'_>,
        tokens: &[u32],
        rows_came: bool,
        found: &mut AttendReport,
    ) -> Result<(), Error> {
        let outcomes = core::mem::take(&mut self.outcomes);
        let confirmed = self.mla.confirm();
        if !rows_came || outcomes.is_empty() {
            return match confirmed {
                // What did not come may hold anything.
                Err(DecodeError::Fault { .. }) | Ok(()) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        match confirmed {
            Ok(()) => {}
            Err(error @ DecodeError::Fault { .. }) => {
                found.off += 1;
                found.first_off.get_or_insert_with(|| error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
        found.requests += 1;
        let request = step.request.index;
        let group_heads = self.mla.config().settings.heads.gathered;
        let heads: Vec<u32> = (0..COMPARED.min(group_heads))
            .map(|turn| pick(request, turn, group_heads))
            .collect();
        for outcome in &outcomes {
            let wanted = truth::attention(plan, request, outcome.layer, &heads, tokens);
            self.compare_layer(request, outcome, &heads, &wanted, found);
        }
        Ok(())
    }

    fn compare_layer(
        &self,
        request: u64,
        outcome: &Outcome,
        heads: &[u32],
        (o, lse): &(Vec<f64>, Vec<f64>),
        found: &mut AttendReport,
    ) {
        let of_rank = self.mla.config().settings.heads.local;
        let rows = usize::try_from(self.mla.config().merged_rows()).unwrap_or(0);
        for (at, (o, lse)) in o.chunks_exact(LATENT).zip(lse).enumerate() {
            let (query, head) = (at / heads.len(), heads[at % heads.len()]);
            let (rank, head_of_rank) = (head / of_rank, head % of_rank);
            let row = query * of_rank as usize + head_of_rank as usize;
            let values = &outcome.ranks[rank as usize];
            let got = &values[row * LATENT..][..LATENT];
            let error = relative_error(got, o);
            let lse_error = (f64::from(values[rows * LATENT + row]) - lse).abs();
            let empty = lse.is_infinite();
            found.outputs += 1;
            let worst = if empty { 0.0 } else { error.max(lse_error) };
            found.worst_error = found.worst_error.max(worst);
            let right = error <= found.tolerance && (empty || lse_error <= found.tolerance);
            if !right {
                found.off += 1;
                found.first_off.get_or_insert_with(|| {
                    let layer = outcome.layer;
                    format!(
                        "request {request}, layer {layer}, query {query}, head {head}: off by {error}, \
                         its log-sum-exp by {lse_error}"
                    )
                });
            }
        }
    }
}

/// Bytes of a seed.
const SEED_BYTES: u64 = size_of::<RowSeed>() as u64;

/// A head of a request that is compared: another in each turn.
fn pick(request: u64, turn: u32, heads: u32) -> u32 {
    let step = request.wrapping_mul(7).wrapping_add(u64::from(turn) * 11);
    u32::try_from(step % u64::from(heads.max(1))).unwrap_or(0)
}

/// The L2 norm of the difference beside that of what is right; the difference itself beside 0.
fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    let difference = got
        .iter()
        .zip(want)
        .map(|(got, want)| (f64::from(*got) - want).powi(2));
    let norm = want.iter().map(|want| want * want).sum::<f64>().sqrt();
    let difference = difference.sum::<f64>().sqrt();
    if norm > 0.0 {
        difference / norm
    } else {
        difference
    }
}
