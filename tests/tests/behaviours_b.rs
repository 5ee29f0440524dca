// SPDX-License-Identifier: Apache-2.0
//! Ownership, virtual indices and pages, as far as index mathematics and plans show them.
#![allow(
    clippy::cast_possible_truncation,
    reason = "the numbers of the tests are small"
)]

use striata_core::gather::{GatherPlan, chunk_tokens};
use striata_core::models::{Model, ModelSpec};
use striata_core::object::{Match, ObjectId};
use striata_core::plan::{CopyDirection, CopyPlan, MoveError, check_move};
use striata_core::relayout::{Placement, Relayout};
use striata_core::table::{KernelAddress, TableLayout};
use striata_core::{
    L1Page, L2Page, LayerId, PageGeometry, PagePair, PoolGeometry, PoolKind, Rank, Row, RowFormat,
    Slot, Stripe, TokenPos,
};

fn stripe(dcp: u32, page_rows: u32) -> Stripe {
    Stripe::new(dcp, page_rows).unwrap()
}

fn pages(ids: impl IntoIterator<Item = u32>) -> Vec<L1Page> {
    ids.into_iter().map(L1Page::new).collect()
}

fn pairs(ids: impl IntoIterator<Item = u32>) -> Vec<PagePair> {
    ids.into_iter()
        .map(|id| PagePair {
            l1: L1Page::new(id),
            l2: L2Page::new(id),
        })
        .collect()
}

fn store(kind: PoolKind, stripe: Stripe, ids: impl IntoIterator<Item = u32>) -> CopyPlan {
    let (l1, l2) = (u32::MAX, u32::MAX);
    CopyPlan::from_pages(
        kind,
        stripe,
        CopyDirection::DeviceToHost,
        &pairs(ids),
        l1,
        l2,
    )
    .unwrap()
}

#[test]
fn b09_a_virtual_index_is_one_row_of_one_rank() {
    let s = stripe(8, 8);
    for (v, rank, row) in [(0, 0, 0), (63, 7, 7), (64, 0, 8), (511, 7, 63)] {
        let at = check_move(s, Slot::new(v), Slot::new(v), 512, 64).unwrap();
        assert_eq!((at.rank, at.to), (Rank::new(rank), Row::new(row)));
    }
    let error = check_move(s, Slot::new(512), Slot::new(512), 512, 64).unwrap_err();
    assert!(error.to_string().contains("512"), "{error}");
    // Indices below the row count alone, then above it alone: what is written is written once,
    // and no rank writes outside its 64 rows.
    for indices in [0..64u64, 64..512] {
        let mut buffers = [[0u64; 64]; 8];
        for v in indices.clone() {
            let mut owners = 0;
            for rank in s.ranks() {
                if let Some(row) = s.localize(rank, Slot::new(v)) {
                    buffers[rank.get() as usize][row.get() as usize] += v + 1;
                    owners += 1;
                }
            }
            assert_eq!(owners, 1);
        }
        let mut written: Vec<_> = buffers
            .iter()
            .flatten()
            .copied()
            .filter(|&v| v > 0)
            .collect();
        written.sort_unstable();
        assert_eq!(written, indices.map(|v| v + 1).collect::<Vec<_>>());
    }
}

#[test]
fn b10_a_smaller_kernel_page_splits_only_the_address() {
    let s = stripe(4, 128);
    let split = TableLayout::with_kernel_page(s, 64).unwrap();
    let whole = TableLayout::new(s);
    let t = pages([9]);
    let at = |layout: TableLayout| layout.address(&t, TokenPos::new(300)).unwrap();
    let (page, row) = (9, 75);
    assert_eq!(
        at(whole),
        KernelAddress {
            rank: Rank::new(0),
            page,
            row
        }
    );
    let (page, row) = (2 * 9 + 1, 11);
    assert_eq!(
        at(split),
        KernelAddress {
            rank: Rank::new(0),
            page,
            row
        }
    );
    assert_eq!(split.address(&t, TokenPos::new(512)), None);
}

