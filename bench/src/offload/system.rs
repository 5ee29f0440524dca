// SPDX-License-Identifier: Apache-2.0
//! The five systems.

use core::fmt;

use serde::{Deserialize, Serialize};
use striata_gpu::Direction;
use striata_gpu::transfer::{
    CopyPath, LayerCut, PageRule, PlaneKind, TransferConfig, TransferPaths,
};
use striata_replay::{LoadStyle, LoadWait};

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

    /// What computing waits for, and how copies are grouped. `chunk` are bytes of a page in a layer of
    /// the model, which may be moved as `row` bytes of each `whole`: what counts in bytes shrinks
    /// alike. A copy kernel has `blocks` blocks.
    pub(super) fn style(self, chunk: u64, (row, whole): (u32, u32), blocks: u32) -> LoadStyle {
        let ours = TransferConfig::default();
        let scaled = |bytes: u64| {
            let scaled = u128::from(bytes) * u128::from(row) / u128::from(whole.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX).max(1)
        };
        let engine = TransferConfig {
            group_bytes: scaled(ours.group_bytes),
            slice_bytes: scaled(ours.slice_bytes),
            store_group_bytes: scaled(ours.store_group_bytes),
            window_bytes: scaled(ours.window_bytes),
            paths: of_chunk(ours.paths, chunk),
            ..ours
        };
        // A group and an event a layer, everything submitted at once.
        let by_layer = |path| TransferConfig {
            slice_bytes: u64::MAX,
            window_bytes: u64::MAX,
            caller_pieces: 0,
            mapped_blocks: blocks,
            paths: engine.paths.forced(
                Direction::HostToDevice,
                PageRule {
                    path,
                    cut: LayerCut::Growing(100),
                },
            ),
            ..engine
        };
        let (wait, transfer) = match self {
            Self::NoL2 | Self::Striata => (LoadWait::ByLayer, engine),
            Self::LoadThenCompute => (LoadWait::Whole, engine),
            Self::ChunkCalls => (LoadWait::ByLayer, by_layer(CopyPath::RunCalls)),
            Self::CopyKernel => (LoadWait::ByLayer, by_layer(CopyPath::Mapped)),
        };
        LoadStyle { wait, transfer }
    }
}

/// The rules that pages of `chunk` bytes a layer have, whatever is moved of them.
fn of_chunk(mut paths: TransferPaths, chunk: u64) -> TransferPaths {
    let class = TransferPaths::CHUNKS.partition_point(|&most| most < chunk);
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        let rules = paths.of_mut(direction);
        for planes in [PlaneKind::Uniform, PlaneKind::Separate] {
            let grid = rules.grid_mut(planes);
            if let Some(rule) = grid.get(class).copied() {
                grid.fill(rule);
            }
        }
    }
    paths
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}
