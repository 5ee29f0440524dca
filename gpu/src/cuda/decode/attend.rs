// SPDX-License-Identifier: Apache-2.0
//! Attention of one rank.

use striata_kernels::Base;
use striata_kernels::decode::{
    AttendKernel, AttendParams, KernelFormat, LANES, MergeTally, Schedule, WorkWords,
};
use striata_kernels::source::Kernel;

use super::rows::plane;
use super::{address, aligned, fits, product};
use crate::cuda::device::CudaDevice;
use crate::cuda::keep::Kept;
use crate::cuda::launch::{Grid, ROW_THREADS, ROW_WARPS, argument, launch};
use crate::cuda::shared::Shared;
use crate::cuda::stream::CudaStream;
use crate::decode::{Attend, View, refused};
use crate::error::GpuError;

const CALL: &str = "attend";
const SIMT_THREADS: u32 = 128;
const SIMT_WARPS: u32 = SIMT_THREADS / 32;
const MMA_THREADS: u32 = 256;

/// The tensor-core kernel for a format and a division.
fn kernel(format: KernelFormat, schedule: Schedule) -> Result<Kernel, GpuError> {
    let (size, rows) = (schedule.size, schedule.block_rows);
    let there = size.block_rows();
    match there.iter().position(|of_kernel| *of_kernel == rows) {
        Some(at) => Ok(Kernel::attend(size, format, at > 0)),
        None => Err(GpuError::Argument {
            call: CALL,
            reason: format!(
                "no {size} kernel has blocks of {rows} query rows; {there:?} are there"
            ),
        }),
    }
}

/// Checks queries and returns their address.
fn query(shared: &Shared, job: &Attend<'_, CudaDevice>) -> Result<u64, GpuError> {
    let shape = job.plan.shape.attend;
    let counts = [shape.batch, shape.queries, shape.heads];
    let mut bytes = 2 * LANES as u64;
    for (count, stride) in counts.into_iter().zip(job.query_strides) {
        aligned("attend: a stride of the queries", stride)?;
        let behind = u64::from(count.saturating_sub(1));
        bytes = bytes.saturating_add(product(&[behind, stride]));
    }
    address(shared, "attend: the queries", job.query, bytes)
}

fn params(job: &Attend<'_, CudaDevice>) -> Result<AttendParams, GpuError> {
    let (plan, shape) = (&job.plan.shape, job.plan.shape.attend);
    let message = job.form.message_bytes(shape);
    let message = message.map_err(|error| refused(CALL, &error))?;
    let stride = job.form.message_stride(shape);
    let stride = stride.map_err(|error| refused(CALL, &error))?;
    // Outputs, then log-sum-exps of 4 bytes each.
    let row = job.form.kind.row_bytes();
    let rows = message / (row + 4);
    let pages = job.rows.rows / u64::from(plan.kernel_rows);
    let [query_request, query_token, query_head] = job.query_strides;
    Ok(AttendParams {
        stripe: plan.stripe.into(),
        rank: plan.rank.get(),
        batch: shape.batch,
        queries: shape.queries,
        heads: shape.heads,
        kernel_rows: plan.kernel_rows,
        width: plan.width,
        kernel_pages: u32::try_from(pages).unwrap_or(u32::MAX),
        message_heads: u32::try_from(rows / shape.tokens()).unwrap_or(0),
        output: job.form.kind as u32,
        base_two: u32::from(job.base == Base::Two),
        scale_log2_bits: (job.scale * core::f32::consts::LOG2_E).to_bits(),
        row_scale_bits: job.rows.scale.0.to_bits(),
        block_rows: plan.schedule.block_rows,
        query_request,
        query_token,
        query_head,
        message_stride: stride,
        lse_offset: rows * row,
    })
}

