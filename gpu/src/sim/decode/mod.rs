// SPDX-License-Identifier: Apache-2.0
//! The decode path on the simulated device: real bytes by the CPU references, in the order of the
//! streams, under the scheduler's watch in the stepped mode.
//!
//! | file | room |
//! |---|---|
//! | `span`, `plane` | parts of memories; rows behind the cells of a table |
//! | `build` | plans and new rows |
//! | `attend` | attention in f32, on threads |
//! | `message` | merge, pack, unpack |
//! | `prefix` | rows of a prefix, rows of values |
//! | `op` | all of them as operations of a queue |

mod attend;
mod build;
mod message;
mod op;
mod plane;
mod prefix;
mod span;

pub(crate) use op::{DecodeOp, Use};

use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use striata_core::stripe::whole_share;
use striata_kernels::decode::message::HostMerge;
use striata_kernels::decode::{
    AttendKernel, DecodeError, LANES, LATENT, MergeTally, MmaSize, OutputForm, PlanPlace, ROPE,
};

use super::device::SimDevice;
use super::stream::SimStream;
use crate::check::{self, WORD};
use crate::decode::{
    Attend, BuildPlan, DecodeDevice, FillValues, GatherPrefix, HostStaging, Merge, Pack, Plan,
    Unpack, ValueDevice, WriteRows, WriteTo, refused,
};
use crate::error::GpuError;
use attend::AttendOp;
use build::{BuildOp, To, WriteOp};
use message::{MergeOp, PackOp};
use plane::Plane;
use prefix::{OUT_BYTES, PrefixOp, ValuesOp};
use span::Span;

/// Multiprocessors that plans divide work among: enough that requests are cut, as on a GPU.
const MULTIPROCESSORS: u32 = 16;
/// Bytes of the lanes of a token.
const QUERY_BYTES: u64 = LANES as u64 * 2;
const LATENT_BYTES: u64 = LATENT as u64 * 2;
const ROPE_BYTES: u64 = ROPE as u64 * 2;

fn plan_span(what: &'static str, plan: &Plan<SimDevice>) -> Result<Span, GpuError> {
    plan.shape.check().map_err(|error| refused(what, &error))?;
    let view = crate::decode::View::all(&plan.memory);
    Span::new(what, view, plan.layout.bytes)
}

/// Heads of a message, and bytes from one to the next.
fn message(
    what: &'static str,
    shape: striata_kernels::decode::AttendShape,
    form: OutputForm,
) -> Result<(u64, u64), GpuError> {
    let bytes = form.message_stride(shape);
    let bytes = bytes.map_err(|error| refused(what, &error))?;
    let heads = whole_share(shape.heads, form.destinations);
    let heads = heads.ok_or(DecodeError::Heads {
        heads: shape.heads,
        destinations: form.destinations,
    });
    let heads = heads.map_err(|error| refused(what, &error))?;
    Ok((u64::from(heads), bytes))
}

impl DecodeDevice for SimDevice {
    type Staging = HostStaging;

    fn multiprocessors(&self) -> u32 {
        MULTIPROCESSORS
    }

    fn mma_size(&self) -> Option<MmaSize> {
        None
    }

    fn staging(&self, words: usize) -> Result<HostStaging, GpuError> {
        self.check_alive()?;
        Ok((0..words).map(|_| AtomicU32::new(0)).collect())
    }

