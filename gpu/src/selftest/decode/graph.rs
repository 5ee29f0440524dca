// SPDX-License-Identifier: Apache-2.0
//! Captured steps: rows, attention of several layers and merge, replayed over changing plans.

use striata_core::{L1Page, Rank, TokenPos};
use striata_kernels::decode::{
    AttendKernel, KernelFormat, LATENT, MmaSize, OutputKind, PlanPlace, ROPE,
};
use striata_kernels::{Base, EmptySentinel};

use super::super::random::Random;
use super::super::rig::finish;
use super::super::{Check, Checked, Failure, ensure};
use super::scene::{Case, Poison, Scene, Tokens, Variant, read, stage_and_build, upload};
use crate::cuda::{CudaDevice, CudaMemory, CudaStream};
use crate::decode::{DecodeDevice, Merge, View, WriteRows, WriteTo};
use crate::device::Device;
use crate::error::GpuError;

const LAYERS: u64 = 61;

pub(in super::super) fn checks() -> Vec<Check<CudaDevice>> {
    vec![Check {
        name: "decode.h43_graph",
        about: "a captured step of 61 layers is replayed over lengths that change, bit for bit",
        run: replayed,
    }]
}

/// What a layer of a step touches beside the scene.
struct Step {
    latent: CudaMemory,
    rope: CudaMemory,
    faults: CudaMemory,
    tally: CudaMemory,
    merged: CudaMemory,
}

impl Step {
    fn layers(&self, scene: &Scene<CudaDevice>, stream: &CudaStream) -> Result<(), GpuError> {
        let device = &scene.device;
        let shape = scene.plan.shape.attend;
        let tokens = u32::try_from(shape.tokens()).unwrap_or(0);
        for _ in 0..LAYERS {
            device.write_rows(
                stream,
                &WriteRows {
                    rows: scene.rows(),
                    to: WriteTo::Plan(&scene.plan),
                    tokens,
                    latent: View::all(&self.latent),
                    latent_stride: 2 * LATENT as u64,
                    rope: Some(View::all(&self.rope)),
                    rope_stride: 2 * ROPE as u64,
                    faults: View::all(&self.faults),
                },
            )?;
            device.attend(stream, &scene.job(AttendKernel::Mma))?;
            let message = View::all(&scene.output);
            device.merge(
                stream,
                &Merge {
                    messages: &[message, message],
                    rows: u32::try_from(shape.rows()).unwrap_or(0),
                    input: OutputKind::Bf16,
                    output: OutputKind::Bf16,
                    base: Base::E,
                    empty: EmptySentinel::NegativeInfinity,
                    merged: View::all(&self.merged),
                    tally: View::all(&self.tally),
                },
            )?;
        }
        Ok(())
    }
}

/// The first tokens of a scene's requests, as a plan of them.
fn plan(scene: &Scene<CudaDevice>, tokens: &Tokens, lens: &[i32]) -> Checked {
    let shape = scene.plan.shape;
    let width = shape.source_width as usize;
    let mut source = vec![-1; width * shape.source_rows as usize];
    let mut places = Vec::new();
    for (request, (pages, len)) in tokens.pages.iter().zip(lens).enumerate() {
        for (entry, page) in source[request * width..].iter_mut().zip(pages) {
            *entry = i32::try_from(L1Page::get(*page))?;
        }
        places.push(PlanPlace {
            global_len: *len,
            source_row: u32::try_from(request)?,
            kept_pages: 0,
            new_tokens: 1.min(len.unsigned_abs()),
        });
    }
    stage_and_build(&scene.device, &scene.stream, &scene.plan, &places, &source)
}

