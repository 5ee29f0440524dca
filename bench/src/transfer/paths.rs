// SPDX-License-Identifier: Apache-2.0
//! Every path of the engine, forced, whether or not the engine would take it.

use std::sync::Arc;

use striata_gpu::Direction;
use striata_gpu::transfer::{
    CopyPath, DirectionStats, LayerCut, PageRule, TransferConfig, TransferEngine, TransferPaths,
};

use super::error::BenchError;
use super::figure::Unit;
use super::group::Group;
use super::run::{Bench, Taken};
use super::series::Place;
use super::subject::Subject;

/// Measurements of a path, which decide nothing.
pub(super) const MOST_REPS: usize = 10;

/// The rules that are forced on loads: each path with the groups that suit it.
const LOADS: [(CopyPath, LayerCut); 8] = [
    (CopyPath::Rectangles, LayerCut::FirstAndRest),
    (CopyPath::Runs, LayerCut::Growing(130)),
    (CopyPath::RectangleCalls, LayerCut::FirstAndRest),
    (CopyPath::Runs, LayerCut::Growing(200)),
    (CopyPath::Runs, LayerCut::Growing(400)),
    (CopyPath::RunCalls, LayerCut::Growing(200)),
    (CopyPath::Staged, LayerCut::Growing(200)),
    (CopyPath::Mapped, LayerCut::Growing(400)),
];

/// Both directions by every path, several numbers of pages.
pub(super) fn measure<D: Subject>(bench: &mut Bench<'_, D>) -> Result<(), BenchError> {
    for (path, cut) in LOADS {
        by_path(bench, Direction::HostToDevice, PageRule { path, cut })?;
    }
    for path in CopyPath::ALL {
        let cut = LayerCut::Whole;
        by_path(bench, Direction::DeviceToHost, PageRule { path, cut })?;
    }
    Ok(())
}

fn by_path<D: Subject>(
    bench: &mut Bench<'_, D>,
    direction: Direction,
    rule: PageRule,
) -> Result<(), BenchError> {
    let engine = TransferEngine::new(
        bench.device.clone(),
        bench.tiers.planes.clone(),
        Some(bench.tiers.host.clone()),
        TransferConfig {
            paths: TransferPaths::built_in().forced(direction, rule),
            ..TransferConfig::default()
        },
    )?;
    let place = Place {
        engine: Arc::new(engine),
        planes: bench.tiers.planes.clone(),
        reps: bench.options.reps.min(MOST_REPS),
    };
    let case = name(direction, rule);
    for pages in path_pages(&bench.options.pages) {
        let pairs = bench.lists.scattered(pages, bench.tiers.room());
        let series = format!("{case}, {pages} pages");
        let samples = match direction {
            Direction::HostToDevice => bench.load_series(&place, &pairs, &series, || {})?.rate,
            Direction::DeviceToHost => bench.store_series(&place, &pairs, &series)?,
        };
        let stats = place.engine.stats();
        let done = match direction {
            Direction::HostToDevice => &stats.loads,
            Direction::DeviceToHost => &stats.stores,
        };
        // What the engine did by another path is no figure of this one.
        if let Some(instead) = other_path(done, rule.path) {
            let why = format!("the engine took the path {instead} instead");
            bench.skip(&format!("{}: {case}", Group::Paths), why);
            return Ok(());
        }
        bench.take(Taken {
            group: Group::Paths,
            case: &case,
            pages: Some(pages),
            unit: Unit::GbPerS,
            samples: &samples,
            against: bench.ceiling(direction),
            bar: None,
        });
    }
    Ok(())
}

/// A path other than `path` that jobs took.
fn other_path(stats: &DirectionStats, path: CopyPath) -> Option<&'static str> {
    let others = CopyPath::ALL.into_iter().filter(|other| *other != path);
    let mut taken = others.filter(|other| stats.by_path.jobs(*other) > 0);
    taken.next().map(CopyPath::name)
}

fn name(direction: Direction, rule: PageRule) -> String {
    let path = rule.path.name();
    match (direction, rule.cut) {
        (Direction::DeviceToHost, _) => format!("store by {path}"),
        (_, LayerCut::Whole) => format!("load by {path}, all layers together"),
        (_, LayerCut::FirstAndRest) => format!("load by {path}, the first layer and the rest"),
        (_, LayerCut::Growing(percent)) => {
            format!("load by {path}, groups that grow to {percent} %")
        }
    }
}

/// The least, the most, and between them steps of eight: enough to see where paths cross.
pub(super) fn path_pages(pages: &[u32]) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    for (at, &pages_here) in pages.iter().enumerate() {
        let before = kept.last().copied().unwrap_or(0);
        if pages_here >= before.saturating_mul(8) || at + 1 == pages.len() {
            kept.push(pages_here);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_at_both_ends_and_between() {
        assert_eq!(path_pages(&[1, 2, 8, 64, 256, 512]), [1, 8, 64, 512]);
        assert_eq!(path_pages(&[1, 2, 3]), [1, 3]);
        assert_eq!(path_pages(&[4]), [4]);
        assert!(path_pages(&[]).is_empty());
    }

    #[test]
    fn every_path_is_forced_in_both_directions() {
        for path in CopyPath::ALL {
            assert!(LOADS.iter().any(|(loaded, _)| *loaded == path), "{path:?}");
        }
    }
}
