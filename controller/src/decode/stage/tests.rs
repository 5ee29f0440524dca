// SPDX-License-Identifier: Apache-2.0
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of these tests"
)]

use proptest::prelude::*;
use striata_core::config::{AttentionKernel, DecodeSettings};
use striata_core::geometry::{PageGeometry, PoolKind};
use striata_core::topology::HeadShards;
use striata_core::{RowFormat, Stripe};
use striata_kernels::decode::plan::HostPlan;
use striata_kernels::decode::{PlanShape, PlanStatus};

use super::*;

const PAGES: u32 = 40;
const PLACES: u32 = 4;
const UNTOUCHED: u32 = 0xABAD_CAFE;

fn config(stripe: Stripe, kernel_rows: u32) -> DcpMlaConfig {
    let page = PageGeometry::new(stripe.page_rows(), 1152, 1).unwrap();
    let rows = u64::from(PAGES * stripe.page_rows());
    let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows).unwrap();
    let settings = DecodeSettings {
        exchange: None,
        replicate_q_proj: false,
        kernel: AttentionKernel::Auto,
        heads: HeadShards {
            local: 4,
            gathered: 4 * stripe.dcp(),
        },
        format: RowFormat::Bf16,
    };
    DcpMlaConfig {
        queries: 2,
        max_tokens: 6 * stripe.widened_page(),
        kernel_rows,
        ..DcpMlaConfig::new(settings, pool, PLACES, 1.0)
    }
}

fn staging(stage: &Stage) -> Vec<AtomicU32> {
    (0..stage.words())
        .map(|_| AtomicU32::new(UNTOUCHED))
        .collect()
}

fn build(shape: PlanShape, staging: &[AtomicU32], source: Option<&[i32]>, plan: &mut HostPlan) {
    let words: Vec<u32> = staging.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    let (places, behind) = words.split_at(shape.attend.batch as usize * PLACE_WORDS);
    let staged: Vec<i32> = behind.iter().map(|word| word.cast_signed()).collect();
    let source = source.unwrap_or(&staged);
    shape
        .build(bytemuck::cast_slice(places), source, plan)
        .unwrap();
}

/// A request as a random program sees it: its pages and tokens.
#[derive(Clone, Debug)]
struct Request {
    pages: Vec<u32>,
    tokens: u64,
}

fn request(stripe: Stripe) -> impl Strategy<Value = Request> {
    let w = stripe.widened_page();
    (proptest::collection::vec(1..PAGES, 6), 0..=6 * w)
        .prop_map(|(pages, tokens)| Request { pages, tokens })
}

/// What becomes of a place between two steps.
#[derive(Clone, Debug)]
enum Change {
    Grow(u64),
    /// Another request, or none.
    Replace(Option<Request>),
    /// Pages from this one on are others.
    Swap(usize, u32),
    Shrink(u64),
}

fn change(stripe: Stripe) -> impl Strategy<Value = Change> {
    let w = stripe.widened_page();
    prop_oneof![
        (0..2 * w).prop_map(Change::Grow),
        proptest::option::of(request(stripe)).prop_map(Change::Replace),
        (0usize..6, 1..PAGES).prop_map(|(at, page)| Change::Swap(at, page)),
        (0..2 * w).prop_map(Change::Shrink),
    ]
}

fn stripes() -> impl Strategy<Value = (Stripe, u32)> {
    prop_oneof![
        Just((1, 8, 1, 8)),
        Just((3, 4, 1, 2)),
        Just((8, 4, 1, 4)),
        Just((2, 8, 2, 4)),
    ]
    .prop_map(|(c, p, i, k)| (Stripe::with_interleave(c, p, i).unwrap(), k))
}

