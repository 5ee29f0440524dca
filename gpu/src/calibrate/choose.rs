// SPDX-License-Identifier: Apache-2.0
//! From measurements to rules.

use super::cells::{DIRECTIONS, KINDS, PAGES, built_in, class_of};
use super::{Measured, Measurements};
use crate::device::Direction;
use crate::transfer::{CopyPath, LayerCut, PageRule, PlaneKind, TransferPaths};

/// How much faster than the built-in rule another must be to take its place: what two runs differ
/// by.
const BEYOND_NOISE: f64 = 1.03;
/// Paths by kernels count as that much slower than they are: beside them small kernels of decode
/// run up to several times as long, beside copy engines hardly any longer.
const KERNEL_PRICE: f64 = 1.25;

/// The rules that the measurements call for.
pub(super) fn paths(measured: &Measurements) -> TransferPaths {
    let mut paths = TransferPaths::built_in();
    for direction in DIRECTIONS {
        let rows = measured.of(direction);
        for planes in KINDS {
            for (class, chunk_bytes) in chunks(rows, planes) {
                let rules = &mut paths.of_mut(direction).grid_mut(planes)[class];
                for pages in PAGES {
                    let cell = Cell {
                        rows,
                        planes,
                        chunk_bytes,
                        pages,
                    };
                    let before = built_in(direction, planes, chunk_bytes, pages);
                    let class = class_of(&TransferPaths::PAGES, &pages);
                    rules[class] = cell.choose(before, |_| true);
                    // The largest job that was measured stands for larger ones. Their layers must
                    // not come all at once.
                    if Some(&pages) == PAGES.last() {
                        let before = built_in(direction, planes, chunk_bytes, u32::MAX);
                        let chosen = cell.choose(before, |rule| opens_early(direction, rule));
                        rules[class + 1..].fill(chosen);
                    }
                }
            }
        }
    }
    paths
}

impl Measurements {
    /// Those of one direction.
    #[must_use]
    pub fn of(&self, direction: Direction) -> &[Measured] {
        match direction {
            Direction::HostToDevice => &self.loads,
            Direction::DeviceToHost => &self.stores,
        }
    }
}

