// SPDX-License-Identifier: Apache-2.0
//! A decode batch over c ranks on one device, whose rows and queries the device makes from seeds.

use std::sync::Arc;

use striata_core::config::{AttentionKernel, CommBackend, DecodeSettings};
use striata_core::{
    HeadShards, L1Page, LayerId, PageGeometry, PoolGeometry, PoolKind, RowFormat, Stripe, TokenPos,
};
use striata_gpu::decode::{
    DecodeDevice, FillValues, Pack, Rows, ValueDevice, View, WriteRows, WriteTo,
};
use striata_gpu::planes::L1Planes;
use striata_gpu::selftest::{Checked, Failure};
use striata_kernels::decode::row_codec::{narrow, widen};
use striata_kernels::decode::{
    AttendShape, KernelFormat, LANES, LATENT, MmaSize, OutputForm, OutputKind, ROPE, RowScale,
};
use striata_kernels::reference::DenseAttention;
use striata_kernels::values::RowSeed;

use crate::decode::{
    DcpMla, DcpMlaConfig, LayerInput, RequestPages, StepKind, StepRequest, StepStreams,
};

/// Factor of the scores: they spread by about 2.5.
const SCALE: f32 = 0.285;
const NAMES: u64 = 0x0064_6563;
const QUERIES: u64 = 0x0071_7279;
const ROW_BYTES: u64 = 1152;
const ROW_WORDS: u32 = 288;

/// A kernel that a device runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub(super) kernel: AttentionKernel,
    pub(super) mma: Option<MmaSize>,
}

/// What a rig is made of.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) dcp: u32,
    /// P.
    pub(super) page_rows: u32,
    /// Heads of a rank.
    pub(super) heads: u32,
    pub(super) queries: u32,
    pub(super) layers: u32,
    /// Most tokens of each request.
    pub(super) room: Vec<usize>,
    pub(super) format: RowFormat,
    pub(super) kernel: AttentionKernel,
    /// Which tensor-core kernels; none: the device's own.
    pub(super) mma: Option<MmaSize>,
    pub(super) exchange: CommBackend,
    /// Type of partial results.
    pub(super) partials: OutputKind,
}

impl Spec {
    /// Pages of 64 rows, one layer and query, 2 heads a rank, bf16 rows, f32 partials.
    pub(super) fn new(dcp: u32, variant: Variant, room: &[usize]) -> Self {
        Self {
            dcp,
            page_rows: 64,
            heads: 2,
            queries: 1,
            layers: 1,
            room: room.to_vec(),
            format: RowFormat::Bf16,
            kernel: variant.kernel,
            mma: variant.mma,
            exchange: CommBackend::Stream,
            partials: OutputKind::F32,
        }
    }

    fn config(&self) -> Result<DcpMlaConfig, Failure> {
        let stripe = Stripe::new(self.dcp, self.page_rows)?;
        let pages: u64 = self.room.iter().map(|&n| stripe.pages_for(n as u64)).sum();
        let page = PageGeometry::new(self.page_rows, self.format.row_bytes(), self.layers)?;
        let rows = (pages + 2) * u64::from(self.page_rows);
        let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows)?;
        let settings = DecodeSettings {
            exchange: (self.dcp > 1).then_some(self.exchange),
            replicate_q_proj: false,
            kernel: self.kernel,
            heads: HeadShards {
                local: self.heads,
                gathered: self.heads * self.dcp,
            },
            format: self.format,
        };
        let most = self.room.iter().copied().max().unwrap_or(1).max(1);
        Ok(DcpMlaConfig {
            queries: self.queries,
            max_tokens: most as u64,
            row_scale: RowScale(1.0 / 256.0),
            partials: self.partials,
            outputs: OutputKind::F32,
            mma: self.mma,
            ..DcpMlaConfig::new(settings, pool, u32::try_from(self.room.len())?, SCALE)
        })
    }
}

