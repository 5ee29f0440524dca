// SPDX-License-Identifier: Apache-2.0
//! A decode batch on simulated devices: rows scattered over the pools of all ranks, steps through
//! `DcpMla`, and what attention over the whole sequences gives.
#![allow(
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    reason = "fixtures: sizes are small, a panic fails the test"
)]

use std::sync::Arc;

use striata::core::config::{AttentionKernel, CommBackend, DecodeSettings};
use striata::core::{
    HeadShards, L1Page, LayerId, PageGeometry, PoolGeometry, PoolKind, Rank, RowFormat, Stripe,
    TokenPos,
};
use striata::decode::{
    DcpMla, DcpMlaConfig, DecodeError, LayerInput, RequestPages, StepKind, StepRequest, StepStreams,
};
use striata::gpu::Device;
use striata::gpu::decode::{Attend, DecodeDevice, Rows, View};
use striata::gpu::planes::L1Planes;
use striata::gpu::sim::{SimConfig, SimDevice, SimMemory, SimStream};
use striata::kernels::decode::row_codec::{narrow, widen};
use striata::kernels::decode::{
    AttendKernel, KernelFormat, LANES, LATENT, OutputForm, OutputKind, ROPE, RowScale,
};
use striata::kernels::reference::DenseAttention;

use crate::mla::noise;

/// The only layer of the pools.
pub const LAYER: LayerId = LayerId::new(0);

/// What a rig is made of.
#[derive(Clone, Debug)]
pub struct RigSpec {
    /// c, P and I.
    pub stripe: Stripe,
    /// H, heads of a rank.
    pub heads: u32,
    /// s_q.
    pub queries: u32,
    /// Tokens of each request.
    pub lengths: Vec<usize>,
    /// How rows are stored.
    pub format: RowFormat,
    /// Bits that stand wherever no token stands, in every lane of 16 bits.
    pub poison: u16,
    /// How partial results cross.
    pub exchange: CommBackend,
}

impl RigSpec {
    /// One query, two heads a rank, bf16 rows among NaN, streams.
    #[must_use]
    pub fn new(stripe: Stripe, lengths: &[usize]) -> Self {
        Self {
            stripe,
            heads: 2,
            queries: 1,
            lengths: lengths.to_vec(),
            format: RowFormat::Bf16,
            poison: 0x7FFF,
            exchange: CommBackend::Stream,
        }
    }

    /// The configuration of the path, with results in f32.
    #[must_use]
    pub fn config(&self) -> DcpMlaConfig {
        let stripe = self.stripe;
        let most = self.lengths.iter().copied().max().unwrap_or(0).max(1) as u64;
        let pages: u64 = self
            .lengths
            .iter()
            .map(|&n| stripe.pages_for(n as u64))
            .sum();
        let page = PageGeometry::new(stripe.page_rows(), self.format.row_bytes(), 1).unwrap();
        // The sink, the pages of all requests and one that nobody has.
        let rows = (pages + 2) * u64::from(stripe.page_rows());
        let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows).unwrap();
        let settings = DecodeSettings {
            exchange: (!stripe.is_identity()).then_some(self.exchange),
            replicate_q_proj: false,
            kernel: AttentionKernel::Auto,
            heads: HeadShards {
                local: self.heads,
                gathered: self.heads * stripe.dcp(),
            },
            format: self.format,
        };
        let batch = self.lengths.len().max(1) as u32;
        DcpMlaConfig {
            queries: self.queries,
            max_tokens: most,
            row_scale: RowScale(1.0 / 128.0),
            partials: OutputKind::F32,
            outputs: OutputKind::F32,
            ..DcpMlaConfig::new(settings, pool, batch, 0.06)
        }
    }
}

/// A batch and its pools.
#[derive(Debug)]
pub struct Rig {
    /// What it is made of.
    pub spec: RigSpec,
    /// The configuration of `mla`.
    pub config: DcpMlaConfig,
    /// A device a rank.
    pub devices: Vec<SimDevice>,
    /// A pool a rank.
    pub planes: Vec<Arc<L1Planes<SimDevice>>>,
    /// A stream a rank.
    pub streams: Vec<SimStream>,
    /// The path.
    pub mla: DcpMla<SimDevice>,
    /// Pages of each request, in descending order of id.
    pub pages: Vec<Vec<L1Page>>,
    /// Lanes of each request's rows, bits of bf16. Shape of one: \[tokens\]\[576\].
    pub rows: Vec<Vec<u16>>,
    /// Shape: \[B\]\[s_q\]\[H * c\]\[576\], bits of bf16, the padding of the batch included.
    pub query: Vec<u16>,
}

