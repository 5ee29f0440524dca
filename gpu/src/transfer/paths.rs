// SPDX-License-Identifier: Apache-2.0
//! Which way the bytes of a job take: a table by direction, planes, chunk bytes and pages.
//!
//! The built-in table rests on these measurements of bare calls on an H200 (PCIe Gen5 x16, 61 layers
//! of 73,728 B a page, page-first host, driver 13.0; GB/s of a ceiling of 55.4 to the device and 55.3
//! to the host):
//!
//! | what | pages | by | rate |
//! |---|---|---|---|
//! | load, uniform planes | 1 / 2 | rectangles in layer groups 1, 60 | 47.0 / 49.1 |
//! | load, uniform planes | 1 / 2 | runs in groups 1, 4, 16, 40 | 43.7 / 48.4 |
//! | load | 4 | runs in groups 1, 4, 16, 40 (1, 2, 4, ..) | 51.0 (50.5) |
//! | load | 8 / 64 / 512 | runs in groups 1, 2, 4, 8, 16, 30 | 52.5 / 54.7 / 55.0 |
//! | store, uniform planes | 1 / 8 / 64 / 512 | rectangles of all layers | 49.4 / 53.2 / 53.5 / 53.6 |
//! | store, uniform planes | 1 / 8 / 64 / 512 | gathered into staging, then whole pages | 41 / 52 / 53 / 54.8 |
//! | rows of 1,152 B | 4,096 rows | kernel on mapped host memory, 16 blocks | 49.3 / 50.5 |
//! | rows of 1,152 B | 4,096 rows | a descriptor a row | 0.8 / 1.4 |
//!
//! Those calls took the host 0.45 us a descriptor. Through the engine, on hosts that took now 0.5 and
//! now 0.95 us, loads of 8 pages reached 50.6 to 51.6 by rectangles and 40 to 48 by runs, so the
//! former serve up to eight pages; `docs/performance.md` has the runs.
//!
//! Smaller chunks were measured alone, not as pages: batched runs give 28 GB/s at 32 KiB, 14 to
//! 20 at 16 KiB and 2 at 1,152 B, because every descriptor takes the host 0.43 us. So rectangles or
//! kernels should serve them better, but nothing was measured that says which: the table has the
//! rules of large chunks for them too, until a start-up calibration replaces them.

use serde::{Deserialize, Serialize};

use crate::device::Direction;

/// How the bytes of a job move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyPath {
    /// A rectangle a page whose rows are layers, many in one batched 3-D call. Uniform planes.
    Rectangles,
    /// The same rectangles by a 2-D call each.
    RectangleCalls,
    /// A descriptor a page and layer, many in one batched 1-D call.
    Runs,
    /// The same descriptors by a plain asynchronous copy each: what the others are compared with.
    RunCalls,
    /// A kernel between the planes and a ring of device memory, the copy engine between that and
    /// the host: few and large descriptors.
    Staged,
    /// A kernel between the planes and mapped host memory: no descriptor at all, but it takes
    /// multiprocessors and slows small kernels beside it.
    Mapped,
}

impl CopyPath {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Rectangles,
        Self::RectangleCalls,
        Self::Runs,
        Self::RunCalls,
        Self::Staged,
        Self::Mapped,
    ];

    /// Whether bytes go through a ring of device memory.
    #[must_use]
    pub const fn is_staged(self) -> bool {
        matches!(self, Self::Staged)
    }

    /// Its name in tables and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rectangles => "rectangles",
            Self::RectangleCalls => "rectangle_calls",
            Self::Runs => "runs",
            Self::RunCalls => "run_calls",
            Self::Staged => "staged",
            Self::Mapped => "mapped",
        }
    }
}

/// How the layers of a load are grouped. A store's layers go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerCut {
    /// All in one group: nobody starts early.
    Whole,
    /// The first layer, then the rest.
    FirstAndRest,
    /// The first layer, then groups that grow to so many percent of the one before, up to a cap.
    Growing(u16),
}

/// How jobs of one cell of the table move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRule {
    /// The path. One that planes, host layout or device rule out is replaced by [`CopyPath::Runs`].
    pub path: CopyPath,
    /// Layer groups of a load; stores do not look at it.
    pub cut: LayerCut,
}

/// How the planes of the layers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaneKind {
    /// At one distance in one allocation, within the pitch that the device takes: rectangles can
    /// cover several layers.
    Uniform,
    /// Anywhere.
    Separate,
}

/// Rules by chunk class, then by page class.
pub type PageGrid = [[PageRule; TransferPaths::PAGES.len()]; TransferPaths::CHUNKS.len()];

