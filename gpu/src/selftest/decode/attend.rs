// SPDX-License-Identifier: Apache-2.0
//! Whole scenes on every rank: rows, plan, attention, merge, prefix, against f64.

use striata_core::{Rank, TokenPos};
use striata_kernels::decode::attend::split_message;
use striata_kernels::decode::prefix::HostPrefix;
use striata_kernels::decode::row_codec::widen;
use striata_kernels::decode::{KernelFormat, LANES, LATENT, MergeTally, OutputKind};
use striata_kernels::reference::{PartialRef, merge};
use striata_kernels::{Base, E, EmptySentinel, LogBase, Lse, Two};

use super::super::random::Random;
use super::super::rig::finish;
use super::super::{Check, Checked, Failure, ensure};
use super::scene::{
    Case, Poison, Reference, Scene, TENSOR_SCALE, Tokens, Variant, read, upload, variants, within,
};
use crate::decode::{DecodeDevice, GatherPrefix, Merge, View};

pub(super) fn checks<D: DecodeDevice>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "decode.a3_short",
            about: "lengths 0..40 in one batch, every c and s_q, both kernels, merged",
            run: short,
        },
        Check {
            name: "decode.a8_page_edges",
            about: "lengths at page edges, up to 33k tokens",
            run: edges,
        },
        Check {
            name: "decode.a8_long",
            about: "ragged batches at page edges near 33k tokens for every c, 1, 2, 5 and 8 queries, \
                    over poisoned pools",
            run: long,
        },
        Check {
            name: "decode.formats",
            about: "every format, head count and kernel page, ragged batches",
            run: formats,
        },
        Check {
            name: "decode.a5_one_rank",
            about: "with one rank, rows without a number are counted by every kernel and the first \
                    is named",
            run: faults,
        },
        Check {
            name: "decode.a6_poison",
            about: "what stands behind the rows does not change a bit",
            run: poison,
        },
    ]
}

fn case(dcp: u32, queries: u32, heads: u32, lens: Vec<i32>) -> Case {
    Case {
        dcp,
        page_rows: 64,
        kernel_rows: 64,
        format: KernelFormat::Bf16,
        queries,
        heads,
        kind: OutputKind::Bf16,
        base: Base::E,
        poison: Poison::Nan,
        lens,
    }
}

fn short<D: DecodeDevice>(device: &D) -> Checked {
    let mut random = Random::new(40);
    for (index, dcp) in [1, 2, 3, 4, 8].into_iter().enumerate() {
        for queries in [1, 2 + u32::try_from(index)?, 8] {
            let heads = dcp.max(2);
            let case = Case {
                page_rows: 16,
                kernel_rows: 16,
                base: if queries == 8 { Base::Two } else { Base::E },
                ..case(dcp, queries, heads, (0..=40).collect())
            };
            run(device, &case, &mut random)?;
        }
    }
    Ok(())
}

fn edges<D: DecodeDevice>(device: &D) -> Checked {
    let mut random = Random::new(41);
    for (dcp, queries) in [(1, 1), (2, 4), (3, 2), (4, 1), (8, 3)] {
        let widened = 64 * i32::try_from(dcp)?;
        let lens = [1, 2].into_iter().flat_map(|pages| {
            let edge = pages * widened;
            [
                edge - 1,
                edge,
                edge + 1,
                edge + i32::try_from(queries).unwrap_or(0),
            ]
        });
        let poison = Poison::Infinity;
        let heads = if dcp == 3 { 6 } else { 16 };
        let case = Case {
            poison,
            ..case(dcp, queries, heads, lens.collect())
        };
        run(device, &case, &mut random)?;
    }
    // One request that every multiprocessor has a piece of.
    run(device, &case(8, 1, 16, vec![33_001]), &mut random)?;
    run(device, &case(1, 1, 128, vec![2_900, 0, 65]), &mut random)
}

/// Few rows of queries, so that the reference is quick; of one and of several blocks.
fn long<D: DecodeDevice>(device: &D) -> Checked {
    const MOST: i32 = 33_000;
    let mut random = Random::new(45);
    let poisons = [Poison::Nan, Poison::Infinity, Poison::Large];
    for (index, (dcp, queries, heads)) in [(1, 5, 4), (2, 1, 2), (3, 2, 3), (4, 1, 4), (8, 8, 1)]
        .into_iter()
        .enumerate()
    {
        let widened = 64 * i32::try_from(dcp)?;
        let edge = MOST / widened * widened;
        let off = i32::try_from(index % 3)? - 1;
        // Beside it a short one, an edge in the middle, none, and one shorter than its queries.
        let lens = vec![edge + off, 130, edge / 8 / widened * widened - off, 0, 3];
        let case = Case {
            poison: poisons[index % 3],
            ..case(dcp, queries, heads, lens)
        };
        run(device, &case, &mut random)?;
    }
    Ok(())
}