    fn staged<'a>(&self, staging: &'a HostStaging) -> &'a [AtomicU32] {
        staging
    }

    fn build_plan(&self, stream: &SimStream, job: &BuildPlan<'_, Self>) -> Result<(), GpuError> {
        let what = "build_plan";
        let plan = plan_span(what, job.plan)?;
        let shape = job.plan.shape;
        let entries = u64::from(shape.source_rows) * u64::from(shape.source_width);
        let places = u64::from(shape.attend.batch) * size_of::<PlanPlace>() as u64;
        let in_staging = if job.source.is_none() {
            entries * WORD
        } else {
            0
        };
        let staged = job.staging.len() as u64 * WORD;
        check::access("build_plan: the staging", staged, 0, places + in_staging)?;
        let source = job.source.map(|view| Span::new(what, view, entries * WORD));
        self.submit_decode(
            stream,
            DecodeOp::Build(BuildOp {
                shape,
                layout: job.plan.layout,
                plan,
                staging: Arc::clone(job.staging),
                source: source.transpose()?,
            }),
        )
    }

    fn write_rows(&self, stream: &SimStream, job: &WriteRows<'_, Self>) -> Result<(), GpuError> {
        let what = "write_rows";
        let tokens = u64::from(job.tokens);
        let (to, sink_rows) = match job.to {
            WriteTo::Plan(plan) => {
                let shape = plan.shape;
                if shape.attend.tokens() != tokens {
                    return Err(refused(
                        what,
                        &DecodeError::Length {
                            what: "the tokens of the plan",
                            expected: shape.attend.tokens(),
                            actual: tokens,
                        },
                    ));
                }
                let to = To::Plan(plan_span(what, plan)?, plan.layout.rows);
                (to, shape.stripe.page_rows())
            }
            WriteTo::Slots {
                slots,
                stripe,
                rank,
            } => {
                let rank = stripe.check_rank(rank).map_err(DecodeError::from);
                let rank = rank.map_err(|error| refused(what, &error))?;
                let slots = Span::new("write_rows: the slots", slots, tokens * 2 * WORD)?;
                (To::Slots(slots, stripe, rank), stripe.page_rows())
            }
            WriteTo::Run { first_row } => (To::Run(first_row), 0),
        };
        let strided = |name, view, stride, bytes| Span::strided(name, view, tokens, stride, bytes);
        let rope = job.rope.map(|view| {
            strided(
                "write_rows: rotary lanes",
                view,
                job.rope_stride,
                ROPE_BYTES,
            )
        });
        self.submit_decode(
            stream,
            DecodeOp::Write(WriteOp {
                plane: Plane::new(job.rows)?,
                to,
                sink_rows: u64::from(sink_rows),
                tokens,
                latent: strided(
                    "write_rows: latent lanes",
                    job.latent,
                    job.latent_stride,
                    LATENT_BYTES,
                )?,
                latent_stride: job.latent_stride,
                rope: rope.transpose()?,
                rope_stride: job.rope_stride,
                faults: Span::new("write_rows: the fault word", job.faults, WORD)?,
            }),
        )
    }

    fn attend(&self, stream: &SimStream, job: &Attend<'_, Self>) -> Result<(), GpuError> {
        let what = "attend";
        if job.kernel == AttendKernel::Mma {
            return Err(GpuError::Argument {
                call: what,
                reason: "the simulated device has no matrix units: use the plain kernel".to_owned(),
            });
        }
        let plan = plan_span(what, job.plan)?;
        let shape = job.plan.shape;
        let (message_heads, message_stride) = message(what, shape.attend, job.form)?;
        let sizes = [shape.attend.batch, shape.attend.queries, shape.attend.heads];
        let mut query_bytes = QUERY_BYTES;
        for (count, stride) in sizes.into_iter().zip(job.query_strides) {
            check::check_words("attend: a stride of the queries", stride)?;
            let steps = u64::from(count).saturating_sub(1);
            let bytes = steps.saturating_mul(stride);
            query_bytes = query_bytes.saturating_add(bytes);
        }
        let query = Span::new("attend: the queries", job.query, query_bytes & !(WORD - 1))?;
        let output = message_stride * u64::from(job.form.destinations);
        self.submit_decode(
            stream,
            DecodeOp::Attend(AttendOp {
                shape,
                layout: job.plan.layout,
                plan,
                plane: Plane::new(job.rows)?,
                query,
                query_strides: job.query_strides,
                scale: job.scale,
                base: job.base,
                form: job.form,
                message_stride,
                message_heads,
                output: Span::new("attend: the outputs", job.output, output)?,
                tally: match job.tally {
                    None => None,
                    Some(view) => {
                        let bytes = size_of::<MergeTally>() as u64;
                        Some(Span::new("attend: the tally", view, bytes)?)
                    }
                },
            }),
        )
    }

    fn merge(&self, stream: &SimStream, job: &Merge<'_, Self>) -> Result<(), GpuError> {
        let what = "merge";
        let merge = HostMerge {
            rows: job.rows,
            input: job.input,
            output: job.output,
            empty: job.empty,
        };
        merge
            .check(job.messages.len())
            .map_err(|error| refused(what, &error))?;
        let rows = u64::from(job.rows);
        let bytes = rows * (job.input.row_bytes() + 4);
        let messages = job.messages.iter();
        let messages = messages.map(|view| Span::new("merge: a message", *view, bytes));
        let merged = rows * (job.output.row_bytes() + 4);
        self.submit_decode(
            stream,
            DecodeOp::Merge(MergeOp {
                merge,
                base: job.base,
                messages: messages.collect::<Result<_, _>>()?,
                merged: Span::new("merge: the merged rows", job.merged, merged)?,
                tally: Span::new(
                    "merge: the tally",
                    job.tally,
                    size_of::<MergeTally>() as u64,
                )?,
            }),
        )
    }

    fn pack(&self, stream: &SimStream, job: &Pack<'_, Self>) -> Result<(), GpuError> {
        self.submit_pack("pack", stream, job, false)
    }

    fn unpack(&self, stream: &SimStream, job: &Unpack<'_, Self>) -> Result<(), GpuError> {
        self.submit_pack("unpack", stream, job, true)
    }

    fn gather_prefix(
        &self,
        stream: &SimStream,
        job: &GatherPrefix<'_, Self>,
    ) -> Result<(), GpuError> {
        let what = "gather_prefix";
        let rank = job.stripe.check_rank(job.rank).map_err(DecodeError::from);
        let rank = rank.map_err(|error| refused(what, &error))?;
        let page_rows = job.stripe.page_rows();
        if job.kernel_rows == 0 || !page_rows.is_multiple_of(job.kernel_rows) {
            let kernel_rows = job.kernel_rows;
            return Err(refused(
                what,
                &DecodeError::KernelPage {
                    kernel_rows,
                    page_rows,
                },
            ));
        }
        let owned = PrefixOp::owned(job.stripe, rank, job.start, job.tokens);
        let room = if job.packed {
            owned.end - owned.start
        } else {
            job.tokens
        };
        let out_bytes = room.checked_mul(OUT_BYTES).unwrap_or(u64::MAX - 3);
        let width = u64::from(job.width);
        self.submit_decode(
            stream,
            DecodeOp::Prefix(PrefixOp {
                stripe: job.stripe,
                rank,
                plane: Plane::new(job.rows)?,
                kernel_rows: u64::from(job.kernel_rows),
                cells: Span::new("gather_prefix: the cells", job.cells, width * WORD)?,
                width,
                start: job.start,
                tokens: job.tokens,
                packed: job.packed,
                out: Span::new("gather_prefix: the rows", job.out, out_bytes)?,
            }),
        )
    }
}

