// SPDX-License-Identifier: Apache-2.0
//! Flags of the engine that `replay` and `sweep` share.

use std::path::PathBuf;

use clap::Args;
use striata::core::HostLayout;
use striata_replay::{ConfigError, ModelShape, Parallel, WritePolicy};

use super::defaults;
use super::hicache::{HiCacheArgs, HiCacheValues};
use super::values::{host_layout, write_policy};
use crate::error::CliError;

/// Model, ranks, pages and policies.
#[derive(Debug, Args)]
#[command(next_help_heading = "Engine")]
pub(super) struct EngineArgs {
    /// Model preset
    #[arg(long, value_name = "NAME", default_value = defaults::MODEL)]
    model: String,
    /// Model described by a file instead, TOML or JSON
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    model_file: Option<PathBuf>,
    /// Replay this many layers instead of the model's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    layers: Option<u32>,
    /// Tensor-parallel size, all replicas together [default: dp times the (largest) DCP size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tp: Option<u32>,
    /// Data-parallel attention replicas
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    dp: u32,
    /// Rows of a page on one rank, P; a widened page has P times c tokens
    #[arg(long, value_name = "ROWS", default_value_t = defaults::PAGE_SIZE, value_parser = clap::value_parser!(u32).range(1..))]
    page_size: u32,
    /// Consecutive tokens that one rank owns
    #[arg(long, value_name = "TOKENS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    interleave: u32,
    /// When pages go to L2: write_through, write_through_selective, write_back
    #[arg(long, value_name = "POLICY", value_parser = write_policy)]
    write_policy: Option<WritePolicy>,
    /// Order of pages and layers in L2: page-first, layer-first
    #[arg(long, value_name = "LAYOUT", value_parser = host_layout)]
    host_layout: Option<HostLayout>,
    #[command(flatten)]
    pub(super) hicache: HiCacheArgs,
}

impl EngineArgs {
    /// The model's shape.
    pub(super) fn model(&self) -> Result<ModelShape, CliError> {
        let mut shape = match &self.model_file {
            Some(path) => ModelShape::from_file(path).map_err(|error| match error {
                ConfigError::ModelFile { .. } => CliError::Config(error),
                _ => CliError::Usage(format!("{}: {error}", path.display())),
            })?,
            None => ModelShape::preset(&self.model)?,
        };
        if let Some(layers) = self.layers {
            shape.layers = layers;
        }
        Ok(shape)
    }

    /// How the ranks stand for DCP size `dcp`, where `largest` is the largest one of the run.
    pub(super) fn parallel(&self, dcp: u32, largest: u32) -> Parallel {
        Parallel {
            tp: self.tp.unwrap_or(self.dp.saturating_mul(largest)),
            dp: self.dp,
            dcp,
            page_rows: self.page_size,
            interleave: self.interleave,
        }
    }

    /// When pages go to L2.
    pub(super) fn write_policy(&self, named: &HiCacheValues) -> WritePolicy {
        self.write_policy
            .or(named.write_policy)
            .unwrap_or(WritePolicy::WriteThrough)
    }

    /// Order of pages and layers in L2.
    pub(super) fn host_layout(&self, named: &HiCacheValues) -> HostLayout {
        self.host_layout.or(named.host_layout).unwrap_or_default()
    }
}