/// The chunk sizes that were measured on planes of a kind, with their classes.
fn chunks(rows: &[Measured], planes: PlaneKind) -> Vec<(usize, u64)> {
    let of_kind = rows.iter().filter(|row| row.planes == planes);
    let mut found: Vec<_> = of_kind
        .map(|row| {
            let class = class_of(&TransferPaths::CHUNKS, &row.chunk_bytes);
            (class, row.chunk_bytes)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Jobs of one kind that took different paths.
struct Cell<'a> {
    rows: &'a [Measured],
    planes: PlaneKind,
    chunk_bytes: u64,
    pages: u32,
}

impl Cell<'_> {
    fn measured(&self) -> impl Iterator<Item = &Measured> {
        let key = (self.planes, self.chunk_bytes, self.pages);
        self.rows
            .iter()
            .filter(move |row| (row.planes, row.chunk_bytes, row.pages) == key)
    }

    /// The fastest rule that is allowed, or `before` if nothing is faster beyond noise.
    fn choose(&self, before: PageRule, allowed: impl Fn(PageRule) -> bool) -> PageRule {
        let mut best: Option<&Measured> = None;
        for row in self.measured().filter(|row| allowed(row.rule)) {
            if best.is_none_or(|best| worth(row) > worth(best)) {
                best = Some(row);
            }
        }
        let Some(best) = best else {
            return before;
        };
        // A path that this device does not have was measured as nothing.
        let held = self.measured().find(|row| row.rule == before);
        match held {
            Some(held) if worth(best) <= worth(held) * BEYOND_NOISE => before,
            _ => best.rule,
        }
    }
}

/// Whether layers of large loads open one after the other.
const fn opens_early(direction: Direction, rule: PageRule) -> bool {
    matches!(direction, Direction::DeviceToHost) || matches!(rule.cut, LayerCut::Growing(_))
}

/// The rate of a path, less the price of its kind.
fn worth(row: &Measured) -> f64 {
    match row.rule.path {
        CopyPath::Mapped | CopyPath::Staged => row.gb_per_s / KERNEL_PRICE,
        _ => row.gb_per_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::LayerCut;

    const CHUNK: u64 = 73_728;
    const LOAD: Direction = Direction::HostToDevice;

    fn row(pages: u32, path: CopyPath, cut: LayerCut, gb_per_s: f64) -> Measured {
        Measured {
            planes: PlaneKind::Uniform,
            chunk_bytes: CHUNK,
            pages,
            rule: PageRule { path, cut },
            gb_per_s,
            count: 3,
        }
    }

    fn of_loads(loads: Vec<Measured>) -> TransferPaths {
        paths(&Measurements {
            layers: 61,
            loads,
            stores: Vec::new(),
        })
    }

    #[test]
    fn nothing_measured_leaves_the_built_in_table() {
        assert_eq!(of_loads(Vec::new()), TransferPaths::built_in());
    }

    #[test]
    fn a_rule_is_replaced_by_one_that_is_faster_beyond_noise() {
        let before = built_in(LOAD, PlaneKind::Uniform, CHUNK, 1);
        let runs = |rate| row(1, CopyPath::Runs, LayerCut::Growing(400), rate);
        let held = row(1, before.path, before.cut, 40.0);
        let rule = |paths: TransferPaths| paths.loads.rule(PlaneKind::Uniform, CHUNK, 1);
        assert_eq!(rule(of_loads(vec![held, runs(41.0)])), before);
        assert_eq!(rule(of_loads(vec![runs(41.3), held])), runs(0.0).rule);
        // The others of the table stay, also those of one page in other classes.
        let paths = of_loads(vec![runs(41.3), held]);
        assert_eq!(paths.stores, TransferPaths::built_in().stores);
        assert_eq!(
            paths.loads.separate,
            TransferPaths::built_in().loads.separate
        );
        let other = |paths: TransferPaths| paths.loads.rule(PlaneKind::Uniform, 4096, 1);
        assert_eq!(other(paths), other(TransferPaths::built_in()));
        assert_eq!(
            paths.loads.rule(PlaneKind::Uniform, CHUNK, 2),
            built_in(LOAD, PlaneKind::Uniform, CHUNK, 2)
        );
    }

    #[test]
    fn kernels_must_be_faster_than_that_by_their_price() {
        let before = built_in(LOAD, PlaneKind::Uniform, CHUNK, 8);
        let held = row(8, before.path, before.cut, 40.0);
        let mapped = |rate| row(8, CopyPath::Mapped, LayerCut::Growing(400), rate);
        let rule = |paths: TransferPaths, pages| paths.loads.rule(PlaneKind::Uniform, CHUNK, pages);
        assert_eq!(rule(of_loads(vec![held, mapped(51.0)]), 8), before);
        let paths = of_loads(vec![held, mapped(52.0)]);
        // The largest job that was measured stands for larger ones.
        for pages in [8, 9, 64, 512, 100_000] {
            assert_eq!(rule(paths, pages), mapped(0.0).rule);
        }
        assert_eq!(rule(paths, 4), built_in(LOAD, PlaneKind::Uniform, CHUNK, 4));
    }

    // Seen to fail if large loads take the fastest rule whatever its layer groups.
    #[test]
    fn large_loads_keep_groups_that_open_early() {
        let rectangles = row(8, CopyPath::Rectangles, LayerCut::FirstAndRest, 52.0);
        let slowly = row(8, CopyPath::Runs, LayerCut::Growing(130), 50.0);
        let fast = |rate| row(8, CopyPath::Runs, LayerCut::Growing(400), rate);
        let rule = |paths: TransferPaths, pages| paths.loads.rule(PlaneKind::Uniform, CHUNK, pages);
        let paths = of_loads(vec![rectangles, slowly, fast(50.5)]);
        assert_eq!(rule(paths, 8), rectangles.rule);
        assert_eq!(
            (rule(paths, 9), rule(paths, 512)),
            (slowly.rule, slowly.rule)
        );
        let paths = of_loads(vec![rectangles, slowly, fast(51.9)]);
        assert_eq!(
            (rule(paths, 8), rule(paths, 9)),
            (rectangles.rule, fast(0.0).rule)
        );
    }

    #[test]
    fn a_built_in_path_that_the_device_lacks_gives_way_to_any_other() {
        let slow = row(1, CopyPath::Runs, LayerCut::Growing(200), 0.5);
        let rule = of_loads(vec![slow])
            .loads
            .rule(PlaneKind::Uniform, CHUNK, 1);
        assert_eq!(rule, slow.rule);
    }
}
