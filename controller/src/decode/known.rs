// SPDX-License-Identifier: Apache-2.0
//! Known results at start-up, through the plan, the kernels, the exchange and the merge that will
//! serve requests, over a pool of two pages and the sink.
//!
//! A request grows token by token until rank 1 has its first. The rows before score 0 and have the
//! value 0; that row scores ln(8 n) beside n of them and has the value 1. So every head must give
//! 8/9, and ln(9 n) as its log-sum-exp: partials of ln(n) and ln(8 n). A base that is mistaken
//! anywhere, a partial that is lost or taken twice gives another number, which would be plausible
//! but wrong.

use std::sync::Arc;

use striata_core::{L1Page, LayerId, PageGeometry, PoolGeometry, PoolKind};
use striata_gpu::GpuError;
use striata_gpu::decode::{DecodeDevice, View};
use striata_gpu::exchange::StepStreams;
use striata_gpu::planes::{L1Planes, PlanesError};
use striata_kernels::Base;
use striata_kernels::decode::row_codec::{narrow, widen};
use striata_kernels::decode::{KernelFormat, LANES, LATENT, OutputKind, ROPE};

use super::config::{DcpMlaConfig, TableSource};
use super::error::DecodeError;
use super::mla::{DcpMla, LayerInput};
use super::stage::{RequestPages, StepRequest};
use super::step::StepKind;

/// Relative error that rounding to bf16, of queries and of results, leaves room for.
const TOLERANCE: f32 = 6e-3;
/// Factor of the odd row's weight.
const EIGHT: f32 = 8.0;
const LAYER: LayerId = LayerId::new(0);

/// What the steps are given on one rank.
struct Inputs<D: DecodeDevice> {
    query: D::Memory,
    latent: D::Memory,
    rope: D::Memory,
}

/// Computes the known results on `devices`.
///
/// # Errors
/// A result that is wrong, by rank; a device that fails.
pub(super) fn check<D: DecodeDevice>(
    config: &DcpMlaConfig,
    devices: &[D],
) -> Result<(), DecodeError> {
    let config = small(config)?;
    let planes = devices
        .iter()
        .map(|device| L1Planes::alloc(device, config.pool).map(Arc::new));
    let planes: Vec<_> = planes.collect::<Result<_, _>>().map_err(on_device)?;
    let mut mla = DcpMla::unchecked(config, devices.to_vec(), &planes)?;
    let streams = devices.iter().map(|device| device.stream("known"));
    let streams: Vec<_> = streams.collect::<Result<_, _>>()?;
    let unit = unit(&config)?;
    let before = config.stripe().interleave();
    let heavy = (EIGHT * f32::from(u16::try_from(before).unwrap_or(u16::MAX))).ln();
    let inputs = devices
        .iter()
        .map(|device| inputs(&config, device, heavy / (config.scale * unit)));
    let inputs: Vec<_> = inputs.collect::<Result<_, _>>()?;
    for tokens in 1..=before + 1 {
        let odd = tokens > before;
        for (device, inputs) in devices.iter().zip(&inputs) {
            let value = if odd { unit } else { 0.0 };
            put(device, &inputs.latent, value)?;
            put(device, &inputs.rope, value)?;
        }
        step(&mut mla, &inputs, tokens, StepStreams::Each(&streams))?;
        let seen = f32::from(u16::try_from(tokens.min(before)).unwrap_or(u16::MAX));
        let (o, sum) = if odd {
            (unit * EIGHT / (EIGHT + 1.0), seen * (EIGHT + 1.0))
        } else {
            (0.0, seen)
        };
        let lse = match config.base {
            Base::E => sum.ln(),
            Base::Two => sum.log2(),
        };
        for (rank, device) in devices.iter().enumerate() {
            compare(&mla, rank, device, o, lse)?;
        }
    }
    Ok(())
}

/// The same configuration over two usable pages and for one request.
fn small(config: &DcpMlaConfig) -> Result<DcpMlaConfig, DecodeError> {
    let stripe = config.stripe();
    let refused = |reason: String| {
        DecodeError::Device(GpuError::Argument {
            call: "self-test",
            reason,
        })
    };
    let row_bytes = config.format()?.row_bytes();
    let page = PageGeometry::new(stripe.page_rows(), row_bytes, 1);
    let page = page.map_err(|error| refused(error.to_string()))?;
    let rows = 3 * u64::from(stripe.page_rows());
    let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows);
    Ok(DcpMlaConfig {
        pool: pool.map_err(|error| refused(error.to_string()))?,
        max_batch: 2,
        queries: 1,
        max_tokens: 2 * stripe.widened_page(),
        source: TableSource::Pages,
        ..*config
    })
}

