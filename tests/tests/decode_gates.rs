// SPDX-License-Identifier: Apache-2.0
//! Attention behind the gates of real load-backs, in many orders of operations.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use std::sync::Arc;

use striata::core::config::{AttentionKernel, CommBackend, DecodeSettings};
use striata::core::prefix::Namespace;
use striata::core::{
    HeadShards, LayerId, PageGeometry, PoolGeometry, PoolKind, RowFormat, Stripe, TokenPos,
};
use striata::decode::{
    DcpMla, DcpMlaConfig, DecodeError, LayerInput, RequestPages, StepKind, StepRequest, StepStreams,
};
use striata::gpu::Device;
use striata::gpu::decode::{DecodeDevice, FillValues, Rows, ValueDevice, View, WriteRows, WriteTo};
use striata::gpu::sim::{SimConfig, SimDevice, SimMemory, SimScheduler, SimStream};
use striata::gpu::transfer::Submission;
use striata::kernels::decode::{KernelFormat, LANES, LATENT, OutputKind, ROPE, RowScale};
use striata::kernels::reference::DenseAttention;
use striata::kernels::values::RowSeed;
use striata::{Confirm, HiCache, HiCacheSetup, Lease, PlannerConfig, Prefix, Reserve};
use striata_tests::decode::{Results, assert_rows_close, upload};

const DCP: u32 = 2;
const LAYERS: u32 = 3;
const TOKENS: usize = 25;
const SCALE: f32 = 0.285;
const ROW_WORDS: u32 = 288;

struct Bench {
    scheduler: SimScheduler,
    cache: HiCache<SimDevice>,
    streams: Vec<SimStream>,
    mla: DcpMla<SimDevice>,
}

fn seed(token: u32, position: usize) -> RowSeed {
    RowSeed::new(9, position as u64, token)
}

fn prompt(salt: u32) -> Vec<u32> {
    (0..TOKENS as u32).map(|at| salt * 100 + at).collect()
}

fn lanes(seed: RowSeed, layer: u32) -> Vec<f64> {
    (0..LANES as u32)
        .map(|lane| f64::from(seed.value(layer, lane)))
        .collect()
}

