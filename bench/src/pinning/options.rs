// SPDX-License-Identifier: Apache-2.0
//! What the pinning benchmark measures.

use crate::transfer::{BenchError, Shape};

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct PinningOptions {
    /// The rows of a page.
    pub shape: Shape,
    /// Bytes of a pool and of a peer's allocation; whole pages of it are used.
    pub bytes: u64,
    /// Measurements of each, in turn, after one of each that is not counted.
    pub reps: usize,
    /// Bytes that a pool grows by beside loads.
    pub growth_bytes: u64,
    /// Bytes of a step of growth, one measurement for each.
    pub growth_chunks: Vec<u64>,
    /// Pages of a load.
    pub load_pages: u32,
    /// Loads that are measured before the growth.
    pub quiet_loads: usize,
}

impl PinningOptions {
    /// What a GPU is measured with: 16 GiB.
    #[must_use]
    pub fn full() -> Self {
        Self {
            shape: Shape::DEEPSEEK,
            bytes: 16 << 30,
            reps: 3,
            growth_bytes: 2 << 30,
            growth_chunks: vec![64 << 20, 128 << 20],
            load_pages: 64,
            quiet_loads: 20,
        }
    }

    /// What the simulated device is shown with: its pool is the same, its loads are modelled.
    #[must_use]
    pub fn simulated() -> Self {
        Self {
            shape: Shape {
                layers: 8,
                ..Shape::DEEPSEEK
            },
            bytes: 256 << 20,
            growth_bytes: 128 << 20,
            load_pages: 8,
            quiet_loads: 5,
            ..Self::full()
        }
    }

    /// Checks everything.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn check(&self) -> Result<(), BenchError> {
        let page_bytes = self.shape.page()?.page_bytes();
        let refused = |option, value: String, reason| {
            Err(BenchError::Option {
                option,
                value,
                reason,
            })
        };
        if self.bytes < page_bytes {
            return refused(
                "bytes",
                self.bytes.to_string(),
                "a pool has at least one page",
            );
        }
        if self.reps == 0 {
            let reason = "every figure is measured at least once";
            return refused("reps", "0".to_owned(), reason);
        }
        if self.load_pages == 0 {
            return refused("load pages", "0".to_owned(), "a load has at least one page");
        }
        Ok(())
    }
}
