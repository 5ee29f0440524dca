// SPDX-License-Identifier: Apache-2.0
//! Operations of the decode path in a queue: what they are called, do and touch.

use core::ops::Range;

use super::attend::AttendOp;
use super::build::{BuildOp, To, WriteOp};
use super::message::{MergeOp, PackOp};
use super::prefix::{OUT_BYTES, PrefixOp, ValuesOp};
use super::span::Span;
use crate::sim::memory::SimMemory;
use crate::sim::names::OpKind;

/// One of them.
#[derive(Debug)]
pub(crate) enum DecodeOp {
    Build(BuildOp),
    Write(WriteOp),
    Attend(AttendOp),
    Merge(MergeOp),
    Pack(PackOp),
    Prefix(PrefixOp),
    Values(ValuesOp),
}

/// How an operation touches bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// Counts up: in any order with others that do.
    Count,
}

/// Shows what is touched, as long as the other side says so.
type Visit<'v, 'a, E> = dyn FnMut(&'a SimMemory, Range<u64>, Use) -> Result<(), E> + 'v;

impl DecodeOp {
    pub(crate) const fn kind(&self) -> OpKind {
        match self {
            Self::Build(_) => OpKind::PlanBuild,
            Self::Write(_) => OpKind::RowWrite,
            Self::Attend(_) => OpKind::Attention,
            Self::Merge(_) => OpKind::Merge,
            Self::Pack(op) if op.unpack => OpKind::Unpack,
            Self::Pack(_) => OpKind::Pack,
            Self::Prefix(_) => OpKind::PrefixGather,
            Self::Values(_) => OpKind::ValueFill,
        }
    }

    pub(crate) fn run(&self) {
        match self {
            Self::Build(op) => op.run(),
            Self::Write(op) => op.run(),
            Self::Attend(op) => op.run(),
            Self::Merge(op) => op.run(),
            Self::Pack(op) => op.run(),
            Self::Prefix(op) => op.run(),
            Self::Values(op) => op.run(),
        }
    }

    /// Shows `visit` what it touches. Which rows follows from tables and lists in device memory,
    /// as they are now.
    pub(crate) fn visit<'a, E>(&'a self, visit: &mut Visit<'_, 'a, E>) -> Result<(), E> {
        let mut whole =
            |span: &'a Span, how| visit(&span.memory, span.start..span.start + span.bytes, how);
        match self {
            Self::Build(op) => {
                op.source.iter().try_for_each(|s| whole(s, Use::Read))?;
                whole(&op.plan, Use::Write)
            }
            Self::Write(op) => {
                match &op.to {
                    To::Plan(span, _) | To::Slots(span, ..) => whole(span, Use::Read)?,
                    To::Run(_) => {}
                }
                whole(&op.latent, Use::Read)?;
                op.rope.iter().try_for_each(|s| whole(s, Use::Read))?;
                whole(&op.faults, Use::Count)?;
                let memory = &op.plane.span.memory;
                op.written()
                    .try_for_each(|row| visit(memory, op.plane.bytes(row, 1), Use::Write))
            }
            Self::Attend(op) => {
                whole(&op.plan, Use::Read)?;
                whole(&op.query, Use::Read)?;
                whole(&op.output, Use::Write)?;
                op.tally.iter().try_for_each(|s| whole(s, Use::Count))?;
                let memory = &op.plane.span.memory;
                op.read_runs().into_iter().try_for_each(|rows| {
                    let bytes = op.plane.bytes(rows.start, rows.end - rows.start);
                    visit(memory, bytes, Use::Read)
                })
            }
            Self::Merge(op) => {
                op.messages.iter().try_for_each(|s| whole(s, Use::Read))?;
                whole(&op.merged, Use::Write)?;
                whole(&op.tally, Use::Count)
            }
            Self::Pack(op) => {
                let (from, to) = if op.unpack {
                    (Use::Write, Use::Read)
                } else {
                    (Use::Read, Use::Write)
                };
                whole(&op.o, from)?;
                whole(&op.lse, from)?;
                whole(&op.messages, to)
            }
            Self::Prefix(op) => {
                whole(&op.cells, Use::Read)?;
                let plane = &op.plane;
                op.read_rows().try_for_each(|row| {
                    visit(&plane.span.memory, plane.bytes(row, 1), Use::Read)
                })?;
                op.written().try_for_each(|row| {
                    let start = op.out.start + row * OUT_BYTES;
                    visit(&op.out.memory, start..start + OUT_BYTES, Use::Write)
                })
            }
            Self::Values(op) => {
                whole(&op.seeds, Use::Read)?;
                whole(&op.dense, Use::Write)
            }
        }
    }

    /// The memories that it names.
    pub(crate) fn memories(&self) -> Vec<&SimMemory> {
        let mut spans: Vec<&Span> = Vec::new();
        match self {
            Self::Build(op) => {
                spans.push(&op.plan);
                spans.extend(&op.source);
            }
            Self::Write(op) => {
                spans.extend([&op.plane.span, &op.latent, &op.faults]);
                spans.extend(&op.rope);
                match &op.to {
                    To::Plan(span, _) | To::Slots(span, ..) => spans.push(span),
                    To::Run(_) => {}
                }
            }
            Self::Attend(op) => {
                spans.extend([&op.plan, &op.plane.span, &op.query, &op.output]);
                spans.extend(&op.tally);
            }
            Self::Merge(op) => {
                spans.extend(&op.messages);
                spans.extend([&op.merged, &op.tally]);
            }
            Self::Pack(op) => spans.extend([&op.o, &op.lse, &op.messages]),
            Self::Prefix(op) => spans.extend([&op.plane.span, &op.cells, &op.out]),
            Self::Values(op) => spans.extend([&op.dense, &op.seeds]),
        }
        spans.into_iter().map(|span| &span.memory).collect()
    }
}