impl ValueDevice for SimDevice {
    fn fill_values(&self, stream: &SimStream, job: &FillValues<'_, Self>) -> Result<(), GpuError> {
        let row_bytes = u64::from(job.row_words) * WORD;
        let bytes = job.rows.checked_mul(row_bytes).unwrap_or(u64::MAX - 3);
        let seeds = job.rows.checked_mul(2 * WORD).unwrap_or(u64::MAX - 3);
        self.submit_decode(
            stream,
            DecodeOp::Values(ValuesOp {
                dense: Span::new("fill_values: the rows", job.dense, bytes)?,
                seeds: Span::anywhere("fill_values: the seeds", job.seeds, seeds)?,
                rows: job.rows,
                row_words: job.row_words,
                layer: job.layer,
            }),
        )
    }
}

impl SimDevice {
    fn submit_pack(
        &self,
        what: &'static str,
        stream: &SimStream,
        job: &Pack<'_, Self>,
        unpack: bool,
    ) -> Result<(), GpuError> {
        let (message_heads, message_stride) = message(what, job.shape, job.form)?;
        let (rows, row_bytes) = (job.shape.rows(), job.form.kind.row_bytes());
        let messages = message_stride * u64::from(job.form.destinations);
        self.submit_decode(
            stream,
            DecodeOp::Pack(PackOp {
                shape: job.shape,
                form: job.form,
                message_stride,
                message_heads,
                o: Span::new("pack: the outputs", job.o, rows * row_bytes)?,
                lse: Span::new("pack: the log-sum-exps", job.lse, rows * 4)?,
                messages: Span::new("pack: the messages", job.messages, messages)?,
                unpack,
            }),
        )
    }
}

#[cfg(test)]
mod tests;
