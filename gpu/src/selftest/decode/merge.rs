// SPDX-License-Identifier: Apache-2.0
//! Merges and packed messages against their references.

use striata_kernels::decode::message::HostMerge;
use striata_kernels::decode::row_codec::{narrow, widen};
use striata_kernels::decode::{AttendShape, LATENT, MergeTally, OutputForm, OutputKind};
use striata_kernels::packed::{PackOrder, PackedForm, destination_rows};
use striata_kernels::reference::LseFault;
use striata_kernels::{Base, E, EmptySentinel, LogBase, Lse, Two};

use super::super::random::Random;
use super::super::rig::finish;
use super::super::{Check, Checked, Failure, ensure};
use super::scene::{read, upload};
use crate::decode::{DecodeDevice, Merge, Pack, View};

pub(super) fn checks<D: DecodeDevice>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "decode.a1_base",
            about: "the merge's known cases in both bases, so that a wrong base cannot pass",
            run: bases,
        },
        Check {
            name: "decode.a4_merge",
            about: "random, empty, lone and faulty partials of 1..64 ranks, every type",
            run: merges,
        },
        Check {
            name: "decode.a7_packed",
            about: "messages are packed and unpacked bit for bit",
            run: packed,
        },
    ]
}

/// A message with these lanes and log-sum-exps.
fn message(kind: OutputKind, o: &[f32], lse: &[f32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = match kind {
        OutputKind::Bf16 => o
            .iter()
            .flat_map(|lane| narrow(*lane).to_le_bytes())
            .collect(),
        OutputKind::F32 => o.iter().flat_map(|lane| lane.to_le_bytes()).collect(),
    };
    bytes.extend(lse.iter().flat_map(|lse| lse.to_le_bytes()));
    bytes
}

struct Merging<'a, D: DecodeDevice> {
    device: &'a D,
    stream: D::Stream,
    host: HostMerge,
}

impl<D: DecodeDevice> Merging<'_, D> {
    /// The merged message and the tally.
    fn run(&self, messages: &[Vec<u8>], base: Base) -> Result<(Vec<u8>, MergeTally), Failure> {
        let device = self.device;
        let uploaded = messages.iter().map(|message| upload(device, message));
        let memories: Vec<D::Memory> = uploaded.collect::<Result<_, _>>()?;
        let views: Vec<View<'_, D>> = memories.iter().map(View::all).collect();
        let bytes = u64::from(self.host.rows) * (self.host.output.row_bytes() + 4);
        let merged = upload(device, &vec![0xFF; usize::try_from(bytes)?])?;
        let tally = upload(device, &[0; 16])?;
        device.merge(
            &self.stream,
            &Merge {
                messages: &views,
                rows: self.host.rows,
                input: self.host.input,
                output: self.host.output,
                base,
                empty: self.host.empty,
                merged: View::all(&merged),
                tally: View::all(&tally),
            },
        )?;
        finish(device, &self.stream)?;
        let mut got = read(device, &merged)?;
        got.truncate(usize::try_from(bytes)?);
        Ok((
            got,
            bytemuck::pod_read_unaligned(&read(device, &tally)?[..8]),
        ))
    }
}

fn bases<D: DecodeDevice>(device: &D) -> Checked {
    for (base, second, want_lse) in [
        (Base::E, 8f32.ln(), 9f32.ln()),
        (Base::Two, 3.0, 9f32.log2()),
    ] {
        let host = HostMerge {
            rows: 1,
            input: OutputKind::F32,
            output: OutputKind::F32,
            empty: EmptySentinel::NegativeInfinity,
        };
        let merging = Merging {
            device,
            stream: device.stream("merge")?,
            host,
        };
        let messages = [
            message(OutputKind::F32, &[0.0; LATENT], &[0.0]),
            message(OutputKind::F32, &[1.0; LATENT], &[second]),
        ];
        let (bytes, _) = merging.run(&messages, base)?;
        let values: Vec<f32> = bytes
            .chunks_exact(4)
            .map(bytemuck::pod_read_unaligned)
            .collect();
        let (o, lse) = (values[LATENT - 1], values[LATENT]);
        let good = (o - 0.888_889).abs() < 1e-5 && (lse - want_lse).abs() < 1e-5;
        ensure!(
            good,
            "{base:?}: o {o} and lse {lse}, not 0.888889 and {want_lse}"
        );
    }
    Ok(())
}

