// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

fn shards(start: u64, tokens: u64, dcp: u32) -> (u64, Vec<(u64, u64, u64)>) {
    let stripe = Stripe::new(dcp, 64).unwrap();
    let plan = GatherPlan::new(stripe, TokenPos::new(start), tokens, 1 << 20).unwrap();
    let piece = plan.pieces().next().unwrap();
    let shard = |rank| {
        let shard = piece.shard(rank);
        (shard.left_pad, shard.local, shard.right_pad)
    };
    (piece.padded_rows(), stripe.ranks().map(shard).collect())
}

#[test]
fn padding_by_phase() {
    let (l, m, r) = ((1, 0, 0), (0, 1, 0), (0, 0, 1));
    let two = (0, 2, 0);
    assert_eq!(shards(5, 7, 4), (2, vec![(1, 1, 0), two, two, two]));
    assert_eq!(shards(1, 2, 4), (1, vec![l, m, m, r]));
    assert_eq!(shards(3, 1, 4), (1, vec![l, l, l, m]));
    let mut want = vec![(1, 1, 0); 6];
    want.extend([two, two]);
    assert_eq!(shards(6, 10, 8), (2, want));
}

#[test]
fn a_million_tokens_in_pieces_of_a_workspace() {
    let stripe = Stripe::new(16, 64).unwrap();
    let plan = GatherPlan::new(stripe, TokenPos::new(0), 976_384, 1 << 18).unwrap();
    let pieces: Vec<_> = plan.pieces().collect();
    let rows: Vec<_> = pieces.iter().map(|p| p.gathered_rows()).collect();
    assert_eq!(rows, [262_144, 262_144, 262_144, 189_952]);
    let local: Vec<_> = pieces.iter().map(|p| p.shard(Rank::new(0)).local).collect();
    assert_eq!(local, [16_384, 16_384, 16_384, 11_872]);
    let batch = ExtendLayout::new(&[(976_384, 16_384)]).unwrap();
    assert_eq!(batch.rows(), 992_768);
}

#[test]
fn rows_of_a_batch_are_prefixes_then_new_tokens() {
    let stripe = Stripe::new(4, 1).unwrap();
    // Requests at slots 56.. and 40.., one row a page on each rank.
    let pages = |first: u32, n: u32| (first..first + n).map(L1Page::new).collect::<Vec<_>>();
    for rank in stripe.ranks() {
        let mut rows = Vec::new();
        for (tokens, pages) in [(4, pages(14, 2)), (8, pages(10, 2))] {
            let plan = GatherPlan::new(stripe, TokenPos::new(0), tokens, 64).unwrap();
            for piece in plan.pieces() {
                rows.extend(piece.source_rows(rank, &pages).unwrap());
            }
        }
        let starts: Vec<_> = rows.iter().map(|r| r.start.get()).collect();
        assert_eq!(starts, [14, 10, 11]);
    }
    let batch = ExtendLayout::new(&[(4, 2), (8, 3)]).unwrap();
    assert_eq!((batch.prefix_rows(), batch.rows()), (12, 17));
    assert_eq!(batch.row(1, 7), Some(11));
    assert_eq!(batch.row(0, 5), Some(13));
    assert_eq!(batch.row(1, 8), Some(14));
    assert_eq!(batch.row(1, 11), None);
    assert_eq!(batch.row(2, 0), None);
}

#[test]
fn too_small_too_long_and_too_few_pages_are_refused() {
    let stripe = Stripe::new(8, 2).unwrap();
    let error = GatherPlan::new(stripe, TokenPos::new(0), 9, 7).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a workspace of 7 rows for 1 requests is less than 8 rows for each"
    );
    assert!(GatherPlan::new(stripe, TokenPos::new(u64::MAX), 1, 8).is_err());
    let plan = GatherPlan::new(stripe, TokenPos::new(15), 2, 64).unwrap();
    let piece = plan.pieces().next().unwrap();
    let error = piece.source_rows(Rank::new(0), &[L1Page::new(3)]);
    let position = 16;
    assert_eq!(error, Err(GatherError::NoPage { position, pages: 1 }));
    assert!(ExtendLayout::new(&[(u64::MAX, 1)]).is_err());
}

proptest! {
    #[test]
    fn b16_any_span_in_any_pieces_comes_back_in_token_order(
        dcp in 1u32..9,
        interleave in 1u32..4,
        parts in 1u32..4,
        start in 0u64..200,
        tokens in 0u64..200,
        extra in 0u64..90,
    ) {
        let stripe = Stripe::with_interleave(dcp, interleave * parts, interleave).unwrap();
        let workspace = stripe.cycle_tokens() + extra;
        let pages: Vec<_> = (0..stripe.pages_for(start + tokens))
            .map(|k| L1Page::new(u32::try_from(k * 7 % 101 + 1).unwrap()))
            .collect();
        let plan = GatherPlan::new(stripe, TokenPos::new(start), tokens, workspace).unwrap();
        let mut restored = Vec::new();
        for piece in plan.pieces() {
            prop_assert!(piece.gathered_rows() <= workspace);
            let mut gathered = Vec::new();
            for rank in stripe.ranks() {
                let shard = piece.shard(rank);
                prop_assert_eq!(
                    shard.left_pad + shard.local + shard.right_pad,
                    piece.padded_rows()
                );
                gathered.extend((0..shard.left_pad).map(|_| None));
                for rows in piece.source_rows(rank, &pages).unwrap() {
                    gathered.extend((rows.start.get()..rows.end.get()).map(|row| {
                        Some((rank, row))
                    }));
                }
                gathered.extend((0..shard.right_pad).map(|_| None));
            }
            prop_assert_eq!(gathered.len() as u64, piece.gathered_rows());
            restored.extend(piece.indices().map(|i| gathered[usize::try_from(i).unwrap()]));
        }
        let want: Vec<_> = (start..start + tokens)
            .map(|p| {
                let slot = stripe.slot_at(&pages, TokenPos::new(p)).unwrap();
                Some((stripe.owner_of_slot(slot), stripe.row_on_owner(slot).get()))
            })
            .collect();
        prop_assert_eq!(restored, want);
    }
}