fn formats<D: DecodeDevice>(device: &D) -> Checked {
    let mut random = Random::new(42);
    let sizes = [
        (16, 16),
        (32, 16),
        (64, 32),
        (128, 16),
        (128, 64),
        (128, 128),
    ];
    let heads = [
        (16, 1),
        (128, 1),
        (1, 2),
        (64, 2),
        (24, 1),
        (20, 5),
        (128, 2),
        (40, 8),
    ];
    for (index, (page_rows, kernel_rows)) in sizes.into_iter().cycle().take(24).enumerate() {
        let (heads, queries) = heads[index % heads.len()];
        let format = KernelFormat::ALL[index / 3 % 4];
        let dcp = [4, 1, 2, 8][index % 4];
        let edge = i32::try_from(page_rows * dcp)?;
        let mut lens = vec![0, edge, edge + 1, 1, 0, 3];
        lens.push(i32::try_from(random.below(700))?);
        let case = Case {
            page_rows,
            kernel_rows,
            format,
            kind: if index.is_multiple_of(2) {
                OutputKind::Bf16
            } else {
                OutputKind::F32
            },
            base: if index.is_multiple_of(3) {
                Base::Two
            } else {
                Base::E
            },
            poison: [Poison::Nan, Poison::Large, Poison::Infinity][index % 3],
            ..case(dcp, queries, heads, lens)
        };
        run(device, &case, &mut random)?;
    }
    Ok(())
}

fn poison<D: DecodeDevice>(device: &D) -> Checked {
    for (dcp, format, heads) in [
        (8, KernelFormat::Bf16, 16),
        (2, KernelFormat::Bf16, 64),
        (4, KernelFormat::Fp8Tile, 16),
        (1, KernelFormat::Fp8Row, 64),
    ] {
        let lens = vec![1, 13, 64, 65, 130, 0, 300];
        let mut outputs: Vec<Vec<Vec<u8>>> = Vec::new();
        for poison in [Poison::Zero, Poison::Nan, Poison::Infinity, Poison::Large] {
            let case = Case {
                format,
                poison,
                ..case(dcp, 2, heads, lens.clone())
            };
            let tokens = case.tokens(&mut Random::new(43))?;
            let mut scene = Scene::new(device, &case, Rank::new(dcp / 2), &tokens)?;
            let variants = variants(device).into_iter();
            outputs.push(
                variants
                    .map(|variant| scene.run(variant, &tokens))
                    .collect::<Result<_, _>>()?,
            );
            let same = outputs[0] == outputs[outputs.len() - 1];
            ensure!(
                same,
                "{case:?}: the outputs depend on what stands behind the rows"
            );
        }
    }
    Ok(())
}

/// Requests that are cut and that are not, each with a broken query; heads of one block and more.
fn faults<D: DecodeDevice>(device: &D) -> Checked {
    for heads in [16, 40] {
        let case = case(1, 2, heads, vec![65, 4000, 0, 30]);
        let tokens = case.tokens(&mut Random::new(44))?;
        let mut scene = Scene::new(device, &case, Rank::new(0), &tokens)?;
        let row = |request: u32, query: u32, head: u32| (request * 2 + query) * heads + head;
        let broken = [row(0, 1, 3), row(1, 0, heads - 1), row(3, 1, 0)];
        let mut query = tokens.query.clone();
        for row in broken {
            query[row as usize * LANES] = 0x7FFF;
        }
        // A query that sees no row is not read.
        query[row(2, 0, 0) as usize * LANES] = 0x7FFF;
        device.write(&scene.query, 0, bytemuck::cast_slice(&query))?;
        for variant in variants(device) {
            scene.tally = Some(upload(device, &[0; 16])?);
            scene.run(variant, &tokens)?;
            let counted = match &scene.tally {
                Some(tally) => read(device, tally)?,
                None => Vec::new(),
            };
            let tally: MergeTally = bytemuck::pod_read_unaligned(&counted[..8]);
            ensure!(
                (tally.faults, tally.first()) == (3, Some((broken[0], 0))),
                "{variant:?}, {heads} heads: counted {tally:?}, the first is {:?}",
                tally.first()
            );
        }
    }
    Ok(())
}

/// A case on all its ranks, in the base that it names.
fn run<D: DecodeDevice>(device: &D, case: &Case, random: &mut Random) -> Checked {
    match case.base {
        Base::E => run_in::<D, E>(device, case, random),
        Base::Two => run_in::<D, Two>(device, case, random),
    }
}

