// SPDX-License-Identifier: Apache-2.0
//! What the transfer benchmark measures.

use striata_core::{PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata_gpu::transfer::TransferPaths;
use striata_host::HostPoolConfig;

use super::error::BenchError;
use super::group::Group;

/// Most pages of one job; pools hold twice as many.
const MOST_PAGES: u32 = 1 << 16;

/// The rows of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Layers.
    pub layers: u32,
    /// Rows of a page on this rank.
    pub page_rows: u32,
    /// Bytes of a row in one layer, a multiple of 4.
    pub row_bytes: u32,
}

impl Shape {
    /// Pages of 64 rows of DeepSeek-V3.1: 61 layers of 1152 B a row. The bars hold for it.
    pub const DEEPSEEK: Self = Self {
        layers: 61,
        page_rows: 64,
        row_bytes: 1152,
    };

    /// Bytes of a page.
    ///
    /// # Errors
    /// Rows that make no page.
    pub fn page(self) -> Result<PageGeometry, BenchError> {
        Ok(PageGeometry::new(
            self.page_rows,
            self.row_bytes,
            self.layers,
        )?)
    }

    /// A pool of `pages` pages.
    ///
    /// # Errors
    /// Rows that make no page or no stripe; fewer than two pages, of which one is the sink.
    pub fn pool(self, pages: u32) -> Result<PoolGeometry, BenchError> {
        let stripe = Stripe::new(1, self.page_rows)?;
        let rows = u64::from(pages) * u64::from(self.page_rows);
        let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, self.page()?, rows)?;
        Ok(pool)
    }
}

/// What is measured, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferOptions {
    /// The rows of a page.
    pub shape: Shape,
    /// Pages of the jobs that are measured.
    pub pages: Vec<u32>,
    /// Measurements of each figure.
    pub reps: usize,
    /// Bytes of the copies that make the ceilings.
    pub ceiling_bytes: u64,
    /// A ceiling below this many GB/s voids the run; 0 for none.
    pub floor_gb_per_s: f64,
    /// Measurements of the small copy beside a load.
    pub foreign_samples: usize,
    /// Rows of a row list.
    pub list_rows: u32,
    /// Parts to run; all if empty.
    pub only: Vec<Group>,
    /// Which pages are drawn.
    pub seed: u64,
    /// Bytes of a registration of the host pool, roughly.
    pub registration_bytes: u64,
    /// Which way the bytes of the engine's jobs take.
    pub paths: TransferPaths,
}

impl TransferOptions {
    /// What a GPU is measured with.
    #[must_use]
    pub fn full() -> Self {
        Self {
            shape: Shape::DEEPSEEK,
            pages: vec![1, 2, 8, 64, 256, 512],
            reps: 20,
            ceiling_bytes: 1 << 30,
            floor_gb_per_s: 54.0,
            foreign_samples: 500,
            list_rows: 4096,
            only: Vec::new(),
            seed: 1,
            registration_bytes: HostPoolConfig::CHUNK_BYTES,
            paths: TransferPaths::built_in(),
        }
    }

    /// What the simulated device is shown with: it moves every byte, so little is moved.
    #[must_use]
    pub fn simulated() -> Self {
        Self {
            shape: Shape {
                layers: 8,
                ..Shape::DEEPSEEK
            },
            pages: vec![1, 2, 8, 16],
            reps: 3,
            ceiling_bytes: 8 << 20,
            floor_gb_per_s: 0.0,
            foreign_samples: 20,
            list_rows: 512,
            ..Self::full()
        }
    }

    /// Fewer and smaller measurements, for a first look; too few for the bars.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.reps = self.reps.min(5);
        self.foreign_samples = self.foreign_samples.min(100);
        self.pages.retain(|pages| *pages <= 64);
        self
    }

    /// Whether a part runs.
    #[must_use]
    pub fn wants(&self, group: Group) -> bool {
        self.only.is_empty() || self.only.contains(&group)
    }

    /// The parts that run, in order.
    pub fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        Group::ALL.into_iter().filter(|group| self.wants(*group))
    }

    /// Pages of the largest job.
    #[must_use]
    pub fn most_pages(&self) -> u32 {
        self.pages.iter().copied().max().unwrap_or(1)
    }

    /// Sorts the page counts and checks everything.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn check(&mut self) -> Result<(), BenchError> {
        self.shape.page()?;
        self.pages.sort_unstable();
        self.pages.dedup();
        let refused = |option, value: &dyn core::fmt::Display, reason| {
            let value = value.to_string();
            Err(BenchError::Option {
                option,
                value,
                reason,
            })
        };
        match (self.pages.first(), self.pages.last()) {
            (Some(1..), Some(..=MOST_PAGES)) => {}
            (Some(0), _) => return refused("pages", &0, "a job has at least one page"),
            (_, Some(most)) => return refused("pages", most, "a job has at most 65536 pages"),
            _ => return refused("pages", &"none", "name at least one number of pages"),
        }
        if self.shape.page_rows == 0 {
            return refused("page rows", &0, "a page has at least one row");
        }
        if self.shape.layers == 0 {
            return refused("layers", &0, "a pool has at least one layer");
        }
        if self.shape.row_bytes == 0 {
            return refused("row bytes", &0, "a row has at least one word");
        }
        if self.reps == 0 {
            return refused("reps", &0, "every figure is measured at least once");
        }
        if self.ceiling_bytes == 0 || !self.ceiling_bytes.is_multiple_of(4) {
            let reason = "the ceiling is a copy of whole words";
            return refused("ceiling bytes", &self.ceiling_bytes, reason);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_counts_are_sorted_and_silly_values_are_refused() {
        let mut options = TransferOptions::full();
        options.pages = vec![8, 1, 8];
        options.check().unwrap();
        assert_eq!(
            (options.pages.as_slice(), options.most_pages()),
            (&[1, 8][..], 8)
        );
        let refused = |change: fn(&mut TransferOptions)| {
            let mut options = TransferOptions::simulated();
            change(&mut options);
            let error = options.check().unwrap_err();
            assert!(error.is_usage());
            error.to_string()
        };
        assert!(refused(|o| o.pages.clear()).contains("none"));
        assert!(refused(|o| o.pages.push(0)).contains("at least one page"));
        assert!(refused(|o| o.pages.push(70_000)).contains("70000"));
        assert!(refused(|o| o.reps = 0).contains("reps"));
        assert!(refused(|o| o.ceiling_bytes = 6).contains('6'));
        refused(|o| o.shape.row_bytes = 6);
        assert!(refused(|o| o.shape.row_bytes = 0).contains("row"));
        assert!(refused(|o| o.shape.page_rows = 0).contains("row"));
        assert!(refused(|o| o.shape.layers = 0).contains("layer"));
    }

    #[test]
    fn parts_run_in_their_order_whatever_order_was_asked_for() {
        let mut options = TransferOptions::full();
        assert_eq!(options.groups().count(), Group::ALL.len());
        options.only = vec![Group::Store, Group::Load];
        assert_eq!(
            options.groups().collect::<Vec<_>>(),
            [Group::Load, Group::Store]
        );
        assert!(options.quick().most_pages() == 64);
    }
}