#[test]
fn b11_only_striped_pools_are_filtered_and_divided() {
    let s = stripe(8, 4);
    // Where the row of v = 17 of page 0 goes, on each rank.
    let row_of_17 = |kind: PoolKind, rank: Rank| {
        let plan = store(kind, s, [0]);
        let run = plan.runs(rank).next().unwrap();
        let slots = 0..run.rows;
        slots
            .filter(|&row| match kind {
                PoolKind::Striped => s.slot_of(rank, Row::new(row)) == Slot::new(17),
                PoolKind::Replicated | PoolKind::PerRequest => row == 17,
            })
            .collect::<Vec<_>>()
    };
    for rank in s.ranks() {
        let striped = row_of_17(PoolKind::Striped, rank);
        assert_eq!(striped, if rank.get() == 1 { vec![2] } else { vec![] });
        assert_eq!(row_of_17(PoolKind::Replicated, rank), [17]);
    }
    let plan = store(PoolKind::Striped, s, [1]);
    assert!(plan.check_for(PoolKind::Replicated, s).is_err());
}

#[test]
fn b12_capacity_rounding() {
    let s = stripe(4, 64);
    let page = PageGeometry::new(64, 1152, 61).unwrap();
    let adopt = |rows| PoolGeometry::adopted(PoolKind::Striped, s, page, rows);
    let error = adopt(127).unwrap_err().to_string();
    assert!(
        error.contains("127 rows") && error.contains("128 rows are needed"),
        "{error}"
    );
    for (rows, end) in [(128, 512), (191, 512), (192, 768)] {
        let pool = adopt(rows).unwrap();
        for slot in 0..1024 {
            let usable = (256..end).contains(&slot);
            assert_eq!(
                pool.is_usable_slot(Slot::new(slot)),
                usable,
                "{rows} {slot}"
            );
            if usable {
                assert!(s.row_on_owner(Slot::new(slot)).get() < rows);
            }
        }
    }
    let owned = PoolGeometry::owned(PoolKind::Striped, s, page, 64).unwrap();
    assert_eq!((owned.usable_pages(), owned.rows()), (1, 128));
}

#[test]
fn b12_capacity_rounding_of_an_owned_pool() {
    let page = PageGeometry::new(64, 1152, 61).unwrap();
    let owned = PoolGeometry::owned(PoolKind::Striped, stripe(4, 64), page, 100).unwrap();
    assert_eq!(owned.rows(), 128);
}

#[test]
fn b13_host_space_is_c_times_the_rows_of_a_rank() {
    let (s, rows) = (stripe(8, 64), 1024u64);
    let capacity = rows * 8;
    let around = |slot: u64| -> Vec<Slot> {
        let page = L1Page::new(s.page_number(Slot::new(slot)) as u32);
        s.page_slots(page).map(Slot::new).collect()
    };
    let plan = |slot: u64| {
        let slots = around(slot);
        let direction = CopyDirection::DeviceToHost;
        let kind = PoolKind::Striped;
        CopyPlan::from_slots(kind, s, direction, &slots, &slots, 1 << 20, capacity)
    };
    for (slot, rank, row) in [(0, 0, 0), (1023, 7, 127), (1024, 0, 128), (8191, 7, 1023)] {
        let run = plan(slot).unwrap().runs(Rank::new(rank)).next().unwrap();
        let host = run.host_row.get()..run.host_row.get() + run.rows;
        assert!(host.contains(&row) && host.end <= rows);
        assert_eq!(
            s.localize(Rank::new(rank), Slot::new(slot)),
            Some(Row::new(row))
        );
    }
    let error = plan(8192).unwrap_err().to_string();
    assert!(error.contains("8192") && error.contains("L2"), "{error}");
    let page = PageGeometry::new(64, 128, 1).unwrap();
    let side = PoolGeometry::adopted(PoolKind::Replicated, s, page, rows).unwrap();
    assert_eq!(side.rows(), capacity);
}

#[test]
fn b14_counts_of_blocks_are_in_widened_pages() {
    let s = stripe(4, 16);
    for (shared, hit) in [(80, 64), (63, 0), (128, 128)] {
        assert_eq!(s.whole_pages(shared) * s.widened_page(), hit);
    }
    assert_eq!(stripe(2, 16).whole_pages(600), 18);
}

