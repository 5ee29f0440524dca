// SPDX-License-Identifier: Apache-2.0
//! Behaviours of attention, merge, lengths and plans through the devices' decode path.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use striata::core::{LayerId, Stripe, TokenPos};
use striata::decode::{DcpMlaConfig, PrefixGather, StepKind, StepStreams};
use striata::gpu::Device;
use striata::gpu::decode::{DecodeDevice, Merge, View};
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::kernels::decode::{LANES, LATENT, MergeTally, OutputKind, ROPE};
use striata::kernels::{Base, EmptySentinel};
use striata_tests::decode::{LAYER, Rig, RigSpec, assert_rows_close, upload};

/// Merges partials of one row, (value of its first lane, lse), on a device: the same two numbers
/// of the result, and what was counted.
fn merged(base: Base, partials: &[(f32, f32)]) -> (f32, f32, MergeTally) {
    let device = SimDevice::new(SimConfig::new(0));
    let stream = device.stream("compute").unwrap();
    let messages: Vec<_> = partials
        .iter()
        .map(|&(o, lse)| {
            let mut lanes = vec![o; LATENT];
            lanes.push(lse);
            upload(&device, bytemuck::cast_slice(&lanes))
        })
        .collect();
    let views: Vec<_> = messages.iter().map(View::all).collect();
    let out = upload(&device, &vec![0xFF; (LATENT + 1) * 4]);
    let tally = upload(&device, &[0; size_of::<MergeTally>()]);
    let job = Merge {
        messages: &views,
        rows: 1,
        input: OutputKind::F32,
        output: OutputKind::F32,
        base,
        empty: EmptySentinel::NegativeInfinity,
        merged: View::all(&out),
        tally: View::all(&tally),
    };
    device.merge(&stream, &job).unwrap();
    let event = device.event().unwrap();
    device.record(&event, &stream).unwrap();
    device.synchronize(&event).unwrap();
    let mut values = vec![0f32; LATENT + 1];
    device
        .read(&out, 0, bytemuck::cast_slice_mut(&mut values))
        .unwrap();
    assert!(
        values[..LATENT]
            .iter()
            .all(|o| o.to_bits() == values[0].to_bits())
    );
    let mut counted = [MergeTally::default()];
    device
        .read(&tally, 0, bytemuck::cast_slice_mut(&mut counted))
        .unwrap();
    (values[0], values[LATENT], counted[0])
}

fn close(got: (f32, f32), want: (f32, f32)) {
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
    assert!(
        near(got.0, want.0) && near(got.1, want.1),
        "{got:?} {want:?}"
    );
}

/// Seen to fail if the merge takes each base for the other.
#[test]
fn b01_lse_base_on_the_device() {
    let natural = merged(Base::E, &[(0.0, 0.0), (1.0, 8f32.ln())]);
    close((natural.0, natural.1), (0.888_889, 2.197_225));
    let two = merged(Base::Two, &[(0.0, 0.0), (1.0, 3.0)]);
    close((two.0, two.1), (0.888_889, 3.169_925));
    // What a mistaken base gives, so that this test can tell.
    close(
        (merged(Base::E, &[(0.0, 0.0), (1.0, 3.0)]).0, 0.0),
        (0.952_574, 0.0),
    );
    close(
        (merged(Base::Two, &[(0.0, 0.0), (1.0, 8f32.ln())]).0, 0.0),
        (0.808_665, 0.0),
    );
}

/// Keys of rank r score `spread * r` more than those of rank 0.
fn spread(rig: &mut Rig, spread: f32) {
    let stripe = rig.spec.stripe;
    for query in rig.query.chunks_exact_mut(LANES) {
        query[LANES - 1] = striata::kernels::decode::row_codec::narrow(4.0);
    }
    for request in 0..rig.rows.len() {
        for position in 0..rig.tokens(request) {
            let rank = stripe
                .owner_of_position(TokenPos::new(position as u64))
                .get();
            let key = spread * rank as f32 / (4.0 * rig.config.scale);
            let bits = striata::kernels::decode::row_codec::narrow(key);
            rig.rows[request][position * LANES + LANES - 1] = bits;
        }
    }
    rig.fill();
}

