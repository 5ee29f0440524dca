// SPDX-License-Identifier: Apache-2.0
//! The `striata` command: arguments, progress, tables. What it does is done by the crates below.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod doctor;
mod error;
mod logging;
mod output;
mod plot;
mod progress;
mod replay;
mod selftest;
mod sweep;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return error::usage(&error),
    };
    logging::init();
    let ended = match cli.command {
        Command::Replay(args) => replay::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Selftest(args) => selftest::run(&args),
        Command::Doctor(args) => doctor::run(&args),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            error::complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}
