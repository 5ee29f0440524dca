// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

fn pages(ids: &[u32]) -> Vec<L1Page> {
    ids.iter().map(|&id| L1Page::new(id)).collect()
}

#[test]
fn cells_behind_the_live_pages_are_kept_or_cleared() {
    let layout = TableLayout::new(Stripe::new(4, 64).unwrap());
    let rank = Rank::new(2);
    let requests = [([5, 2, 9], 768), ([7, 0, 4], 511), ([1, 8, 6], 10)];
    let want = [[5, 2, 9], [7, 0, 77], [1, 77, 77]];
    for ((ids, length), want) in requests.into_iter().zip(want) {
        let mut cells = [77; 3];
        let keep = StaleCells::Keep;
        layout
            .write_pages(rank, &pages(&ids), length, keep, &mut cells)
            .unwrap();
        assert_eq!(cells, want);
        let clear = StaleCells::Clear;
        layout
            .write_pages(rank, &pages(&ids), length, clear, &mut cells)
            .unwrap();
        assert_eq!(cells, want.map(|cell| if cell == 77 { -1 } else { cell }));
    }
}

#[test]
fn refusals_leave_the_row_as_it_was() {
    let layout = TableLayout::with_kernel_page(Stripe::new(2, 4).unwrap(), 2).unwrap();
    let (rank, clear) = (Rank::new(0), StaleCells::Clear);
    let mut cells = [77; 4];
    let mut write = |rank, ids: &[u32], length| {
        layout.write_pages(rank, &pages(ids), length, clear, &mut cells)
    };
    let error = write(rank, &[1], 9).unwrap_err();
    let position = 8;
    assert_eq!(
        error,
        TableError::NoSlot {
            position,
            length: 9
        }
    );
    let error = write(rank, &[1, 2, 3], 24).unwrap_err();
    assert_eq!(
        error,
        TableError::Width {
            needed: 6,
            width: 4
        }
    );
    let error = write(rank, &[1, u32::MAX], 9).unwrap_err();
    assert!(matches!(error, TableError::PageNumber { split: 2, .. }));
    let error = write(Rank::new(2), &[1], 1).unwrap_err();
    assert_eq!(error, TableError::Rank { rank: 2, dcp: 2 });
    assert_eq!(cells, [77; 4]);
    let slots: Vec<_> = (9..17).map(Slot::new).collect();
    let error = layout.write_slots(rank, &slots, 3, clear, &mut cells);
    assert!(matches!(
        error,
        Err(TableError::NotPageStart { slot: 9, .. })
    ));
    let bad = TableLayout::with_kernel_page(Stripe::new(2, 4).unwrap(), 3);
    assert!(bad.is_err());
}

#[test]
fn a_batch_table_reports_changes_and_padding_has_no_length() {
    let layout = TableLayout::new(Stripe::new(4, 2).unwrap());
    let mut table = PageTable::new(layout, Rank::new(1), 3, 2).unwrap();
    assert!(table.set(1, &pages(&[3, 5]), 9).unwrap());
    assert!(!table.set(1, &pages(&[3, 5]), 9).unwrap());
    // Rank 1 owns positions 1, 5 of 9 and of 8 tokens, and 9 of 10.
    assert!(!table.set(1, &pages(&[3, 5]), 8).unwrap());
    assert!(table.set(1, &pages(&[3, 5]), 10).unwrap());
    assert_eq!(table.cells(), [-1, -1, 3, 5, -1, -1]);
    assert_eq!(table.local_lens(), [0, 3, 0]);
    assert!(table.clear(1));
    assert!(!table.clear(1));
    assert!(!table.clear(9));
    assert!(PageTable::new(layout, Rank::new(1), usize::MAX, 2).is_err());
    assert!(PageTable::new(layout, Rank::new(1), 1 << 62, 1).is_err());
    assert_eq!(table.cells(), [-1; 6]);
}

proptest! {
    #[test]
    fn b10_every_owned_position_is_found_through_the_table(
        dcp in 1u32..6,
        parts in 1u32..5,
        kernel_rows in 1u32..4,
        ids in proptest::collection::vec(0u32..1000, 1..5),
        cut in 0.0f64..1.0,
    ) {
        let stripe = Stripe::new(dcp, parts * kernel_rows).unwrap();
        let layout = TableLayout::with_kernel_page(stripe, kernel_rows).unwrap();
        let tokens = stripe.widened_page() * ids.len() as u64;
        #[allow(clippy::cast_possible_truncation, reason = "a length of a few hundred")]
        let length = (cut * tokens as f64) as i64;
        let ids = pages(&ids);
        let slots: Vec<_> = (0..tokens)
            .map(|p| stripe.slot_at(&ids, TokenPos::new(p)).unwrap())
            .collect();
        for rank in stripe.ranks() {
            let mut cells = vec![77; ids.len() * parts as usize];
            let mut same = cells.clone();
            let keep = StaleCells::Keep;
            let live = layout.write_pages(rank, &ids, length, keep, &mut cells).unwrap();
            layout.write_slots(rank, &slots, length, keep, &mut same).unwrap();
            prop_assert_eq!(&cells, &same);
            prop_assert!(cells[live..].iter().all(|&cell| cell == 77));
            let mut index = 0usize;
            for p in (0..length.unsigned_abs()).map(TokenPos::new) {
                if stripe.owner_of_position(p) == rank {
                    let at = layout.address(&ids, p).unwrap();
                    let cell = cells[index / kernel_rows as usize];
                    prop_assert_eq!(at.page, u64::try_from(cell).unwrap());
                    prop_assert_eq!(at.row as usize, index % kernel_rows as usize);
                    index += 1;
                }
            }
            prop_assert_eq!(live, index.div_ceil(kernel_rows as usize));
        }
    }
}

/// Seen to fail if the cells of a page are counted past the last of them.
#[test]
fn the_last_page_that_has_a_number_is_written() {
    for (rows, kernel_rows) in [(4, 4), (4, 1)] {
        let stripe = Stripe::new(2, rows).unwrap();
        let layout = TableLayout::with_kernel_page(stripe, kernel_rows).unwrap();
        let split = layout.split();
        let last = (1_u32 << 31) / split - 1;
        let mut cells = vec![EMPTY_CELL; split as usize];
        let mut write = |page: u32| {
            let pages = [L1Page::new(page)];
            let stale = StaleCells::Clear;
            let length = stripe.widened_page().cast_signed();
            layout.write_pages(Rank::new(1), &pages, length, stale, &mut cells)
        };
        assert_eq!(write(last), Ok(split as usize));
        let refused = write(last + 1);
        assert!(matches!(refused, Err(TableError::PageNumber { .. })));
        assert_eq!(cells.last(), Some(&i32::MAX));
    }
}
