// SPDX-License-Identifier: Apache-2.0
//! What a stream keeps alive for the work that was submitted to it.
//!
//! A stream sees few different owners, so it remembers each once, however often it is used, and
//! forgets all of them when it is found idle.

use std::sync::Arc;

use striata_host::HostPool;

use super::decode::CudaStaging;
use super::graph::CudaGraph;
use super::memory::CudaMemory;

/// Owners beyond which a stream asks whether it is idle.
const MANY: usize = 16;

/// An owner of memory that submitted work touches.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Memory(CudaMemory),
    Planes(Arc<[CudaMemory]>),
    Pool(Arc<HostPool>),
    Graph(CudaGraph),
    Staging(CudaStaging),
}

impl Kept {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(a), Self::Memory(b)) => a.is_same(b),
            (Self::Planes(a), Self::Planes(b)) => Arc::ptr_eq(a, b),
            (Self::Pool(a), Self::Pool(b)) => Arc::ptr_eq(a, b),
            (Self::Graph(a), Self::Graph(b)) => a.is_same(b),
            (Self::Staging(a), Self::Staging(b)) => a.is_same(b),
            _ => false,
        }
    }
}

/// The owners.
#[derive(Debug)]
pub(super) struct Keep {
    kept: Vec<Kept>,
    ask_at: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            ask_at: MANY,
        }
    }
}

impl Keep {
    /// Remembers an owner. `idle` says whether everything that was submitted has ended.
    pub(super) fn add(&mut self, owner: &Kept, idle: impl FnOnce() -> bool) {
        if self.kept.iter().any(|kept| kept.is_same(owner)) {
            return;
        }
        if self.kept.len() >= self.ask_at {
            if idle() {
                self.kept.clear();
            }
            self.ask_at = (2 * self.kept.len()).max(MANY);
        }
        self.kept.push(owner.clone());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
