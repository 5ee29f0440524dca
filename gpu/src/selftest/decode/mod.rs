// SPDX-License-Identifier: Apache-2.0
//! Checks of the decode path: every kernel against its reference, over poisoned memory.
//!
//! | file | checks |
//! |---|---|
//! | `scene` | a batch with rows, tables and queries on every rank, on device and host |
//! | `attend` | whole scenes: rows, plan, attention, merge, prefix |
//! | `plan` | plans from pages and slots, kept pages, refusals, padding |
//! | `merge` | merges and packed messages |
//! | `graph` | captured steps |

mod attend;
#[cfg(feature = "cuda")]
mod graph;
mod merge;
mod plan;
mod scene;

use super::Check;
use crate::decode::DecodeDevice;

/// Checks that every device with a decode path passes.
pub(super) fn checks<D: DecodeDevice>() -> Vec<Check<D>> {
    let mut checks = plan::checks();
    checks.extend(merge::checks());
    checks.extend(attend::checks());
    checks
}

#[cfg(feature = "cuda")]
pub(super) use graph::checks as graph_checks;