/// The rules of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DirectionPaths {
    /// Pages of uniform planes.
    pub uniform: PageGrid,
    /// Pages of separate planes.
    pub separate: PageGrid,
    /// Row lists are staged if the host rows form runs of at least this many bytes on average and
    /// the ring is there, else they go by a kernel on mapped memory; 0: always, `u64::MAX`: never.
    pub stage_rows_from: u64,
}

/// The rules of both directions. A plain value: replaced by a calibration, forced by a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferPaths {
    /// Host to device.
    pub loads: DirectionPaths,
    /// Device to host.
    pub stores: DirectionPaths,
}

/// One rule for all numbers of pages.
const fn all(path: CopyPath, cut: LayerCut) -> [PageRule; TransferPaths::PAGES.len()] {
    [PageRule { path, cut }; TransferPaths::PAGES.len()]
}

const fn rule(path: CopyPath, cut: LayerCut) -> PageRule {
    PageRule { path, cut }
}

/// Loads of one or two pages, and of up to eight, by these rules; of more by runs in groups that grow
/// by three tenths: also a host that takes 1 us a descriptor prepares a group while the one before
/// is copied, and one that takes half of it loses less than 1 % by the smaller groups.
const fn by_pages(two: PageRule, eight: PageRule) -> [PageRule; TransferPaths::PAGES.len()] {
    let mut rules = all(CopyPath::Runs, LayerCut::Growing(130));
    [rules[0], rules[1]] = [two, two];
    [rules[2], rules[3]] = [eight, eight];
    rules
}

impl TransferPaths {
    /// Most pages of each page class.
    pub const PAGES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, u32::MAX];
    /// Most bytes of a page in one layer of each chunk class.
    pub const CHUNKS: [u64; 5] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, u64::MAX];

    /// The table of this file, for a link and a host like those of an H200.
    #[must_use]
    pub const fn built_in() -> Self {
        let rectangles = rule(CopyPath::Rectangles, LayerCut::FirstAndRest);
        let uniform = by_pages(rectangles, rectangles);
        let separate = by_pages(
            rule(CopyPath::Runs, LayerCut::Growing(400)),
            rule(CopyPath::Runs, LayerCut::Growing(200)),
        );
        let store = all(CopyPath::Rectangles, LayerCut::Whole);
        let gathered = all(CopyPath::Staged, LayerCut::Whole);
        Self {
            loads: DirectionPaths {
                uniform: [uniform; Self::CHUNKS.len()],
                separate: [separate; Self::CHUNKS.len()],
                stage_rows_from: 512 << 10,
            },
            stores: DirectionPaths {
                uniform: [store; Self::CHUNKS.len()],
                separate: [gathered; Self::CHUNKS.len()],
                stage_rows_from: 512 << 10,
            },
        }
    }

    /// The rules of one direction.
    #[must_use]
    pub const fn of(&self, direction: Direction) -> &DirectionPaths {
        match direction {
            Direction::HostToDevice => &self.loads,
            Direction::DeviceToHost => &self.stores,
        }
    }

    /// The rules of one direction, to be changed.
    pub const fn of_mut(&mut self, direction: Direction) -> &mut DirectionPaths {
        match direction {
            Direction::HostToDevice => &mut self.loads,
            Direction::DeviceToHost => &mut self.stores,
        }
    }

    /// This table with one rule for every job of pages of a direction.
    #[must_use]
    pub const fn forced(mut self, direction: Direction, rule: PageRule) -> Self {
        let grid = [all(rule.path, rule.cut); Self::CHUNKS.len()];
        let paths = self.of_mut(direction);
        paths.uniform = grid;
        paths.separate = grid;
        self
    }

    /// This table with one path for every row list: staged, or else mapped.
    #[must_use]
    pub const fn forced_rows(mut self, staged: bool) -> Self {
        let from = if staged { 0 } else { u64::MAX };
        self.loads.stage_rows_from = from;
        self.stores.stage_rows_from = from;
        self
    }
}

impl DirectionPaths {
    /// The rules of planes of a kind.
    #[must_use]
    pub const fn grid(&self, planes: PlaneKind) -> &PageGrid {
        match planes {
            PlaneKind::Uniform => &self.uniform,
            PlaneKind::Separate => &self.separate,
        }
    }

    /// The rules of planes of a kind, to be changed.
    pub const fn grid_mut(&mut self, planes: PlaneKind) -> &mut PageGrid {
        match planes {
            PlaneKind::Uniform => &mut self.uniform,
            PlaneKind::Separate => &mut self.separate,
        }
    }

