// SPDX-License-Identifier: Apache-2.0
//! How a job is done: its path by the table, its layer groups and units.

use core::ops::Range;

use striata_kernels::cells::Cell;

use super::groups::LayerGroups;
use super::parts::Parts;
use super::paths::{CopyPath, LayerCut, PlaneKind, TransferPaths};
use super::pieces::PageRun;
use super::shared::{Core, HostSide};
use super::staging::Staging;
use crate::device::{Device, Direction};
use crate::error::GpuError;

/// Of how many layers one may be in a group of the size of a call: see
/// [`super::TransferConfig`].
const FEW: u32 = 20;

/// How a job is done.
pub(super) struct Choice {
    pub(super) path: CopyPath,
    pub(super) groups: LayerGroups,
    pub(super) parts: Parts,
}

impl<D: Device> Core<D> {
    /// How a job of `pages` pages, joined to `runs`, is done.
    pub(super) fn choose(
        &self,
        direction: Direction,
        host: &HostSide,
        pages: usize,
        runs: &[PageRun],
    ) -> Choice {
        let (page, config) = (host.shape.page, &self.config);
        let (chunk, layers) = (page.chunk_bytes(), page.layers());
        let rules = config.paths.of(direction);
        let rule = rules.rule(host.plane_kind(), chunk, pages);
        let path = self.possible(direction, host, rule.path);
        // A unit that is staged fits into a slot.
        let slot = match (path, self.staging(direction)) {
            (CopyPath::Staged, Some(staging)) => Some(staging.slot_bytes),
            _ => None,
        };
        let (groups, parts) = match direction {
            Direction::HostToDevice => {
                let most = slot.map_or(u32::MAX, |slot| quotient(slot, chunk));
                let groups = self.groups(rule.cut, layers, chunk * pages as u64, most);
                // A load of a few pages is over soon, and has no call to spare.
                let slice = match rule.cut {
                    LayerCut::Growing(_) => config.slice_bytes,
                    _ => config.slice_bytes.saturating_mul(2),
                };
                let call = slice.min(slot.unwrap_or(u64::MAX));
                let parts = Parts::by_layers(runs, &groups, chunk, call);
                (groups, parts)
            }
            Direction::DeviceToHost => {
                let parts = match slot {
                    Some(slot) => {
                        let most = quotient(slot, page.page_bytes());
                        Parts::by_growing_pages(runs, layers, most)
                    }
                    None => {
                        let most = quotient(config.store_group_bytes, page.page_bytes());
                        Parts::by_pages(runs, layers, most)
                    }
                };
                (LayerGroups::whole(layers), parts)
            }
        };
        Choice {
            path,
            groups,
            parts,
        }
    }

    /// How a row list is done in `layers`: through the ring if the table says so for its host runs
    /// and the ring is there, else by a kernel on mapped memory.
    pub(super) fn choose_rows(
        &self,
        direction: Direction,
        host: &HostSide,
        mut cells: Vec<Cell>,
        layers: &Range<u32>,
    ) -> Choice {
        let (page, config) = (host.shape.page, &self.config);
        let row = u64::from(page.row_bytes());
        let (layer_bytes, count) = (row * cells.len() as u64, layers.end - layers.start);
        let rules = config.paths.of(direction);
        let staging = self.staging(direction).filter(|staging| {
            // Rows that are fewer than one long run need no look.
            let worth = staging.slot_bytes >= row && rules.row_path(layer_bytes, 1).is_staged();
            worth && {
                cells.sort_unstable_by_key(|cell| cell.far);
                rules
                    .row_path(layer_bytes, host_runs(&cells, row))
                    .is_staged()
            }
        });
        let slot = staging.map(|staging| staging.slot_bytes);
        let most = slot.map_or(u32::MAX, |slot| quotient(slot, layer_bytes));
        let groups = match direction {
            Direction::HostToDevice => {
                self.groups(LayerCut::Growing(200), count, layer_bytes, most)
            }
            // As many layers as fit, so that the runs stay long.
            Direction::DeviceToHost => self.groups(LayerCut::Whole, count, layer_bytes, most),
        };
        // A kernel's last warps end one after the other: fewer and longer ones lose less.
        let call = slot.map_or(config.slice_bytes.saturating_mul(2), |slot| {
            config.slice_bytes.min(slot)
        });
        let parts = Parts::rows(cells, &groups, layers.start, row, call);
        let behind = page.layers() - layers.end;
        Choice {
            path: slot.map_or(CopyPath::Mapped, |_| CopyPath::Staged),
            groups: groups.among(layers.start, behind),
            parts,
        }
    }