/// Merged results of the whole group.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Shape: \[B\]\[s_q\]\[H * c\]\[512\].
    pub o: Vec<f32>,
    /// Shape: \[B\]\[s_q\]\[H * c\].
    pub lse: Vec<f32>,
}

impl Results {
    /// The bits, so that NaN and signs of zero count.
    #[must_use]
    pub fn bits(&self) -> Vec<u32> {
        self.o
            .iter()
            .chain(&self.lse)
            .map(|x| x.to_bits())
            .collect()
    }
}

impl Rig {
    /// A rig of random values.
    #[must_use]
    pub fn new(spec: RigSpec, seed: u64) -> Self {
        let config = spec.config();
        Self::with_config(spec, config, seed)
    }

    /// A rig whose configuration is changed.
    #[must_use]
    pub fn with_config(spec: RigSpec, config: DcpMlaConfig, seed: u64) -> Self {
        let stripe = spec.stripe;
        let devices: Vec<_> = (0..stripe.dcp())
            .map(|rank| SimDevice::new(SimConfig::new(rank)))
            .collect();
        let mut next = noise(seed);
        let mut lanes =
            |count: usize| -> Vec<u16> { (0..count).map(|_| narrow(next() as f32)).collect() };
        let rows: Vec<Vec<u16>> = spec.lengths.iter().map(|&n| lanes(n * LANES)).collect();
        let query = lanes(config.attend_shape().rows() as usize * LANES);
        let mut id = config.pool.pages() - 1;
        let mut take = |tokens: usize| -> Vec<L1Page> {
            let count = stripe.pages_for(tokens as u64);
            (0..count)
                .map(|_| {
                    id -= 1;
                    L1Page::new(id)
                })
                .collect()
        };
        let pages = spec.lengths.iter().map(|&n| take(n)).collect();
        let planes: Vec<_> = devices
            .iter()
            .map(|device| Arc::new(L1Planes::alloc(device, config.pool).unwrap()))
            .collect();
        let streams = devices
            .iter()
            .map(|device| device.stream("compute").unwrap());
        let streams = streams.collect();
        let mla = DcpMla::new(config, devices.clone(), &planes).unwrap();
        let mut rig = Self {
            spec,
            config,
            devices,
            planes,
            streams,
            mla,
            pages,
            rows,
            query,
        };
        rig.fill();
        rig
    }

    /// Poisons the pools and puts every row there but those that a step will write.
    pub fn fill(&mut self) {
        let bytes = self.config.pool.rows() * u64::from(self.spec.format.row_bytes());
        let poison: Vec<u8> = self.spec.poison.to_le_bytes().repeat(bytes as usize / 2);
        for rank in 0..self.devices.len() {
            let (memory, base) = self.planes[rank].plane(LAYER).unwrap();
            self.devices[rank].write(memory, base, &poison).unwrap();
        }
        for request in 0..self.rows.len() {
            let old = self.tokens(request) - self.new_tokens(request) as usize;
            for position in 0..old {
                self.put_row(request, position);
            }
        }
    }

    /// Puts a row where it belongs.
    pub fn put_row(&self, request: usize, position: usize) {
        let stripe = self.spec.stripe;
        let position_of = TokenPos::new(position as u64);
        let slot = stripe.slot_at(&self.pages[request], position_of).unwrap();
        let rank = stripe.owner_of_slot(slot).get() as usize;
        let row_bytes = u64::from(self.spec.format.row_bytes());
        let at = stripe.row_on_owner(slot).get() * row_bytes;
        let (memory, base) = self.planes[rank].plane(LAYER).unwrap();
        let bytes = self.stored(request, position);
        self.devices[rank].write(memory, base + at, &bytes).unwrap();
    }

    fn format(&self) -> KernelFormat {
        KernelFormat::try_from(self.spec.format).unwrap()
    }

    fn stored(&self, request: usize, position: usize) -> Vec<u8> {
        let lanes = &self.rows[request][position * LANES..][..LANES];
        let mut bytes = vec![0; self.spec.format.row_bytes() as usize];
        let (latent, rope) = lanes.split_at(LATENT);
        let scale = self.config.row_scale;
        self.format()
            .encode(latent, rope, scale, &mut bytes)
            .unwrap();
        bytes
    }

    /// Tokens of a request.
    #[must_use]
    pub fn tokens(&self, request: usize) -> usize {
        self.rows[request].len() / LANES
    }

    /// New tokens of a request in a step.
    #[must_use]
    pub fn new_tokens(&self, request: usize) -> u32 {
        self.spec.queries.min(self.tokens(request) as u32)
    }

