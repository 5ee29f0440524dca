// SPDX-License-Identifier: Apache-2.0
//! Parts of simulated memories that operations of the decode path name, and their words as bytes
//! and numbers.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::check::{self, WORD};
use crate::decode::View;
use crate::error::GpuError;
use crate::sim::device::SimDevice;
use crate::sim::memory::{SimMemory, read_words, words_at, write_words};

/// What the bytes at which views begin are multiples of.
const ALIGN: u64 = 16;

/// A checked part of a memory, which it keeps alive.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) memory: SimMemory,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Span {
    /// `bytes` bytes of a view, which begins where every backend's kernels can read it.
    pub(super) fn new(
        what: &'static str,
        view: View<'_, SimDevice>,
        bytes: u64,
    ) -> Result<Self, GpuError> {
        if !view.offset.is_multiple_of(ALIGN) {
            return Err(GpuError::Argument {
                call: what,
                reason: format!("byte {} is not a multiple of {ALIGN}", view.offset),
            });
        }
        Self::anywhere(what, view, bytes)
    }

    /// `bytes` bytes of a view.
    pub(super) fn anywhere(
        what: &'static str,
        view: View<'_, SimDevice>,
        bytes: u64,
    ) -> Result<Self, GpuError> {
        check::access(what, view.memory.len(), view.offset, bytes)?;
        Ok(Self {
            memory: view.memory.clone(),
            start: view.offset,
            bytes,
        })
    }

    /// `count` things of `bytes` bytes that begin `stride` bytes apart.
    pub(super) fn strided(
        what: &'static str,
        view: View<'_, SimDevice>,
        count: u64,
        stride: u64,
        bytes: u64,
    ) -> Result<Self, GpuError> {
        if !stride.is_multiple_of(ALIGN) {
            return Err(GpuError::Argument {
                call: what,
                reason: format!("a stride of {stride} bytes is not a multiple of {ALIGN}"),
            });
        }
        let before = count.saturating_sub(1).checked_mul(stride);
        let whole = before.and_then(|before| before.checked_add(if count > 0 { bytes } else { 0 }));
        // More than can be counted is outside every memory.
        Self::new(what, view, whole.unwrap_or(u64::MAX - (WORD - 1)))
    }

    /// All words.
    pub(super) fn words(&self) -> &[AtomicU32] {
        self.at(0, self.bytes)
    }

    /// The words of `bytes` bytes from byte `offset` on.
    pub(super) fn at(&self, offset: u64, bytes: u64) -> &[AtomicU32] {
        words_at(self.memory.words(), self.start + offset, bytes)
    }

    /// The i32 at index `index` behind byte `offset`.
    pub(super) fn i32(&self, offset: u64, index: u64) -> i32 {
        let words = self.at(offset + index * WORD, WORD);
        words.first().map_or(0, load).cast_signed()
    }

    /// Numbers from byte `offset` on.
    pub(super) fn i32s(&self, offset: u64, count: u64) -> Vec<i32> {
        let words = self.at(offset, count * WORD).iter();
        words.map(|word| load(word).cast_signed()).collect()
    }

    /// Numbers of 64 bits from byte `offset` on.
    pub(super) fn i64s(&self, offset: u64, count: u64) -> Vec<i64> {
        let pair = |pair: &[AtomicU32]| {
            let [low, high] = pair else { return 0 };
            (u64::from(load(high)) << 32 | u64::from(load(low))).cast_signed()
        };
        let words = self.at(offset, count * 2 * WORD);
        words.chunks_exact(2).map(pair).collect()
    }

    /// Lanes of 16 bits from byte `offset` on; as many as `lanes` has.
    pub(super) fn halves(&self, offset: u64, lanes: &mut [u16]) {
        let words = self.at(offset, lanes.len() as u64 * 2);
        for (pair, word) in lanes.chunks_exact_mut(2).zip(words) {
            let [a, b, c, d] = load(word).to_le_bytes();
            pair.copy_from_slice(&[u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])]);
        }
    }

    /// Bytes from byte `offset` on; as many as `bytes` has.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
        read_words(self.at(offset, bytes.len() as u64), bytes);
    }

    /// Writes bytes at byte `offset`.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        write_words(self.at(offset, bytes.len() as u64), bytes);
    }
}

/// The value of a word.
pub(super) fn load(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}
