// SPDX-License-Identifier: Apache-2.0
//! A batch of c ranks on one device: pools whose pages are out of order, queries, new rows.

use std::sync::Arc;

use striata::decode::{
    DcpMla, DcpMlaConfig, LayerInput, RequestPages, StepKind, StepRequest, StepStreams,
};
use striata_core::config::{AttentionKernel, CommBackend, DecodeSettings};
use striata_core::{
    HeadShards, L1Page, LayerId, PageGeometry, PoolGeometry, PoolKind, RowFormat, Stripe,
};
use striata_gpu::decode::{FillValues, View};
use striata_gpu::planes::L1Planes;
use striata_gpu::selftest::Subject;
use striata_kernels::decode::{LATENT, MmaSize};
use striata_kernels::values::RowSeed;

use super::DecodeBenchError;

/// P.
pub(super) const PAGE_ROWS: u32 = 64;
const ROW_BYTES: u64 = 1152;
const ROW_WORDS: u32 = 288;
/// 1 / sqrt(192), as DeepSeek-V3 has it.
const SCALE: f32 = 0.072_168_78;
/// A stride through pages that is prime, so that pages of a request are not neighbours.
const STRIDE: u64 = 7919;

/// What a bed is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct BedShape {
    pub(super) dcp: u32,
    /// Heads of a rank.
    pub(super) heads: u32,
    pub(super) queries: u32,
    pub(super) batch: u32,
    /// Tokens of every request.
    pub(super) tokens: u32,
    /// Layers with rows of their own.
    pub(super) layers: u32,
    /// Which tensor-core kernels; none: the device's own.
    pub(super) mma: Option<MmaSize>,
}

/// Buffers of a rank.
struct RankInput<D: Subject> {
    query: D::Memory,
    new_rows: D::Memory,
}

/// See the module.
pub(super) struct Bed<D: Subject> {
    pub(super) device: D,
    pub(super) mla: DcpMla<D>,
    pub(super) streams: Vec<D::Stream>,
    pub(super) planes: Vec<Arc<L1Planes<D>>>,
    inputs: Vec<RankInput<D>>,
    pages: Vec<Vec<L1Page>>,
    shape: BedShape,
}

impl<D: Subject> Bed<D> {
    pub(super) fn new(device: &D, shape: BedShape) -> Result<Self, DecodeBenchError> {
        let stripe = Stripe::new(shape.dcp, PAGE_ROWS).map_err(|error| refused(shape, &error))?;
        let usable = u64::from(shape.batch) * stripe.pages_for(shape.tokens.into());
        let config = config(shape, stripe, usable)?;
        let pages = pages(&config, shape);
        let mut planes = Vec::new();
        let mut streams = Vec::new();
        for rank in 0..shape.dcp {
            let plane =
                L1Planes::alloc(device, config.pool).map_err(|error| refused(shape, &error))?;
            planes.push(Arc::new(plane));
            streams.push(device.stream(&format!("bench {rank}"))?);
        }
        let mla = DcpMla::new(config, vec![device.clone(); shape.dcp as usize], &planes)?;
        let attend = config.attend_shape();
        let input = |_| -> Result<_, DecodeBenchError> {
            Ok(RankInput {
                query: device.alloc(attend.rows() * ROW_BYTES)?,
                new_rows: device.alloc(attend.tokens() * ROW_BYTES)?,
            })
        };
        let inputs = (0..shape.dcp).map(input).collect::<Result<_, _>>()?;
        let bed = Self {
            device: device.clone(),
            mla,
            streams,
            planes,
            inputs,
            pages,
            shape,
        };
        bed.fill()?;
        Ok(bed)
    }

    /// Fills pools, queries and new rows with values.
    fn fill(&self) -> Result<(), DecodeBenchError> {
        let config = self.mla.config();
        let attend = config.attend_shape();
        let most = config.pool.rows().max(attend.rows());
        let seeds: Vec<RowSeed> = (0..most).map(|row| RowSeed::new(0, row, 1)).collect();
        let list = self.device.alloc(most * size_of::<RowSeed>() as u64)?;
        self.device.write(&list, 0, bytemuck::cast_slice(&seeds))?;
        for (rank, stream) in self.streams.iter().enumerate() {
            let fill = |dense, rows, layer| FillValues {
                dense,
                seeds: View::all(&list),
                rows,
                row_words: ROW_WORDS,
                layer,
            };
            for layer in 0..self.shape.layers {
                if let Some((memory, offset)) = self.planes[rank].plane(LayerId::new(layer)) {
                    let dense = View { memory, offset };
                    let job = fill(dense, config.pool.rows(), layer);
                    self.device.fill_values(stream, &job)?;
                }
            }
            let input = &self.inputs[rank];
            let query = fill(View::all(&input.query), attend.rows(), u32::MAX);
            self.device.fill_values(stream, &query)?;
            let new = fill(View::all(&input.new_rows), attend.tokens(), u32::MAX);
            self.device.fill_values(stream, &new)?;
            let event = self.device.event()?;
            self.device.record(&event, stream)?;
            self.device.synchronize(&event)?;
        }
        Ok(())
    }

