// SPDX-License-Identifier: Apache-2.0
//! Merging, packing and unpacking.

use striata_core::stripe::whole_share;
use striata_kernels::decode::message::HostMerge;
use striata_kernels::decode::{MAX_PARTIALS, MergeParams, PackParams};
use striata_kernels::source::Kernel;
use striata_kernels::{Base, EmptySentinel};

use super::{address, product};
use crate::check;
use crate::cuda::device::CudaDevice;
use crate::cuda::keep::Kept;
use crate::cuda::launch::{Grid, ROW_THREADS, ROW_WARPS, argument, launch};
use crate::cuda::stream::CudaStream;
use crate::decode::{Merge, Pack, refused};
use crate::error::GpuError;

pub(super) fn merge(stream: &CudaStream, job: &Merge<'_, CudaDevice>) -> Result<(), GpuError> {
    const CALL: &str = "merge";
    let shared = stream.owner();
    let (rows, input, output) = (job.rows, job.input, job.output);
    let contract = HostMerge {
        rows,
        input,
        output,
        empty: job.empty,
    };
    contract
        .check(job.messages.len())
        .map_err(|error| refused(CALL, &error))?;
    let bytes = |row: u64| product(&[rows.into(), row + check::WORD]);
    let mut messages = [0; MAX_PARTIALS];
    for (place, view) in messages.iter_mut().zip(job.messages) {
        *place = address(shared, "merge: a message", *view, bytes(input.row_bytes()))?;
    }
    let merged = bytes(output.row_bytes());
    let merged = address(shared, "merge: the merged rows", job.merged, merged)?;
    let tally = Merge::<CudaDevice>::TALLY_BYTES;
    let tally = address(shared, "merge: the tally", job.tally, tally)?;
    if rows == 0 {
        return Ok(());
    }
    let _scope = stream.enter_launch(CALL)?;
    let views = job.messages.iter().chain([&job.merged, &job.tally]);
    let kept: Vec<Kept> = views
        .map(|view| Kept::Memory(view.memory.clone()))
        .collect();
    stream.submit(&kept, || {
        let mut params = MergeParams {
            messages,
            ranks: u32::try_from(job.messages.len()).unwrap_or(0),
            rows,
            input: input as u32,
            output: output as u32,
            base_two: u32::from(job.base == Base::Two),
            plus_is_empty: u32::from(job.empty == EmptySentinel::PositiveInfinity),
        };
        let (mut merged, mut tally) = (merged, tally);
        let grid = Grid::over(shared, rows.into(), ROW_WARPS, ROW_THREADS);
        let mut list = [
            argument(&mut params),
            argument(&mut merged),
            argument(&mut tally),
        ];
        // SAFETY: (7) messages and result hold these rows; (9) twin of `striata_merge`.
        unsafe { launch(shared, stream, Kernel::Merge, grid, &mut list) }
    })
}

pub(super) fn pack(
    stream: &CudaStream,
    job: &Pack<'_, CudaDevice>,
    unpack: bool,
) -> Result<(), GpuError> {
    let call = if unpack { "unpack" } else { "pack" };
    let shared = stream.owner();
    let (shape, form) = (job.shape, job.form);
    shape.check().map_err(|error| refused(call, &error))?;
    let message_stride = form
        .message_stride(shape)
        .map_err(|error| refused(call, &error))?;
    let all = form.bytes(shape).map_err(|error| refused(call, &error))?;
    let messages = address(shared, "pack: the messages", job.messages, all)?;
    let rows = shape.rows();
    let o = address(
        shared,
        "pack: the outputs",
        job.o,
        product(&[rows, form.kind.row_bytes()]),
    )?;
    let lse = address(
        shared,
        "pack: the log-sum-exps",
        job.lse,
        product(&[rows, check::WORD]),
    )?;
    let _scope = stream.enter_launch(call)?;
    let kept = [job.o, job.lse, job.messages].map(|view| Kept::Memory(view.memory.clone()));
    stream.submit(&kept, || {
        let mut params = PackParams {
            tokens: u32::try_from(shape.tokens()).unwrap_or(0),
            heads: shape.heads,
            message_heads: whole_share(shape.heads, form.destinations).unwrap_or(shape.heads),
            kind: form.kind as u32,
            unpack: u32::from(unpack),
            unused: 0,
            message_stride,
        };
        let (mut o, mut lse, mut messages) = (o, lse, messages);
        let grid = Grid::over(shared, rows, ROW_WARPS, ROW_THREADS);
        let mut list = [
            argument(&mut params),
            argument(&mut o),
            argument(&mut lse),
            argument(&mut messages),
        ];
        // SAFETY: (7) both sides hold these rows; (9) twin of `striata_pack`.
        unsafe { launch(shared, stream, Kernel::Pack, grid, &mut list) }
    })
}