#[test]
fn b02_spreads_of_log_sum_exps_in_both_bases() {
    for base in [Base::E, Base::Two] {
        for by in [0.0, 3.0, 30.0] {
            let spec = RigSpec::new(Stripe::new(4, 8).unwrap(), &[97, 40]);
            let config = DcpMlaConfig {
                base,
                ..spec.config()
            };
            let mut rig = Rig::with_config(spec, config, 2);
            spread(&mut rig, by);
            let mut got = rig.step(StepKind::Eager).unwrap();
            if base == Base::Two {
                got.lse
                    .iter_mut()
                    .for_each(|lse| *lse *= std::f32::consts::LN_2);
            }
            assert_rows_close(&got, &rig.dense(), 1e-5);
        }
    }
}

#[test]
fn b03_shards_without_a_row() {
    let stripe = Stripe::new(8, 64).unwrap();
    for length in [3, 1, 17] {
        let mut rig = Rig::new(RigSpec::new(stripe, &[length]), 3);
        rig.poison_results();
        let got = rig.step(StepKind::Eager).unwrap();
        assert_rows_close(&got, &rig.dense(), 1e-5);
    }
    let mut lengths: Vec<usize> = (1..=17).collect();
    lengths.push(4096);
    let spec = RigSpec {
        heads: 1,
        ..RigSpec::new(stripe, &lengths)
    };
    let mut rig = Rig::new(spec, 4);
    rig.poison_results();
    let got = rig.step(StepKind::Eager).unwrap();
    assert_rows_close(&got, &rig.dense(), 1e-5);
}

/// Seen to fail if a lone partial is summed like others.
#[test]
fn b04_merges_of_empty_partials_on_the_device() {
    const EMPTY: (f32, f32) = (f32::NAN, f32::NEG_INFINITY);
    let bits = |(o, lse, _): (f32, f32, MergeTally)| (o.to_bits(), lse.to_bits());
    for c in [1, 2, 3, 8] {
        let none = merged(Base::E, &vec![EMPTY; c]);
        assert_eq!((none.0, none.1, none.2.faults), (0.0, f32::NEG_INFINITY, 0));
        for place in 0..c {
            for lse in [-1e30, -1.0, -0.0, 2.5, 1e4] {
                for o in [-0.0, 0.375, -6.5] {
                    let mut partials = vec![EMPTY; c];
                    partials[place] = (o, lse);
                    let got = bits(merged(Base::Two, &partials));
                    assert_eq!(got, (o.to_bits(), lse.to_bits()));
                }
            }
        }
    }
    let mut partials = [EMPTY; 8];
    (partials[2], partials[5]) = ((0.0, 2f32.ln()), (10.0, 8f32.ln()));
    let got = merged(Base::E, &partials);
    close((got.0, got.1), (8.0, 10f32.ln()));
}

/// Seen to fail if the merge does not count.
#[test]
fn b05_one_token_is_the_owners_row_and_infinities_are_faults() {
    let spec = RigSpec {
        heads: 2,
        ..RigSpec::new(Stripe::new(2, 64).unwrap(), &[1])
    };
    let mut rig = Rig::new(spec, 5);
    let got = rig.step(StepKind::Eager).unwrap();
    // The only row's values are the result, bit for bit.
    let values = striata_tests::decode::numbers(&rig.rows[0][..LATENT]);
    for row in got.o.chunks_exact(LATENT).take(4) {
        assert!(
            row.iter()
                .zip(&values)
                .all(|(got, want)| f64::from(*got) == *want)
        );
    }
    for bad in [f32::INFINITY, f32::NAN] {
        let got = merged(Base::E, &[(1.0, 0.5), (2.0, bad)]);
        assert_eq!(
            (got.0, got.1, got.2.faults, got.2.first()),
            (1.0, 0.5, 1, Some((0, 1)))
        );
    }
}