fn run_in<D: DecodeDevice, B: LogBase>(device: &D, case: &Case, random: &mut Random) -> Checked {
    let tokens = case.tokens(random)?;
    let (mut scenes, mut references) = (Vec::new(), Vec::new());
    for rank in case.stripe()?.ranks() {
        let mut scene = Scene::new(device, case, rank, &tokens)?;
        let reference: Reference<B> = scene.reference()?;
        for variant in variants(device) {
            let bytes = scene.run(variant, &tokens)?;
            let outputs = plain::<B>(case, &bytes)?;
            // Summation in f32 alone; rounding of weights and outputs to bf16 as well.
            let bounds = if variant == Variant::Simt && case.kind == OutputKind::F32 {
                [1e-5, 1e-5, 1e-4]
            } else {
                [1e-2, 5e-3, 1e-3]
            };
            compare(case, &outputs, &reference, bounds)
                .map_err(|error| within(&format!("{case:?} {rank:?} {variant:?}"), error))?;
        }
        gather(&scene, &tokens, random)
            .map_err(|error| within(&format!("{case:?} {rank:?} prefix"), error))?;
        scenes.push(scene);
        references.push(reference);
    }
    merged(&scenes, &references).map_err(|error| within(&format!("{case:?} merged"), error))
}

/// Messages as plain outputs.
fn plain<B: LogBase>(case: &Case, bytes: &[u8]) -> Result<Reference<B>, Failure> {
    let (shape, form) = (case.shape(), case.form());
    let stride = usize::try_from(form.message_stride(shape)?)?;
    let bytes_each = usize::try_from(form.message_bytes(shape)?)?;
    let rows = usize::try_from(shape.rows())?;
    let (mut o, mut lse) = (vec![0.0; rows * LATENT], vec![Lse::EMPTY; rows]);
    let heads = shape.heads as usize;
    let own = heads / form.destinations as usize;
    for (destination, message) in bytes.chunks_exact(stride).enumerate() {
        let count = rows / form.destinations as usize;
        let (lanes, lses) = split_message(form.kind, count as u64, &message[..bytes_each])?;
        let row_bytes = usize::try_from(form.kind.row_bytes())?;
        for row in 0..count {
            let to = row / own * heads + destination * own + row % own;
            let lanes = values(form.kind, &lanes[row * row_bytes..][..row_bytes]);
            o[to * LATENT..][..LATENT].copy_from_slice(&lanes);
            let value: f32 = bytemuck::pod_read_unaligned(&lses[4 * row..][..4]);
            lse[to] = Lse::new(f64::from(value));
        }
    }
    Ok((o, lse))
}

fn values(kind: OutputKind, bytes: &[u8]) -> Vec<f64> {
    match kind {
        OutputKind::Bf16 => bytes
            .chunks_exact(2)
            .map(|b| f64::from(widen(u16::from_le_bytes([b[0], b[1]]))))
            .collect(),
        OutputKind::F32 => bytes
            .chunks_exact(4)
            .map(|b| f64::from(bytemuck::pod_read_unaligned::<f32>(b)))
            .collect(),
    }
}

/// Compares rows: bounds of one row's relative error, of all of them, and of log-sum-exps.
fn compare<B: LogBase>(
    case: &Case,
    got: &Reference<B>,
    want: &Reference<B>,
    bounds: [f64; 3],
) -> Checked {
    let (mut error, mut size) = (0.0, 0.0);
    let mut wrong = Vec::new();
    for (row, (got_lse, want_lse)) in got.1.iter().zip(&want.1).enumerate() {
        let lanes = row * LATENT..(row + 1) * LATENT;
        let (a, b) = (&got.0[lanes.clone()], &want.0[lanes]);
        let own: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        let norm: f64 = b.iter().map(|b| b * b).sum();
        let (got_lse, want_lse) = (got_lse.get(), want_lse.get());
        let good = if want_lse == f64::NEG_INFINITY {
            own == 0.0 && got_lse == want_lse
        } else {
            // Written so that NaN is wrong.
            (own / norm).sqrt() <= bounds[0] && (got_lse - want_lse).abs() <= bounds[2]
        };
        if !good {
            wrong.push(row);
        }
        (error, size) = (error + own, size + norm);
    }
    if let Some(&row) = wrong.first() {
        let heads = case.heads as usize;
        let (token, head) = (row / heads, row % heads);
        let (request, query) = (token / case.queries as usize, token % case.queries as usize);
        let lanes = row * LATENT..(row + 1) * LATENT;
        let (a, b) = (&got.0[lanes.clone()], &want.0[lanes]);
        let first = a
            .iter()
            .zip(b)
            .position(|(a, b)| (a - b).abs() > 0.02 + b.abs() * 0.02 || a.is_nan());
        let lane = first.unwrap_or(0).min(LATENT - 4);
        return Err(Failure::Wrong(format!(
            "{} of {} rows are wrong, first request {request} (length {}) query {query} head \
             {head}: lse {} not {}; lanes from {lane}: {:?} not {:?}; wrong rows {:?}",
            wrong.len(),
            got.1.len(),
            case.lens[request],
            got.1[row].get(),
            want.1[row].get(),
            &a[lane..lane + 4],
            &b[lane..lane + 4],
            &wrong[..wrong.len().min(12)]
        )));
    }
    let all = if size > 0.0 {
        (error / size).sqrt()
    } else {
        0.0
    };
    let too_far = all > bounds[1] || all.is_nan();
    ensure!(
        !too_far,
        "the error of all rows is {all}, not below {}",
        bounds[1]
    );
    Ok(())
}