/// Buffers of one rank.
struct RankBuffers<D: DecodeDevice> {
    query: D::Memory,
    new_rows: D::Memory,
    /// Seeds of queries, then of new rows.
    seeds: D::Memory,
    /// Merged results, layer by layer.
    kept: D::Memory,
    faults: D::Memory,
}

/// See the module.
pub(super) struct DecodeRig<D: DecodeDevice> {
    spec: Spec,
    device: D,
    pub(super) config: DcpMlaConfig,
    pub(super) mla: DcpMla<D>,
    pub(super) streams: Vec<D::Stream>,
    planes: Vec<Arc<L1Planes<D>>>,
    buffers: Vec<RankBuffers<D>>,
    pages: Vec<Vec<L1Page>>,
    /// Tokens of each request now.
    pub(super) lengths: Vec<usize>,
}

fn upload<D: DecodeDevice>(device: &D, bytes: &[u8]) -> Result<D::Memory, Failure> {
    let memory = device.alloc(bytes.len() as u64)?;
    device.write(&memory, 0, bytes)?;
    Ok(memory)
}

/// The seed of a request's row.
fn row_seed(request: usize, position: usize) -> RowSeed {
    let token = u32::try_from(request).unwrap_or(0);
    RowSeed::new(NAMES, position as u64, token)
}

/// The seed of a query row.
fn query_seed(row: usize) -> RowSeed {
    RowSeed::new(QUERIES, row as u64, 0)
}

impl<D: DecodeDevice + ValueDevice> DecodeRig<D> {
    /// A rig whose pools hold NaN and no row.
    pub(super) fn new(device: &D, spec: Spec) -> Result<Self, Failure> {
        let config = spec.config()?;
        let (stripe, shape) = (config.stripe(), config.attend_shape());
        let mut page = config.pool.pages() - 1;
        let mut pages = Vec::new();
        for &tokens in &spec.room {
            let count = u32::try_from(stripe.pages_for(tokens as u64))?;
            // In descending order, so that a page is not where a run would have it.
            pages.push((0..count).map(|at| L1Page::new(page - 1 - at)).collect());
            page -= count;
        }
        let (mut planes, mut streams, mut buffers) = (Vec::new(), Vec::new(), Vec::new());
        for rank in 0..spec.dcp {
            let plane = L1Planes::alloc(device, config.pool)?;
            let bytes = config.pool.rows() * u64::from(spec.format.row_bytes());
            let poison = vec![0xFF; usize::try_from(bytes)?];
            for layer in (0..spec.layers).map(LayerId::new) {
                if let Some((memory, base)) = plane.plane(layer) {
                    device.write(memory, base, &poison)?;
                }
            }
            planes.push(Arc::new(plane));
            streams.push(device.stream(&format!("decode {rank}"))?);
            let seeds = shape.rows() + shape.tokens();
            let kept = u64::from(spec.layers) * config.merged_bytes();
            buffers.push(RankBuffers {
                query: device.alloc(shape.rows() * ROW_BYTES)?,
                new_rows: device.alloc(shape.tokens() * ROW_BYTES)?,
                seeds: device.alloc(seeds * size_of::<RowSeed>() as u64)?,
                kept: upload(device, &vec![0xFF; usize::try_from(kept)?])?,
                faults: upload(device, &[0; 4])?,
            });
        }
        let devices = (0..spec.dcp).map(|_| device.clone()).collect();
        let lengths = vec![0; spec.room.len()];
        Ok(Self {
            mla: DcpMla::new(config, devices, &planes)?,
            spec,
            device: device.clone(),
            config,
            streams,
            planes,
            buffers,
            pages,
            lengths,
        })
    }