fn merges<D: DecodeDevice>(device: &D) -> Checked {
    let mut random = Random::new(60);
    let kinds = [OutputKind::Bf16, OutputKind::F32];
    for ranks in [1, 2, 3, 4, 8, 31, 32, 33, 64] {
        for (input, output) in kinds.into_iter().flat_map(|a| kinds.map(|b| (a, b))) {
            for empty in [
                EmptySentinel::NegativeInfinity,
                EmptySentinel::PositiveInfinity,
            ] {
                let host = HostMerge {
                    rows: 60,
                    input,
                    output,
                    empty,
                };
                let merging = Merging {
                    device,
                    stream: device.stream("merge")?,
                    host,
                };
                let messages = random_messages(&mut random, ranks, input, empty);
                if ranks % 2 == 0 {
                    check::<D, E>(&merging, &messages)?;
                } else {
                    check::<D, Two>(&merging, &messages)?;
                }
            }
        }
    }
    Ok(())
}

/// Rows by index: 0..10 random; 10..20 one with keys; 20..25 none; 25..35 far apart; 35..40 faults
/// beside the rest; then random ones of few.
fn random_messages(
    random: &mut Random,
    ranks: u64,
    kind: OutputKind,
    empty: EmptySentinel,
) -> Vec<Vec<u8>> {
    const ROWS: usize = 60;
    let mut unit = || {
        f32::from(u16::from_le_bytes([
            random.word().to_le_bytes()[0],
            random.word().to_le_bytes()[1],
        ])) / 32768.0
            - 1.0
    };
    let mut all = Vec::new();
    for rank in 0..ranks {
        let mut o = Vec::new();
        let mut lses = Vec::new();
        for row in 0..ROWS {
            let chosen = row as u64 % ranks == rank;
            let none = if row % 2 == 0 || empty == EmptySentinel::NegativeInfinity {
                f32::NEG_INFINITY
            } else {
                f32::INFINITY
            };
            let lse = match row {
                0..10 => unit() * 4.0,
                10..20 => {
                    if chosen {
                        [-1e30, 1e4, 0.0, -0.0, 3.0][row % 5]
                    } else {
                        none
                    }
                }
                20..25 => none,
                25..35 => unit() * 60.0,
                35..40 if chosen => f32::NAN,
                35..40 => unit(),
                _ if (row as u64 + rank).is_multiple_of(3) => none,
                _ => unit(),
            };
            lses.push(lse);
            // What stands beside an empty log-sum-exp is not read.
            let spoiled = lse.is_nan() || lse.is_infinite();
            o.extend((0..LATENT).map(|lane| match lane {
                _ if spoiled => f32::NAN,
                0 => -0.0,
                _ => widen(narrow(unit())),
            }));
        }
        all.push(message(kind, &o, &lses));
    }
    all
}

fn check<D: DecodeDevice, B: LogBase>(merging: &Merging<'_, D>, messages: &[Vec<u8>]) -> Checked {
    let host = merging.host;
    let (got, tally) = merging.run(messages, B::BASE)?;
    let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let mut want = vec![0; got.len()];
    let report = host.run::<B>(&slices, &mut want)?;
    let place = format!("{} ranks {:?}, {host:?}", messages.len(), B::BASE);
    ensure!(
        u64::from(tally.faults) == report.faults,
        "{place}: {} faults, not {}",
        tally.faults,
        report.faults
    );
    let first = tally.first().map(|(row, rank)| LseFault {
        rank: rank as usize,
        row: row as usize,
    });
    ensure!(
        first == report.first,
        "{place}: first fault {first:?}, not {:?}",
        report.first
    );
    let lanes = got.len() - 4 * host.rows as usize;
    for row in 0..host.rows as usize {
        let lse =
            |bytes: &[u8]| -> f32 { bytemuck::pod_read_unaligned(&bytes[lanes + 4 * row..][..4]) };
        let (a, b) = (lse(&got), lse(&want));
        let close = a.to_bits() == b.to_bits() || (a - b).abs() <= 1e-5 * b.abs().max(1.0);
        ensure!(close, "{place}: row {row} has lse {a}, not {b}");
        let width = lanes / host.rows as usize;
        let (a, b) = (&got[row * width..][..width], &want[row * width..][..width]);
        // A lone partial keeps its bits.
        let exact = (10..25).contains(&row);
        if let Some(lane) = wrong_lane(host.output, a, b, exact) {
            return Err(Failure::Wrong(format!(
                "{place}: row {row} differs at lane {lane}"
            )));
        }
    }
    Ok(())
}