/// Merges the outputs of all ranks at every destination, and compares with the merged references.
fn merged<D: DecodeDevice, B: LogBase>(
    scenes: &[Scene<D>],
    references: &[Reference<B>],
) -> Checked {
    let Some(scene) = scenes.first() else {
        return Ok(());
    };
    let (case, device) = (&scene.case, &scene.device);
    let empty = EmptySentinel::NegativeInfinity;
    let partials: Vec<PartialRef<'_, B, f64>> = references
        .iter()
        .map(|(o, lse)| PartialRef { o, lse, empty })
        .collect();
    let mut want = (
        vec![0.0; references[0].0.len()],
        vec![Lse::EMPTY; references[0].1.len()],
    );
    merge(&partials, LATENT, &mut want.0, &mut want.1)?;
    let form = case.form();
    let message = form.message_bytes(case.shape())?;
    let stride = form.message_stride(case.shape())?;
    let tally = upload(device, &[0; 16])?;
    let result = device.alloc(form.bytes(case.shape())?)?;
    for destination in 0..u64::from(form.destinations) {
        let at = destination * stride;
        let messages: Vec<View<'_, D>> = scenes
            .iter()
            .map(|scene| View {
                memory: &scene.output,
                offset: at,
            })
            .collect();
        device.merge(
            &scene.stream,
            &Merge {
                messages: &messages,
                rows: u32::try_from(message / (form.kind.row_bytes() + 4))?,
                input: form.kind,
                output: form.kind,
                base: case.base,
                empty,
                merged: View {
                    memory: &result,
                    offset: at,
                },
                tally: View::all(&tally),
            },
        )?;
    }
    finish(device, &scene.stream)?;
    let counted: u32 = bytemuck::pod_read_unaligned(&read(device, &tally)?[..4]);
    ensure!(counted == 0, "{counted} faults in the merge");
    let got = plain::<B>(case, &read(device, &result)?)?;
    compare(case, &got, &want, [1e-2, 5e-3, 1e-3])
}

/// A piece of the first long request in token order and packed.
fn gather<D: DecodeDevice>(scene: &Scene<D>, tokens: &Tokens, random: &mut Random) -> Checked {
    let (case, device) = (&scene.case, &scene.device);
    let Some(request) = case.lens.iter().position(|&len| len > 0) else {
        return Ok(());
    };
    let longest = case.lens.iter().enumerate().max_by_key(|(_, len)| **len);
    let request = longest.map_or(request, |(at, _)| at);
    let len = u64::try_from(case.lens[request])?;
    let start = random.below(len);
    let count = random.below((len - start).min(500) + 1);
    let shape = scene.plan.shape;
    let width = shape.width as usize;
    let cells = &scene.host_plan.cells[request * width..][..width];
    let on_device = upload(device, bytemuck::cast_slice(cells))?;
    debug_assert!(tokens.pages[request].len() <= width);
    for packed in [false, true] {
        let host = HostPrefix {
            stripe: shape.stripe,
            rank: scene.rank,
            format: case.format,
            scale: TENSOR_SCALE,
            kernel_rows: case.kernel_rows,
            plane: &scene.host_plane,
            cells,
            start,
            tokens: count,
            packed,
        };
        let mut want = vec![0xABABu16; usize::try_from(host.room())? * LANES];
        let out = upload(device, bytemuck::cast_slice(&want))?;
        host.run(&mut want)?;
        device.gather_prefix(
            &scene.stream,
            &GatherPrefix {
                stripe: shape.stripe,
                rank: scene.rank,
                rows: scene.rows(),
                kernel_rows: case.kernel_rows,
                cells: View::all(&on_device),
                width: shape.width,
                start,
                tokens: count,
                packed,
                out: View::all(&out),
            },
        )?;
        finish(device, &scene.stream)?;
        let got = read(device, &out)?;
        let got: Vec<u16> = bytemuck::pod_collect_to_vec(&got);
        let at = got.iter().zip(&want).position(|(a, b)| a != b);
        if let Some(at) = at {
            let position = TokenPos::new(start + (at / LANES) as u64);
            return Err(Failure::Wrong(format!(
                "{count} tokens from {start}, packed {packed}: row of position {position} (if in \
                 order), lane {}: {:#x} not {:#x}",
                at % LANES,
                got[at],
                want[at]
            )));
        }
    }
    Ok(())
}
