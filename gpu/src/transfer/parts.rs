// SPDX-License-Identifier: Apache-2.0
//! The units in which a job is submitted: a load by layer groups, so that its first layers open
//! early; a store by pages, whose layers go together.
//!
//! A layer group whose bytes are more than a call may have is cut into slices, each some of its
//! pages. A unit is a slice, or a group that needs no cutting: what the window counts, and where
//! one job can give way to another. The gate of a layer opens behind the last slice of its group.

use core::ops::Range;

use striata_kernels::cells::Cell;

use super::groups::LayerGroups;
use super::pieces::PageRun;

/// Pages of the first slices of a load of many pages. The link begins when the first call returns,
/// 0.5 us a descriptor, and takes 1.3 us for each: so few come first, and each slice is prepared
/// while the one before is copied.
const FIRST_SLICES: [u32; 3] = [24, 60, 150];

/// Some layers of some runs or rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) layers: Range<u32>,
    items: Range<usize>,
    /// Pages or rows.
    pub(super) count: u32,
}

/// What a job moves.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Items {
    Pages(Vec<PageRun>),
    Rows(Vec<Cell>),
}

/// What a unit moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share<'a> {
    Pages(&'a [PageRun]),
    Rows(&'a [Cell]),
}

/// The runs or rows of a job, and how they are cut into units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    items: Items,
    units: Vec<Unit>,
    /// Units up to the end of each layer group.
    ends: Box<[u32]>,
}

impl Parts {
    /// All pages by groups of layers. A slice of several pages has no more than `call_bytes` if a
    /// page has `chunk_bytes` in a layer.
    pub(super) fn by_layers(
        runs: &[PageRun],
        groups: &LayerGroups,
        chunk_bytes: u64,
        call_bytes: u64,
    ) -> Self {
        let slices = Slices::of(count(runs), groups, chunk_bytes, call_bytes, &FIRST_SLICES);
        let mut cuts = slices.edges.clone();
        cuts.sort_unstable();
        cuts.dedup();
        let (runs, at) = cut(runs, &cuts);
        let index = |edge: u32| {
            let place = cuts.binary_search(&edge).unwrap_or_else(|place| place);
            at.get(place).copied().unwrap_or(runs.len())
        };
        let (units, ends) = units_of(groups, &slices, 0, index);
        let items = Items::Pages(runs);
        Self { items, units, ends }
    }

    /// All rows by groups of layers, of which the first group begins at layer `first`. A slice of
    /// several rows has no more than `call_bytes` if a row has `row_bytes` in a layer.
    pub(super) fn rows(
        cells: Vec<Cell>,
        groups: &LayerGroups,
        first: u32,
        row_bytes: u64,
        call_bytes: u64,
    ) -> Self {
        let rows = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        let slices = Slices::of(rows, groups, row_bytes, call_bytes, &[]);
        let (units, ends) = units_of(groups, &slices, first, |edge| edge as usize);
        let items = Items::Rows(cells);
        Self { items, units, ends }
    }

    /// All `layers` layers by pages: equal groups of at most `most` pages, at least one.
    pub(super) fn by_pages(runs: &[PageRun], layers: u32, most: u32) -> Self {
        Self::at_pages(runs, layers, &even(count(runs), most).collect::<Vec<_>>())
    }

    /// As [`Self::by_pages`], but the first groups have 1 and 2 pages, so that what comes behind a
    /// first step that takes no page may begin early.
    pub(super) fn by_growing_pages(runs: &[PageRun], layers: u32, most: u32) -> Self {
        let pages = count(runs);
        let (mut edges, mut done) = (Vec::new(), 0);
        for size in [1, 2] {
            if size < most && pages - done > size {
                done += size;
                edges.push(done);
            }
        }
        edges.extend(even(pages - done, most).map(|edge| done + edge));
        Self::at_pages(runs, layers, &edges)
    }

