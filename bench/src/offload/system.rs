// SPDX-License-Identifier: Apache-2.0
//! The five systems.

use core::fmt;

use serde::{Deserialize, Serialize};
use striata_gpu::transfer::TransferConfig;
use striata_replay::{LoadStyle, LoadWait};

use super::peer::LoadCopies;

/// How prefixes that left L1 come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// They do not: there is no L2, and what left L1 is computed again.
    NoL2,
    /// By this engine's copies, all of them before the first layer computes.
    LoadThenCompute,
    /// By a plain copy call a page and layer; each layer computes once it is there.
    ChunkCalls,
    /// By a copy kernel a layer on a few blocks; each layer computes once it is there.
    CopyKernel,
    /// By this engine.
    Striata,
}

impl System {
    /// All of them, in the order in which they run and are listed.
    pub const ALL: [Self; 5] = [
        Self::NoL2,
        Self::LoadThenCompute,
        Self::ChunkCalls,
        Self::CopyKernel,
        Self::Striata,
    ];

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoL2 => "no_l2",
            Self::LoadThenCompute => "load_then_compute",
            Self::ChunkCalls => "chunk_calls",
            Self::CopyKernel => "copy_kernel",
            Self::Striata => "striata",
        }
    }

    /// Its name in tables and pictures.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::NoL2 => "no L2",
            Self::LoadThenCompute => "load, then compute",
            Self::ChunkCalls => "a copy call a chunk",
            Self::CopyKernel => "a copy kernel a layer",
            Self::Striata => "Striata",
        }
    }

    /// How its loads are copied; none if it has none.
    pub(super) const fn copies(self, kernel_blocks: u32) -> Option<LoadCopies> {
        match self {
            Self::NoL2 => None,
            Self::LoadThenCompute | Self::Striata => Some(LoadCopies::Engine),
            Self::ChunkCalls => Some(LoadCopies::Calls),
            Self::CopyKernel => Some(LoadCopies::Kernel {
                blocks: kernel_blocks,
            }),
        }
    }

    /// What computing waits for, and how copies are grouped. Rows are `row` bytes of `whole`: what
    /// counts in bytes shrinks alike.
    pub(super) fn style(self, (row, whole): (u32, u32)) -> LoadStyle {
        let ours = TransferConfig::default();
        let scaled = |bytes: u64| bytes.saturating_mul(row.into()) / u64::from(whole.max(1));
        let engine = TransferConfig {
            group_bytes: scaled(ours.group_bytes).max(1),
            window_bytes: scaled(ours.window_bytes).max(1),
            ..ours
        };
        // A group and an event a layer, everything submitted at once.
        let by_layer = TransferConfig {
            group_bytes: 0,
            rectangle_pages: 0,
            window_bytes: u64::MAX,
            ..ours
        };
        let (wait, transfer) = match self {
            Self::NoL2 | Self::Striata => (LoadWait::ByLayer, engine),
            Self::LoadThenCompute => (LoadWait::Whole, engine),
            Self::ChunkCalls | Self::CopyKernel => (LoadWait::ByLayer, by_layer),
        };
        LoadStyle { wait, transfer }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}