    /// The rule of a job of `pages` pages of `chunk_bytes` bytes in a layer.
    #[must_use]
    pub fn rule(&self, planes: PlaneKind, chunk_bytes: u64, pages: usize) -> PageRule {
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let page_class = TransferPaths::PAGES.partition_point(|&most| most < pages);
        let chunk_class = TransferPaths::CHUNKS.partition_point(|&most| most < chunk_bytes);
        // Both last classes have no limit.
        self.grid(planes)[chunk_class][page_class]
    }

    /// The path of a row list of `bytes` bytes in all whose host side is `runs` runs.
    #[must_use]
    pub fn row_path(&self, bytes: u64, runs: usize) -> CopyPath {
        let average = bytes.checked_div(runs as u64).unwrap_or(0);
        if self.stage_rows_from != u64::MAX && average >= self.stage_rows_from {
            CopyPath::Staged
        } else {
            CopyPath::Mapped
        }
    }
}

impl Default for TransferPaths {
    fn default() -> Self {
        Self::built_in()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 73_728;

    #[test]
    fn the_built_in_table_has_its_rules() {
        let paths = TransferPaths::default();
        let rule = |direction: Direction, planes, pages| {
            let rule = paths.of(direction).rule(planes, CHUNK, pages);
            (rule.path, rule.cut)
        };
        let (load, store) = (Direction::HostToDevice, Direction::DeviceToHost);
        let (uniform, separate) = (PlaneKind::Uniform, PlaneKind::Separate);
        let least = (CopyPath::Rectangles, LayerCut::FirstAndRest);
        let fast = (CopyPath::Runs, LayerCut::Growing(400));
        let few = (CopyPath::Runs, LayerCut::Growing(200));
        let many = (CopyPath::Runs, LayerCut::Growing(130));
        for (pages, expected) in [(1, fast), (2, fast), (3, few), (8, few)] {
            assert_eq!(rule(load, uniform, pages), least);
            assert_eq!(rule(load, separate, pages), expected);
        }
        for pages in [9, 64, 65, 512, usize::MAX] {
            assert_eq!(
                (rule(load, uniform, pages), rule(load, separate, pages)),
                (many, many)
            );
            assert_eq!(rule(store, uniform, pages).0, CopyPath::Rectangles);
            assert_eq!(rule(store, separate, pages).0, CopyPath::Staged);
        }
    }

    #[test]
    fn every_chunk_class_has_its_rules() {
        let mut paths = TransferPaths::default();
        let rule = PageRule {
            path: CopyPath::Mapped,
            cut: LayerCut::Whole,
        };
        let direction = Direction::HostToDevice;
        paths.of_mut(direction).grid_mut(PlaneKind::Separate)[2][5] = rule;
        let found = |chunk, pages| paths.of(direction).rule(PlaneKind::Separate, chunk, pages);
        assert_eq!(
            (found(32 << 10, 17), found((16 << 10) + 4, 32)),
            (rule, rule)
        );
        for (chunk, pages) in [
            (16 << 10, 17),
            ((32 << 10) + 4, 17),
            (32 << 10, 16),
            (32 << 10, 33),
        ] {
            assert_ne!(found(chunk, pages), rule);
        }
    }

    #[test]
    fn a_forced_rule_holds_for_every_job_of_its_direction() {
        for path in CopyPath::ALL {
            let cut = LayerCut::Growing(300);
            let rule = PageRule { path, cut };
            let forced = TransferPaths::default().forced(Direction::HostToDevice, rule);
            for pages in [0, 1, 5, 1000] {
                for (planes, chunk) in [(PlaneKind::Uniform, 4), (PlaneKind::Separate, 1 << 40)] {
                    assert_eq!(forced.loads.rule(planes, chunk, pages), rule);
                }
            }
            assert_eq!(forced.stores, TransferPaths::default().stores);
        }
    }

    #[test]
    fn long_host_runs_are_staged_and_short_ones_go_by_kernel() {
        let paths = TransferPaths::default().loads;
        assert_eq!(paths.row_path(1 << 20, 2), CopyPath::Staged);
        assert_eq!(paths.row_path(1 << 20, 3), CopyPath::Mapped);
        assert_eq!(paths.row_path(0, 0), CopyPath::Mapped);
        let forced = |staged| TransferPaths::default().forced_rows(staged).stores;
        assert_eq!(forced(true).row_path(4, 1), CopyPath::Staged);
        assert_eq!(forced(false).row_path(u64::MAX, 1), CopyPath::Mapped);
    }
}