    /// Groups of `layers` layers of `layer_bytes` bytes, none of more than `most` layers.
    fn groups(&self, cut: LayerCut, layers: u32, layer_bytes: u64, most: u32) -> LayerGroups {
        match cut {
            LayerCut::Whole if most >= layers => LayerGroups::whole(layers),
            LayerCut::FirstAndRest if most >= layers => LayerGroups::first_and_rest(layers),
            LayerCut::Whole | LayerCut::FirstAndRest => {
                LayerGroups::growing(layers, u32::MAX, most)
            }
            LayerCut::Growing(percent) => {
                let of_group = quotient(self.config.group_bytes, layer_bytes);
                let of_call = quotient(self.config.slice_bytes, layer_bytes);
                let most = of_call.min(of_group.max(layers / FEW)).min(most);
                LayerGroups::growing(layers, u32::from(percent), most)
            }
        }
    }

    /// `path`, or runs if planes, host layout or device rule it out.
    fn possible(&self, direction: Direction, host: &HostSide, path: CopyPath) -> CopyPath {
        let possible = match path {
            CopyPath::Rectangles | CopyPath::RectangleCalls => {
                host.plane_kind() == PlaneKind::Uniform
            }
            CopyPath::Staged => {
                let fits =
                    |staging: &Staging<D>| host.staged_bytes(direction) <= staging.slot_bytes;
                host.has_objects() && self.staging(direction).is_some_and(fits)
            }
            CopyPath::Mapped => self.device.maps_host(),
            CopyPath::Runs | CopyPath::RunCalls => true,
        };
        if possible { path } else { CopyPath::Runs }
    }

    /// Makes the rings of directions whose pages the table stages.
    pub(super) fn reserve_by_table(&self, host: &HostSide) -> Result<(), GpuError> {
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            let rules = self.config.paths.of(direction);
            let chunk = host.shape.page.chunk_bytes();
            let rule = |pages: u32| rules.rule(host.plane_kind(), chunk, pages as usize);
            let mut rules = TransferPaths::PAGES.into_iter().map(rule);
            if host.has_objects() && rules.any(|rule| rule.path == CopyPath::Staged) {
                self.reserve_staging(direction)?;
            }
        }
        Ok(())
    }
}

impl HostSide {
    /// How the planes stand to each other, for copies from and to this pool.
    pub(super) const fn plane_kind(&self) -> PlaneKind {
        match self.shape.uniform {
            Some(_) => PlaneKind::Uniform,
            None => PlaneKind::Separate,
        }
    }

    /// Whether the layers of a page are one object on the host: nothing else is staged.
    const fn has_objects(&self) -> bool {
        self.shape.host.layer == self.shape.page.chunk_bytes()
    }

    /// Bytes of the smallest unit that is staged.
    const fn staged_bytes(&self, direction: Direction) -> u64 {
        match direction {
            Direction::HostToDevice => self.shape.page.chunk_bytes(),
            Direction::DeviceToHost => self.shape.page.page_bytes(),
        }
    }
}

/// Runs without a gap on the host, of rows in the order of the host.
fn host_runs(cells: &[Cell], row_bytes: u64) -> usize {
    let gaps = cells
        .windows(2)
        .filter(|pair| pair[0].far + row_bytes != pair[1].far);
    gaps.count() + usize::from(!cells.is_empty())
}

