// SPDX-License-Identifier: Apache-2.0
//! What is measured, and which paths are tried.

use crate::device::Direction;
use crate::transfer::{CopyPath, LayerCut, PageRule, PlaneKind, TransferPaths};

/// Rows of a scratch page, as of a page of an engine.
pub(super) const ROWS: u32 = 64;

/// Bytes of a row of each chunk size that is measured, the commonest first: bf16, `fp8_tile`, and
/// what stands for each smaller class of [`TransferPaths::CHUNKS`].
pub(super) const ROW_BYTES: [u32; 5] = [1152, 656, 512, 256, 64];

/// Pages of the jobs that are measured. The last stands for all larger numbers as well.
pub(super) const PAGES: [u32; 4] = [1, 2, 4, 8];

/// Both kinds of planes.
pub(super) const KINDS: [PlaneKind; 2] = [PlaneKind::Uniform, PlaneKind::Separate];

/// Both directions.
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::HostToDevice, Direction::DeviceToHost];

const fn rule(path: CopyPath, cut: LayerCut) -> PageRule {
    PageRule { path, cut }
}

/// What is tried for loads of uniform planes. A load of one group is not among it: its first layer
/// would be late.
const UNIFORM_LOADS: [PageRule; 5] = [
    rule(CopyPath::Rectangles, LayerCut::FirstAndRest),
    rule(CopyPath::Runs, LayerCut::Growing(130)),
    rule(CopyPath::Runs, LayerCut::Growing(200)),
    rule(CopyPath::Runs, LayerCut::Growing(400)),
    rule(CopyPath::Mapped, LayerCut::Growing(400)),
];
const SEPARATE_LOADS: [PageRule; 4] = [
    rule(CopyPath::Runs, LayerCut::Growing(130)),
    rule(CopyPath::Runs, LayerCut::Growing(200)),
    rule(CopyPath::Runs, LayerCut::Growing(400)),
    rule(CopyPath::Mapped, LayerCut::Growing(400)),
];
const UNIFORM_STORES: [PageRule; 3] = [
    rule(CopyPath::Rectangles, LayerCut::Whole),
    rule(CopyPath::Runs, LayerCut::Whole),
    rule(CopyPath::Staged, LayerCut::Whole),
];
const SEPARATE_STORES: [PageRule; 3] = [
    rule(CopyPath::Runs, LayerCut::Whole),
    rule(CopyPath::Staged, LayerCut::Whole),
    rule(CopyPath::Mapped, LayerCut::Whole),
];

/// What is tried for chunks of that many bytes: the candidates and the built-in rules.
pub(super) fn tried(direction: Direction, planes: PlaneKind, chunk_bytes: u64) -> Vec<PageRule> {
    let candidates: &[PageRule] = match (direction, planes) {
        (Direction::HostToDevice, PlaneKind::Uniform) => &UNIFORM_LOADS,
        (Direction::HostToDevice, PlaneKind::Separate) => &SEPARATE_LOADS,
        (Direction::DeviceToHost, PlaneKind::Uniform) => &UNIFORM_STORES,
        (Direction::DeviceToHost, PlaneKind::Separate) => &SEPARATE_STORES,
    };
    let mut rules = candidates.to_vec();
    for pages in PAGES.into_iter().chain([u32::MAX]) {
        let rule = built_in(direction, planes, chunk_bytes, pages);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// Bytes of a chunk of rows of that many bytes.
pub(super) const fn chunk_bytes(row_bytes: u32) -> u64 {
    row_bytes as u64 * ROWS as u64
}

/// The class of a number in a list of greatest members; the last class takes what is left.
pub(super) fn class_of<T: Ord>(limits: &[T], value: &T) -> usize {
    let class = limits.partition_point(|most| most < value);
    class.min(limits.len().saturating_sub(1))
}

/// A rule in words, such as `runs by 2` or `rectangles 1+rest`.
#[must_use]
pub fn rule_name(rule: PageRule) -> String {
    let path = rule.path.name();
    match rule.cut {
        LayerCut::Whole => path.to_owned(),
        LayerCut::FirstAndRest => format!("{path} 1+rest"),
        LayerCut::Growing(percent) => format!("{path} by {}", f32::from(percent) / 100.0),
    }
}

/// The built-in rule of a cell.
pub(super) fn built_in(
    direction: Direction,
    planes: PlaneKind,
    chunk_bytes: u64,
    pages: u32,
) -> PageRule {
    let paths = TransferPaths::built_in();
    paths
        .of(direction)
        .rule(planes, chunk_bytes, pages as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_class_of_chunks_is_measured_once() {
        let classes: BTreeSet<_> = ROW_BYTES
            .iter()
            .map(|row| class_of(&TransferPaths::CHUNKS, &chunk_bytes(*row)))
            .collect();
        assert_eq!(classes.len(), TransferPaths::CHUNKS.len());
        assert!(
            PAGES
                .iter()
                .all(|pages| TransferPaths::PAGES.contains(pages))
        );
    }

    #[test]
    fn the_built_in_rule_of_a_cell_is_tried_and_nothing_twice() {
        for (direction, planes) in DIRECTIONS.into_iter().flat_map(|d| KINDS.map(|k| (d, k))) {
            for (row, pages) in ROW_BYTES.into_iter().flat_map(|r| PAGES.map(|p| (r, p))) {
                let rule = built_in(direction, planes, chunk_bytes(row), pages);
                let tried = tried(direction, planes, chunk_bytes(row));
                let twice = |a: &PageRule| tried.iter().filter(|b| *b == a).count() > 1;
                assert!(!tried.iter().any(twice));
                assert!(
                    tried.contains(&rule),
                    "{direction:?} {planes:?} {row} {rule:?}"
                );
            }
        }
    }

    #[test]
    fn rules_have_names() {
        let name = |path, cut| rule_name(PageRule { path, cut });
        assert_eq!(name(CopyPath::Runs, LayerCut::Growing(200)), "runs by 2");
        assert_eq!(name(CopyPath::Runs, LayerCut::Growing(130)), "runs by 1.3");
        assert_eq!(name(CopyPath::Staged, LayerCut::Whole), "staged");
        let first = LayerCut::FirstAndRest;
        assert_eq!(name(CopyPath::Rectangles, first), "rectangles 1+rest");
    }
}