    /// The requests of a step.
    #[must_use]
    pub fn requests(&self) -> Vec<StepRequest<'_>> {
        (0..self.rows.len())
            .map(|request| StepRequest {
                pages: RequestPages::Pages(&self.pages[request]),
                tokens: self.tokens(request) as u64,
                new_tokens: self.new_tokens(request),
            })
            .collect()
    }

    /// Latent and rotary lanes of the new tokens, one for each query of each place.
    #[must_use]
    pub fn new_lanes(&self) -> (Vec<u16>, Vec<u16>) {
        let shape = self.config.attend_shape();
        let (mut latent, mut rope) = (Vec::new(), Vec::new());
        for place in 0..shape.batch as usize {
            for query in 0..shape.queries as usize {
                let tokens = self.rows.get(place).map_or(0, |rows| rows.len() / LANES);
                let behind = shape.queries as usize - query;
                // A token that is not there must not be written: its lanes are NaN.
                let lanes = match tokens.checked_sub(behind) {
                    Some(position) => self.rows[place][position * LANES..][..LANES].to_vec(),
                    None => vec![0x7FFF; LANES],
                };
                latent.extend_from_slice(&lanes[..LATENT]);
                rope.extend_from_slice(&lanes[LATENT..]);
            }
        }
        (latent, rope)
    }

    /// Runs a step with every rank on its own stream.
    ///
    /// # Errors
    /// What the path refuses or finds.
    pub fn step(&mut self, kind: StepKind) -> Result<Results, DecodeError> {
        let queries = vec![self.query.clone(); self.devices.len()];
        self.step_with(kind, &queries, false)
    }

    /// Runs a step with these queries on each rank; on one stream for all ranks if `one`.
    ///
    /// # Errors
    /// What the path refuses or finds.
    pub fn step_with(
        &mut self,
        kind: StepKind,
        queries: &[Vec<u16>],
        one: bool,
    ) -> Result<Results, DecodeError> {
        let (latent, rope) = self.new_lanes();
        let memories: Vec<[SimMemory; 3]> = self
            .devices
            .iter()
            .zip(queries)
            .map(|(device, query)| {
                [
                    upload(device, bytemuck::cast_slice(query)),
                    upload(device, bytemuck::cast_slice(&latent)),
                    upload(device, bytemuck::cast_slice(&rope)),
                ]
            })
            .collect();
        let query_strides = self.mla.dense_query_strides();
        let inputs: Vec<_> = memories
            .iter()
            .map(|[query, latent, rope]| LayerInput {
                query: View::all(query),
                query_strides,
                latent: View::all(latent),
                latent_stride: LATENT as u64 * 2,
                rope: Some(View::all(rope)),
                rope_stride: ROPE as u64 * 2,
            })
            .collect();
        let each = self.streams.clone();
        let streams = if one {
            StepStreams::One(&each[0])
        } else {
            StepStreams::Each(&each)
        };
        let pages = self.pages.clone();
        let requests: Vec<_> = pages
            .iter()
            .zip(self.requests())
            .map(|(pages, request)| StepRequest {
                pages: RequestPages::Pages(pages),
                tokens: request.tokens,
                new_tokens: request.new_tokens,
            })
            .collect();
        self.mla
            .begin_step(kind, &requests, Vec::new(), &[], streams)?;
        self.mla.layer(LAYER, &inputs, streams)?;
        self.mla.end_step(streams)?;
        self.mla.confirm()?;
        Ok(self.results())
    }

    /// Fills every rank's results with NaN.
    pub fn poison_results(&self) {
        let bytes = vec![0xFF; self.config.merged_bytes() as usize];
        for (rank, device) in self.devices.iter().enumerate() {
            let output = self.mla.output(rank).unwrap();
            device.write(output.memory, output.offset, &bytes).unwrap();
        }
    }

    /// What the ranks hold of the last step, as one group.
    #[must_use]
    pub fn results(&self) -> Results {
        let shape = self.config.attend_shape();
        let (ranks, heads) = (self.devices.len(), self.spec.heads as usize);
        let rows = shape.rows() as usize;
        let mut all = Results {
            o: vec![f32::NAN; rows * LATENT],
            lse: vec![f32::NAN; rows],
        };
        for (rank, device) in self.devices.iter().enumerate() {
            let output = self.mla.output(rank).unwrap();
            let mut values = vec![0f32; self.config.merged_bytes() as usize / 4];
            let bytes = bytemuck::cast_slice_mut(&mut values);
            device.read(output.memory, output.offset, bytes).unwrap();
            let merged = self.config.merged_rows() as usize;
            for row in 0..merged {
                let to = row / heads * heads * ranks + rank * heads + row % heads;
                let from = &values[row * LATENT..][..LATENT];
                all.o[to * LATENT..][..LATENT].copy_from_slice(from);
                all.lse[to] = values[merged * LATENT + row];
            }
        }
        all
    }

    /// The partial results of one rank in the step that ran last, of all heads of the group and
    /// before any exchange.
    #[must_use]
    pub fn partials(&self, rank: usize) -> Results {
        let (device, stream) = (&self.devices[rank], &self.streams[rank]);
        let plan = self.mla.plan(rank).unwrap();
        let form = OutputForm {
            kind: OutputKind::F32,
            destinations: 1,
        };
        let shape = self.config.attend_shape();
        let output = upload(device, &vec![0xFF; form.bytes(shape).unwrap() as usize]);
        let query = upload(device, bytemuck::cast_slice(&self.query));
        let (memory, offset) = self.planes[rank].plane(LAYER).unwrap();
        let job = Attend {
            kernel: AttendKernel::Simt,
            plan,
            rows: Rows {
                at: View { memory, offset },
                format: self.format(),
                scale: self.config.row_scale,
                rows: self.config.pool.rows(),
            },
            query: View::all(&query),
            query_strides: self.mla.dense_query_strides(),
            scale: self.config.scale,
            base: self.config.base,
            form,
            output: View::all(&output),
            workspace: View::all(&output),
            tally: None,
        };
        device.attend(stream, &job).unwrap();
        let event = device.event().unwrap();
        device.record(&event, stream).unwrap();
        device.synchronize(&event).unwrap();
        let rows = shape.rows() as usize;
        let mut values = vec![0f32; rows * (LATENT + 1)];
        device
            .read(&output, 0, bytemuck::cast_slice_mut(&mut values))
            .unwrap();
        let lse = values.split_off(rows * LATENT);
        Results { o: values, lse }
    }

    /// Natural attention over whole sequences, in f64: outputs and log-sum-exps as in [`Results`].
    #[must_use]
    pub fn dense(&self) -> (Vec<f64>, Vec<f64>) {
        let shape = self.config.attend_shape();
        let (queries, heads) = (shape.queries as usize, shape.heads as usize);
        let per_request = queries * heads * LANES;
        let (mut o, mut lse) = (Vec::new(), Vec::new());
        for (place, query) in self.query.chunks_exact(per_request).enumerate() {
            let lanes = query.chunks_exact(LANES).map(numbers);
            let scale = f64::from(self.config.scale);
            let mut dense = DenseAttention::new(lanes, LATENT, scale);
            let tokens = self.rows.get(place).map_or(0, |rows| rows.len() / LANES);
            let mut values = vec![0f32; LANES];
            for position in 0..tokens {
                let stored = self.stored(place, position);
                let scale = self.config.row_scale;
                self.format().decode(&stored, scale, &mut values).unwrap();
                let row: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
                dense.push(&row, |row| position + queries <= tokens + row / heads);
            }
            let (of_request, lse_of_request) = dense.finish();
            o.extend(of_request);
            lse.extend(lse_of_request);
        }
        (o, lse)
    }
}