/// The results over pools that hold `poison` wherever no token stands.
fn poisoned(stripe: Stripe, lengths: &[usize], poison: u16) -> Vec<u32> {
    let spec = RigSpec {
        heads: 1,
        poison,
        ..RigSpec::new(stripe, lengths)
    };
    let mut rig = Rig::new(spec, 6);
    rig.step(StepKind::Eager).unwrap().bits()
}

#[test]
fn b06_what_stands_past_the_lengths_is_never_seen() {
    // NaN, infinity and 6e4 as bf16.
    const POISON: [u16; 3] = [0x7FFF, 0x7F80, 0x476A];
    let cases = [
        (Stripe::new(2, 4).unwrap(), vec![13]),
        (Stripe::new(8, 64).unwrap(), (1..=130).collect()),
    ];
    for (stripe, lengths) in cases {
        let clean = poisoned(stripe, &lengths, 0);
        for poison in POISON {
            assert_eq!(poisoned(stripe, &lengths, poison), clean, "{poison:#x}");
        }
    }
}

/// Seen to fail if every query sees what the last one sees.
#[test]
fn b08_a_query_sees_up_to_its_own_position() {
    // All keys are equal, so a log-sum-exp counts the rows that were read.
    let spec = RigSpec {
        queries: 3,
        ..RigSpec::new(Stripe::new(4, 4).unwrap(), &[10, 2, 0, 40])
    };
    let mut rig = Rig::new(spec, 8);
    rig.rows.iter_mut().flatten().for_each(|lane| *lane = 0);
    rig.fill();
    let got = rig.step(StepKind::Eager).unwrap();
    let heads = 8;
    for (place, tokens) in [10, 2, 0, 40].into_iter().enumerate() {
        for query in 0..3usize {
            let seen = (tokens + query + 1usize).saturating_sub(3);
            for head in 0..heads {
                let lse = got.lse[(place * 3 + query) * heads + head];
                assert!(
                    (lse.exp() - seen as f32).abs() < 1e-4,
                    "{place} {query}: {lse}"
                );
            }
        }
    }
}

/// Seen to fail if every cell of a page names its first kernel page.
#[test]
fn b10_kernel_pages_only_split_the_address() {
    let of = |kernel_rows| {
        let spec = RigSpec::new(Stripe::new(4, 128).unwrap(), &[301, 700, 77]);
        let config = DcpMlaConfig {
            kernel_rows,
            ..spec.config()
        };
        let mut rig = Rig::with_config(spec, config, 10);
        rig.step(StepKind::Eager).unwrap().bits()
    };
    let whole = of(128);
    for kernel_rows in [16, 32, 64] {
        assert_eq!(of(kernel_rows), whole);
    }
}

/// Gathers `tokens` tokens of a request from `start` on in workspaces of `rows` rows, and what
/// every rank holds then, piece by piece.
fn gathered(rig: &Rig, start: u64, tokens: u64, rows: u64) -> Vec<Vec<u16>> {
    let mut gather = PrefixGather::new(&rig.config, &rig.devices, &rig.planes, rows).unwrap();
    gather
        .set_request(&rig.pages[0], rig.tokens(0) as u64)
        .unwrap();
    let mut all = vec![Vec::new(); rig.devices.len()];
    let streams = StepStreams::Each(&rig.streams);
    for piece in gather.pieces(TokenPos::new(start), tokens, 0).unwrap() {
        let positions = piece.positions();
        let count = (positions.end - positions.start) as usize;
        assert!(count as u64 <= rows && count > 0);
        gather.gather(LAYER, piece, 0, streams).unwrap();
        for (rank, device) in rig.devices.iter().enumerate() {
            let event = device.event().unwrap();
            device.record(&event, &rig.streams[rank]).unwrap();
            device.synchronize(&event).unwrap();
            let view = gather.workspace(rank).unwrap();
            let mut lanes = vec![0u16; count * LANES];
            device
                .read(
                    view.memory,
                    view.offset,
                    bytemuck::cast_slice_mut(&mut lanes),
                )
                .unwrap();
            all[rank].extend(lanes);
        }
    }
    all
}

