// SPDX-License-Identifier: Apache-2.0
//! The merge of the messages that one destination received, a message a rank, in rank order.
//!
//! A message is planar ([`crate::packed::PackOrder::Planar`]): all output rows, then their
//! log-sum-exps. The arithmetic is [`crate::reference::merge()`] in f32.

use bytemuck::{Pod, Zeroable};

use super::attend::{OutputKind, split_message};
use super::row_codec::{narrow, widen};
use super::{DecodeError, LATENT, in_range, same_len};
use crate::lse::{EmptySentinel, LogBase, Lse};
use crate::reference::{ContractError, MergeReport, PartialRef, merge};

/// Most messages of a merge: they are kernel arguments.
pub const MAX_PARTIALS: usize = RANKS as usize;
const RANKS: u32 = 64;

/// The kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MergeParams {
    /// Device addresses of the messages.
    pub messages: [u64; MAX_PARTIALS],
    /// Messages.
    pub ranks: u32,
    /// Rows: tokens x heads of this destination.
    pub rows: u32,
    /// [`OutputKind`] of the messages.
    pub input: u32,
    /// [`OutputKind`] of the merged rows.
    pub output: u32,
    /// 0: log-sum-exps are natural; 1: in base 2.
    pub base_two: u32,
    /// 1: plus infinity too says that no key was seen.
    pub plus_is_empty: u32,
}

const _: () = assert!(size_of::<MergeParams>() == 536);

/// The argument of packing and unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PackParams {
    /// Tokens.
    pub tokens: u32,
    /// Heads.
    pub heads: u32,
    /// Heads of a message.
    pub message_heads: u32,
    /// [`OutputKind`] of the rows.
    pub kind: u32,
    /// 1: from messages to plain outputs; 0: the other way.
    pub unpack: u32,
    /// 0.
    pub unused: u32,
    /// From a message to the next.
    pub message_stride: u64,
}

const _: () = assert!(size_of::<PackParams>() == 32);

/// What merges counted on the device since it was cleared: a fault fails the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct MergeTally {
    /// Faulty log-sum-exps.
    pub faults: u32,
    /// The smallest row * 64 + rank of them, inverted: the largest of the inverted, so that a
    /// cleared word is none.
    pub first_inverted: u32,
}

impl MergeTally {
    /// Row and rank of the first fault.
    #[must_use]
    pub const fn first(self) -> Option<(u32, u32)> {
        if self.faults == 0 {
            return None;
        }
        let first = !self.first_inverted;
        Some((first / RANKS, first % RANKS))
    }
}

/// A merge in host memory: reference of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct HostMerge {
    /// Rows of each message.
    pub rows: u32,
    /// Type of outputs in the messages.
    pub input: OutputKind,
    /// Type of merged rows.
    pub output: OutputKind,
    /// What an empty partial's log-sum-exp is.
    pub empty: EmptySentinel,
}

impl HostMerge {
    /// Checks the sizes.
    ///
    /// # Errors
    /// Too many messages or rows.
    pub fn check(&self, messages: usize) -> Result<(), DecodeError> {
        in_range(
            "the number of messages",
            messages as u64,
            1,
            MAX_PARTIALS as u64,
        )?;
        // A row and a rank share a word of the tally.
        let most = (1u64 << 32) / MAX_PARTIALS as u64 - 1;
        in_range("the number of rows", self.rows.into(), 0, most)
    }

    /// Merges into `merged`, a message of merged rows.
    ///
    /// # Errors
    /// Messages of other lengths than the rows ask for.
    pub fn run<B: LogBase>(
        &self,
        messages: &[&[u8]],
        merged: &mut [u8],
    ) -> Result<MergeReport, ContractError> {
        self.check(messages.len())?;
        let rows = self.rows as usize;
        let mut partials = Vec::with_capacity(messages.len());
        for message in messages {
            let (o, lse) = split_message(self.input, self.rows.into(), message)?;
            let lse: Vec<Lse<B>> = words(lse)
                .map(|word| Lse::new(f32::from_bits(word)))
                .collect();
            partials.push((lanes(self.input, o), lse));
        }
        let refs: Vec<PartialRef<'_, B, f32>> = partials
            .iter()
            .map(|(o, lse)| PartialRef {
                o,
                lse,
                empty: self.empty,
            })
            .collect();
        let mut o = vec![0f32; rows * LATENT];
        let mut lse = vec![Lse::<B>::EMPTY; rows];
        let report = merge(&refs, LATENT, &mut o, &mut lse)?;
        let bytes = u64::from(self.rows) * (self.output.row_bytes() + 4);
        same_len("the merged rows", merged.len() as u64, bytes)?;
        let (out, tail) = merged.split_at_mut(merged.len() - 4 * rows);
        match self.output {
            OutputKind::F32 => {
                for (bytes, lane) in out.chunks_exact_mut(4).zip(&o) {
                    bytes.copy_from_slice(&lane.to_le_bytes());
                }
            }
            OutputKind::Bf16 => {
                for (bytes, lane) in out.chunks_exact_mut(2).zip(&o) {
                    bytes.copy_from_slice(&narrow(*lane).to_le_bytes());
                }
            }
        }
        for (bytes, lse) in tail.chunks_exact_mut(4).zip(&lse) {
            bytes.copy_from_slice(&lse.get().to_le_bytes());
        }
        Ok(report)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn lanes(kind: OutputKind, bytes: &[u8]) -> Vec<f32> {
    match kind {
        OutputKind::F32 => words(bytes).map(f32::from_bits).collect(),
        OutputKind::Bf16 => bytes
            .chunks_exact(2)
            .map(|b| widen(u16::from_le_bytes([b[0], b[1]])))
            .collect(),
    }
}