fn apply(change: &Change, requests: &mut [Option<Request>], place: usize, most: u64) {
    match (change, &mut requests[place]) {
        (Change::Grow(by), Some(request)) => request.tokens = (request.tokens + by).min(most),
        (Change::Shrink(by), Some(request)) => request.tokens = request.tokens.saturating_sub(*by),
        (Change::Swap(at, page), Some(request)) => request.pages[*at] = *page,
        (Change::Replace(other), slot) => *slot = other.clone(),
        (_, None) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// After any changes, the plan built on what the step before left equals one built from
    /// nothing, and one built from slots, on every rank.
    #[test]
    fn plans_from_changes_from_nothing_and_from_slots_are_equal(
        ((stripe, kernel_rows), programs) in stripes().prop_flat_map(|(stripe, kernel_rows)| {
            let changes = proptest::collection::vec((0..PLACES as usize, change(stripe)), 1..4);
            (Just((stripe, kernel_rows)), proptest::collection::vec(changes, 1..8))
        }),
    ) {
        let config = config(stripe, kernel_rows);
        let shapes: Vec<_> = stripe.ranks().map(|rank| config.plan_shape(rank, 16)).collect();
        let w = stripe.widened_page();
        let slots = DcpMlaConfig {
            source: TableSource::Slots { rows: PLACES, width: (6 * w) as u32 },
            ..config
        };
        let (mut grown, mut by_slots) = (Stage::new(&config), Stage::new(&slots));
        let words = staging(&grown);
        let mut plans: Vec<_> = shapes.iter().map(PlanShape::host_plan).collect();
        let mut requests: Vec<Option<Request>> = vec![None; PLACES as usize];
        for program in programs {
            for (place, change) in &program {
                apply(change, &mut requests, *place, config.max_tokens);
            }
            let pages: Vec<Vec<L1Page>> = requests.iter().map(|request| {
                let pages = request.iter().flat_map(|request| &request.pages);
                pages.map(|&page| L1Page::new(page)).collect()
            }).collect();
            let tokens = |place: usize| requests[place].as_ref().map_or(0, |r| r.tokens);
            let step = |place: usize, pages| StepRequest {
                pages,
                tokens: tokens(place),
                new_tokens: tokens(place).min(1 + place as u64 % 2) as u32,
            };
            let lists: Vec<_> = (0..requests.len())
                .map(|place| step(place, RequestPages::Pages(&pages[place])))
                .collect();
            grown.step(&lists, false, &[&words]).unwrap();
            let mut fresh = Stage::new(&config);
            let fresh_words = staging(&fresh);
            fresh.step(&lists, false, &[&fresh_words]).unwrap();
            let rows: Vec<_> = (0..requests.len())
                .map(|place| step(place, RequestPages::SlotRow(place as u32)))
                .collect();
            let slot_words = staging(&by_slots);
            by_slots.step(&rows, false, &[&slot_words]).unwrap();
            let map: Vec<i32> = pages.iter().flat_map(|pages| (0..6 * w).map(|p| {
                let position = striata_core::TokenPos::new(p);
                stripe.slot_at(pages, position).map_or(0, |slot| slot.get() as i32)
            })).collect();
            for (rank, shape) in shapes.iter().enumerate() {
                build(*shape, &words, None, &mut plans[rank]);
                let mut from_nothing = shape.host_plan();
                build(*shape, &fresh_words, None, &mut from_nothing);
                prop_assert_eq!(&plans[rank], &from_nothing);
                let mut from_slots = shape.host_plan();
                let slots = slots.plan_shape(shape.rank, 16);
                build(slots, &slot_words, Some(&map), &mut from_slots);
                prop_assert_eq!(&plans[rank], &from_slots);
                prop_assert!(plans[rank].status.iter().all(|&s| s == PlanStatus::Good as u32));
            }
        }
    }
}

#[test]
fn a_request_that_grows_by_a_token_stages_its_new_page_and_nothing_else() {
    let stripe = Stripe::new(2, 4).unwrap();
    let config = config(stripe, 4);
    let mut stage = Stage::new(&config);
    let pages: Vec<L1Page> = [7, 9, 3].map(L1Page::new).to_vec();
    let step = |tokens| StepRequest {
        pages: RequestPages::Pages(&pages),
        tokens,
        new_tokens: 1,
    };
    let staged = |stage: &mut Stage, tokens| {
        let words = staging(stage);
        stage.step(&[step(tokens)], false, &[&words]).unwrap();
        let behind = &words[PLACES as usize * PLACE_WORDS..];
        let word = |(at, word): (usize, &AtomicU32)| (at, word.load(Ordering::Relaxed));
        let touched = behind
            .iter()
            .enumerate()
            .map(word)
            .filter(|(_, word)| *word != UNTOUCHED);
        touched.collect::<Vec<_>>()
    };
    assert_eq!(staged(&mut stage, 15), [(0, 7), (1, 9)]);
    // The second page was not full, so its cells are written again.
    assert_eq!(staged(&mut stage, 16), [(1, 9)]);
    assert_eq!(staged(&mut stage, 17), [(2, 3)]);
    assert_eq!(staged(&mut stage, 18), [(2, 3)]);
    stage.forget();
    assert_eq!(staged(&mut stage, 18), [(0, 7), (1, 9), (2, 3)]);
}

#[test]
fn requests_that_cannot_stand_are_refused_with_their_place_and_change_nothing() {
    let stripe = Stripe::new(2, 4).unwrap();
    let mut stage = Stage::new(&config(stripe, 4));
    let good: Vec<L1Page> = [7, 9].map(L1Page::new).to_vec();
    let request = |pages, tokens, new_tokens| StepRequest {
        pages,
        tokens,
        new_tokens,
    };
    let first = request(RequestPages::Pages(&good), 12, 1);
    let (sink, outside) = ([L1Page::new(0)], [L1Page::new(PAGES)]);
    for (bad, uniform, part) in [
        (
            request(RequestPages::Pages(&good), 17, 1),
            false,
            "17 tokens need 3 pages, it has 2",
        ),
        (
            request(RequestPages::Pages(&sink), 3, 1),
            false,
            "page 0 is the sink",
        ),
        (
            request(RequestPages::Pages(&outside), 3, 1),
            false,
            "page 40 is the sink or outside",
        ),
        (
            request(RequestPages::Pages(&good), 9, 3),
            false,
            "3 new tokens are more than the 2",
        ),
        (
            request(RequestPages::Pages(&good), 1, 2),
            false,
            "or the 1 tokens",
        ),
        (
            request(RequestPages::Pages(&good), 49, 1),
            false,
            "49 tokens are more than 48",
        ),
        (
            request(RequestPages::SlotRow(0), 9, 1),
            false,
            "a row of a map",
        ),
        (
            request(RequestPages::Pages(&good), 9, 1),
            true,
            "run the step eagerly",
        ),
    ] {
        let words = staging(&stage);
        let two_new = request(first.pages, first.tokens, 2);
        let error = stage.step(&[two_new, bad], uniform, &[&words]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("request 1: ") && text.contains(part),
            "{text}"
        );
        assert!(
            words
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == UNTOUCHED)
        );
    }
    let many = vec![first; PLACES as usize + 1];
    assert!(stage.step(&many, false, &[]).is_err());
}
