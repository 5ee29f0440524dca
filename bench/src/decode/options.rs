// SPDX-License-Identifier: Apache-2.0
//! What is measured.

use core::fmt;
use core::str::FromStr;

use serde::Serialize;
use striata_kernels::decode::MmaSize;

use super::DecodeBenchError;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Attention alone.
    Kernel,
    /// The merge alone.
    Merge,
    /// A layer and a step of c ranks, and the plan.
    Group,
    /// CPU time of the thread that plans a step.
    Plan,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Merge, Self::Group, Self::Plan];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Merge => "merge",
            Self::Group => "group",
            Self::Plan => "plan",
        }
    }
}

impl FromStr for Part {
    type Err = DecodeBenchError;

    fn from_str(text: &str) -> Result<Self, DecodeBenchError> {
        let found = Self::ALL.into_iter().find(|part| part.name() == text);
        found.ok_or_else(|| DecodeBenchError::Text {
            text: text.to_owned(),
            reason: "the parts are kernel, merge, group and plan".to_owned(),
        })
    }
}

/// Sizes of an attention call: heads that a rank attends for, queries of a request, requests, and
/// rows of each on the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// H, the heads of the group.
    pub heads: u32,
    /// s_q.
    pub queries: u32,
    /// B.
    pub batch: u32,
    /// L, rows of a request on one rank.
    pub length: u32,
}

impl Shape {
    /// From H, s_q, B and L.
    #[must_use]
    pub const fn new(heads: u32, queries: u32, batch: u32, length: u32) -> Self {
        Self {
            heads,
            queries,
            batch,
            length,
        }
    }

    /// Bytes that a call must move: every row once, queries in, results out.
    #[must_use]
    pub fn bytes(self) -> f64 {
        let rows = f64::from(self.batch) * f64::from(self.length) * 1152.0;
        let outputs = f64::from(self.batch) * f64::from(self.queries) * f64::from(self.heads);
        rows + outputs * (1152.0 + 1024.0 + 4.0)
    }

    /// Operations: a product and a sum for each lane of a key and of a value.
    #[must_use]
    pub fn operations(self) -> f64 {
        let rows = f64::from(self.batch) * f64::from(self.length);
        2.0 * rows * f64::from(self.queries) * f64::from(self.heads) * 1088.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            heads,
            queries,
            batch,
            length,
        } = self;
        write!(f, "{heads}x{queries}x{batch}x{length}")
    }
}

impl FromStr for Shape {
    type Err = DecodeBenchError;

    /// `HxSxBxL`.
    fn from_str(text: &str) -> Result<Self, DecodeBenchError> {
        let numbers: Option<Vec<u32>> = text
            .split('x')
            .map(|part| part.parse().ok().filter(|n| *n > 0))
            .collect();
        match numbers.as_deref() {
            Some(&[heads, queries, batch, length]) if heads <= 128 && queries <= 8 => {
                Ok(Self::new(heads, queries, batch, length))
            }
            _ => Err(DecodeBenchError::Text {
                text: text.to_owned(),
                reason: "a shape is HEADSxQUERIESxBATCHxLENGTH, with at most 128 heads and 8 \
                         queries"
                    .to_owned(),
            }),
        }
    }
}

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Shapes of the kernel.
    pub shapes: Vec<Shape>,
    /// DCP sizes of the merge and of groups.
    pub dcp: Vec<u32>,
    /// Heads of the model that groups share, requests of their batches, tokens of each.
    pub group_heads: u32,
    /// Requests of groups.
    pub group_batches: Vec<u32>,
    /// Tokens of a request of groups.
    pub group_tokens: u32,
    /// Layers of a step.
    pub layers: u32,
    /// Launches that are timed together.
    pub launches: u32,
    /// Timings of each figure; the median counts.
    pub reps: usize,
    /// Bytes of rows that launches read in turn, so that caches hold none of them.
    pub rotation_bytes: u64,
    /// Only these parts; all of them if there are none.
    pub only: Vec<Part>,
    /// Which tensor-core kernels run; none: the largest that the device runs.
    pub mma: Option<MmaSize>,
}

impl DecodeOptions {
    /// On a GPU: the peers' shapes of one length, and groups of 2 and 8 ranks.
    #[must_use]
    pub fn full() -> Self {
        let mut shapes = Vec::new();
        for (heads, queries) in [(16, 1), (64, 1), (128, 1), (128, 2), (128, 4)] {
            for batch in [1, 8, 64, 128] {
                for length in [1024, 8192] {
                    shapes.push(Shape::new(heads, queries, batch, length));
                }
            }
        }
        Self {
            shapes,
            dcp: vec![2, 8],
            group_heads: 128,
            group_batches: vec![1, 8, 64, 256],
            group_tokens: 8192,
            layers: 61,
            launches: 16,
            reps: 7,
            rotation_bytes: 160 << 20,
            only: Vec::new(),
            mma: None,
        }
    }

    /// The same, shorter.
    #[must_use]
    pub fn quick() -> Self {
        let full = Self::full();
        let wanted = |shape: &Shape| matches!(shape.batch, 8 | 64 | 128) && shape.length == 8192;
        Self {
            shapes: full.shapes.iter().copied().filter(wanted).collect(),
            group_batches: vec![1, 64],
            reps: 3,
            ..full
        }
    }

    /// Where times are those of the CPU references: only that every part runs.
    #[must_use]
    pub fn simulated() -> Self {
        Self {
            shapes: vec![Shape::new(16, 1, 2, 100), Shape::new(8, 2, 3, 65)],
            dcp: vec![2, 3],
            group_heads: 12,
            group_batches: vec![2],
            group_tokens: 200,
            layers: 3,
            launches: 2,
            reps: 2,
            rotation_bytes: 1 << 20,
            only: Vec::new(),
            mma: None,
        }
    }

    pub(super) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_parts_are_read_and_refused() {
        let shape: Shape = "128x2x64x8192".parse().unwrap();
        assert_eq!(shape, Shape::new(128, 2, 64, 8192));
        assert_eq!(shape.to_string(), "128x2x64x8192");
        for text in [
            "",
            "128x2x64",
            "129x1x1x1",
            "16x9x1x1",
            "16x1x0x1",
            "16x1x1x-1",
        ] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
        assert_eq!("merge".parse::<Part>().unwrap(), Part::Merge);
        let error = "mergers".parse::<Part>().unwrap_err().to_string();
        assert!(error.contains("kernel, merge, group and plan"), "{error}");
    }

    #[test]
    fn a_shape_costs_what_the_roofline_says() {
        // 128 heads, one query: 242 operations a byte.
        let shape = Shape::new(128, 1, 64, 8192);
        let intensity = shape.operations() / (f64::from(64 * 8192) * 1152.0);
        assert!((intensity - 241.8).abs() < 0.1, "{intensity}");
        assert!(shape.bytes() > f64::from(64 * 8192) * 1152.0);
    }
}
