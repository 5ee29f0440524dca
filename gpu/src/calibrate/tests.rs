// SPDX-License-Identifier: Apache-2.0

use std::fs;

use super::*;
use crate::device::Direction;
use crate::sim::{SimConfig, SimDevice};
use crate::transfer::CopyPath;
use crate::user_cache::scratch;

fn options() -> CalibrationOptions {
    CalibrationOptions {
        layers: 5,
        reps: 2,
        budget: Duration::from_secs(3600),
        ..CalibrationOptions::default()
    }
}

fn device() -> SimDevice {
    SimDevice::new(SimConfig::new(0))
}

#[test]
fn every_cell_is_measured_on_the_simulated_device() {
    let found = calibrate(&device(), &options()).unwrap();
    assert!(found.simulated);
    assert!(matches!(
        found.source,
        CalibrationSource::Fresh { kept: None, .. }
    ));
    for direction in cells::DIRECTIONS {
        let rows = found.measured.of(direction);
        for planes in cells::KINDS {
            for (row_bytes, pages) in cells::ROW_BYTES
                .into_iter()
                .flat_map(|r| cells::PAGES.map(|p| (r, p)))
            {
                let chunk_bytes = cells::chunk_bytes(row_bytes);
                let cell = rows.iter().filter(|row| {
                    (row.planes, row.chunk_bytes, row.pages) == (planes, chunk_bytes, pages)
                });
                let paths: Vec<_> = cell.map(|row| row.rule.path).collect();
                assert!(
                    paths.contains(&CopyPath::Runs),
                    "{direction:?} {planes:?} {paths:?}"
                );
                let rectangles = paths.contains(&CopyPath::Rectangles);
                assert_eq!(rectangles, planes == PlaneKind::Uniform, "{direction:?}");
            }
        }
        assert!(rows.iter().all(|row| row.gb_per_s > 0.0 && row.count >= 1));
    }
}

#[test]
fn no_budget_leaves_the_built_in_rules() {
    let options = CalibrationOptions {
        budget: Duration::ZERO,
        ..options()
    };
    let found = calibrate(&device(), &options).unwrap();
    assert!(found.measured.of(Direction::HostToDevice).is_empty());
    assert_eq!(found.paths, TransferPaths::built_in());
}

#[test]
fn the_second_start_reads_what_the_first_measured() {
    let place = scratch("calibrate");
    let cache = UserCache::at(place.clone()).unwrap();
    let key = CacheKey {
        gpu: "a GPU of paper".to_owned(),
        driver: "1.0".to_owned(),
    };
    let options = CalibrationOptions {
        budget: Duration::from_millis(1),
        ..options()
    };
    let start = |options: &CalibrationOptions| {
        calibrate_in(&device(), options, Some((&cache, &key))).unwrap()
    };
    let first = start(&options);
    let CalibrationSource::Fresh {
        kept: Some(file), ..
    } = &first.source
    else {
        panic!("{:?}", first.source);
    };
    let second = start(&options);
    assert_eq!(
        second.source,
        CalibrationSource::Cached { file: file.clone() }
    );
    assert_eq!(
        (second.paths, &second.measured),
        (first.paths, &first.measured)
    );
    let again = CalibrationOptions {
        fresh: true,
        ..options.clone()
    };
    assert!(matches!(
        start(&again).source,
        CalibrationSource::Fresh { .. }
    ));
    fs::write(file, b"nonsense").unwrap();
    assert!(matches!(
        start(&options).source,
        CalibrationSource::Fresh { .. }
    ));
    assert!(matches!(
        start(&options).source,
        CalibrationSource::Cached { .. }
    ));
    fs::remove_dir_all(place).unwrap();
}