    /// What a layer of a rank is given.
    pub(super) fn input(&self, rank: usize) -> LayerInput<'_, D> {
        let input = &self.inputs[rank];
        LayerInput {
            query: View::all(&input.query),
            query_strides: self.mla.dense_query_strides(),
            latent: View::all(&input.new_rows),
            latent_stride: ROW_BYTES,
            rope: Some(View::all(&input.new_rows).plus(LATENT as u64 * 2)),
            rope_stride: ROW_BYTES,
        }
    }

    /// Begins a step of all requests, each `less` tokens shorter than its room.
    pub(super) fn begin(&mut self, less: u32, one: bool) -> Result<(), DecodeBenchError> {
        let tokens = u64::from(self.shape.tokens - less.min(self.shape.tokens - 1));
        let queries = self
            .shape
            .queries
            .min(u32::try_from(tokens).unwrap_or(u32::MAX));
        let requests: Vec<_> = self
            .pages
            .iter()
            .map(|pages| StepRequest {
                pages: RequestPages::Pages(pages),
                tokens,
                new_tokens: queries,
            })
            .collect();
        let each = self.streams.clone();
        let streams = pick(&each, one);
        Ok(self
            .mla
            .begin_step(StepKind::Eager, &requests, Vec::new(), &[], streams)?)
    }

    /// Submits a layer.
    pub(super) fn layer(&mut self, layer: u32, one: bool) -> Result<(), DecodeBenchError> {
        let each = self.streams.clone();
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
        let layer = LayerId::new(layer % self.shape.layers);
        Ok(self.mla.layer(layer, &inputs, pick(&each, one))?)
    }

    /// Ends a step, and checks its numbers.
    pub(super) fn end(&mut self, one: bool) -> Result<(), DecodeBenchError> {
        let each = self.streams.clone();
        self.mla.end_step(pick(&each, one))?;
        Ok(self.mla.confirm()?)
    }
}

fn pick<D: Subject>(streams: &[D::Stream], one: bool) -> StepStreams<'_, D> {
    match streams {
        [first, ..] if one => StepStreams::One(first),
        each => StepStreams::Each(each),
    }
}

/// The decode path over pools of `usable` pages beside the sink.
pub(super) fn config(
    shape: BedShape,
    stripe: Stripe,
    usable: u64,
) -> Result<DcpMlaConfig, DecodeBenchError> {
    let refused = |error: &dyn core::fmt::Display| refused(shape, error);
    let row_bytes = RowFormat::Bf16.row_bytes();
    let page = PageGeometry::new(PAGE_ROWS, row_bytes, shape.layers);
    let page = page.map_err(|error| refused(&error))?;
    let rows = (usable + 1) * u64::from(PAGE_ROWS);
    let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows);
    let settings = DecodeSettings {
        exchange: (shape.dcp > 1).then_some(CommBackend::Stream),
        replicate_q_proj: false,
        kernel: AttentionKernel::Auto,
        heads: HeadShards {
            local: shape.heads,
            gathered: shape.heads * shape.dcp,
        },
        format: RowFormat::Bf16,
    };
    let pool = pool.map_err(|error| refused(&error))?;
    Ok(DcpMlaConfig {
        queries: shape.queries,
        max_tokens: shape.tokens.into(),
        mma: shape.mma,
        ..DcpMlaConfig::new(settings, pool, shape.batch, SCALE)
    })
}

pub(super) fn refused(shape: BedShape, error: &dyn core::fmt::Display) -> DecodeBenchError {
    DecodeBenchError::Pool {
        what: format!("{shape:?}"),
        reason: error.to_string(),
    }
}

/// Pages of every request: all but the sink, each once, scattered.
fn pages(config: &DcpMlaConfig, shape: BedShape) -> Vec<Vec<L1Page>> {
    let usable = u64::from(config.pool.usable_pages());
    let each = config.stripe().pages_for(shape.tokens.into());
    // A stride that shares no factor with the number of pages meets every page once.
    let mut stride = STRIDE;
    while shares_a_factor(stride, usable) {
        stride += 1;
    }
    let page = |at: u64| {
        let page = 1 + at.wrapping_mul(stride) % usable.max(1);
        L1Page::new(u32::try_from(page).unwrap_or(1))
    };
    (0..u64::from(shape.batch))
        .map(|request| {
            (0..each)
                .map(|index| page(request * each + index))
                .collect()
        })
        .collect()
}

const fn shares_a_factor(a: u64, b: u64) -> bool {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a > 1
}