    /// Puts all rows of all layers but those that the next step writes, for these lengths.
    pub(super) fn fill(&mut self, lengths: &[usize]) -> Checked {
        self.lengths = lengths.to_vec();
        let stripe = self.config.stripe();
        let (mut seeds, mut slots) = (Vec::new(), Vec::<i64>::new());
        for (request, &tokens) in lengths.iter().enumerate() {
            let new = tokens.min(self.spec.queries as usize);
            for position in 0..tokens - new {
                seeds.push(row_seed(request, position));
                let at = TokenPos::new(position as u64);
                let slot = stripe.slot_at(&self.pages[request], at);
                slots.push(slot.map_or(-1, |slot| slot.get().cast_signed()));
            }
        }
        if seeds.is_empty() {
            return Ok(());
        }
        let device = &self.device;
        let from = upload(device, bytemuck::cast_slice(&seeds))?;
        let to = upload(device, bytemuck::cast_slice(&slots))?;
        let dense = device.alloc(seeds.len() as u64 * ROW_BYTES)?;
        for (rank, stream) in self.streams.iter().enumerate() {
            for layer in (0..self.spec.layers).map(LayerId::new) {
                let fill = FillValues {
                    dense: View::all(&dense),
                    seeds: View::all(&from),
                    rows: seeds.len() as u64,
                    row_words: ROW_WORDS,
                    layer: layer.get(),
                };
                device.fill_values(stream, &fill)?;
                let write = self.write(rank, layer, &dense, seeds.len())?;
                let slots = View::all(&to);
                let rank_of = striata_core::Rank::new(u32::try_from(rank)?);
                let write = WriteRows {
                    to: WriteTo::Slots {
                        slots,
                        stripe,
                        rank: rank_of,
                    },
                    ..write
                };
                device.write_rows(stream, &write)?;
            }
            // Ranks take turns with the dense rows.
            self.finish(rank)?;
        }
        Ok(())
    }

