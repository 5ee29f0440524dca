// SPDX-License-Identifier: Apache-2.0
//! Memory of a simulated device: zeroed words that many threads may touch.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use crate::check::WORD;
use crate::error::GpuError;
use crate::sim::shared::Shared;

/// An allocation on a simulated device; clones share it, the last one frees it.
#[derive(Clone)]
pub struct SimMemory(Arc<Allocation>);

/// Says whether an allocation is still there, without keeping it.
#[derive(Clone, Debug)]
pub(crate) struct WeakMemory(Weak<Allocation>);

impl WeakMemory {
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

struct Allocation {
    words: Box<[AtomicU32]>,
    number: u64,
    owner: Arc<Shared>,
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation")
            .field("device", &self.owner.name())
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.owner.give_back(self.words.len() as u64 * WORD);
    }
}

impl fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimMemory")
            .field("device", &self.0.owner.name())
            .field("bytes", &self.len())
            .finish()
    }
}

impl SimMemory {
    /// Allocates `bytes` bytes of `owner`. They are zero and cost no memory until they are used.
    pub(crate) fn new(owner: &Arc<Shared>, bytes: u64) -> Result<Self, GpuError> {
        if !bytes.is_multiple_of(WORD) {
            let what = "alloc: the size";
            return Err(GpuError::Misaligned { what, value: bytes });
        }
        let out_of_memory = |reason: String| GpuError::OutOfMemory {
            device: owner.name().to_owned(),
            bytes,
            reason,
        };
        owner.take(bytes).map_err(out_of_memory)?;
        let words = usize::try_from(bytes / WORD)
            .ok()
            .and_then(|count| bytemuck::try_zeroed_slice_box(count).ok());
        let Some(words) = words else {
            owner.give_back(bytes);
            return Err(out_of_memory("the host has no room".to_owned()));
        };
        Ok(Self(Arc::new(Allocation {
            words,
            number: owner.next_memory(),
            owner: Arc::clone(owner),
        })))
    }

    /// Its number among the allocations of its device.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// A value that no other living allocation has.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn downgrade(&self) -> WeakMemory {
        WeakMemory(Arc::downgrade(&self.0))
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.words.len() as u64 * WORD
    }

    /// All words.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        &self.0.words
    }

    /// The device that it was allocated on.
    pub(crate) fn owner(&self) -> &Arc<Shared> {
        &self.0.owner
    }
}

/// The words of `len` bytes at byte `start`; none where they leave `words`.
pub(crate) fn words_at(words: &[AtomicU32], start: u64, len: u64) -> &[AtomicU32] {
    let index = |bytes: u64| usize::try_from(bytes / WORD).unwrap_or(usize::MAX);
    let end = start.saturating_add(len);
    words.get(index(start)..index(end)).unwrap_or_default()
}

/// Copies word by word; order against other threads is the streams' business.
pub(crate) fn copy_words(to: &[AtomicU32], from: &[AtomicU32]) {
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Writes host bytes into words.
pub(crate) fn write_words(to: &[AtomicU32], from: &[u8]) {
    for (to, bytes) in to.iter().zip(from.chunks_exact(size_of::<u32>())) {
        to.store(bytemuck::pod_read_unaligned(bytes), Ordering::Relaxed);
    }
}

/// Reads words into host bytes.
pub(crate) fn read_words(from: &[AtomicU32], to: &mut [u8]) {
    for (bytes, from) in to.chunks_exact_mut(size_of::<u32>()).zip(from) {
        bytes.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
    }
}