    fn at_pages(runs: &[PageRun], layers: u32, edges: &[u32]) -> Self {
        let (runs, at) = cut(runs, edges);
        let (mut first, mut run) = (0, 0);
        let units = edges.iter().zip(at).map(|(&edge, end)| {
            let unit = Unit {
                layers: 0..layers,
                items: run..end,
                count: edge - first,
            };
            (first, run) = (edge, end);
            unit
        });
        let units: Vec<Unit> = units.collect();
        let ends = Box::new([len_of(&units)]);
        let items = Items::Pages(runs);
        Self { items, units, ends }
    }

    /// How many units.
    pub(super) fn count(&self) -> u32 {
        len_of(&self.units)
    }

    /// Units up to the end of each layer group.
    pub(super) const fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// A unit and what it moves; none past the last.
    pub(super) fn unit(&self, unit: u32) -> Option<(&Unit, Share<'_>)> {
        let unit = self.units.get(unit as usize)?;
        let share = match &self.items {
            Items::Pages(runs) => Share::Pages(runs.get(unit.items.clone())?),
            Items::Rows(cells) => Share::Rows(cells.get(unit.items.clone())?),
        };
        Some((unit, share))
    }
}

/// How the groups of a job are cut into slices.
struct Slices {
    /// Pages or rows up to the end of each slice, group after group.
    edges: Vec<u32>,
    /// Edges up to the end of each group.
    ends: Vec<usize>,
}

impl Slices {
    /// Slices of `count` pages or rows in all: none of several items has more than `call_bytes`.
    /// The first group begins with slices of the sizes of `lead`, as long as more than half of the
    /// next size would be left.
    fn of(
        count: u32,
        groups: &LayerGroups,
        item_bytes: u64,
        call_bytes: u64,
        lead: &[u32],
    ) -> Self {
        let mut edges = Vec::with_capacity(groups.len() + 1);
        let mut ends = Vec::with_capacity(groups.len());
        for group in 0..groups.len() {
            let layers = groups.range(group).len() as u64;
            let most = call_bytes.checked_div(item_bytes.saturating_mul(layers));
            let most = u32::try_from(most.unwrap_or(u64::MAX)).unwrap_or(u32::MAX);
            let mut done = 0;
            for &size in lead.iter().filter(|_| group == 0) {
                if size <= most && count - done > size + size / 2 {
                    done += size;
                    edges.push(done);
                }
            }
            edges.extend(even(count - done, most).map(|edge| done + edge));
            ends.push(edges.len());
        }
        Self { edges, ends }
    }

    /// The ends of the slices of each group.
    fn groups(&self) -> impl Iterator<Item = &[u32]> {
        let begins = core::iter::once(0).chain(self.ends.iter().copied());
        let groups = begins.zip(&self.ends);
        groups.map(|(begin, &end)| self.edges.get(begin..end).unwrap_or_default())
    }
}

/// The units of groups with slices that end at `edges`, and how many end each group. The layers of
/// the groups count from `first`; `index` is the place of an edge among the items.
fn units_of(
    groups: &LayerGroups,
    slices: &Slices,
    first: u32,
    index: impl Fn(u32) -> usize,
) -> (Vec<Unit>, Box<[u32]>) {
    let mut units = Vec::with_capacity(slices.edges.len());
    let mut ends = Vec::with_capacity(slices.ends.len());
    for (group, edges) in slices.groups().enumerate() {
        let layers = groups.range(group);
        let layers = first + layers.start..first + layers.end;
        let (mut done, mut item) = (0, 0);
        for &edge in edges {
            let end = index(edge);
            units.push(Unit {
                layers: layers.clone(),
                items: item..end,
                count: edge - done,
            });
            (done, item) = (edge, end);
        }
        ends.push(len_of(&units));
    }
    (units, ends.into())
}

fn len_of(units: &[Unit]) -> u32 {
    u32::try_from(units.len()).unwrap_or(u32::MAX)
}

fn count(runs: &[PageRun]) -> u32 {
    runs.iter()
        .fold(0, |sum, run| sum.saturating_add(run.pages))
}

