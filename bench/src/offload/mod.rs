// SPDX-License-Identifier: Apache-2.0
//! The offload benchmark: real request traces whose prefixes come back from L2, the same requests
//! through five systems, one after the other, in one run.
//!
//! | file | room |
//! |---|---|
//! | `options`, `slice` | [`OffloadOptions`]; which requests of a trace are measured |
//! | `system` | [`System`]: the five ways |
//! | `link` | what one large copy reaches |
//! | `run`, `tally` | the run; what it adds up |
//! | `bars`, `report` | what must be reached; [`OffloadReport`] |
//!
//! Closed loop: a request has its turn when the one before it was prefilled, has decoded its steps
//! and all copies have ended. Its time to first token goes from there (before its pages are looked
//! up) to the end of the last layer of its prefill. Computing is a model ([`striata_replay::compute`])
//! that keeps the compute stream busy layer by layer, behind the gates of the load; on a GPU that is
//! one block, so that no copy kernel waits for a multiprocessor. Copies are real bytes, and rows are
//! compared with their fingerprints where their layer is computed.

mod bars;
mod error;
mod link;
mod options;
mod report;
mod run;
mod slice;
mod system;
mod tally;

pub use error::OffloadError;
pub use options::OffloadOptions;
pub use report::{
    GeometryEcho, Link, ModelEcho, OffloadBar, OffloadReport, Quantiles, SystemReport, Times,
    TraceReport,
};
pub use run::{OffloadProgress, run};
pub use slice::TraceSlice;
pub use system::System;