#[test]
fn b15_a_hit_leaves_one_token_to_compute() {
    let s = stripe(16, 64);
    for (length, hit) in [
        (0, 0),
        (1, 0),
        (1023, 0),
        (1024, 0),
        (1025, 1024),
        (2048, 1024),
        (2049, 2048),
    ] {
        assert_eq!(s.hit_limit(length) * s.widened_page(), hit, "{length}");
    }
}

#[test]
fn b16_gathering_restores_token_order() {
    let s = stripe(4, 2);
    let plan = |prefix, chunk| GatherPlan::new(s, TokenPos::new(0), prefix, chunk).unwrap();
    let counts: Vec<Vec<u64>> = plan(22, 8)
        .pieces()
        .map(|piece| s.ranks().map(|rank| piece.shard(rank).local).collect())
        .collect();
    assert_eq!(counts, [[2, 2, 2, 2], [2, 2, 2, 2], [2, 2, 1, 1]]);
    let request = pages([7, 3, 5]);
    for (prefix, chunk) in [
        (22, 8),
        (1, 8),
        (3, 8),
        (4, 8),
        (5, 8),
        (8, 8),
        (22, 4),
        (22, 64),
    ] {
        let mut restored = Vec::new();
        for piece in plan(prefix, chunk).pieces() {
            let mut gathered = Vec::new();
            for rank in s.ranks() {
                let shard = piece.shard(rank);
                gathered.extend((0..shard.left_pad).map(|_| None));
                for rows in piece.source_rows(rank, &request).unwrap() {
                    let rows = rows.start.get()..rows.end.get();
                    gathered.extend(rows.map(|row| Some(s.slot_of(rank, Row::new(row)))));
                }
                gathered.extend((0..shard.right_pad).map(|_| None));
            }
            restored.extend(piece.indices().map(|index| gathered[index as usize]));
        }
        let want = (0..prefix).map(|p| s.slot_at(&request, TokenPos::new(p)));
        assert_eq!(restored, want.collect::<Vec<_>>(), "{prefix} in {chunk}");
    }
}

#[test]
fn b17_chunks_are_multiples_of_c_and_never_empty() {
    let s = stripe(8, 64);
    for n in 1..=125 {
        let chunk = chunk_tokens(s, 1000, n).unwrap();
        assert_eq!(chunk, 1000 / n / 8 * 8);
        assert!(chunk > 0);
    }
    let of = |n| chunk_tokens(s, 1000, n);
    assert_eq!((of(3), of(13), of(125)), (Ok(328), Ok(72), Ok(8)));
    let error = of(126).unwrap_err().to_string();
    assert!(error.contains("1000") && error.contains("126"), "{error}");
}

#[test]
fn b18_local_lengths_come_from_the_global_one() {
    let s = stripe(4, 64);
    let lens = |length| {
        s.ranks()
            .map(|r| s.local_len(r, length))
            .collect::<Vec<_>>()
    };
    assert_eq!(lens(13), [4, 3, 3, 3]);
    assert_eq!(lens(11), [3, 3, 3, 2]);
    assert_eq!(lens(9), [3, 2, 2, 2]);
    assert_eq!(lens(0), [0; 4]);
    assert_eq!(lens(-5), [0; 4]);
    for length in 0..=4 * 256 + 1 {
        assert_eq!(lens(length).iter().sum::<u64>(), length.unsigned_abs());
    }
}

#[test]
fn b19_a_token_moves_inside_its_rank_or_not_at_all() {
    let s = stripe(4, 64);
    let go = |from, to| check_move(s, Slot::new(from), Slot::new(to), 1024, 256);
    let at = go(5, 9).unwrap();
    assert_eq!(
        (at.rank, at.from, at.to),
        (Rank::new(1), Row::new(1), Row::new(2))
    );
    let error = go(5, 6).unwrap_err();
    assert_eq!(
        error.to_string(),
        "slot 5 belongs to rank 1 and slot 6 to rank 2: a move between ranks needs an exchange"
    );
    for k in 0..256 {
        let at = go(0, 4 * k).unwrap();
        assert_eq!((at.rank, at.to), (Rank::new(0), Row::new(k)));
    }
    assert!(matches!(
        go(1024, 0),
        Err(MoveError::SlotRange { slot: 1024, .. })
    ));
    assert!(matches!(
        go(0, 1024),
        Err(MoveError::SlotRange { slot: 1024, .. })
    ));
    let short = check_move(s, Slot::new(0), Slot::new(1020), 1024, 255);
    assert!(matches!(
        short,
        Err(MoveError::RowRange {
            row: 255,
            rows: 255,
            ..
        })
    ));
}