impl Bench {
    fn new(order: u64) -> Self {
        let scheduler = SimScheduler::new(order);
        let devices: Vec<_> = (0..DCP)
            .map(|rank| SimDevice::new(SimConfig::stepped(rank, &scheduler)))
            .collect();
        let stripe = Stripe::new(DCP, 4).unwrap();
        let page = PageGeometry::new(4, 1152, LAYERS).unwrap();
        let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 16).unwrap();
        let mut planner = PlannerConfig::new(pool, 16);
        planner.load_back_threshold = 1;
        let mut setup = HiCacheSetup::new(planner);
        setup.transfer.submission = Submission::Manual;
        let cache = HiCache::new(&setup, devices.clone()).unwrap();
        let streams = devices
            .iter()
            .map(|device| device.stream("compute").unwrap())
            .collect();
        let settings = DecodeSettings {
            exchange: Some(CommBackend::Stream),
            replicate_q_proj: false,
            kernel: AttentionKernel::Auto,
            heads: HeadShards {
                local: 2,
                gathered: 4,
            },
            format: RowFormat::Bf16,
        };
        let config = DcpMlaConfig {
            partials: OutputKind::F32,
            outputs: OutputKind::F32,
            ..DcpMlaConfig::new(settings, pool, 1, SCALE)
        };
        let planes: Vec<_> = cache
            .shards()
            .shards()
            .iter()
            .map(|s| Arc::clone(s.planes()))
            .collect();
        let mla = DcpMla::new(config, devices, &planes).unwrap();
        Self {
            scheduler,
            cache,
            streams,
            mla,
        }
    }

    fn reserve(&mut self, tokens: &[u32]) -> Lease {
        let namespace = Namespace::from_digest(3);
        match self
            .cache
            .reserve_blocking(namespace, Prefix::Tokens(tokens))
            .unwrap()
        {
            Reserve::Granted(lease) => lease,
            refused => panic!("{refused:?}"),
        }
    }

    /// Computes a whole prompt: writes its rows in every layer, inserts and stores it.
    fn prefill(&mut self, tokens: &[u32]) {
        let lease = self.reserve(tokens);
        assert_eq!(lease.hit_tokens(), 0);
        self.cache.start_loads().unwrap();
        let stripe = self.cache.stripe();
        let seeds: Vec<_> = tokens.iter().zip(0..).map(|(&t, at)| seed(t, at)).collect();
        let slots: Vec<i64> = (0..TOKENS as u64)
            .map(|at| {
                stripe
                    .slot_at(lease.pages(), TokenPos::new(at))
                    .unwrap()
                    .get() as i64
            })
            .collect();
        for (shard, stream) in self.cache.shards().shards().iter().zip(&self.streams) {
            let device = shard.device();
            let from = upload(device, bytemuck::cast_slice(&seeds));
            let to = upload(device, bytemuck::cast_slice(&slots));
            let faults = upload(device, &[0; 4]);
            for layer in (0..LAYERS).map(LayerId::new) {
                let dense = device.alloc(TOKENS as u64 * 1152).unwrap();
                let fill = FillValues {
                    dense: View::all(&dense),
                    seeds: View::all(&from),
                    rows: TOKENS as u64,
                    row_words: ROW_WORDS,
                    layer: layer.get(),
                };
                device.fill_values(stream, &fill).unwrap();
                let (memory, offset) = shard.planes().plane(layer).unwrap();
                let write = WriteRows {
                    rows: Rows {
                        at: View { memory, offset },
                        format: KernelFormat::Bf16,
                        scale: RowScale::default(),
                        rows: shard.planes().geometry().rows(),
                    },
                    to: WriteTo::Slots {
                        slots: View::all(&to),
                        stripe,
                        rank: shard.dcp_rank(),
                    },
                    tokens: TOKENS as u32,
                    latent: View::all(&dense),
                    latent_stride: 1152,
                    rope: Some(View::all(&dense).plus(LATENT as u64 * 2)),
                    rope_stride: 1152,
                    faults: View::all(&faults),
                };
                device.write_rows(stream, &write).unwrap();
            }
        }
        self.cache.step_end(&self.streams).unwrap();
        assert!(matches!(self.cache.confirm(&lease), Ok(Confirm::Done)));
        self.cache.insert(&lease, TOKENS as u64).unwrap();
        drop(lease);
        self.cache.drain().unwrap();
    }

    /// Decodes the last token of a prompt that only L2 has, behind its gates or not.
    fn decode(&mut self, tokens: &[u32], gated: bool) -> Result<Results, DecodeError> {
        let lease = self.reserve(tokens);
        assert!(lease.hit_tokens_l2() >= 16, "{}", lease.hit_tokens_l2());
        self.cache.start_loads().unwrap();
        if !gated {
            // Nobody who waits at a gate submits the copies.
            while self.cache.pump() {}
        }
        let ranks = 0..DCP as usize;
        let gates = ranks.map(|rank| vec![self.cache.gates(&lease, rank).unwrap()]);
        let gates = if gated { gates.collect() } else { Vec::new() };
        let hit = lease.hit_tokens() as usize;
        assert_eq!(hit, TOKENS - 1);
        let request = StepRequest {
            pages: RequestPages::Pages(lease.pages()),
            tokens: TOKENS as u64,
            new_tokens: 1,
        };
        let streams = StepStreams::Each(&self.streams);
        self.mla
            .begin_step(StepKind::Eager, &[request], gates, &[], streams)?;
        let query_strides = self.mla.dense_query_strides();
        for layer in 0..LAYERS {
            let memories: Vec<[SimMemory; 3]> = self
                .cache
                .shards()
                .shards()
                .iter()
                .map(|shard| self.inputs(shard.device(), tokens, layer))
                .collect();
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
            self.mla.layer(LayerId::new(layer), &inputs, streams)?;
        }
        self.mla.end_step(streams)?;
        self.mla.confirm()?;
        Ok(self.results())
    }

    /// Queries and the new row of a layer; places of padding have the same.
    fn inputs(&self, device: &SimDevice, tokens: &[u32], layer: u32) -> [SimMemory; 3] {
        let shape = self.mla.config().attend_shape();
        let bits = |seed: RowSeed, layer| -> Vec<u16> {
            let half = |lane| (seed.value(layer, lane).to_bits() >> 16) as u16;
            (0..LANES as u32).map(half).collect()
        };
        let heads = u64::from(shape.heads);
        let query: Vec<u16> = (0..shape.rows())
            .flat_map(|row| bits(RowSeed::new(1, row % heads, 0), layer))
            .collect();
        let new = bits(seed(tokens[TOKENS - 1], TOKENS - 1), layer);
        let copies = shape.tokens() as usize;
        [
            upload(device, bytemuck::cast_slice(&query)),
            upload(device, bytemuck::cast_slice(&new[..LATENT].repeat(copies))),
            upload(device, bytemuck::cast_slice(&new[LATENT..].repeat(copies))),
        ]
    }

    /// The first request's merged rows of the last layer, of all heads of the group.
    fn results(&self) -> Results {
        let mut all = Results {
            o: Vec::new(),
            lse: Vec::new(),
        };
        let merged = self.mla.config().merged_rows() as usize;
        for (rank, shard) in self.cache.shards().shards().iter().enumerate() {
            let output = self.mla.output(rank).unwrap();
            let mut values = vec![0f32; merged * (LATENT + 1)];
            let bytes = bytemuck::cast_slice_mut(&mut values);
            shard
                .device()
                .read(output.memory, output.offset, bytes)
                .unwrap();
            all.o.extend(&values[..2 * LATENT]);
            all.lse.extend(&values[merged * LATENT..][..2]);
        }
        all
    }
}

fn truth(tokens: &[u32]) -> (Vec<f64>, Vec<f64>) {
    let layer = LAYERS - 1;
    let queries = (0..4).map(|head| lanes(RowSeed::new(1, head, 0), layer));
    let mut dense = DenseAttention::new(queries, LATENT, f64::from(SCALE));
    for (position, &token) in tokens.iter().enumerate() {
        dense.push(&lanes(seed(token, position), layer), |_| true);
    }
    dense.finish()
}

/// Stores prompt 1, lets prompt 2 take its pages on L1, and decodes prompt 1 from L2.
fn program(order: u64, gated: bool) -> (SimScheduler, Result<Results, DecodeError>) {
    let mut bench = Bench::new(order);
    bench.prefill(&prompt(1));
    bench.prefill(&prompt(2));
    let got = bench.decode(&prompt(1), gated);
    (bench.scheduler.clone(), got)
}

#[test]
fn attention_behind_its_gates_is_right_in_every_order_and_races_without_them() {
    let want = truth(&prompt(1));
    let mut races = 0;
    for order in 0..12 {
        let (scheduler, got) = program(order, true);
        assert_rows_close(&got.unwrap(), &want, 1e-5);
        assert_eq!(scheduler.bugs(), []);
        // The same without its gates reads rows that nothing has ordered.
        let (scheduler, _) = program(order, false);
        races += scheduler.bugs().len();
    }
    assert!(races > 0, "a step that ignores its gates goes unseen");
}
