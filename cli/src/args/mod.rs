// SPDX-License-Identifier: Apache-2.0
//! What the command line says, typed. What it means is decided by the crates below.

mod bench;
mod decode_bench;
mod defaults;
mod doctor;
mod engine;
mod hicache;
mod offload;
mod output;
mod pinning;
mod replay;
mod selftest;
mod sweep;
mod values;
mod workload;

use clap::{Parser, Subcommand};

pub(crate) use self::bench::{BenchArgs, BenchCommand, TransferBenchArgs};
pub(crate) use self::decode_bench::DecodeBenchArgs;
pub(crate) use self::doctor::DoctorArgs;
pub(crate) use self::offload::OffloadBenchArgs;
pub(crate) use self::output::{OutputArgs, ProgressArgs};
pub(crate) use self::pinning::PinningBenchArgs;
pub(crate) use self::replay::ReplayArgs;
pub(crate) use self::selftest::SelftestArgs;
pub(crate) use self::sweep::SweepArgs;

/// A tiered KV-cache storage engine for LLM inference under decode context parallelism.
#[derive(Debug, Parser)]
#[command(
    name = "striata",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Replay a request trace through the engine and verify every byte it reads back
    Replay(Box<ReplayArgs>),
    /// Replay a grid of DCP sizes, capacities and policies; the defaults show what DCP buys
    Sweep(Box<SweepArgs>),
    /// Measure the engine against the ceilings and the peers of the same run
    Bench(Box<BenchArgs>),
    /// Check the engine on a device to the byte, and name what is wrong
    Selftest(SelftestArgs),
    /// Say what this machine offers and lacks
    Doctor(DoctorArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Cli::command().debug_assert();
    }
}
