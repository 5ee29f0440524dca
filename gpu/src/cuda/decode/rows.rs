// SPDX-License-Identifier: Apache-2.0
//! New rows into a plane, and rows of a prefix out of it.

use striata_core::{Rank, Stripe};
use striata_kernels::decode::prefix::HostPrefix;
use striata_kernels::decode::write::DestinationKind;
use striata_kernels::decode::{LANES, LATENT, PrefixParams, ROPE, WriteParams};
use striata_kernels::source::Kernel;

use super::{address, aligned, product};
use crate::check;
use crate::cuda::device::CudaDevice;
use crate::cuda::keep::Kept;
use crate::cuda::launch::{Grid, ROW_THREADS, ROW_WARPS, argument, launch};
use crate::cuda::shared::Shared;
use crate::cuda::stream::CudaStream;
use crate::decode::{GatherPrefix, Rows, View, WriteRows, WriteTo};
use crate::error::GpuError;

/// Bytes of bf16 lanes.
const fn bf16(lanes: usize) -> u64 {
    2 * lanes as u64
}

/// The address of a plane.
pub(super) fn plane(
    shared: &Shared,
    what: &'static str,
    rows: &Rows<'_, CudaDevice>,
) -> Result<u64, GpuError> {
    let bytes = product(&[rows.rows, rows.format.row_bytes().into()]);
    address(shared, what, rows.at, bytes)
}

/// The address of `tokens` rows of lanes with a stride.
fn strided(
    shared: &Shared,
    what: &'static str,
    view: View<'_, CudaDevice>,
    tokens: u32,
    stride: u64,
    lanes: usize,
) -> Result<u64, GpuError> {
    aligned(what, stride)?;
    let behind = u64::from(tokens.saturating_sub(1));
    let bytes = product(&[behind, stride]).saturating_add(bf16(lanes));
    address(shared, what, view, if tokens == 0 { 0 } else { bytes })
}

/// Where tokens go: kind, stripe, rank, address of a list, its memory.
struct To<'a> {
    kind: DestinationKind,
    stripe: Stripe,
    rank: Rank,
    list: u64,
    first_row: u64,
    memory: Option<View<'a, CudaDevice>>,
}

fn destination<'a>(shared: &Shared, job: &WriteRows<'a, CudaDevice>) -> Result<To<'a>, GpuError> {
    const CALL: &str = "write_rows";
    let tokens = u64::from(job.tokens);
    match job.to {
        WriteTo::Plan(plan) => {
            let of_plan = plan.shape.attend.tokens();
            if tokens != of_plan {
                let reason = format!("{tokens} tokens are given and the plan has {of_plan}");
                return Err(GpuError::Argument { call: CALL, reason });
            }
            let view = View {
                memory: &plan.memory,
                offset: plan.layout.rows,
            };
            Ok(To {
                kind: DestinationKind::Rows,
                stripe: plan.shape.stripe,
                rank: plan.shape.rank,
                list: address(shared, "write_rows: the plan", view, tokens * check::WORD)?,
                first_row: 0,
                memory: Some(view),
            })
        }
        WriteTo::Slots {
            slots,
            stripe,
            rank,
        } => {
            let inside = stripe.check_rank(rank);
            inside.map_err(|error| GpuError::Argument {
                call: CALL,
                reason: error.to_string(),
            })?;
            Ok(To {
                kind: DestinationKind::Slots,
                stripe,
                rank,
                list: address(shared, "write_rows: the slots", slots, tokens * 8)?,
                first_row: 0,
                memory: Some(slots),
            })
        }
        WriteTo::Run { first_row } => {
            let stripe = Stripe::new(1, 1);
            let stripe = stripe.map_err(|error| GpuError::Argument {
                call: CALL,
                reason: error.to_string(),
            })?;
            Ok(To {
                kind: DestinationKind::Run,
                stripe,
                rank: Rank::new(0),
                list: 0,
                first_row,
                memory: None,
            })
        }
    }
}

