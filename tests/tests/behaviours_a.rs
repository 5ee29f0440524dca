// SPDX-License-Identifier: Apache-2.0
//! Behaviours 1-8: partial attention, log-sum-exps, the merge, the packed message.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use proptest::prelude::*;
use striata_core::{Rank, Stripe};
use striata_kernels::packed::{PackError, PackedForm, destination_rows};
use striata_kernels::reference::{ContractError, LseFault, PartialRef, merge};
use striata_kernels::{E, EmptySentinel, LogBase, Lse, Real, Two};
use striata_tests::mla::{Batch, Partial, Shard, assert_close, merge_all, noise, random_batch};

/// Partials of one row and one lane.
fn lanes<B: LogBase, T: Real>(parts: &[(f64, f64)]) -> Vec<Partial<B, T>> {
    let one = |&(o, lse): &(f64, f64)| Partial {
        o: vec![T::from_f64(o)],
        lse: vec![Lse::new(T::from_f64(lse))],
    };
    parts.iter().map(one).collect()
}

fn merged_lane<B: LogBase, T: Real>(parts: &[(f64, f64)]) -> (f64, f64) {
    let (merged, report) = merge_all::<B, T>(&lanes(parts), 1);
    assert_eq!(report.faults, 0);
    (merged.o[0].into(), merged.lse[0].get().into())
}

fn assert_lane(got: (f64, f64), want: (f64, f64), tolerance: f64) {
    assert_close(&[got.0, got.1], &[want.0, want.1], tolerance);
}

#[test]
fn b01_lse_base() {
    let natural = (0.888_889, 2.197_225);
    let binary = (0.888_889, 3.169_925);
    let of_e = [(0.0, 0.0), (1.0, 8f64.ln())];
    let of_two = [(0.0, 0.0), (1.0, 3.0)];
    assert_lane(merged_lane::<E, f32>(&of_e), natural, 1e-6);
    assert_lane(merged_lane::<E, f64>(&of_e), natural, 1e-6);
    assert_lane(merged_lane::<Two, f32>(&of_two), binary, 1e-6);
    assert_lane(merged_lane::<Two, f64>(&of_two), binary, 1e-6);
    // What a mistaken base would give, so that this test can tell.
    assert_lane(merged_lane::<E, f64>(&of_two), (0.952_574, 3.048_587), 1e-6);
    let (o, _) = merged_lane::<Two, f64>(&of_e);
    assert_lane((o, 0.0), (0.808_665, 0.0), 1e-6);
}

/// Keys of rank r are `spread * r` above those of rank 0, so the log-sum-exps are too.
fn spread_batch(stripe: Stripe, spread: f64) -> Batch {
    let mut batch = random_batch(2, &[97, 40], 1, 4);
    let lanes = batch.shape.lanes();
    // The last lane adds the spread to the score and is no part of the value.
    for q in batch.query.chunks_mut(lanes) {
        q[lanes - 1] = 1.0 / batch.scale;
    }
    for sequence in &mut batch.sequences {
        for (position, row) in (0..)
            .map(striata_core::TokenPos::new)
            .zip(sequence.chunks_mut(lanes))
        {
            row[lanes - 1] = spread * f64::from(stripe.owner_of_position(position).get());
        }
    }
    batch
}

/// Seen to fail if the ratio of the bases is inverted.
#[test]
fn b02_lse_base_is_converted_once() {
    let stripe = Stripe::new(4, 8).unwrap();
    for spread in [0.0, 3.0, 30.0] {
        let batch = spread_batch(stripe, spread);
        let (o, lse) = batch.dense();
        let binary: Vec<_> = batch
            .partials::<Two>(stripe)
            .iter()
            .map(Partial::rounded)
            .collect();
        let wrapped: Vec<Partial<E, f32>> = binary
            .iter()
            .map(|partial| Partial {
                o: partial.o.clone(),
                lse: partial.lse.iter().map(|x| x.convert()).collect(),
            })
            .collect();
        check_f32(&merge_all(&wrapped, batch.shape.dv).0, &o, &lse);
        let (two, _) = merge_all(&binary, batch.shape.dv);
        let as_natural = Partial {
            o: two.o,
            lse: two.lse.iter().map(|x| x.convert::<E>()).collect(),
        };
        check_f32(&as_natural, &o, &lse);
    }
}

fn check_f32(got: &Partial<E, f32>, o: &[f64], lse: &[f64]) {
    let got_o: Vec<f64> = got.o.iter().map(|&x| x.into()).collect();
    let got_lse: Vec<f64> = got.lse.iter().map(|x| x.get().into()).collect();
    assert_close(&got_o, o, 1e-5);
    assert_close(&got_lse, lse, 1e-5);
}