#[test]
fn b20_bytes_are_named_by_their_place_and_content_is_not() {
    let want = ObjectId {
        namespace: 1,
        start_key: 0,
        end_key: 99,
        pool: "mla".to_owned(),
        kind: PoolKind::Striped,
        layers: LayerId::new(0)..LayerId::new(61),
        row_format: RowFormat::Bf16,
        stripe: stripe(4, 64),
        rank: Rank::new(1),
    };
    assert_eq!(want.compare(&want.clone()), Match::Direct);
    let with = |change: fn(&mut ObjectId)| {
        let mut have = want.clone();
        change(&mut have);
        want.compare(&have)
    };
    assert_eq!(with(|o| o.stripe = stripe(8, 64)), Match::Convertible);
    assert_eq!(with(|o| o.rank = Rank::new(2)), Match::Convertible);
    assert_eq!(with(|o| o.stripe = stripe(4, 32)), Match::Convertible);
    let interleaved = with(|o| o.stripe = Stripe::with_interleave(4, 64, 8).unwrap());
    assert_eq!(interleaved, Match::Convertible);
    assert_eq!(with(|o| o.row_format = RowFormat::Fp8Tile), Match::Miss);
    assert_eq!(with(|o| o.namespace = 2), Match::Miss);
    assert_eq!(with(|o| o.end_key = 98), Match::Miss);
    assert_eq!(with(|o| o.start_key = 1), Match::Miss);
    assert_eq!(with(|o| o.pool = "index".to_owned()), Match::Miss);
    assert_eq!(with(|o| o.layers.end = LayerId::new(60)), Match::Miss);
    // States are divided by heads: no relayout of rows makes one rank's from another's.
    let state = ObjectId {
        kind: PoolKind::PerRequest,
        ..want.clone()
    };
    let elsewhere = ObjectId {
        rank: Rank::new(2),
        ..state.clone()
    };
    assert_eq!(state.compare(&elsewhere), Match::Miss);
}

/// Seen to fail if a page that is there in part counts as copied.
#[test]
fn b39_a_transfer_resumes_at_a_page_of_each_pool() {
    let plan = store(PoolKind::Striped, stripe(8, 64), 0..8);
    let done = plan.tokens_of(2);
    assert_eq!(done, 1024);
    let rest = plan.resume_at(done);
    assert_eq!(rest.pages(), pairs(2..8));
    let run = rest.runs(Rank::new(0)).next().unwrap();
    assert_eq!((run.device_row, run.rows), (Row::new(128), 6 * 64));
    let side = store(PoolKind::Striped, stripe(8, 32), 0..16);
    assert_eq!(side.resume_at(done).pages(), pairs(4..16));
    // A page that is not wholly there is copied again; nothing is left behind the end.
    assert_eq!(side.resume_at(done + 255).pages(), pairs(4..16));
    assert!(plan.resume_at(plan.tokens_of(99)).is_empty());
    assert!(plan.resume_at(u64::MAX).is_empty());
}

