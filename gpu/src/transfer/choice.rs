// SPDX-License-Identifier: Apache-2.0
//! How a job of pages is done: its path by the table, its layer groups and units.

use super::groups::LayerGroups;
use super::parts::Parts;
use super::paths::{CopyPath, LayerCut, PageRule, PlaneKind};
use super::pieces::PageRun;
use super::shared::{Core, HostSide};
use crate::device::{Device, Direction};

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
        let rules = config.paths.of(direction);
        let rule = rules.rule(host.plane_kind(), page.chunk_bytes(), pages);
        let path = host.possible(rule.path);
        let (groups, parts) = match direction {
            Direction::HostToDevice => {
                let groups = self.groups(host, rule, pages);
                let parts = Parts::by_layers(runs, &groups, page.chunk_bytes(), config.slice_bytes);
                (groups, parts)
            }
            Direction::DeviceToHost => {
                let most = quotient(config.store_group_bytes, page.page_bytes());
                let parts = Parts::by_pages(runs, page.layers(), most);
                (LayerGroups::whole(page.layers()), parts)
            }
        };
        Choice {
            path,
            groups,
            parts,
        }
    }

    fn groups(&self, host: &HostSide, rule: PageRule, pages: usize) -> LayerGroups {
        let page = host.shape.page;
        let layers = page.layers();
        match rule.cut {
            LayerCut::Whole => LayerGroups::whole(layers),
            LayerCut::FirstAndRest => LayerGroups::first_and_rest(layers),
            LayerCut::Growing(factor) => {
                let layer_bytes = page.chunk_bytes().saturating_mul(pages as u64);
                let of_group = quotient(self.config.group_bytes, layer_bytes);
                let of_call = quotient(self.config.slice_bytes, layer_bytes);
                let most = of_call.min(of_group.max(layers / FEW));
                LayerGroups::growing(layers, u32::from(factor), most)
            }
        }
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

    /// `path`, or runs if planes rule it out.
    fn possible(&self, path: CopyPath) -> CopyPath {
        let uniform = self.plane_kind() == PlaneKind::Uniform;
        match path {
            CopyPath::Rectangles | CopyPath::RectangleCalls if !uniform => CopyPath::Runs,
            CopyPath::Staged | CopyPath::Mapped => CopyPath::Runs,
            path => path,
        }
    }
}

/// How often `unit` bytes fit into `bytes`.
fn quotient(bytes: u64, unit: u64) -> u32 {
    let fit = bytes.checked_div(unit).unwrap_or(u64::MAX);
    u32::try_from(fit).unwrap_or(u32::MAX)
}
