// SPDX-License-Identifier: Apache-2.0
//! Log lines on standard error, chosen by the variable `STRIATA_LOG`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts logging: warnings, or what `STRIATA_LOG` asks for (`debug`, `striata=trace`, ...).
pub(crate) fn init() {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::WARN.into())
        .with_env_var("STRIATA_LOG")
        .from_env_lossy();
    // A second subscriber is refused; there is none before this one.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}