/// The ends of the fewest nearly equal groups of `pages` pages that have at most `most` pages each,
/// at least one.
fn even(pages: u32, most: u32) -> impl Iterator<Item = u32> {
    let groups = pages.div_ceil(most.max(1));
    let end = move |group: u32| {
        let end = (u64::from(pages) * u64::from(group)).div_ceil(u64::from(groups));
        u32::try_from(end).unwrap_or(pages)
    };
    (1..=groups).map(end)
}

/// Cuts runs where so many pages have passed; returns the run after each cut. `edges` ascend.
fn cut(runs: &[PageRun], edges: &[u32]) -> (Vec<PageRun>, Vec<usize>) {
    let mut parts = Vec::with_capacity(runs.len() + edges.len());
    let mut at = Vec::with_capacity(edges.len());
    let (mut done, mut edges) = (0u32, edges.iter().peekable());
    for &run in runs {
        let mut run = run;
        while let Some(edge) = edges.next_if(|&&edge| edge <= done.saturating_add(run.pages)) {
            let (first, rest) = run.split(edge - done);
            done = *edge;
            if first.pages > 0 {
                parts.push(first);
            }
            at.push(parts.len());
            run = rest;
        }
        if run.pages > 0 {
            done = done.saturating_add(run.pages);
            parts.push(run);
        }
    }
    (parts, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use striata_core::{L1Page, L2Page};

    const CHUNK: u64 = 73_728;

    fn runs(lengths: &[u32]) -> Vec<PageRun> {
        let run = |(at, &pages): (usize, &u32)| PageRun {
            l1: L1Page::new(1000 * u32::try_from(at).unwrap()),
            l2: L2Page::new(7 + 1000 * u32::try_from(at).unwrap()),
            pages,
        };
        lengths.iter().enumerate().map(run).collect()
    }

    fn pages_of(share: Share<'_>) -> Vec<(u32, u32)> {
        match share {
            Share::Pages(runs) => pages(runs),
            Share::Rows(_) => panic!("rows"),
        }
    }

    fn pages(runs: &[PageRun]) -> Vec<(u32, u32)> {
        let of = |run: &PageRun| {
            let (l1, l2) = (run.l1.get(), run.l2.get());
            (0..run.pages).map(move |page| (l1 + page, l2 + page))
        };
        runs.iter().flat_map(of).collect()
    }

    fn sizes(parts: &Parts) -> Vec<(usize, u32)> {
        let unit = |at| {
            let (unit, _) = parts.unit(at).unwrap();
            (unit.layers.len(), unit.count)
        };
        (0..parts.count()).map(unit).collect()
    }

    #[test]
    fn a_large_group_is_cut_into_equal_slices_and_its_end_is_the_last_one() {
        let scattered = runs(&[1; 512]);
        let groups = LayerGroups::growing(3, 200, 1);
        let parts = Parts::by_layers(&scattered, &groups, CHUNK, 20_000_000);
        // 37.7 MB a layer; the first layer begins with short slices.
        let sizes_of = |counts: &[u32]| counts.iter().map(|&count| (1, count)).collect::<Vec<_>>();
        let first = [24, 60, 150, 139, 139];
        let expected = [&first[..], &[256; 4]].concat();
        assert_eq!(sizes(&parts), sizes_of(&expected));
        assert_eq!(parts.ends(), [5, 7, 9]);
        let whole = |pages: usize| {
            let parts = Parts::by_layers(&scattered[..pages], &groups, CHUNK, 40_000_000);
            let ends = parts.ends().to_vec();
            (sizes(&parts), ends)
        };
        assert_eq!(whole(64), (sizes_of(&[24, 40, 64, 64]), vec![2, 3, 4]));
        assert_eq!(whole(37), (sizes_of(&[24, 13, 37, 37]), vec![2, 3, 4]));
        assert_eq!(whole(36), (sizes_of(&[36; 3]), vec![1, 2, 3]));
        let all = sizes_of(&[24, 60, 150, 278, 512, 512]);
        assert_eq!(whole(512), (all, vec![4, 5, 6]));
        let few = Parts::by_layers(&scattered[..8], &groups, CHUNK, 20_000_000);
        assert_eq!((sizes(&few), few.ends()), (vec![(1, 8); 3], &[1, 2, 3][..]));
        // A page that is more than a call may have still goes.
        let tight = Parts::by_layers(&scattered[..2], &groups, CHUNK, 1);
        assert_eq!(sizes(&tight), [(1, 1); 6]);
    }

    #[test]
    fn staged_groups_grow_to_their_cap() {
        let grown = |pages, most| {
            let parts = Parts::by_growing_pages(&runs(&[pages]), 5, most);
            sizes(&parts)
                .into_iter()
                .map(|(_, pages)| pages)
                .collect::<Vec<_>>()
        };
        assert_eq!(grown(8, 3), [1, 2, 3, 2]);
        assert_eq!(grown(1, 3), [1]);
        assert_eq!(grown(2, 3), [1, 1]);
        assert_eq!(grown(3, 1), [1, 1, 1]);
        assert_eq!(grown(9, 100), [1, 2, 6]);
    }

    #[test]
    fn rows_are_cut_into_slices_of_a_layer_range() {
        let cells: Vec<Cell> = (0..2000)
            .map(|at| Cell {
                plane: at,
                far: 7 * at,
            })
            .collect();
        let groups = LayerGroups::growing(3, 200, 2);
        let parts = Parts::rows(cells.clone(), &groups, 10, 1152, 20_000_000);
        assert_eq!(sizes(&parts), [(1, 2000), (2, 2000)]);
        assert_eq!(parts.ends(), [1, 2]);
        let (unit, share) = parts.unit(0).unwrap();
        assert_eq!((&unit.layers, share), (&(10..11), Share::Rows(&cells)));
        assert_eq!(parts.unit(1).unwrap().0.layers, 11..13);
        let tight = Parts::rows(cells, &groups, 0, 1152, 1152 * 1000);
        assert_eq!(tight.ends(), [2, 6]);
    }

    proptest! {
        #[test]
        fn groups_of_pages_hold_every_page_once_in_order(
            lengths in prop::collection::vec(1u32..20, 0..8), most in 0u32..12, growing: bool,
        ) {
            let whole = runs(&lengths);
            let parts = if growing {
                Parts::by_growing_pages(&whole, 5, most)
            } else {
                Parts::by_pages(&whole, 5, most)
            };
            let mut listed = Vec::new();
            for at in 0..parts.count() {
                let (unit, share) = parts.unit(at).unwrap();
                let found = pages_of(share);
                prop_assert_eq!(&unit.layers, &(0..5));
                prop_assert_eq!(found.len(), unit.count as usize);
                prop_assert!(!found.is_empty() && found.len() <= most.max(1) as usize);
                listed.extend(found);
            }
            prop_assert_eq!(listed, pages(&whole));
            prop_assert!(parts.unit(parts.count()).is_none());
            prop_assert_eq!(parts.ends(), &[parts.count()]);
        }

        #[test]
        fn slices_hold_every_page_of_every_layer_once(
            lengths in prop::collection::vec(1u32..20, 0..8), layers in 1u32..9, most in 1u32..9,
            call in 1u64..400,
        ) {
            let whole = runs(&lengths);
            let groups = LayerGroups::growing(layers, 200, most);
            let parts = Parts::by_layers(&whole, &groups, 3, call);
            prop_assert_eq!(parts.ends().len(), groups.len());
            let mut at = 0;
            for group in 0..groups.len() {
                let mut listed = Vec::new();
                while at < parts.ends()[group] {
                    let (unit, share) = parts.unit(at).unwrap();
                    let found = pages_of(share);
                    prop_assert_eq!(&unit.layers, &groups.range(group));
                    prop_assert_eq!(found.len(), unit.count as usize);
                    let bytes = 3 * u64::from(unit.count) * unit.layers.len() as u64;
                    prop_assert!(unit.count == 1 || bytes <= call);
                    listed.extend(found);
                    at += 1;
                }
                prop_assert_eq!(listed, pages(&whole));
            }
            prop_assert_eq!(at, parts.count());
        }
    }
}
