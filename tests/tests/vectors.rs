// SPDX-License-Identifier: Apache-2.0
//! The oracle values of `tests/data`, computed by an independent program.
#![allow(
    clippy::cast_possible_truncation,
    reason = "the numbers of the files are small"
)]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use striata_core::plan::{CopyDirection, CopyPlan, PlanError};
use striata_core::relayout::{Placement, Relayout};
use striata_core::{
    L1Page, L2Page, PageId, PagePair, PoolKind, Rank, Row, Slot, Stripe, TokenPos, Topology,
};

#[derive(Deserialize)]
struct File<C> {
    cases: Vec<C>,
}

fn cases<C: DeserializeOwned>(text: &str) -> Vec<C> {
    let file: File<C> = serde_json::from_str(text).unwrap();
    assert!(!file.cases.is_empty());
    file.cases
}

fn pages(ids: &[u32]) -> Vec<L1Page> {
    ids.iter().map(|&id| L1Page::new(id)).collect()
}

/// Positions below `length` that `rank` owns.
fn owned(stripe: Stripe, rank: Rank, length: u64) -> Vec<u64> {
    let mut at = stripe.first_owned(rank, TokenPos::new(0)).get();
    let mut positions = Vec::new();
    while at < length {
        positions.push(at);
        at = stripe.first_owned(rank, TokenPos::new(at + 1)).get();
    }
    positions
}

#[test]
fn stripe() {
    #[derive(Deserialize)]
    struct Case {
        dcp: u32,
        length: u64,
        local_lengths: Vec<u64>,
        owned_head: Vec<Vec<u64>>,
        owned_tail: Vec<Vec<u64>>,
    }
    for case in cases::<Case>(include_str!("../data/stripe.json")) {
        let stripe = Stripe::new(case.dcp, 64).unwrap();
        for rank in stripe.ranks() {
            let r = rank.get() as usize;
            let local = stripe.local_len(rank, case.length.cast_signed());
            assert_eq!(local, case.local_lengths[r]);
            let owned = owned(stripe, rank, case.length);
            assert_eq!(owned.len() as u64, local);
            assert!(owned.starts_with(&case.owned_head[r]));
            assert!(owned.ends_with(&case.owned_tail[r]));
            for (index, &position) in owned.iter().enumerate() {
                assert_eq!(
                    stripe.local_index(TokenPos::new(position)),
                    index as u64,
                    "position {position} on rank {rank} of {}",
                    case.dcp
                );
            }
        }
    }
}

#[test]
fn slots() {
    #[derive(Deserialize)]
    struct PerRank {
        positions: Vec<u64>,
        local_slots: Vec<u64>,
        count: usize,
        local_pages: Vec<i32>,
    }
    #[derive(Deserialize)]
    struct Case {
        dcp: u32,
        page: u32,
        widened_page: u64,
        pages: Vec<u32>,
        length: u64,
        slots_head: Vec<u64>,
        slots_tail: Vec<u64>,
        ranks: Vec<PerRank>,
    }
    use striata_core::table::{StaleCells, TableLayout};
    for case in cases::<Case>(include_str!("../data/slots.json")) {
        let stripe = Stripe::new(case.dcp, case.page).unwrap();
        assert_eq!(stripe.widened_page(), case.widened_page);
        let ids = pages(&case.pages);
        let slot = |p| stripe.slot_at(&ids, TokenPos::new(p)).unwrap().get();
        let slots: Vec<_> = (0..case.length).map(slot).collect();
        assert!(slots.starts_with(&case.slots_head));
        assert!(slots.ends_with(&case.slots_tail));
        for (rank, want) in stripe.ranks().zip(&case.ranks) {
            assert!(owned(stripe, rank, case.length).starts_with(&want.positions));
            let rows: Vec<_> = slots
                .iter()
                .filter_map(|&slot| stripe.localize(rank, Slot::new(slot)))
                .map(Row::get)
                .collect();
            assert!(rows.starts_with(&want.local_slots));
            assert_eq!(rows.len(), want.count);
            let mut cells = vec![-1; ids.len()];
            let live = TableLayout::new(stripe)
                .write_pages(
                    rank,
                    &ids,
                    case.length.cast_signed(),
                    StaleCells::Keep,
                    &mut cells,
                )
                .unwrap();
            assert_eq!(cells[..live], want.local_pages);
        }
    }
}