/// Checks everything and returns the addresses.
fn work(shared: &Shared, job: &Attend<'_, CudaDevice>) -> Result<WorkWords, GpuError> {
    let (plan, layout) = (job.plan, &job.plan.layout);
    plan.shape.check().map_err(|error| refused(CALL, &error))?;
    let bytes = job.form.bytes(plan.shape.attend);
    let bytes = bytes.map_err(|error| refused(CALL, &error))?;
    let at = address(
        shared,
        "attend: the plan",
        View::all(&plan.memory),
        layout.bytes,
    )?;
    let (pieces, piece_lses) = match job.kernel {
        AttendKernel::Simt => (0, 0),
        AttendKernel::Mma => {
            let schedule = plan.shape.schedule;
            let what = "attend: the workspace";
            let pieces = address(shared, what, job.workspace, schedule.workspace_bytes())?;
            let rows = schedule.most_pieces() * schedule.padded_rows();
            (pieces, pieces + rows * piece_row_bytes())
        }
    };
    Ok(WorkWords {
        query: query(shared, job)?,
        plane: plane(shared, "attend: the plane", &job.rows)?,
        cells: at + layout.cells,
        local_lens: at + layout.local_lens,
        global_lens: at + layout.global_lens,
        starts: at + layout.starts,
        cuts: at + layout.cuts,
        output: address(shared, "attend: the outputs", job.output, bytes)?,
        pieces,
        piece_lses,
        tally: match job.tally {
            None => 0,
            Some(view) => {
                let what = "attend: the tally";
                address(shared, what, view, size_of::<MergeTally>() as u64)?
            }
        },
        format: job.rows.format as u32,
        unused: 0,
    })
}

/// Bytes of a piece's row of outputs.
const fn piece_row_bytes() -> u64 {
    striata_kernels::decode::OutputKind::F32.row_bytes()
}

pub(super) fn attend(stream: &CudaStream, job: &Attend<'_, CudaDevice>) -> Result<(), GpuError> {
    let shared = stream.owner();
    let (params, work) = (params(job)?, work(shared, job)?);
    let schedule = job.plan.shape.schedule;
    let tensor = match job.kernel {
        AttendKernel::Simt => None,
        AttendKernel::Mma => Some(kernel(job.rows.format, schedule)?),
    };
    if let Some(kernel) = tensor {
        fits(shared, CALL, kernel)?;
    }
    let _scope = stream.enter_launch(CALL)?;
    let owners = [
        job.query.memory,
        job.rows.at.memory,
        &job.plan.memory,
        job.output.memory,
        job.workspace.memory,
    ];
    let owners = owners.into_iter().chain(job.tally.map(|view| view.memory));
    let kept: Vec<Kept> = owners.map(|memory| Kept::Memory(memory.clone())).collect();
    stream.submit(&kept, || match tensor {
        None => simt(shared, stream, params, work),
        Some(kernel) => {
            let grid = Grid {
                x: schedule.blocks,
                y: schedule.parts,
                threads: MMA_THREADS,
            };
            mma(shared, stream, kernel, grid, params, work)
        }
    })
}

fn simt(
    shared: &Shared,
    stream: &CudaStream,
    mut params: AttendParams,
    mut work: WorkWords,
) -> Result<(), GpuError> {
    let rows = product(&[
        params.batch.into(),
        params.queries.into(),
        params.heads.into(),
    ]);
    let grid = Grid::over(shared, rows, SIMT_WARPS, SIMT_THREADS);
    let mut list = [
        argument(&mut params),
        argument(&mut work.format),
        argument(&mut work.query),
        argument(&mut work.plane),
        argument(&mut work.cells),
        argument(&mut work.local_lens),
        argument(&mut work.global_lens),
        argument(&mut work.output),
        argument(&mut work.tally),
    ];
    // SAFETY: (7) everything was checked, and the kernel reads pages below `kernel_pages` only;
    // (9) twin of `striata_attend_simt`.
    unsafe { launch(shared, stream, Kernel::AttendSimt, grid, &mut list) }
}

fn mma(
    shared: &Shared,
    stream: &CudaStream,
    kernel: Kernel,
    grid: Grid,
    mut params: AttendParams,
    mut work: WorkWords,
) -> Result<(), GpuError> {
    let mut list = [argument(&mut params), argument(&mut work)];
    // SAFETY: (7) everything was checked, and the kernel reads pages below `kernel_pages` only; the
    // workspace holds all pieces of the plan's division; (9) all these kernels have one signature.
    unsafe { launch(shared, stream, kernel, grid, &mut list) }?;
    let rows = product(&[
        params.batch.into(),
        params.queries.into(),
        params.heads.into(),
    ]);
    let mut blocks = grid.x;
    let grid = Grid::over(shared, rows, ROW_WARPS, ROW_THREADS);
    let mut list = [
        argument(&mut params),
        argument(&mut work),
        argument(&mut blocks),
    ];
    // SAFETY: (7) as above; (9) twin of `striata_combine`.
    unsafe { launch(shared, stream, Kernel::Combine, grid, &mut list) }
}