/// A value that rows of the format hold exactly beside zeros.
fn unit(config: &DcpMlaConfig) -> Result<f32, DecodeError> {
    Ok(match config.format()? {
        KernelFormat::Fp8Tensor => widen(narrow(64.0 * config.row_scale.0)),
        KernelFormat::Bf16 | KernelFormat::Fp8Row | KernelFormat::Fp8Tile => 1.0,
    })
}

fn inputs<D: DecodeDevice>(
    config: &DcpMlaConfig,
    device: &D,
    query_lane: f32,
) -> Result<Inputs<D>, DecodeError> {
    let shape = config.attend_shape();
    let rows = usize::try_from(shape.rows()).unwrap_or(0);
    // Only the first rotary lane, so that scores and values are told apart.
    let mut query = vec![0u16; rows * LANES];
    for lanes in query.chunks_exact_mut(LANES) {
        lanes[LATENT] = narrow(query_lane);
    }
    let upload = |lanes: &[u16]| -> Result<D::Memory, GpuError> {
        let bytes: &[u8] = bytemuck::cast_slice(lanes);
        let memory = device.alloc(bytes.len() as u64)?;
        device.write(&memory, 0, bytes)?;
        Ok(memory)
    };
    let tokens = usize::try_from(shape.tokens()).unwrap_or(0);
    Ok(Inputs {
        query: upload(&query)?,
        latent: upload(&vec![0; tokens * LATENT])?,
        rope: upload(&vec![0; tokens * ROPE])?,
    })
}

/// Makes `value` the first lane of the first token.
fn put<D: DecodeDevice>(device: &D, memory: &D::Memory, value: f32) -> Result<(), GpuError> {
    let [low, high] = narrow(value).to_le_bytes();
    device.write(memory, 0, &[low, high, 0, 0])
}

fn step<D: DecodeDevice>(
    mla: &mut DcpMla<D>,
    inputs: &[Inputs<D>],
    tokens: u32,
    streams: StepStreams<'_, D>,
) -> Result<(), DecodeError> {
    let request = StepRequest {
        pages: RequestPages::Pages(&[L1Page::new(2), L1Page::new(1)]),
        tokens: tokens.into(),
        new_tokens: 1,
    };
    mla.begin_step(StepKind::Eager, &[request], Vec::new(), &[], streams)?;
    let query_strides = mla.dense_query_strides();
    let inputs: Vec<_> = inputs
        .iter()
        .map(|inputs| LayerInput {
            query: View::all(&inputs.query),
            query_strides,
            latent: View::all(&inputs.latent),
            latent_stride: LATENT as u64 * 2,
            rope: Some(View::all(&inputs.rope)),
            rope_stride: ROPE as u64 * 2,
        })
        .collect();
    mla.layer(LAYER, &inputs, streams)?;
    mla.end_step(streams)?;
    mla.confirm()
}

/// Compares every head of the request, and of the padding behind it.
fn compare<D: DecodeDevice>(
    mla: &DcpMla<D>,
    rank: usize,
    device: &D,
    o: f32,
    lse: f32,
) -> Result<(), DecodeError> {
    let config = mla.config();
    let Some(output) = mla.output(rank) else {
        return Ok(());
    };
    let mut bytes = vec![0u8; usize::try_from(config.merged_bytes()).unwrap_or(0)];
    device.read(output.memory, output.offset, &mut bytes)?;
    let row_bytes = usize::try_from(config.outputs.row_bytes()).unwrap_or(1);
    let rows = usize::try_from(config.merged_rows()).unwrap_or(0);
    let heads = config.settings.heads.local as usize;
    for row in 0..rows {
        let first = &bytes[row * row_bytes..];
        let got = match config.outputs {
            OutputKind::Bf16 => widen(u16::from_le_bytes([first[0], first[1]])),
            OutputKind::F32 => f32::from_le_bytes([first[0], first[1], first[2], first[3]]),
        };
        let tail = &bytes[rows * row_bytes + row * 4..];
        let got_lse = f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        let (o, lse) = if row < heads {
            (o, lse)
        } else {
            (0.0, f32::NEG_INFINITY)
        };
        for (case, got, expected) in [("the output", got, o), ("the log-sum-exp", got_lse, lse)] {
            let room = TOLERANCE * expected.abs().max(TOLERANCE);
            if !(got == expected || (got - expected).abs() <= room) {
                return Err(DecodeError::SelfTest {
                    rank,
                    case,
                    got,
                    expected,
                });
            }
        }
    }
    Ok(())
}

fn on_device(error: PlanesError) -> DecodeError {
    match error {
        PlanesError::Device(error) => error.into(),
        other => DecodeError::Device(GpuError::Argument {
            call: "self-test",
            reason: other.to_string(),
        }),
    }
}