/// Seen to fail if neighbours change places.
#[test]
fn b16_a_gathered_prefix_stands_in_token_order_for_any_chunking() {
    let spec = RigSpec::new(Stripe::new(4, 4).unwrap(), &[23]);
    let mut rig = Rig::new(spec, 16);
    rig.step(StepKind::Eager).unwrap();
    for (start, tokens) in [
        (0, 22),
        (0, 1),
        (0, 3),
        (0, 4),
        (0, 5),
        (0, 8),
        (5, 13),
        (7, 1),
        (3, 20),
    ] {
        let want = &rig.rows[0][start * LANES..][..tokens * LANES];
        for rows in [4, 8, 12, 64] {
            for lanes in gathered(&rig, start as u64, tokens as u64, rows) {
                assert_eq!(lanes, want, "{start} {tokens} {rows}");
            }
        }
    }
}

/// Seen to fail if a piece may be as long as the whole workspace, or if neighbours change places.
#[test]
fn b17_pieces_are_whole_cycles_and_new_tokens_follow() {
    for format in [
        striata::core::RowFormat::Bf16,
        striata::core::RowFormat::Fp8Tile,
    ] {
        let spec = RigSpec {
            format,
            ..RigSpec::new(Stripe::new(8, 4).unwrap(), &[100])
        };
        let mut rig = Rig::new(spec, 17);
        rig.step(StepKind::Eager).unwrap();
        let mut gather = PrefixGather::new(&rig.config, &rig.devices, &rig.planes, 128).unwrap();
        gather.set_request(&rig.pages[0], 100).unwrap();
        assert!(gather.pieces(TokenPos::new(0), 101, 0).is_err());
        assert!(gather.pieces(TokenPos::new(0), 90, 121).is_err());
        let pieces = gather.pieces(TokenPos::new(0), 90, 100).unwrap();
        assert!(pieces.iter().all(|piece| {
            let positions = piece.positions();
            positions.end - positions.start == 24 || positions.end == 90
        }));
        // One piece, then 10 new tokens: the dense sequence.
        let streams = StepStreams::Each(&rig.streams);
        let [piece] = gather.pieces(TokenPos::new(0), 90, 0).unwrap()[..] else {
            panic!("a workspace that holds all gathers at once");
        };
        gather.gather(LAYER, piece, 0, streams).unwrap();
        let new = &rig.rows[0][90 * LANES..];
        let part = |from: usize, count: usize| -> Vec<u16> {
            new.chunks_exact(LANES)
                .flat_map(|row| row[from..from + count].to_vec())
                .collect()
        };
        let (latent, rope) = (part(0, LATENT), part(LATENT, ROPE));
        let memories: Vec<_> = rig
            .devices
            .iter()
            .map(|device| {
                let up = |lanes: &[u16]| upload(device, bytemuck::cast_slice(lanes));
                (up(&latent), up(&rope))
            })
            .collect();
        let inputs: Vec<_> = memories
            .iter()
            .map(|(a, b)| (View::all(a), View::all(b)))
            .collect();
        gather.append(&inputs, 10, 90, streams).unwrap();
        assert!(gather.append(&inputs, 10, 119, streams).is_err());
        for (rank, device) in rig.devices.iter().enumerate() {
            let event = device.event().unwrap();
            device.record(&event, &rig.streams[rank]).unwrap();
            device.synchronize(&event).unwrap();
            let view = gather.workspace(rank).unwrap();
            let mut lanes = vec![0u16; 100 * LANES];
            device
                .read(view.memory, 0, bytemuck::cast_slice_mut(&mut lanes))
                .unwrap();
            assert_eq!(lanes[90 * LANES..], rig.rows[0][90 * LANES..]);
            let room = if format == striata::core::RowFormat::Bf16 {
                0.0
            } else {
                0.07
            };
            let pairs = striata_tests::decode::numbers(&lanes);
            let want = striata_tests::decode::numbers(&rig.rows[0]);
            for (got, want) in pairs.iter().zip(&want) {
                assert!(
                    (got - want).abs() <= room * want.abs().max(0.01),
                    "{got} {want}"
                );
            }
        }
    }
}