/// Seen to fail if layers are not compared.
#[test]
fn b42_tiers_of_different_rows_are_refused_with_both_numbers() {
    let l1 = PageGeometry::new(64, RowFormat::Fp8Tile.row_bytes(), 61).unwrap();
    let check = |rows, bytes, layers| {
        let l2 = PageGeometry::new(rows, bytes, layers).unwrap();
        l1.check_same(l2).map_err(|error| error.to_string())
    };
    assert_eq!(check(64, 656, 61), Ok(()));
    for (refused, numbers) in [
        (check(64, 576, 61), ["656", "576"]),
        (check(64, 656, 60), ["61", "60"]),
        (check(32, 656, 61), ["64", "32"]),
    ] {
        let error = refused.unwrap_err();
        assert!(numbers.iter().all(|n| error.contains(n)), "{error}");
    }
    // One description gives both tiers: bf16 against fp8 of the same model.
    let with = |row_format| {
        let mut spec = ModelSpec::preset("deepseek-v3.1");
        spec.row_format = Some(row_format);
        let model: Model = spec.resolve().unwrap();
        model.page_geometry(64).unwrap()
    };
    let error = with(RowFormat::Bf16).check_same(with(RowFormat::Fp8Tensor));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("1152") && error.contains("576"), "{error}");
}

#[test]
fn b45_a_partial_last_page_sends_its_live_rows_only() {
    let (dense, striped) = (stripe(1, 64), stripe(8, 64));
    let (src, dst) = (pages([4, 9, 2]), pages([6]));
    let plan = Relayout::new(
        Placement::new(dense, &src),
        Placement::new(striped, &dst),
        0..130,
    )
    .unwrap();
    let received = |range| -> Vec<u64> {
        let chunk = plan.chunk(range);
        chunk
            .completions()
            .into_iter()
            .map(|(_, rows)| rows)
            .collect()
    };
    assert_eq!(received(0..130), [17, 17, 16, 16, 16, 16, 16, 16]);
    assert_eq!(received(128..130), [1, 1, 0, 0, 0, 0, 0, 0]);
    let stale = 2 * 64 + 2..3 * 64;
    let chunk = plan.whole();
    let mut sources = chunk.pairs().iter().flat_map(|pair| pair.source_rows());
    assert!(!sources.any(|row| stale.contains(&row.get())));
}

#[test]
fn b46_plans_are_lists_of_rows_of_equal_length() {
    let (dense, striped) = (stripe(1, 64), stripe(8, 64));
    let (src, dst) = (pages(0..525), pages(0..66));
    let tokens = 525 * 64;
    let source = Placement::new(dense, &src);
    let plan = Relayout::new(source, Placement::new(striped, &dst), 0..tokens).unwrap();
    let chunk = plan.whole();
    assert_eq!(chunk.pairs().len(), 8);
    for pair in chunk.pairs() {
        assert_eq!(
            (pair.source_rows().len(), pair.target_rows().len()),
            (4200, 4200)
        );
        let last = pair.target_rows().last().unwrap().get();
        assert_eq!((last / 64, last % 64 + 1), (65, 40));
    }
    let short = pages(0..65);
    let error = Relayout::new(source, Placement::new(striped, &short), 0..tokens);
    assert!(error.unwrap_err().to_string().contains("33280"));
}

#[test]
fn b47_any_cut_covers_each_position_once() {
    let (dense, striped) = (stripe(1, 64), stripe(8, 64));
    let (src, dst) = (pages(0..21), pages([5, 1, 3]));
    let (source, target) = (Placement::new(dense, &src), Placement::new(striped, &dst));
    let plan = Relayout::new(source, target, 0..1324).unwrap();
    let place = |cuts: Vec<u64>| {
        let mut target = std::collections::BTreeMap::new();
        for cut in cuts.windows(2) {
            for pair in plan.chunk(cut[0]..cut[1]).pairs() {
                for (from, to) in pair.source_rows().iter().zip(pair.target_rows()) {
                    assert_eq!(target.insert((pair.to(), *to), *from), None);
                }
            }
        }
        target
    };
    let one = place(vec![0, 1324]);
    assert_eq!(one.len(), 1324);
    for cuts in [
        vec![0, 1024, 1324],
        vec![0, 1000, 1324],
        vec![0, 1, 1324],
        (0..1324).step_by(7).chain([1324]).collect(),
    ] {
        assert_eq!(place(cuts), one);
    }
    let received: Vec<_> = plan.whole().completions().iter().map(|c| c.1).collect();
    assert_eq!(received, [166, 166, 166, 166, 165, 165, 165, 165]);
}