#[test]
fn b03_empty_shard() {
    let stripe = Stripe::new(8, 64).unwrap();
    let three = random_batch(3, &[3], 1, 2);
    let lens: Vec<i32> = stripe
        .ranks()
        .map(|rank| three.shard(stripe, rank, f64::NAN).local_lens[0])
        .collect();
    assert_eq!(lens, [1, 1, 1, 0, 0, 0, 0, 0]);
    // Outputs are full of NaN before; see `Partial::poisoned`.
    for partial in &three.partials::<E>(stripe)[3..] {
        assert!(partial.o.iter().all(|&x| x == 0.0));
        assert!(partial.lse.iter().all(|&x| x == Lse::EMPTY));
    }
    let mut lengths: Vec<usize> = (1..=17).collect();
    for length in lengths.clone() {
        check_equals_dense(&random_batch(length as u64, &[length], 1, 2), stripe);
    }
    lengths.push(4096);
    check_equals_dense(&random_batch(4096, &lengths, 1, 2), stripe);
}

fn check_equals_dense(batch: &Batch, stripe: Stripe) {
    let (merged, report) = merge_all(&batch.partials::<E>(stripe), batch.shape.dv);
    assert_eq!(report.faults, 0);
    let (o, lse) = batch.dense();
    assert_close(&merged.o, &o, 1e-9);
    let got: Vec<f64> = merged.lse.iter().map(|x| x.get()).collect();
    assert_close(&got, &lse, 1e-9);
}

const EMPTY: (f64, f64) = (f64::NAN, f64::NEG_INFINITY);

/// Seen to fail if a lone partial is summed like others.
#[test]
fn b04_empty_merge() {
    let bits = |(o, lse): (f64, f64)| (o.to_bits(), lse.to_bits());
    for c in [1, 2, 3, 8] {
        let none = merged_lane::<Two, f32>(&vec![EMPTY; c]);
        assert_eq!(bits(none), bits((0.0, f64::NEG_INFINITY)));
        for place in 0..c {
            for lse in [-1e30, -1.0, -0.0, 0.0, 2.5, 1e4] {
                for o in [-0.0, 0.375, -6.5] {
                    let mut parts = vec![EMPTY; c];
                    // The values that f32 holds, so that bits can be compared.
                    parts[place] = (o, f64::from(f32::from_f64(lse)));
                    let alone = bits(parts[place]);
                    assert_eq!(bits(merged_lane::<E, f32>(&parts)), alone);
                    assert_eq!(bits(merged_lane::<Two, f64>(&parts)), alone);
                }
            }
        }
    }
    let mut parts = vec![EMPTY; 8];
    parts[2] = (0.0, 2f64.ln());
    parts[5] = (10.0, 8f64.ln());
    assert_lane(merged_lane::<E, f32>(&parts), (8.0, 10f64.ln()), 1e-6);
    assert_lane(
        merged_lane::<E, f64>(&[(3.0, 100.0), (7.0, -1e30)]),
        (3.0, 100.0),
        0.0,
    );
}

/// Seen to fail if partials of weight 0 are summed too.
#[test]
fn b04_zero_weight_is_not_read() {
    let (o, lse) = merged_lane::<E, f32>(&[(2.0, 0.0), (f64::NAN, -1e30), (4.0, 0.0)]);
    assert_lane((o, lse), (3.0, 2f64.ln()), 1e-6);
}

/// Seen to fail if a fault counts as an empty partial.
#[test]
fn b05_faults_are_counted_and_named() {
    let batch = random_batch(5, &[1], 1, 3);
    let stripe = Stripe::new(2, 64).unwrap();
    let partials = batch.partials::<E>(stripe);
    let (merged, _) = merge_all(&partials, batch.shape.dv);
    assert_eq!(merged, partials[0]);

    let mut broken = partials.clone();
    broken[1].lse[2] = Lse::new(f64::INFINITY);
    broken[1].lse[1] = Lse::new(f64::NAN);
    let (merged, report) = merge_all(&broken, batch.shape.dv);
    assert_eq!(merged, partials[0]);
    let first = LseFault { rank: 1, row: 1 };
    assert_eq!((report.faults, report.first), (2, Some(first)));
    assert_eq!(batch.shape.place(first.row), Some((0, 0, 1)));
}

#[test]
fn b05_declared_sentinel_means_empty() {
    let o = [5.0, f32::NAN];
    let lse = [Lse::<Two>::new(1.0), Lse::new(f32::INFINITY)];
    let parts = [0, 1].map(|at| PartialRef {
        o: &o[at..=at],
        lse: &lse[at..=at],
        empty: EmptySentinel::PositiveInfinity,
    });
    let (mut out, mut out_lse) = ([f32::NAN], [Lse::EMPTY]);
    let report = merge(&parts, 1, &mut out, &mut out_lse).unwrap();
    assert_eq!((report.faults, out[0], out_lse[0].get()), (0, 5.0, 1.0));
    let report = merge(&parts[1..], 1, &mut out, &mut out_lse).unwrap();
    assert_eq!((report.faults, out[0], out_lse[0]), (0, 0.0, Lse::EMPTY));
}