/// Seen to fail if every rank has the length of rank 0.
#[test]
fn b18_local_lengths_are_made_from_the_global_one_on_the_device() {
    let lengths = [13, 11, 9, 0, 4 * 16 + 1];
    let spec = RigSpec::new(Stripe::new(4, 4).unwrap(), &lengths);
    let mut rig = Rig::new(spec, 18);
    rig.step(StepKind::Eager).unwrap();
    let want = [
        [4, 3, 3, 0, 17],
        [3, 3, 2, 0, 16],
        [3, 3, 2, 0, 16],
        [3, 2, 2, 0, 16],
    ];
    for (rank, want) in want.into_iter().enumerate() {
        let plan = rig.mla.plan(rank).unwrap();
        let mut lens = [0i32; 5];
        let bytes = bytemuck::cast_slice_mut(&mut lens);
        rig.devices[rank]
            .read(&plan.memory, plan.layout.local_lens, bytes)
            .unwrap();
        assert_eq!(lens, want);
    }
}

/// Seen to fail if cells of pages that were kept are lost.
#[test]
fn b43_a_step_of_one_shape_follows_lengths_that_change() {
    let lengths = [16, 17, 1000, 3, 0, 16];
    let stripe = Stripe::new(8, 16).unwrap();
    let spec = |length: usize| RigSpec {
        heads: 1,
        ..RigSpec::new(stripe, &[length, 1000])
    };
    // One rig whose plan lives through all lengths, against one made anew for each.
    let mut living = Rig::new(spec(1000), 43);
    let whole = living.rows[0].clone();
    for length in lengths {
        living.rows[0] = whole[..length * LANES].to_vec();
        living.fill();
        let got = living
            .step(if length > 0 {
                StepKind::Captured
            } else {
                StepKind::Eager
            })
            .unwrap();
        let mut fresh = Rig::new(spec(1000), 43);
        fresh.rows[0] = whole[..length * LANES].to_vec();
        fresh.fill();
        assert_eq!(
            got.bits(),
            fresh.step(StepKind::Eager).unwrap().bits(),
            "{length}"
        );
    }
}

#[test]
fn b44_places_without_a_request_do_nothing() {
    let spec = RigSpec::new(Stripe::new(2, 8).unwrap(), &[9, 30, 17]);
    let config = DcpMlaConfig {
        max_batch: 8,
        ..spec.config()
    };
    let mut rig = Rig::with_config(spec.clone(), config, 44);
    for (rank, device) in rig.devices.iter().enumerate() {
        let plan = rig.mla.plan(rank).unwrap();
        let bytes = vec![0xFF; plan.layout.bytes as usize];
        device.write(&plan.memory, 0, &bytes).unwrap();
    }
    rig.poison_results();
    let before = pools(&rig);
    let got = rig.step(StepKind::Eager).unwrap();
    let after = pools(&rig);
    let dense = rig.dense();
    assert_rows_close(&got, &dense, 1e-5);
    let padded = 3 * 4;
    assert!(got.o[padded * LATENT..].iter().all(|&o| o == 0.0));
    assert!(
        got.lse[padded..]
            .iter()
            .all(|&lse| lse == f32::NEG_INFINITY)
    );
    // The three new rows and nothing else have changed.
    let changed: usize = before
        .iter()
        .zip(&after)
        .map(|(before, after)| {
            let rows = before.chunks_exact(1152).zip(after.chunks_exact(1152));
            rows.filter(|(before, after)| before != after).count()
        })
        .sum();
    assert_eq!(changed, 3);
    assert_eq!(sink(&before), sink(&after));
}

fn pools(rig: &Rig) -> Vec<Vec<u8>> {
    let read = |(rank, device): (usize, &SimDevice)| {
        let (memory, base) = rig.planes[rank].plane(LayerId::new(0)).unwrap();
        let mut bytes = vec![0; rig.config.pool.rows() as usize * 1152];
        device.read(memory, base, &mut bytes).unwrap();
        bytes
    };
    rig.devices.iter().enumerate().map(read).collect()
}

fn sink(pools: &[Vec<u8>]) -> Vec<&[u8]> {
    pools.iter().map(|pool| &pool[..8 * 1152]).collect()
}
