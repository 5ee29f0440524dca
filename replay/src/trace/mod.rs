// SPDX-License-Identifier: Apache-2.0
//! Traces: requests with lengths and the identity of their prefix blocks.

mod bundled;
mod error;

pub use bundled::Bundled;
pub use error::{TraceError, TraceProblem};