fn replayed(device: &CudaDevice) -> Checked {
    if !device.has_mma() {
        return Err(Failure::Skipped(
            "the device has no tensor-core kernel".to_owned(),
        ));
    }
    let mut random = Random::new(70);
    let sizes = MmaSize::ALL.into_iter();
    let sizes: Vec<_> = sizes
        .filter(|size| device.mma_size() >= Some(*size))
        .collect();
    for (size, heads) in sizes.into_iter().flat_map(|size| [(size, 16), (size, 64)]) {
        let case = Case {
            dcp: 8,
            page_rows: 64,
            kernel_rows: 64,
            format: KernelFormat::Bf16,
            queries: 1,
            heads,
            kind: OutputKind::Bf16,
            base: Base::E,
            poison: Poison::Nan,
            lens: vec![1200, 700, 16, 0, 0, 0, 0, 0],
        };
        let case = Case { dcp: 1, ..case };
        let tokens = case.tokens(&mut random)?;
        let mut scene = Scene::new(device, &case, Rank::new(0), &tokens)?;
        // What a capture uses must be loaded before.
        device.load_kernels()?;
        scene.run(Variant::Mma(size), &tokens)?;
        let rows = case.shape().tokens();
        let bytes = device.memory_len(&scene.output);
        let step = Step {
            latent: upload(device, &vec![0x3C; usize::try_from(rows * 1024)?])?,
            rope: upload(device, &vec![0x3C; usize::try_from(rows * 128)?])?,
            faults: upload(device, &[0; 16])?,
            tally: upload(device, &[0; 16])?,
            merged: device.alloc(bytes)?,
        };
        plan(&scene, &tokens, &[16, 5, 1, 0, 0, 0, 0, 0])?;
        let graph = device.capture(&scene.stream, || step.layers(&scene, &scene.stream))?;
        for len in [17, 1000, 3, 0, 16] {
            plan(
                &scene,
                &tokens,
                &[len, 700.min(len), 1.min(len), 0, 0, 0, 0, 0],
            )?;
            let mut outputs = Vec::new();
            for replay in [false, true] {
                // The same rows before both, also the one that the step writes.
                device.write(&scene.plane, 0, &scene.host_plane)?;
                device.write(&step.merged, 0, &vec![0xFF; usize::try_from(bytes)?])?;
                device.write(&scene.output, 0, &vec![0xFF; usize::try_from(bytes)?])?;
                if replay {
                    graph.launch(&scene.stream)?;
                } else {
                    step.layers(&scene, &scene.stream)?;
                }
                finish(device, &scene.stream)?;
                outputs.push((read(device, &step.merged)?, read(device, &scene.plane)?));
            }
            let (eager, replayed) = (&outputs[0], &outputs[1]);
            ensure!(
                eager.0 == replayed.0,
                "{size} kernels, heads {heads}, length {len}: outputs differ"
            );
            ensure!(
                eager.1 == replayed.1,
                "{size} kernels, heads {heads}, length {len}: planes differ"
            );
            written_only(&scene, &tokens, len, &replayed.1)?;
            padded(&replayed.0, rows * u64::from(heads), heads)?;
        }
        let faults = read(device, &step.faults)?;
        let tally = read(device, &step.tally)?;
        ensure!(
            faults[..4] == [0; 4] && tally[..4] == [0; 4],
            "faults were counted"
        );
    }
    Ok(())
}

/// Only the rows of the last tokens have changed.
fn written_only(scene: &Scene<CudaDevice>, tokens: &Tokens, len: i32, plane: &[u8]) -> Checked {
    let bytes = scene.case.format.row_bytes() as usize;
    let mut changed = Vec::new();
    for (row, (a, b)) in plane
        .chunks(bytes)
        .zip(scene.host_plane.chunks(bytes))
        .enumerate()
    {
        if a != b {
            changed.push(row as u64);
        }
    }
    let mut want = Vec::new();
    let stripe = scene.plan.shape.stripe;
    for (pages, len) in tokens.pages.iter().zip([len, 700.min(len), 1.min(len)]) {
        let last = u64::try_from(len - 1).ok().map(TokenPos::new);
        let slot = last.and_then(|last| stripe.slot_at(pages, last));
        want.extend(slot.map(|slot| stripe.row_on_owner(slot).get()));
    }
    want.sort_unstable();
    ensure!(
        changed == want,
        "length {len}: rows {changed:?} changed, not {want:?}"
    );
    Ok(())
}

/// Padded requests have outputs 0 and no key.
fn padded(merged: &[u8], rows: u64, heads: u32) -> Checked {
    let rows = usize::try_from(rows)?;
    let first = 3 * heads as usize;
    let lanes = &merged[first * 1024..rows * 1024];
    ensure!(
        lanes.iter().all(|byte| *byte == 0),
        "outputs of padding are not 0"
    );
    for row in first..rows {
        let lse: f32 = bytemuck::pod_read_unaligned(&merged[rows * 1024 + 4 * row..][..4]);
        ensure!(lse == f32::NEG_INFINITY, "padding has lse {lse}");
    }
    Ok(())
}