/// Seen to fail if a query sees one token more.
#[test]
fn b06_nan_poison() {
    let check = |stripe: Stripe, batch: &Batch| {
        for rank in stripe.ranks() {
            let clean = batch.attend::<E>(&batch.shard(stripe, rank, 0.0)).unwrap();
            for filler in [f64::NAN, f64::INFINITY, 6e4] {
                let poisoned = batch.shard(stripe, rank, filler);
                assert_eq!(batch.attend::<E>(&poisoned).unwrap(), clean);
            }
        }
    };
    let small = random_batch(6, &[13], 3, 2);
    let stripe = Stripe::new(2, 4).unwrap();
    assert_eq!(small.shard(stripe, Rank::new(0), 0.0).local_lens, [7]);
    assert_eq!(small.shard(stripe, Rank::new(1), 0.0).local_lens, [6]);
    check(stripe, &small);
    let stripe = Stripe::new(8, 64).unwrap();
    for length in 1..=130 {
        check(stripe, &random_batch(length as u64, &[length], 1, 1));
    }
}

/// Seen to fail if a log-sum-exp is packed after an addition of 0.0.
#[test]
fn b07_pack_dtype() {
    let bits = [
        0xFF80_0000,
        (-1e30f32).to_bits(),
        1,
        3.169_925f32.to_bits(),
        1e4f32.to_bits(),
    ];
    // Also what a float conversion would change: a signalling NaN and -0.0.
    let bits = [&bits[..], &[0x7FA0_0001, 0x8000_0000]].concat();
    let lse: Vec<Lse<Two>> = bits.iter().map(|&b| Lse::new(f32::from_bits(b))).collect();
    let mut byte = noise(7);
    for form in [PackedForm::MLA, PackedForm::MLA_514_LANES] {
        let o: Vec<u8> = (0..lse.len() * form.row_bytes)
            .map(|_| byte().to_bits() as u8)
            .collect();
        let mut message = vec![0xA5; form.message_bytes(lse.len())];
        assert_eq!(message.len(), lse.len() * 514 * 2);
        form.pack(0..lse.len(), &o, &lse, &mut message).unwrap();
        let mut o_back = vec![0; o.len()];
        let mut lse_back = vec![Lse::<Two>::EMPTY; lse.len()];
        form.unpack(&message, &mut o_back, &mut lse_back).unwrap();
        let bits_back: Vec<u32> = lse_back.iter().map(|x| x.get().to_bits()).collect();
        assert_eq!((o_back, &bits_back), (o, &bits));
    }
}

#[test]
fn b07_pack_places() {
    let lse = [Lse::<E>::new(1.5), Lse::EMPTY];
    let o = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut row_by_row = PackedForm::MLA_514_LANES;
    row_by_row.row_bytes = 4;
    let mut message = [0; 16];
    row_by_row.pack(0..2, &o, &lse, &mut message).unwrap();
    assert_eq!(
        message,
        [1, 2, 3, 4, 0, 0, 0xC0, 0x3F, 5, 6, 7, 8, 0, 0, 0x80, 0xFF]
    );
    let planar = PackedForm {
        row_bytes: 4,
        ..PackedForm::MLA
    };
    planar
        .pack([1, 0].into_iter(), &o, &lse, &mut message)
        .unwrap();
    assert_eq!(
        message,
        [5, 6, 7, 8, 1, 2, 3, 4, 0, 0, 0x80, 0xFF, 0, 0, 0xC0, 0x3F]
    );
    let absent = planar
        .pack([2, 0].into_iter(), &o, &lse, &mut message)
        .unwrap_err();
    assert_eq!(absent, PackError::Row { row: 2, rows: 2 });
    assert!(planar.pack(0..1, &o, &lse, &mut message).is_err());
    // A log-sum-exp in bf16 is widened first: 1.5 is 0x3FC0.
    assert_eq!(Lse::<E>::from_bf16_bits(0x3FC0), lse[0]);
    assert_eq!(Lse::<E>::from_bf16_bits(0xFF80), Lse::EMPTY);
}