#[test]
fn topology() {
    #[derive(Deserialize)]
    struct Valid {
        tp: u32,
        dp: u32,
        dcp: u32,
        attention_tp: u32,
        groups: Vec<Vec<u32>>,
    }
    #[derive(Deserialize)]
    struct Refused {
        tp: u32,
        dp: u32,
        dcp: u32,
        why: String,
    }
    #[derive(Deserialize)]
    struct Topologies {
        valid: Vec<Valid>,
        refused: Vec<Refused>,
    }
    let file: Topologies = serde_json::from_str(include_str!("../data/topology.json")).unwrap();
    for case in file.valid {
        let topology = Topology::new(case.tp, case.dp, case.dcp).unwrap();
        assert_eq!(topology.attention_tp(), case.attention_tp);
        let groups: Vec<Vec<u32>> = topology.groups().map(Iterator::collect).collect();
        assert_eq!(groups, case.groups);
        let in_replica = topology.groups_per_replica() * topology.replicas();
        assert_eq!(in_replica as usize, groups.len());
        for group in groups {
            for (rank, &global) in (0..).zip(&group) {
                assert_eq!(topology.dcp_rank_of(global), Rank::new(rank));
                assert_eq!(topology.replica_of(global), topology.replica_of(group[0]));
            }
        }
    }
    for case in file.refused {
        let error = Topology::new(case.tp, case.dp, case.dcp)
            .unwrap_err()
            .to_string();
        let attention_tp = case.tp.checked_div(case.dp).unwrap_or(0);
        let says = match case.why.as_str() {
            "zero" => vec!["is 0".to_owned()],
            "DP does not divide TP" => vec![format!("dp {} does not divide", case.dp)],
            "does not divide TP" => vec![format!("does not divide tp {}", case.tp)],
            "larger than TP" => vec![format!("larger than tp {}", case.tp)],
            _ => vec![
                "crosses replica boundaries".to_owned(),
                format!("attention TP is {attention_tp}"),
            ],
        };
        for says in says {
            assert!(error.contains(&says), "{}: {error}", case.why);
        }
        for number in [case.tp, case.dcp] {
            let named = error.contains(&number.to_string());
            assert!(named || case.why.starts_with("DP"), "{error}");
        }
    }
}

#[derive(Deserialize)]
struct Transfer {
    dcp: u32,
    page: u32,
    device_pages: Vec<u32>,
    host_pages: Vec<u32>,
    ranks: Vec<TransferRank>,
}

#[derive(Deserialize)]
struct TransferRank {
    kept: u64,
    runs_device_host_rows: Vec<[u64; 3]>,
}

#[derive(Deserialize)]
struct RefusedTransfer {
    dcp: u32,
    page: u32,
    device: Vec<u64>,
    host: Vec<u64>,
    #[serde(default = "unlimited")]
    capacity_host: u64,
    #[serde(default = "to_device")]
    direction: CopyDirection,
    why: String,
}

const fn unlimited() -> u64 {
    1 << 20
}

const fn to_device() -> CopyDirection {
    CopyDirection::HostToDevice
}

fn slot_list(stripe: Stripe, ids: &[u32]) -> Vec<Slot> {
    ids.iter()
        .flat_map(|&id| stripe.page_slots(L1Page::new(id)).map(Slot::new))
        .collect()
}

#[test]
fn transfer_filter() {
    for case in cases::<Transfer>(include_str!("../data/transfer_filter.json")) {
        let stripe = Stripe::new(case.dcp, case.page).unwrap();
        let pairs: Vec<_> = case
            .device_pages
            .iter()
            .zip(&case.host_pages)
            .map(|(&l1, &l2)| PagePair {
                l1: L1Page::new(l1),
                l2: L2Page::new(l2),
            })
            .collect();
        for direction in [CopyDirection::HostToDevice, CopyDirection::DeviceToHost] {
            let plan = CopyPlan::from_slots(
                PoolKind::Striped,
                stripe,
                direction,
                &slot_list(stripe, &case.device_pages),
                &slot_list(stripe, &case.host_pages),
                unlimited(),
                unlimited(),
            )
            .unwrap();
            assert_eq!(plan.pages(), pairs);
            let by_pages =
                CopyPlan::from_pages(PoolKind::Striped, stripe, direction, &pairs, 100, 100);
            assert_eq!(by_pages.as_ref(), Ok(&plan));
            for (rank, want) in stripe.ranks().zip(&case.ranks) {
                let runs: Vec<_> = plan
                    .runs(rank)
                    .map(|run| [run.device_row.get(), run.host_row.get(), run.rows])
                    .collect();
                assert_eq!(runs, want.runs_device_host_rows);
                assert_eq!(runs.iter().map(|run| run[2]).sum::<u64>(), want.kept);
                assert_eq!(plan.rows_per_rank(), want.kept);
            }
        }
    }
}