/// The values of bf16 lanes.
#[must_use]
pub fn numbers(lanes: &[u16]) -> Vec<f64> {
    lanes.iter().map(|&bits| f64::from(widen(bits))).collect()
}

/// Puts bytes on a device.
#[must_use]
pub fn upload(device: &SimDevice, bytes: &[u8]) -> SimMemory {
    let memory = device.alloc(bytes.len() as u64).unwrap();
    device.write(&memory, 0, bytes).unwrap();
    memory
}

/// Relative L2 error of every row of 512 lanes, and of log-sum-exps absolutely.
pub fn assert_rows_close(got: &Results, (o, lse): &(Vec<f64>, Vec<f64>), tolerance: f64) {
    assert_eq!((got.o.len(), got.lse.len()), (o.len(), lse.len()));
    let rows = got.o.chunks_exact(LATENT).zip(o.chunks_exact(LATENT));
    for (row, (got, want)) in rows.enumerate() {
        let error: f64 = got
            .iter()
            .zip(want)
            .map(|(g, w)| (f64::from(*g) - w).powi(2))
            .sum();
        let norm: f64 = want.iter().map(|w| w * w).sum();
        let (error, norm) = (error.sqrt(), norm.sqrt());
        assert!(
            error <= tolerance * norm,
            "row {row}: off by {error} of {norm}"
        );
    }
    for (row, (got, want)) in got.lse.iter().zip(lse).enumerate() {
        let got = f64::from(*got);
        let close = got == *want || (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(close, "log-sum-exp of row {row}: {got} instead of {want}");
    }
}

/// The rank of a number, for loops.
#[must_use]
pub const fn rank(index: u32) -> Rank {
    Rank::new(index)
}
