// SPDX-License-Identifier: Apache-2.0
//! What DCP buys: the same memory on each rank holds c times the tokens.

mod common;

use striata_replay::trace::Bundled;
use striata_replay::{
    Capacity, HostCapacity, Parallel, Policy, ReplayConfig, SweepConfig, TraceSource, sweep,
};

#[test]
fn the_same_memory_per_rank_hits_more_with_more_ranks() {
    let source = TraceSource::Bundled(Bundled::MooncakeConversation);
    let base = common::metadata(source, 1, 64, 1);
    // Pages of 64 rows of 16 bytes in 3 layers: 3072 bytes; 3000 of them beside the sink.
    let l1 = Capacity::Bytes(3001 * 3072);
    let l2 = HostCapacity::Fixed(Capacity::Bytes(6000 * 3072));
    let config = SweepConfig {
        base: ReplayConfig {
            parallel: Parallel {
                tp: 8,
                ..base.parallel
            },
            ..base
        },
        dcp: vec![1, 2, 4, 8],
        capacities: vec![(l1, l2)],
        policies: vec![Policy::Lru],
    };
    let mut seen = Vec::new();
    let rows = sweep(&config, &mut |row| seen.push(row.clone())).unwrap();
    assert_eq!(rows, seen);
    assert_eq!(
        rows.iter().map(|row| row.dcp).collect::<Vec<_>>(),
        [1, 2, 4, 8]
    );
    for row in &rows {
        assert_eq!((row.l1_pages, row.l2_pages), (3000, 6000));
        let shares = row.resident_share + row.loaded_share + row.computed_share;
        assert!(
            (shares - 1.0).abs() < 1e-9 && row.loaded_share > 0.0,
            "{row:?}"
        );
    }
    assert!(
        rows.windows(2)
            .all(|pair| pair[0].hit_ratio < pair[1].hit_ratio),
        "{rows:?}"
    );
}
