// SPDX-License-Identifier: Apache-2.0
//! The operations against the references of the contracts, and under the scheduler's watch.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers of these tests"
)]

use striata_core::{Rank, Stripe};
use striata_kernels::decode::attend::HostAttend;
use striata_kernels::decode::plan::HostPlan;
use striata_kernels::decode::prefix::HostPrefix;
use striata_kernels::decode::row_codec::narrow;
use striata_kernels::decode::write::{Destination, WriteShape};
use striata_kernels::decode::{
    AttendShape, KernelFormat, MmaSize, OutputKind, PlanShape, PlanSource, RowScale, Schedule,
};
use striata_kernels::values::RowSeed;
use striata_kernels::{Base, E, Lse};

use super::*;
use crate::decode::{Rows, View};
use crate::device::Device;
use crate::sim::{SimConfig, SimMemory, SimScheduler, Step};

const SCALE: f32 = 0.07;
const PAGES: u32 = 9;

/// A batch on one rank: rows of random values, tables out of order, poison wherever no token
/// stands.
struct Fixture {
    shape: PlanShape,
    format: KernelFormat,
    row_scale: RowScale,
    plane: Vec<u8>,
    query: Vec<u16>,
    plan: HostPlan,
    places: Vec<PlanPlace>,
    source: Vec<i32>,
}

fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f32::from((state >> 50) as u16) / 8192.0 - 1.0
    }
}

fn fixture(format: KernelFormat, stripe: Stripe, rank: u32, kernel_rows: u32) -> Fixture {
    let attend = AttendShape {
        batch: 4,
        queries: 2,
        heads: 6,
    };
    let split = stripe.page_rows() / kernel_rows;
    let shape = PlanShape {
        stripe,
        rank: Rank::new(rank),
        kernel_rows,
        pages: PAGES,
        width: 3 * split,
        attend,
        schedule: Schedule::new(attend, 4, MmaSize::Large),
        source: PlanSource::Pages,
        source_width: 3,
        source_rows: 4,
    };
    let source = vec![8, 3, 5, 1, 0, 0, 7, 2, 0, 0, 0, 0];
    let w = stripe.widened_page() as i32;
    let places: Vec<PlanPlace> = (0..)
        .zip([2 * w + 5, 1, w + 1, 0])
        .map(|(source_row, global_len)| PlanPlace {
            global_len,
            source_row,
            kept_pages: 0,
            new_tokens: 0,
        })
        .collect();
    let mut plan = shape.host_plan();
    shape.build(&places, &source, &mut plan).unwrap();
    let row_scale = RowScale(1.0 / 256.0);
    let row_bytes = format.row_bytes() as usize;
    let rows = (PAGES * stripe.page_rows()) as usize;
    let mut plane = vec![0xFFu8; rows * row_bytes];
    let mut next = noise(3);
    let mut lanes = |count: usize| -> Vec<u16> { (0..count).map(|_| narrow(next())).collect() };
    let query = lanes(attend.rows() as usize * LANES);
    for place in 0..4usize {
        for local in 0..plan.local_lens[place] as usize {
            let cell = plan.cells[place * shape.width as usize + local / kernel_rows as usize];
            let row = cell as usize * kernel_rows as usize + local % kernel_rows as usize;
            let (latent, rope) = (lanes(LATENT), lanes(ROPE));
            let bytes = &mut plane[row * row_bytes..][..row_bytes];
            format.encode(&latent, &rope, row_scale, bytes).unwrap();
        }
    }
    Fixture {
        shape,
        format,
        row_scale,
        plane,
        query,
        plan,
        places,
        source,
    }
}

impl Fixture {
    fn rows<'a>(&self, plane: &'a SimMemory) -> Rows<'a, SimDevice> {
        Rows {
            at: View::all(plane),
            format: self.format,
            scale: self.row_scale,
            rows: u64::from(PAGES * self.shape.stripe.page_rows()),
        }
    }

    fn staging(&self, device: &SimDevice) -> HostStaging {
        let places: &[u32] = bytemuck::cast_slice(&self.places);
        let words: Vec<u32> = places
            .iter()
            .copied()
            .chain(self.source.iter().map(|page| page.cast_unsigned()))
            .collect();
        let staging = device.staging(words.len()).unwrap();
        for (to, word) in device.staged(&staging).iter().zip(words) {
            to.store(word, core::sync::atomic::Ordering::Relaxed);
        }
        staging
    }

    fn strides(&self) -> [u64; 3] {
        let heads = u64::from(self.shape.attend.heads) * QUERY_BYTES;
        [
            heads * u64::from(self.shape.attend.queries),
            heads,
            QUERY_BYTES,
        ]
    }
}