fn wrong_lane(kind: OutputKind, got: &[u8], want: &[u8], exact: bool) -> Option<usize> {
    if exact {
        return got.iter().zip(want).position(|(a, b)| a != b);
    }
    let (a, b) = (floats(kind, got), floats(kind, want));
    let room = if kind == OutputKind::Bf16 {
        1.0 / 128.0
    } else {
        1e-5
    };
    let close = |a: f32, b: f32| (a - b).abs() <= room * b.abs().max(0.01);
    a.iter().zip(&b).position(|(a, b)| !close(*a, *b))
}

fn floats(kind: OutputKind, bytes: &[u8]) -> Vec<f32> {
    match kind {
        OutputKind::Bf16 => bytes
            .chunks_exact(2)
            .map(|b| widen(u16::from_le_bytes([b[0], b[1]])))
            .collect(),
        OutputKind::F32 => bytes
            .chunks_exact(4)
            .map(bytemuck::pod_read_unaligned)
            .collect(),
    }
}

fn packed<D: DecodeDevice>(device: &D) -> Checked {
    let mut random = Random::new(61);
    let stream = device.stream("pack")?;
    for (batch, queries, heads, destinations) in [
        (1, 1, 8, 8),
        (3, 1, 16, 4),
        (5, 3, 6, 3),
        (2, 2, 128, 1),
        (7, 1, 128, 16),
    ] {
        for kind in [OutputKind::Bf16, OutputKind::F32] {
            let shape = AttendShape {
                batch,
                queries,
                heads,
            };
            let form = OutputForm { kind, destinations };
            let rows = usize::try_from(shape.rows())?;
            let mut o = vec![0u8; rows * usize::try_from(kind.row_bytes())?];
            random.fill(&mut o);
            let special = [
                f32::NEG_INFINITY,
                -1e30,
                f32::from_bits(1),
                -0.0,
                f32::NAN,
                1e4,
            ];
            let lse: Vec<f32> = (0..rows).map(|row| special[row % special.len()]).collect();
            let bytes = usize::try_from(form.bytes(shape)?)?;
            let (on_device, lse_on_device) = (
                upload(device, &o)?,
                upload(device, bytemuck::cast_slice(&lse))?,
            );
            let messages = upload(device, &vec![0xFF; bytes])?;
            let job = Pack {
                shape,
                form,
                o: View::all(&on_device),
                lse: View::all(&lse_on_device),
                messages: View::all(&messages),
            };
            device.pack(&stream, &job)?;
            finish(device, &stream)?;
            let got = read(device, &messages)?;
            let reference = PackedForm {
                order: PackOrder::Planar,
                row_bytes: usize::try_from(kind.row_bytes())?,
            };
            let tagged: Vec<Lse<E>> = lse.iter().map(|lse| Lse::new(*lse)).collect();
            let own = (heads / destinations) as usize;
            let stride = usize::try_from(form.message_stride(shape)?)?;
            let each = usize::try_from(form.message_bytes(shape)?)?;
            for destination in 0..destinations as usize {
                let tokens = usize::try_from(shape.tokens())?;
                let named = destination_rows(tokens, own, heads as usize, destination);
                let mut want = vec![0; each];
                reference.pack(named, &o, &tagged, &mut want)?;
                let at = got[destination * stride..][..each]
                    .iter()
                    .zip(&want)
                    .position(|(a, b)| a != b);
                ensure!(
                    at.is_none(),
                    "{shape:?} {form:?}: message {destination} differs at byte {at:?}"
                );
            }
            device.write(&on_device, 0, &vec![0xEE; o.len()])?;
            device.write(&lse_on_device, 0, &vec![0xEE; 4 * rows])?;
            device.unpack(&stream, &job)?;
            finish(device, &stream)?;
            let mut back = read(device, &on_device)?;
            back.truncate(o.len());
            let lse_back = read(device, &lse_on_device)?;
            let same = back == o && lse_back[..4 * rows] == *bytemuck::cast_slice::<f32, u8>(&lse);
            ensure!(same, "{shape:?} {form:?}: unpacked rows differ");
        }
    }
    Ok(())
}