    fn write<'a>(
        &'a self,
        rank: usize,
        layer: LayerId,
        dense: &'a D::Memory,
        tokens: usize,
    ) -> Result<WriteRows<'a, D>, Failure> {
        let plane = self.planes[rank].plane(layer);
        let (memory, offset) = plane.ok_or(Failure::Wrong("no such layer".to_owned()))?;
        let dense = View::all(dense);
        Ok(WriteRows {
            rows: Rows {
                at: View { memory, offset },
                format: KernelFormat::try_from(self.spec.format)?,
                scale: self.config.row_scale,
                rows: self.config.pool.rows(),
            },
            to: WriteTo::Run { first_row: 0 },
            tokens: u32::try_from(tokens)?,
            latent: dense,
            latent_stride: ROW_BYTES,
            rope: Some(dense.plus(LATENT as u64 * 2)),
            rope_stride: ROW_BYTES,
            faults: View::all(&self.buffers[rank].faults),
        })
    }

    fn finish(&self, rank: usize) -> Checked {
        let event = self.device.event()?;
        self.device.record(&event, &self.streams[rank])?;
        self.device.synchronize(&event)?;
        Ok(())
    }

    /// Begins a step for the lengths of now: seeds of its queries and new rows, and its plan.
    pub(super) fn begin(&mut self, kind: StepKind, streams: StepStreams<'_, D>) -> Checked {
        let shape = self.config.attend_shape();
        let queries = usize::try_from(shape.rows())?;
        let mut seeds: Vec<RowSeed> = (0..queries).map(query_seed).collect();
        for place in 0..shape.batch as usize {
            for query in 0..shape.queries as usize {
                let tokens = self.lengths.get(place).copied().unwrap_or(0);
                let position = (tokens + query).checked_sub(shape.queries as usize);
                seeds.push(position.map_or(query_seed(0), |at| row_seed(place, at)));
            }
        }
        for rank in 0..self.buffers.len() {
            self.finish(rank)?;
            let buffers = &self.buffers[rank];
            self.device
                .write(&buffers.seeds, 0, bytemuck::cast_slice(&seeds))?;
        }
        let requests: Vec<_> = self
            .lengths
            .iter()
            .zip(&self.pages)
            .map(|(&tokens, pages)| StepRequest {
                pages: RequestPages::Pages(pages),
                tokens: tokens as u64,
                new_tokens: self.spec.queries.min(u32::try_from(tokens).unwrap_or(0)),
            })
            .collect();
        self.mla
            .begin_step(kind, &requests, Vec::new(), &[], streams)?;
        Ok(())
    }

    /// Submits every layer, and keeps its results.
    pub(super) fn layers(&mut self, streams: StepStreams<'_, D>) -> Checked {
        let shape = self.config.attend_shape();
        let query_strides = self.mla.dense_query_strides();
        for layer in (0..self.spec.layers).map(LayerId::new) {
            for (rank, buffers) in self.buffers.iter().enumerate() {
                let stream = streams.of(rank)?;
                let seeds = View::all(&buffers.seeds);
                let fill = |dense, seeds, rows| FillValues {
                    dense: View::all(dense),
                    seeds,
                    rows,
                    row_words: ROW_WORDS,
                    layer: layer.get(),
                };
                let device = &self.device;
                device.fill_values(stream, &fill(&buffers.query, seeds, shape.rows()))?;
                let behind = seeds.plus(shape.rows() * size_of::<RowSeed>() as u64);
                device.fill_values(stream, &fill(&buffers.new_rows, behind, shape.tokens()))?;
            }
            let inputs: Vec<_> = self
                .buffers
                .iter()
                .map(|buffers| LayerInput {
                    query: View::all(&buffers.query),
                    query_strides,
                    latent: View::all(&buffers.new_rows),
                    latent_stride: ROW_BYTES,
                    rope: Some(View::all(&buffers.new_rows).plus(LATENT as u64 * 2)),
                    rope_stride: ROW_BYTES,
                })
                .collect();
            self.mla.layer(layer, &inputs, streams)?;
            self.keep(layer, streams)?;
        }
        Ok(())
    }

    /// Copies the merged results of a layer aside: a message to one destination has their form.
    fn keep(&self, layer: LayerId, streams: StepStreams<'_, D>) -> Checked {
        let (shape, rows) = (self.config.attend_shape(), self.config.merged_rows());
        for (rank, buffers) in self.buffers.iter().enumerate() {
            let merged = self.mla.output(rank);
            let messages = merged.ok_or(Failure::Wrong(format!("rank {rank} has no output")))?;
            let o = View::all(&buffers.kept);
            let o = o.plus(u64::from(layer.get()) * self.config.merged_bytes());
            let job = Pack {
                shape: AttendShape {
                    heads: self.spec.heads,
                    ..shape
                },
                form: OutputForm {
                    kind: self.config.outputs,
                    destinations: 1,
                },
                o,
                lse: o.plus(rows * self.config.outputs.row_bytes()),
                messages,
            };
            self.device.unpack(streams.of(rank)?, &job)?;
        }
        Ok(())
    }

    /// Ends a step: what every rank kept, layer by layer, once it is there.
    pub(super) fn end(&mut self, streams: StepStreams<'_, D>) -> Result<Vec<Vec<f32>>, Failure> {
        self.mla.end_step(streams)?;
        self.mla.confirm()?;
        let words = usize::try_from(self.config.merged_bytes() / 4)? * self.spec.layers as usize;
        let mut all = Vec::new();
        for buffers in &self.buffers {
            let mut values = vec![0f32; words];
            let bytes = bytemuck::cast_slice_mut(&mut values);
            self.device.read(&buffers.kept, 0, bytes)?;
            all.push(values);
        }
        Ok(all)
    }

    /// A whole eager step, on a stream for each rank or on one for all.
    pub(super) fn step(&mut self, one: bool) -> Result<Vec<Vec<f32>>, Failure> {
        let each = self.streams.clone();
        let streams = if one {
            StepStreams::One(&each[0])
        } else {
            StepStreams::Each(&each)
        };
        self.begin(StepKind::Eager, streams)?;
        self.layers(streams)?;
        self.end(streams)
    }

    /// Compares what every rank kept with attention over whole requests in f64; `tolerance` is
    /// relative for a row, and absolute for a log-sum-exp.
    pub(super) fn compare(&self, kept: &[Vec<f32>], tolerance: f64) -> Checked {
        for layer in 0..self.spec.layers {
            for place in 0..self.lengths.len() {
                self.compare_place(kept, layer, place, tolerance)?;
            }
        }
        Ok(())
    }

    fn compare_place(
        &self,
        kept: &[Vec<f32>],
        layer: u32,
        place: usize,
        tolerance: f64,
    ) -> Checked {
        let shape = self.config.attend_shape();
        let (queries, heads) = (shape.queries as usize, shape.heads as usize);
        let of_rank = self.spec.heads as usize;
        let rows = queries * heads;
        let lanes = (0..rows).map(|row| lanes(query_seed(place * rows + row), layer));
        let mut dense = DenseAttention::new(lanes, LATENT, f64::from(SCALE));
        let tokens = self.lengths[place];
        for position in 0..tokens {
            let row = self.stored(row_seed(place, position), layer)?;
            dense.push(&row, |row| position + queries <= tokens + row / heads);
        }
        let (o, lse) = dense.finish();
        let merged = usize::try_from(self.config.merged_rows())?;
        let layer_words = usize::try_from(self.config.merged_bytes() / 4)?;
        for (row, (o, lse)) in o.chunks_exact(LATENT).zip(&lse).enumerate() {
            let (query, head) = (row / heads, row % heads);
            let values = &kept[head / of_rank][layer as usize * layer_words..];
            let at = (place * queries + query) * of_rank + head % of_rank;
            let got = &values[at * LATENT..][..LATENT];
            let difference = got.iter().zip(o).map(|(g, w)| (f64::from(*g) - w).powi(2));
            let difference = difference.sum::<f64>().sqrt();
            let norm = o.iter().map(|w| w * w).sum::<f64>().sqrt();
            let got_lse = f64::from(values[merged * LATENT + at]);
            let right = got_lse == *lse || (got_lse - lse).abs() <= tolerance;
            if difference > tolerance * norm || !right || difference.is_nan() {
                return Err(Failure::Wrong(format!(
                    "layer {layer}, request {place} of {tokens} tokens, query {query}, head {head}: \
                     off by {difference} of {norm}, log-sum-exp {got_lse} instead of {lse}"
                )));
            }
        }
        Ok(())
    }

    /// The values of a row as its format holds them.
    fn stored(&self, seed: RowSeed, layer: u32) -> Result<Vec<f64>, Failure> {
        let values = lanes(seed, layer);
        if self.spec.format == RowFormat::Bf16 {
            return Ok(values);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the values are bf16 numbers"
        )]
        let bits: Vec<u16> = values.iter().map(|&value| narrow(value as f32)).collect();
        let (format, scale) = (
            KernelFormat::try_from(self.spec.format)?,
            self.config.row_scale,
        );
        let mut bytes = vec![0; format.row_bytes() as usize];
        let (latent, rope) = bits.split_at(LATENT);
        debug_assert_eq!((rope.len(), widen(bits[0])), (ROPE, widen(latent[0])));
        format.encode(latent, rope, scale, &mut bytes)?;
        let mut back = vec![0f32; LANES];
        format.decode(&bytes, scale, &mut back)?;
        Ok(back.into_iter().map(f64::from).collect())
    }
}

fn lanes(seed: RowSeed, layer: u32) -> Vec<f64> {
    let count = u32::try_from(LANES).unwrap_or(0);
    (0..count)
        .map(|lane| f64::from(seed.value(layer, lane)))
        .collect()
}