fn upload(device: &SimDevice, bytes: &[u8]) -> SimMemory {
    let memory = device.alloc(bytes.len() as u64).unwrap();
    device.write(&memory, 0, bytes).unwrap();
    memory
}

fn download(device: &SimDevice, memory: &SimMemory) -> Vec<u8> {
    let mut bytes = vec![0; device.memory_len(memory) as usize];
    device.read(memory, 0, &mut bytes).unwrap();
    bytes
}

fn finish(device: &SimDevice, stream: &SimStream) {
    let event = device.event().unwrap();
    device.record(&event, stream).unwrap();
    device.synchronize(&event).unwrap();
}

fn poisoned(device: &SimDevice, bytes: u64) -> SimMemory {
    upload(device, &vec![0xFF; bytes as usize])
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn attention_in_f32_equals_the_reference_in_f64_for_every_format() {
    let stripe = Stripe::new(3, 64).unwrap();
    for format in KernelFormat::ALL {
        for (rank, kernel_rows) in [(0, 64), (2, 16)] {
            let fixture = fixture(format, stripe, rank, kernel_rows);
            let attend = fixture.shape.attend;
            let device = SimDevice::new(SimConfig::new(0));
            let stream = device.stream("compute").unwrap();
            let plan = Plan::new(&device, fixture.shape).unwrap();
            let (plane, query) = (
                upload(&device, &fixture.plane),
                upload(&device, bytemuck::cast_slice(&fixture.query)),
            );
            device
                .write(&plan.memory, 0, &vec![0xFF; plan.layout.bytes as usize])
                .unwrap();
            let build = BuildPlan {
                plan: &plan,
                staging: &fixture.staging(&device),
                source: None,
            };
            device.build_plan(&stream, &build).unwrap();
            let form = OutputForm {
                kind: OutputKind::F32,
                destinations: 1,
            };
            let output = poisoned(&device, form.bytes(attend).unwrap());
            let job = Attend {
                kernel: AttendKernel::Simt,
                plan: &plan,
                rows: fixture.rows(&plane),
                query: View::all(&query),
                query_strides: fixture.strides(),
                scale: SCALE,
                base: Base::E,
                form,
                output: View::all(&output),
                workspace: View::all(&output),
                tally: None,
            };
            device.attend(&stream, &job).unwrap();
            finish(&device, &stream);
            let got = floats(&download(&device, &output));
            let rows = attend.rows() as usize;
            let (mut o, mut lse) = (vec![0f64; rows * LATENT], vec![Lse::<E, f64>::EMPTY; rows]);
            let host = HostAttend {
                shape: attend,
                stripe,
                rank: fixture.shape.rank,
                kernel_rows,
                format,
                row_scale: fixture.row_scale,
                scale: f64::from(SCALE),
                query: &fixture.query,
                plane: &fixture.plane,
                cells: &fixture.plan.cells,
                width: fixture.shape.width as usize,
                local_lens: &fixture.plan.local_lens,
                global_lens: &fixture.plan.global_lens,
            };
            host.run(&mut o, &mut lse).unwrap();
            for row in 0..rows {
                let (got, want) = (&got[row * LATENT..], &o[row * LATENT..][..LATENT]);
                let error: f64 = got
                    .iter()
                    .zip(want)
                    .map(|(g, w)| (f64::from(*g) - w).powi(2))
                    .sum();
                let norm: f64 = want.iter().map(|w| w * w).sum();
                assert!(
                    error.sqrt() <= 1e-5 * norm.sqrt(),
                    "{format:?} row {row}: {error} {norm}"
                );
            }
            for (got, want) in got[rows * LATENT..].iter().zip(&lse) {
                let (got, want) = (f64::from(*got), want.get());
                assert!(
                    got == want || (got - want).abs() < 1e-5,
                    "{format:?}: {got} {want}"
                );
            }
        }
    }
}

#[test]
fn messages_are_the_packed_outputs_and_unpack_to_them() {
    let fixture = fixture(KernelFormat::Bf16, Stripe::new(3, 64).unwrap(), 1, 64);
    let attend = fixture.shape.attend;
    let device = SimDevice::new(SimConfig::new(0));
    let stream = device.stream("compute").unwrap();
    let plan = Plan::new(&device, fixture.shape).unwrap();
    let plane = upload(&device, &fixture.plane);
    let query = upload(&device, bytemuck::cast_slice(&fixture.query));
    let build = BuildPlan {
        plan: &plan,
        staging: &fixture.staging(&device),
        source: None,
    };
    device.build_plan(&stream, &build).unwrap();
    let run = |destinations| {
        let form = OutputForm {
            kind: OutputKind::Bf16,
            destinations,
        };
        let output = poisoned(&device, form.bytes(attend).unwrap());
        let job = Attend {
            kernel: AttendKernel::Simt,
            plan: &plan,
            rows: fixture.rows(&plane),
            query: View::all(&query),
            query_strides: fixture.strides(),
            scale: SCALE,
            base: Base::Two,
            form,
            output: View::all(&output),
            workspace: View::all(&output),
            tally: None,
        };
        device.attend(&stream, &job).unwrap();
        (form, output)
    };
    let (_, plain) = run(1);
    let (form, messages) = run(3);
    let packed = poisoned(&device, form.bytes(attend).unwrap());
    let lse_at = attend.rows() * form.kind.row_bytes();
    let job = Pack {
        shape: attend,
        form,
        o: View::all(&plain),
        lse: View::all(&plain).plus(lse_at),
        messages: View::all(&packed),
    };
    device.pack(&stream, &job).unwrap();
    let back = poisoned(&device, form.bytes(attend).unwrap());
    let job = Pack {
        o: View::all(&back),
        lse: View::all(&back).plus(lse_at),
        ..job
    };
    device.unpack(&stream, &job).unwrap();
    finish(&device, &stream);
    assert_eq!(download(&device, &packed), download(&device, &messages));
    assert_eq!(download(&device, &back), download(&device, &plain));
}

#[test]
fn rows_are_written_and_prefixes_gathered_as_the_references_do() {
    let stripe = Stripe::new(2, 4).unwrap();
    let slots = [8i64, 9, 3, 15, -1, 70, 100, 26];
    let mut next = noise(5);
    let mut lanes = |count: usize| -> Vec<u16> { (0..count).map(|_| narrow(next())).collect() };
    let (latent, rope) = (lanes(slots.len() * LATENT), lanes(slots.len() * ROPE));
    for format in KernelFormat::ALL {
        for rank in stripe.ranks() {
            let device = SimDevice::new(SimConfig::new(0));
            let stream = device.stream("compute").unwrap();
            let mut want = vec![0xEEu8; 36 * format.row_bytes() as usize];
            let plane = upload(&device, &want);
            let scale = RowScale(0.01);
            let rows = Rows {
                at: View::all(&plane),
                format,
                scale,
                rows: 36,
            };
            let (latents, ropes, list, faults) = (
                upload(&device, bytemuck::cast_slice(&latent)),
                upload(&device, bytemuck::cast_slice(&rope)),
                upload(&device, bytemuck::cast_slice(&slots)),
                upload(&device, &[0; 4]),
            );
            let job = WriteRows {
                rows,
                to: WriteTo::Slots {
                    slots: View::all(&list),
                    stripe,
                    rank,
                },
                tokens: slots.len() as u32,
                latent: View::all(&latents),
                latent_stride: LATENT_BYTES,
                rope: Some(View::all(&ropes)),
                rope_stride: ROPE_BYTES,
                faults: View::all(&faults),
            };
            device.write_rows(&stream, &job).unwrap();
            finish(&device, &stream);
            let shape = WriteShape {
                stripe,
                rank,
                format,
                scale,
            };
            let to = Destination::Slots(&slots);
            let outside = shape.write(&to, &latent, Some(&rope), &mut want).unwrap();
            assert_eq!(download(&device, &plane), want);
            assert_eq!(u64::from(download(&device, &faults)[0]), outside);

            let cells = [1, 3, 77, -1];
            let on_device = upload(&device, bytemuck::cast_slice(&cells));
            for (start, tokens, packed) in [(0, 8, false), (3, 11, false), (5, 9, true)] {
                let host = HostPrefix {
                    stripe,
                    rank,
                    format,
                    scale,
                    kernel_rows: 4,
                    plane: &want,
                    cells: &cells,
                    start,
                    tokens,
                    packed,
                };
                let mut expected = vec![0xABAB; host.room() as usize * LANES];
                host.run(&mut expected).unwrap();
                let out = upload(&device, &vec![0xAB; expected.len() * 2]);
                let job = GatherPrefix {
                    stripe,
                    rank,
                    rows,
                    kernel_rows: 4,
                    cells: View::all(&on_device),
                    width: 4,
                    start,
                    tokens,
                    packed,
                    out: View::all(&out),
                };
                device.gather_prefix(&stream, &job).unwrap();
                finish(&device, &stream);
                let bytes: &[u8] = bytemuck::cast_slice(&expected);
                assert_eq!(download(&device, &out), bytes, "{start} {tokens} {packed}");
            }
        }
    }
}

#[test]
fn values_are_filled_as_their_seeds_say() {
    let device = SimDevice::new(SimConfig::new(0));
    let stream = device.stream("compute").unwrap();
    let seeds: Vec<RowSeed> = (0..5).map(|p| RowSeed::new(1, p, 2)).collect();
    let list = upload(&device, bytemuck::cast_slice(&seeds));
    let dense = device.alloc(5 * 1152).unwrap();
    let job = FillValues {
        dense: View::all(&dense),
        seeds: View::all(&list),
        rows: 5,
        row_words: 288,
        layer: 7,
    };
    device.fill_values(&stream, &job).unwrap();
    finish(&device, &stream);
    let words = download(&device, &dense);
    for (at, word) in words.chunks_exact(4).enumerate() {
        let want = seeds[at / 288].word(7, at as u32 % 288);
        assert_eq!(word, want.to_le_bytes());
    }
    let short = FillValues { rows: 6, ..job };
    assert!(device.fill_values(&stream, &short).is_err());
}

/// Attention beside a write of another page is clean; beside a write of one of its own it is a
/// race, unless an event orders them.
#[test]
fn the_scheduler_knows_which_rows_attention_reads() {
    let fixture = fixture(KernelFormat::Bf16, Stripe::new(2, 64).unwrap(), 0, 64);
    let bugs = |page: u64, ordered: bool, seed: u64| {
        let scheduler = SimScheduler::new(seed);
        let device = SimDevice::new(SimConfig::stepped(0, &scheduler));
        let compute = device.stream("compute").unwrap();
        let plan = Plan::new(&device, fixture.shape).unwrap();
        let plane = upload(&device, &fixture.plane);
        let query = upload(&device, bytemuck::cast_slice(&fixture.query));
        let row = upload(&device, &[0; 1152]);
        let faults = upload(&device, &[0; 4]);
        let build = BuildPlan {
            plan: &plan,
            staging: &fixture.staging(&device),
            source: None,
        };
        device.build_plan(&compute, &build).unwrap();
        finish(&device, &compute);
        let writer = device.stream("writer").unwrap();
        let write = WriteRows {
            rows: fixture.rows(&plane),
            to: WriteTo::Run {
                first_row: page * 64,
            },
            tokens: 1,
            latent: View::all(&row),
            latent_stride: LATENT_BYTES,
            rope: None,
            rope_stride: ROPE_BYTES,
            faults: View::all(&faults),
        };
        device.write_rows(&writer, &write).unwrap();
        if ordered {
            let written = device.event().unwrap();
            device.record(&written, &writer).unwrap();
            device.wait(&compute, &written).unwrap();
        }
        let form = OutputForm {
            kind: OutputKind::Bf16,
            destinations: 1,
        };
        let output = device
            .alloc(form.bytes(fixture.shape.attend).unwrap())
            .unwrap();
        let job = Attend {
            kernel: AttendKernel::Simt,
            plan: &plan,
            rows: fixture.rows(&plane),
            query: View::all(&query),
            query_strides: fixture.strides(),
            scale: SCALE,
            base: Base::E,
            form,
            output: View::all(&output),
            workspace: View::all(&output),
            tally: None,
        };
        device.attend(&compute, &job).unwrap();
        match scheduler.run() {
            Ok(end) => assert_eq!(end, Step::Idle),
            Err(error) => assert!(error.to_string().contains("attention"), "{error}"),
        }
        scheduler.bugs().len()
    };
    for seed in 0..8 {
        // Pages 8, 3, 5 and 1 are the requests', page 4 is nobody's.
        assert_eq!(bugs(4, false, seed), 0);
        assert_eq!(bugs(3, true, seed), 0);
        assert_eq!(bugs(3, false, seed), 1);
    }
}
