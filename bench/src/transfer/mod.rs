// SPDX-License-Identifier: Apache-2.0
//! The transfer benchmark: what the engine reaches on this link, beside what one copy call does.
//!
//! | file | room |
//! |---|---|
//! | `options`, `group` | [`TransferOptions`]: what is measured; its parts |
//! | `subject`, `on_cuda` | [`Subject`]: what only some devices can be asked for |
//! | `tiers`, `lists` | both tiers and what their pages hold; which pages a job moves |
//! | `ceilings` | what one large copy call reaches |
//! | `run`, `timing` | the run and what it collects; how long one job takes |
//! | `series` | measurements of load-backs and stores, with a comparison of bytes after each |
//! | `engine` | load-backs and stores, both at once, separate planes |
//! | `paths` | every path of the engine, forced |
//! | `row_lists` | lists of single rows |
//! | `consumer` | compute that follows a load layer by layer |
//! | `cpu` | CPU time of submission |
//! | `foreign` | a small copy of somebody else |
//! | `slowdown`, `beside` | compute beside copies |
//! | `baselines` | other ways to copy the same pages |
//! | `figure`, `bars`, `report` | figures, what they must reach, [`TransferReport`] |

mod bars;
mod baselines;
mod beside;
mod ceilings;
mod consumer;
mod cpu;
mod engine;
mod error;
mod figure;
mod foreign;
mod group;
mod lists;
mod on_cuda;
mod options;
mod paths;
mod report;
mod row_lists;
mod run;
mod series;
mod slowdown;
mod subject;
mod tiers;
mod timing;

pub use error::BenchError;
pub use figure::{Bar, BarOf, Figure, LEAST_SAMPLES, Reference, Side, Stats, Unit, Verdict};
pub use group::Group;
pub use options::{Shape, TransferOptions};
pub use report::{Ceilings, Checks, Outcome, Skipped, TransferReport};
pub use run::{Progress, run};
pub use subject::{Compute, Launch, Subject};
