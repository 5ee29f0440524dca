// SPDX-License-Identifier: Apache-2.0
//! The same bytes come back at every position, however the cache is striped, and no rank touches
//! another.

use striata::gpu::Device;
use striata_tests::rig::{Rig, RigConfig, Served};

/// Prompts that share prefixes of several lengths, are pushed out to L2 and come back.
fn program(scale: usize) -> Vec<Vec<u32>> {
    let prompt = |seed: u32, len: usize| -> Vec<u32> {
        (0..u32::try_from(len).unwrap())
            .map(|i| seed * 100_000 + i)
            .collect()
    };
    let with_tail = |seed, shared: usize, tail_seed, len: usize| {
        let mut tokens = prompt(seed, shared);
        tokens.extend(prompt(tail_seed, len));
        tokens
    };
    vec![
        prompt(1, 5 * scale + 1),
        prompt(2, 6 * scale),
        with_tail(1, 3 * scale + 1, 3, 2 * scale),
        prompt(4, 7 * scale + 1),
        prompt(1, 5 * scale + 1),
        with_tail(2, 4 * scale, 5, 3 * scale),
        prompt(4, 7 * scale + 1),
        prompt(2, 6 * scale),
        with_tail(1, 3 * scale + 1, 3, 4 * scale),
    ]
}

fn serve_all(dcp: u32, groups: u32, page_rows: u32) -> (Vec<Served>, Rig) {
    let mut rig = Rig::new(RigConfig {
        dcp,
        groups,
        page_rows,
        layers: 5,
        row_bytes: 12,
        l1_pages: 9,
        l2_pages: 40,
    });
    let w = (dcp * page_rows) as usize;
    let served = program(w).iter().map(|tokens| rig.serve(tokens)).collect();
    (served, rig)
}

fn assert_all_right(served: &[Served], what: &str) {
    let sum = |f: fn(&Served) -> u64| served.iter().map(f).sum::<u64>();
    assert_eq!(sum(|s| s.wrong_rows), 0, "{what}");
    assert!(sum(|s| s.hit_tokens_l1) > 0, "{what}: no hit on L1");
    assert!(sum(|s| s.hit_tokens_l2) > 0, "{what}: no load-back");
    assert!(sum(|s| s.rows_read) > 0, "{what}");
}

#[test]
fn the_same_bytes_come_back_for_every_dcp_size() {
    for dcp in [1, 2, 3, 8] {
        for page_rows in [2, 4] {
            let (served, rig) = serve_all(dcp, 1, page_rows);
            assert_all_right(&served, &format!("c={dcp}, P={page_rows}"));
            assert!(rig.cache.stats().evicted_pages_kept_on_l2 > 0);
        }
    }
}

#[test]
fn the_same_bytes_come_back_for_tp_8_dp_2_dcp_2() {
    // Attention TP is 8 / 2 = 4: two DCP groups of two ranks in each replica.
    for _replica in 0..2 {
        let (served, rig) = serve_all(2, 2, 4);
        assert_all_right(&served, "tp=8, dp=2, dcp=2");
        assert_eq!(rig.cache.shards().shards().len(), 4);
    }
}

#[test]
fn hits_depend_on_the_widened_page_alone() {
    let hits = |dcp, page_rows| {
        let (served, _) = serve_all(dcp, 1, page_rows);
        served
            .iter()
            .map(|s| (s.hit_tokens_l1, s.hit_tokens_l2))
            .collect::<Vec<_>>()
    };
    let striped = hits(8, 1);
    assert_eq!(striped, hits(2, 4));
    assert_eq!(striped, hits(1, 8));
}

#[test]
fn no_rank_touches_another_and_one_rank_copies_what_eight_share() {
    let stats = |dcp, page_rows| {
        let (_, rig) = serve_all(dcp, 1, page_rows);
        let of = rig
            .cache
            .shards()
            .shards()
            .iter()
            .map(|s| s.device().stats());
        of.collect::<Vec<_>>()
    };
    let (eight, one) = (stats(8, 1), stats(1, 8));
    assert!(
        eight.iter().chain(&one).all(|s| s.cross_device == 0),
        "{eight:?}"
    );
    for (name, bytes) in [
        (
            "to device",
            [
                eight.iter().map(|s| s.bytes_to_device).sum(),
                one[0].bytes_to_device,
            ],
        ),
        (
            "to host",
            [
                eight.iter().map(|s| s.bytes_to_host).sum::<u64>(),
                one[0].bytes_to_host,
            ],
        ),
    ] {
        assert_eq!(bytes[0], bytes[1], "{name}");
        assert!(bytes[1] > 0, "{name}");
    }
    assert!(
        eight
            .windows(2)
            .all(|pair| pair[0].copies == pair[1].copies)
    );
}