#[test]
fn transfer_filter_refused() {
    #[derive(Deserialize)]
    struct Refused {
        refused: Vec<RefusedTransfer>,
    }
    let file: Refused = serde_json::from_str(include_str!("../data/transfer_filter.json")).unwrap();
    assert!(!file.refused.is_empty());
    for case in file.refused {
        let stripe = Stripe::new(case.dcp, case.page).unwrap();
        let list = |slots: &[u64]| slots.iter().map(|&s| Slot::new(s)).collect::<Vec<_>>();
        let error = CopyPlan::from_slots(
            PoolKind::Striped,
            stripe,
            case.direction,
            &list(&case.device),
            &list(&case.host),
            unlimited(),
            case.capacity_host,
        )
        .unwrap_err();
        let (right_kind, values): (bool, &[&str]) = match case.why.as_str() {
            "the two lists differ in length" => {
                (matches!(error, PlanError::Length { .. }), &["8", "7"])
            }
            "not whole widened pages" => (
                matches!(error, PlanError::NotWholePages { .. }),
                &["7", "8"],
            ),
            "a host slot is out of range" => (
                matches!(error, PlanError::SlotRange { .. }),
                &["400", "100"],
            ),
            "a destination page is named twice" => (
                matches!(error, PlanError::DestinationTwice { .. }),
                &["page 1", "0 and 1"],
            ),
            why => (
                why.contains("owners differ") && matches!(error, PlanError::Owner { .. }),
                &["slot 0", "slot 9", "rank 0", "rank 1", "mod 4"],
            ),
        };
        assert!(right_kind, "{}: {error}", case.why);
        for value in values {
            assert!(error.to_string().contains(value), "{}: {error}", case.why);
        }
    }
}

#[test]
fn verify_mask() {
    #[derive(Deserialize)]
    struct Case {
        dcp: u32,
        global_length: i64,
        queries: u32,
        visible_local_rows: Vec<Vec<u64>>,
    }
    for case in cases::<Case>(include_str!("../data/verify_mask.json")) {
        let stripe = Stripe::new(case.dcp, 64).unwrap();
        for (rank, want) in stripe.ranks().zip(&case.visible_local_rows) {
            let visible: Vec<_> = (0..case.queries)
                .map(|query| stripe.visible_rows(rank, case.global_length, case.queries, query))
                .collect();
            assert_eq!(&visible, want, "c {} G {}", case.dcp, case.global_length);
        }
    }
}

#[test]
fn relayout() {
    #[derive(Deserialize)]
    struct Case {
        src_dcp: u32,
        dst_dcp: u32,
        page: u32,
        src_pages: Vec<u32>,
        dst_pages: Vec<u32>,
        tokens: u64,
        row_moves_by_rank_pair: BTreeMap<String, Vec<[u64; 2]>>,
    }
    for case in cases::<Case>(include_str!("../data/relayout.json")) {
        let (src, dst): (Vec<PageId<_>>, _) = (pages(&case.src_pages), pages(&case.dst_pages));
        let source = Placement::new(Stripe::new(case.src_dcp, case.page).unwrap(), &src);
        let target = Placement::new(Stripe::new(case.dst_dcp, case.page).unwrap(), &dst);
        let plan = Relayout::new(source, target, 0..case.tokens).unwrap();
        let whole = plan.whole();
        let moves: BTreeMap<_, _> = whole
            .pairs()
            .iter()
            .map(|pair| {
                let rows = pair.source_rows().iter().zip(pair.target_rows());
                assert_eq!(pair.source_rows().len(), pair.target_rows().len());
                let rows: Vec<_> = rows.map(|(s, d)| [s.get(), d.get()]).collect();
                (format!("{}->{}", pair.from(), pair.to()), rows)
            })
            .collect();
        assert_eq!(moves, case.row_moves_by_rank_pair);
        let moved: u64 = whole.completions().iter().map(|(_, rows)| rows).sum();
        assert_eq!(moved, case.tokens);
    }
}
