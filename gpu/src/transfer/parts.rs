// SPDX-License-Identifier: Apache-2.0
//! The groups in which a job is submitted: a load by layers, so that its first layers open early; a
//! store by pages, whose layers go together.

use core::ops::Range;

use super::groups::LayerGroups;
use super::job::JobPlan;
use super::pieces::PageRun;
use crate::device::{CopyForm, Piece};

/// The runs of a job, and which of them and which layers make a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    runs: Vec<PageRun>,
    cut: Cut,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cut {
    /// All runs, some layers.
    Layers(LayerGroups),
    /// All layers, some runs: the run after the last of each group.
    Pages { layers: u32, ends: Vec<usize> },
}

impl Parts {
    pub(super) const fn by_layers(runs: Vec<PageRun>, groups: LayerGroups) -> Self {
        Self {
            runs,
            cut: Cut::Layers(groups),
        }
    }

    /// Groups of `most_pages` pages, at least one; runs are cut where a group ends.
    pub(super) fn by_pages(runs: Vec<PageRun>, layers: u32, most_pages: u32) -> Self {
        let most = most_pages.max(1);
        let mut cut = Vec::with_capacity(runs.len());
        let (mut ends, mut left) = (Vec::new(), most);
        for mut run in runs {
            while run.pages > left {
                let (first, rest) = run.split(left);
                cut.push(first);
                ends.push(cut.len());
                (run, left) = (rest, most);
            }
            cut.push(run);
            left -= run.pages;
        }
        if ends.last() != Some(&cut.len()) && !cut.is_empty() {
            ends.push(cut.len());
        }
        Self {
            runs: cut,
            cut: Cut::Pages { layers, ends },
        }
    }

    /// How many groups.
    pub(super) fn count(&self) -> u32 {
        let count = match &self.cut {
            Cut::Layers(groups) => groups.len(),
            Cut::Pages { ends, .. } => ends.len(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Runs and layers of a group; nothing past the last.
    fn group(&self, group: u32) -> (&[PageRun], Range<u32>) {
        let at = group as usize;
        match &self.cut {
            Cut::Layers(groups) => (&self.runs, groups.range(at)),
            Cut::Pages { layers, ends } => {
                let start = at.checked_sub(1).and_then(|before| ends.get(before));
                let range = start.copied().unwrap_or(0)..ends.get(at).copied().unwrap_or(0);
                (self.runs.get(range).unwrap_or_default(), 0..*layers)
            }
        }
    }
}

impl JobPlan {
    /// Puts the pieces of a group into `out`, in the order in which they are submitted.
    pub(super) fn pieces(&self, group: u32, out: &mut Vec<Piece>) {
        out.clear();
        let (runs, layers) = self.parts.group(group);
        match self.form {
            CopyForm::Runs => self.host.shape.runs(runs, layers, out),
            CopyForm::Rectangles => self.host.shape.rectangles(runs, layers, out),
        }
    }

    /// Bytes of a group.
    pub(super) fn group_bytes(&self, group: u32) -> u64 {
        let (runs, layers) = self.parts.group(group);
        let pages = match &self.parts.cut {
            Cut::Layers(_) => self.pages.len() as u64,
            Cut::Pages { .. } => runs.iter().map(|run| u64::from(run.pages)).sum(),
        };
        let chunk = self.host.shape.page.chunk_bytes();
        pages
            .saturating_mul(layers.len() as u64)
            .saturating_mul(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use striata_core::{L1Page, L2Page};

    fn runs(lengths: &[u32]) -> Vec<PageRun> {
        let run = |(at, &pages): (usize, &u32)| PageRun {
            l1: L1Page::new(1000 * u32::try_from(at).unwrap()),
            l2: L2Page::new(7 + 1000 * u32::try_from(at).unwrap()),
            pages,
        };
        lengths.iter().enumerate().map(run).collect()
    }

    fn pages(runs: &[PageRun]) -> Vec<(u32, u32)> {
        let of = |run: &PageRun| {
            let (l1, l2) = (run.l1.get(), run.l2.get());
            (0..run.pages).map(move |page| (l1 + page, l2 + page))
        };
        runs.iter().flat_map(of).collect()
    }

    proptest! {
        #[test]
        fn groups_of_pages_hold_every_page_once_in_order(
            lengths in prop::collection::vec(1u32..20, 0..8), most in 0u32..12,
        ) {
            let whole = runs(&lengths);
            let parts = Parts::by_pages(whole.clone(), 5, most);
            let mut listed = Vec::new();
            for group in 0..parts.count() {
                let (runs, layers) = parts.group(group);
                let found = pages(runs);
                prop_assert_eq!(layers, 0..5);
                let full = most.max(1) as usize;
                prop_assert!(found.len() == full || group + 1 == parts.count());
                prop_assert!(!found.is_empty() && found.len() <= full);
                listed.extend(found);
            }
            prop_assert_eq!(listed, pages(&whole));
            prop_assert!(parts.group(parts.count()).0.is_empty());
        }
    }
}