/// How often `unit` bytes fit into `bytes`.
fn quotient(bytes: u64, unit: u64) -> u32 {
    let fit = bytes.checked_div(unit).unwrap_or(u64::MAX);
    u32::try_from(fit).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planes::L1Planes;
    use crate::sim::{SimConfig, SimDevice};
    use crate::transfer::TransferConfig;
    use std::sync::Arc;
    use striata_core::{L1Page, L2Page, PageGeometry, PoolGeometry, PoolKind, Stripe};
    use striata_host::{HostPool, HostPoolConfig, HugePages};

    /// How scattered pages of 61 layers of 73,728 bytes are done.
    fn choice(direction: Direction, pages: u32) -> Choice {
        let device = SimDevice::new(SimConfig::new(0));
        let page = PageGeometry::new(64, 1152, 61).unwrap();
        let stripe = Stripe::new(1, 64).unwrap();
        let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, 128).unwrap();
        let planes = Arc::new(L1Planes::alloc(&device, pool).unwrap());
        let host = HostPoolConfig {
            prefault: false,
            huge_pages: HugePages::Off,
            reserve_bytes: 0,
            ..HostPoolConfig::new(page, 1)
        };
        let host = Arc::new(HostPool::new(&host).unwrap());
        let host = HostSide::new(&device, &planes, host).unwrap();
        let core = Core::new(device, planes, TransferConfig::default()).unwrap();
        let run = |page| PageRun {
            l1: L1Page::new(2 * page),
            l2: L2Page::new(3 * page),
            pages: 1,
        };
        let runs: Vec<_> = (0..pages).map(run).collect();
        core.choose(direction, &host, runs.len(), &runs)
    }

    fn counts(choice: &Choice) -> Vec<u32> {
        let units = 0..choice.parts.count();
        units
            .map(|unit| choice.parts.unit(unit).unwrap().0.count)
            .collect()
    }

    /// Layers of each group, and pages of each unit, of a load.
    fn load(pages: u32) -> (Vec<usize>, Vec<u32>) {
        let choice = choice(Direction::HostToDevice, pages);
        let groups = (0..choice.groups.len()).map(|group| choice.groups.range(group).len());
        (groups.collect(), counts(&choice))
    }

    #[test]
    fn loads_have_the_groups_of_the_built_in_table() {
        assert_eq!(load(1).0, [1, 60]);
        assert_eq!(load(2).0, [1, 60]);
        assert_eq!(load(8), (vec![1, 60], vec![8, 8]));
        assert_eq!(load(9).0, [1, 1, 2, 3, 4, 6, 8, 11, 15, 10]);
        let (groups, units) = load(64);
        assert_eq!((groups.len(), &groups[..4]), (22, &[1, 1, 2, 3][..]));
        // The first layer goes in two calls, so that the link starts early.
        assert_eq!((units.len(), &units[..3]), (23, &[24, 40, 64][..]));
        assert_eq!(load(256).0, [1; 61]);
        let units = load(256).1;
        assert_eq!((units.len(), &units[..4]), (63, &[24, 60, 172, 256][..]));
        let (groups, units) = load(512);
        assert_eq!(groups, vec![1; 61]);
        let first = [24, 60, 150, 139, 139, 256, 256];
        assert_eq!((units.len(), &units[..7]), (125, &first[..]));
    }

    #[test]
    fn a_consumer_as_fast_as_the_load_ends_within_a_twentieth_from_64_pages_on() {
        for pages in [64, 100, 128, 256, 512, 1000] {
            let most = load(pages).0.into_iter().max().unwrap();
            // Total: the load and the largest group; allowed: 1.05 times the load and one layer.
            assert!(
                (61 + most) * 100 <= 105 * 62,
                "{pages} pages: {most} layers"
            );
        }
    }

    #[test]
    fn three_units_fit_into_the_window_from_9_pages_on() {
        let window = TransferConfig::default().window_bytes;
        for pages in [9, 16, 32, 64, 128, 256, 512, 1024, 4096] {
            let choice = choice(Direction::HostToDevice, pages);
            for unit in 0..choice.parts.count() {
                let (unit, _) = choice.parts.unit(unit).unwrap();
                let bytes = u64::from(unit.count) * unit.layers.len() as u64 * 73_728;
                assert!(3 * bytes <= window, "{pages} pages: {bytes}");
            }
        }
    }

    #[test]
    fn stores_go_in_equal_groups_of_many_pages() {
        let counts = |pages: u32| {
            let choice = choice(Direction::DeviceToHost, pages);
            assert_eq!(choice.path, CopyPath::Rectangles);
            counts(&choice)
        };
        assert_eq!(
            (counts(1), counts(8), counts(14)),
            (vec![1], vec![8], vec![14])
        );
        assert_eq!(counts(64), [13, 13, 13, 13, 12]);
        assert_eq!(counts(512).len(), 37);
    }
}