pub(super) fn write(stream: &CudaStream, job: &WriteRows<'_, CudaDevice>) -> Result<(), GpuError> {
    let shared = stream.owner();
    let plane = plane(shared, "write_rows: the plane", &job.rows)?;
    let (tokens, stride) = (job.tokens, job.latent_stride);
    let what = "write_rows: the latent lanes";
    let latent = strided(shared, what, job.latent, tokens, stride, LATENT)?;
    let rope = match job.rope {
        Some(view) => {
            let what = "write_rows: the rotary lanes";
            strided(shared, what, view, tokens, job.rope_stride, ROPE)?
        }
        None => 0,
    };
    let faults = address(
        shared,
        "write_rows: the fault word",
        job.faults,
        check::WORD,
    )?;
    let to = destination(shared, job)?;
    if tokens == 0 {
        return Ok(());
    }
    let _scope = stream.enter_launch("write_rows")?;
    let views = [
        Some(job.rows.at),
        Some(job.latent),
        job.rope,
        to.memory,
        Some(job.faults),
    ];
    let views = views.into_iter().flatten();
    let kept: Vec<Kept> = views
        .map(|view| Kept::Memory(view.memory.clone()))
        .collect();
    stream.submit(&kept, || {
        let mut params = WriteParams {
            stripe: to.stripe.into(),
            rank: to.rank.get(),
            tokens,
            format: job.rows.format as u32,
            destination: to.kind as u32,
            scale_bits: job.rows.scale.0.to_bits(),
            rows: job.rows.rows,
            first_row: to.first_row,
            latent_stride: job.latent_stride,
            rope_stride: job.rope_stride,
        };
        let (mut plane, mut latent, mut rope) = (plane, latent, rope);
        let (mut list, mut faults) = (to.list, faults);
        let grid = Grid::over(shared, tokens.into(), ROW_WARPS, ROW_THREADS);
        let mut arguments = [
            argument(&mut params),
            argument(&mut plane),
            argument(&mut latent),
            argument(&mut rope),
            argument(&mut list),
            argument(&mut faults),
        ];
        // SAFETY: (7) tokens and plane lie in their memories, and the kernel checks each row
        // against the plane; (9) twin of `striata_write_rows`.
        unsafe { launch(shared, stream, Kernel::WriteRows, grid, &mut arguments) }
    })
}

pub(super) fn gather_prefix(
    stream: &CudaStream,
    job: &GatherPrefix<'_, CudaDevice>,
) -> Result<(), GpuError> {
    const CALL: &str = "gather_prefix";
    let shared = stream.owner();
    let refuse = |reason: String| GpuError::Argument { call: CALL, reason };
    job.stripe
        .check_rank(job.rank)
        .map_err(|error| refuse(error.to_string()))?;
    if job.kernel_rows == 0
        || job
            .start
            .checked_add(job.tokens)
            .is_none_or(|end| end >> 62 != 0)
    {
        let (rows, start, tokens) = (job.kernel_rows, job.start, job.tokens);
        return Err(refuse(format!(
            "kernel pages of {rows} rows, {tokens} tokens from {start}: outside what can be counted"
        )));
    }
    let room = HostPrefix {
        stripe: job.stripe,
        rank: job.rank,
        format: job.rows.format,
        scale: job.rows.scale,
        kernel_rows: job.kernel_rows,
        plane: &[],
        cells: &[],
        start: job.start,
        tokens: job.tokens,
        packed: job.packed,
    };
    let (rows, room) = (room.rows(), room.room());
    let plane = plane(shared, "gather_prefix: the plane", &job.rows)?;
    let cells = address(
        shared,
        "gather_prefix: the cells",
        job.cells,
        product(&[job.width.into(), 4]),
    )?;
    let bytes = product(&[room, bf16(LANES)]);
    let out = address(shared, "gather_prefix: the rows", job.out, bytes)?;
    if rows == 0 {
        return Ok(());
    }
    let _scope = stream.enter_launch(CALL)?;
    let kept = [job.rows.at, job.cells, job.out].map(|view| Kept::Memory(view.memory.clone()));
    stream.submit(&kept, || {
        let pages = job.rows.rows / u64::from(job.kernel_rows);
        let mut params = PrefixParams {
            stripe: job.stripe.into(),
            rank: job.rank.get(),
            format: job.rows.format as u32,
            scale_bits: job.rows.scale.0.to_bits(),
            kernel_rows: job.kernel_rows,
            kernel_pages: u32::try_from(pages).unwrap_or(u32::MAX),
            width: job.width,
            packed: u32::from(job.packed),
            start: job.start,
            tokens: job.tokens,
        };
        let (mut plane, mut cells, mut out) = (plane, cells, out);
        let grid = Grid::over(shared, rows, ROW_WARPS, ROW_THREADS);
        let mut list = [
            argument(&mut params),
            argument(&mut plane),
            argument(&mut cells),
            argument(&mut out),
        ];
        // SAFETY: (7) the kernel reads pages below `kernel_pages` and cells below the width, and
        // the result has room for every row; (9) twin of `striata_gather_prefix`.
        unsafe { launch(shared, stream, Kernel::GatherPrefix, grid, &mut list) }
    })
}