/// Seen to fail if every query sees what the last one sees.
#[test]
fn b08_causal_bound() {
    let stripe = Stripe::new(4, 4).unwrap();
    let want = [[2, 3, 3], [2, 2, 3], [2, 2, 2], [2, 2, 2]];
    for (rank, want) in stripe.ranks().zip(want) {
        let got = [0, 1, 2].map(|query| stripe.visible_rows(rank, 10, 3, query));
        assert_eq!(got, want);
    }
    for query in 0..3 {
        let all = stripe
            .ranks()
            .map(|rank| stripe.visible_rows(rank, 10, 3, query));
        assert_eq!(all.sum::<u64>(), u64::from(query) + 8);
    }
    check_equals_dense(&random_batch(8, &[10, 2, 0, 40], 3, 2), stripe);
}

#[test]
fn contract_breaches_are_refused_with_the_numbers() {
    let stripe = Stripe::new(2, 4).unwrap();
    let batch = random_batch(9, &[13], 1, 1);
    let good = batch.shard(stripe, Rank::new(0), 0.0);
    let refuse = |change: &dyn Fn(&mut Shard)| {
        let mut shard = good.clone();
        change(&mut shard);
        batch.attend::<E>(&shard).unwrap_err()
    };
    let error = refuse(&|shard| shard.local_lens[0] = 6);
    let text = "request 0: local length 6 is wrong, rank 0 owns 7 of 13 tokens";
    assert_eq!(error.to_string(), text);
    let error = refuse(&|shard| shard.table[1] = -1);
    let page = ContractError::Page {
        request: 0,
        index: 1,
        entry: -1,
        pages: 3,
    };
    assert_eq!(error, page);
    let error = refuse(&|shard| shard.plane.truncate(9));
    assert!(matches!(error, ContractError::Page { pages: 0, .. }));
    let error = refuse(&|shard| (shard.table, shard.table_width) = (vec![1], 1));
    let narrow = ContractError::TableWidth {
        request: 0,
        pages: 2,
        width: 1,
    };
    assert_eq!(error, narrow);
    assert!(matches!(
        refuse(&|shard| shard.rank = Rank::new(2)),
        ContractError::Stripe(_)
    ));
    let error = refuse(&|shard| shard.global_lens.clear());
    assert!(matches!(
        error,
        ContractError::Length {
            what: "global_lens",
            ..
        }
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any number of shards, page size, interleave and query length gives dense attention.
    #[test]
    fn b03_merge_of_shards_equals_dense(
        seed in any::<u64>(),
        lengths in prop::collection::vec(0usize..70, 1..4),
        queries in 1usize..5,
        dcp in 1u32..10,
        (page_rows, interleave) in prop::sample::select(vec![(1, 1), (4, 1), (4, 2), (6, 3), (64, 1)]),
    ) {
        let stripe = Stripe::with_interleave(dcp, page_rows, interleave).unwrap();
        check_equals_dense(&random_batch(seed, &lengths, queries, 2), stripe);
    }

    /// Packed to every destination and merged there, each rank holds its heads of the result.
    #[test]
    fn b07_exchange_by_messages_equals_merge(
        seed in any::<u64>(),
        lengths in prop::collection::vec(0usize..30, 1..4),
        dcp in 1u32..6,
        local_heads in 1usize..4,
        row_by_row in any::<bool>(),
    ) {
        let stripe = Stripe::new(dcp, 4).unwrap();
        let group_heads = local_heads * dcp as usize;
        let batch = random_batch(seed, &lengths, 1, group_heads);
        let partials: Vec<_> = batch.partials::<Two>(stripe).iter().map(Partial::rounded).collect();
        let dv = batch.shape.dv;
        let whole = merge_all(&partials, dv).0;
        let order = if row_by_row { PackedForm::MLA_514_LANES } else { PackedForm::MLA }.order;
        let form = PackedForm { order, row_bytes: dv * 4 };
        for destination in 0..dcp as usize {
            let rows = destination_rows(lengths.len(), local_heads, group_heads, destination);
            let received: Vec<_> = partials
                .iter()
                .map(|partial| through_message(form, partial, rows.clone()))
                .collect();
            let mine = merge_all(&received, dv).0;
            for (at, row) in rows.enumerate() {
                prop_assert_eq!(mine.lse[at], whole.lse[row]);
                prop_assert_eq!(&mine.o[at * dv..][..dv], &whole.o[row * dv..][..dv]);
            }
        }
    }
}

fn through_message(
    form: PackedForm,
    partial: &Partial<Two, f32>,
    rows: impl ExactSizeIterator<Item = usize>,
) -> Partial<Two, f32> {
    let count = rows.len();
    let o: Vec<u8> = partial.o.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut message = vec![0; form.message_bytes(count)];
    form.pack(rows, &o, &partial.lse, &mut message).unwrap();
    let mut bytes = vec![0; count * form.row_bytes];
    let mut lse = vec![Lse::EMPTY; count];
    form.unpack(&message, &mut bytes, &mut lse).unwrap();
    let lanes = bytes.chunks_exact(4);
    let o = lanes
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    Partial { o, lse }
}
