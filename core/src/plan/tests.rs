// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

use proptest::prelude::*;

use super::*;
use crate::units::{L1Page, L2Page, Slot};

const PAGES: u32 = 40;

fn kinds() -> impl Strategy<Value = PoolKind> {
    prop_oneof![
        Just(PoolKind::Striped),
        Just(PoolKind::Replicated),
        Just(PoolKind::PerRequest)
    ]
}

fn directions() -> impl Strategy<Value = CopyDirection> {
    prop_oneof![
        Just(CopyDirection::HostToDevice),
        Just(CopyDirection::DeviceToHost)
    ]
}

fn stripes() -> impl Strategy<Value = Stripe> {
    (1u32..9, 1u32..5, 1u32..4)
        .prop_map(|(dcp, part, i)| Stripe::with_interleave(dcp, part * i, i).unwrap())
}

fn pair(l1: u32, l2: u32) -> PagePair {
    PagePair {
        l1: L1Page::new(l1),
        l2: L2Page::new(l2),
    }
}

fn spell(paging: Stripe, pages: impl Iterator<Item = u32>) -> Vec<Slot> {
    pages
        .flat_map(|page| paging.page_slots(L1Page::new(page)).map(Slot::new))
        .collect()
}

/// Copies slot by slot, as the definition says, with no notion of pages: what rank `rank` reads
/// and writes, as (device row, host row).
fn by_definition(
    kind: PoolKind,
    stripe: Stripe,
    rank: Rank,
    device: &[Slot],
    host: &[Slot],
) -> Vec<(u64, u64)> {
    device
        .iter()
        .zip(host)
        .filter_map(|(&d, &h)| match kind {
            PoolKind::Striped => stripe
                .localize(rank, d)
                .map(|row| (row.get(), stripe.row_on_owner(h).get())),
            PoolKind::Replicated | PoolKind::PerRequest => Some((d.get(), h.get())),
        })
        .collect()
}

fn expand(plan: &CopyPlan, rank: Rank) -> Vec<(u64, u64)> {
    plan.runs(rank)
        .flat_map(|run| {
            (0..run.rows).map(move |k| (run.device_row.get() + k, run.host_row.get() + k))
        })
        .collect()
}

proptest! {
    #[test]
    fn both_forms_plan_the_copies_of_the_definition(
        kind in kinds(),
        stripe in stripes(),
        direction in directions(),
        l1 in proptest::sample::subsequence((0..PAGES).collect::<Vec<_>>(), 0..10).prop_shuffle(),
        seed in any::<u32>(),
    ) {
        let pages: Vec<_> = l1
            .iter()
            .enumerate()
            .map(|(at, &l1)| pair(l1, (seed % PAGES + at as u32) % PAGES))
            .collect();
        let paging = paging(kind, stripe);
        let device = spell(paging, pages.iter().map(|p| p.l1.get()));
        let host = spell(paging, pages.iter().map(|p| p.l2.get()));
        let slots = u64::from(PAGES) * paging.widened_page();
        let from_slots =
            CopyPlan::from_slots(kind, stripe, direction, &device, &host, slots, slots).unwrap();
        let from_pages =
            CopyPlan::from_pages(kind, stripe, direction, &pages, PAGES, PAGES).unwrap();
        prop_assert_eq!(&from_slots, &from_pages);
        for rank in stripe.ranks() {
            let mut want = by_definition(kind, stripe, rank, &device, &host);
            let mut got = expand(&from_pages, rank);
            prop_assert_eq!(got.len() as u64, from_pages.rows_per_rank());
            want.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(got, want);
        }
        prop_assert_eq!(from_pages.runs(Rank::new(stripe.dcp())).count(), 0);
    }

    #[test]
    fn any_lists_are_planned_or_refused_without_a_panic(
        kind in kinds(),
        stripe in stripes(),
        direction in directions(),
        device in proptest::collection::vec(any::<u64>(), 0..20),
        small in any::<bool>(),
        capacity in any::<u64>(),
    ) {
        let device: Vec<_> = device
            .iter()
            .map(|&s| Slot::new(if small { s % 64 } else { s }))
            .collect();
        let plan =
            CopyPlan::from_slots(kind, stripe, direction, &device, &device, capacity, capacity);
        if let Ok(plan) = plan {
            let paging = paging(kind, stripe);
            prop_assert_eq!(spell(paging, plan.pages().iter().map(|p| p.l1.get())), device);
        }
    }
}

#[test]
fn adjacent_pages_are_one_run_and_c_of_one_copies_the_slots_themselves() {
    let stripe = Stripe::new(1, 4).unwrap();
    let pages = [pair(2, 5), pair(3, 6), pair(4, 8), pair(5, 9)];
    let plan = CopyPlan::from_pages(
        PoolKind::Striped,
        stripe,
        CopyDirection::HostToDevice,
        &pages,
        PAGES,
        PAGES,
    )
    .unwrap();
    let runs: Vec<_> = plan
        .runs(Rank::new(0))
        .map(|r| (r.device_row.get(), r.host_row.get(), r.rows))
        .collect();
    assert_eq!(runs, [(8, 20, 8), (16, 32, 8)]);
}

#[test]
fn a_plan_is_refused_on_another_kind_or_stripe() {
    let stripe = Stripe::new(4, 2).unwrap();
    let plan = CopyPlan::from_pages(
        PoolKind::Striped,
        stripe,
        CopyDirection::DeviceToHost,
        &[pair(1, 1)],
        2,
        2,
    )
    .unwrap();
    assert!(plan.check_for(PoolKind::Striped, stripe).is_ok());
    let kind = plan.check_for(PoolKind::Replicated, stripe).unwrap_err();
    assert!(
        kind.to_string()
            .contains("Striped pool, this pool is Replicated")
    );
    let other = Stripe::new(8, 2).unwrap();
    let error = plan.check_for(PoolKind::Striped, other).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the plan was made for c 4 P 2 I 1, this pool has c 8 P 2 I 1"
    );
}

#[test]
fn the_destination_follows_the_direction() {
    let stripe = Stripe::new(2, 2).unwrap();
    let plan = |direction, pages: &[PagePair]| {
        CopyPlan::from_pages(PoolKind::Striped, stripe, direction, pages, 9, 9)
    };
    let twice_on_l1 = [pair(3, 1), pair(5, 2), pair(3, 4)];
    let error = plan(CopyDirection::HostToDevice, &twice_on_l1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "destination page 3 of L1 is named twice, at entries 0 and 2"
    );
    assert!(plan(CopyDirection::DeviceToHost, &twice_on_l1).is_ok());
    let error = plan(CopyDirection::DeviceToHost, &[pair(9, 0)]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("L1 page 9 is out of range: the tier has 9 pages")
    );
}
