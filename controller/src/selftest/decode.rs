// SPDX-License-Identifier: Apache-2.0
//! The decode path of c ranks on one device: against attention over whole requests in f64, with
//! every kernel that the device has.

use striata_core::RowFormat;
use striata_core::config::{AttentionKernel, CommBackend};
use striata_gpu::GpuError;
use striata_gpu::decode::DecodeDevice;
use striata_gpu::selftest::{Check, Checked, Failure, Subject};
use striata_kernels::decode::{MmaSize, OutputKind};

use super::decode_rig::{DecodeRig, Spec, Variant};
use super::ensure;
use crate::decode::{StepKind, StepStreams};

/// Relative error of f32 sums, and of bf16 products in the matrix units.
const PLAIN: f64 = 1e-4;
const MATRIX: f64 = 1e-2;
/// Layers of a captured step, as many as DeepSeek-V3 has.
const LAYERS: u32 = 61;

pub(super) fn checks<D: Subject>() -> Vec<Check<D>> {
    vec![
        Check::new(
            "decode.dense",
            "steps of 1, 2, 3 and 8 ranks equal attention over whole requests in f64",
            dense,
        ),
        Check::new(
            "decode.row_formats",
            "the same over fp8 rows, with partial results in bf16",
            formats,
        ),
        Check::new(
            "decode.queries",
            "the same for 2, 4 and 8 queries of requests that are shorter, empty or long",
            queries,
        ),
        Check::new(
            "decode.exchanges",
            "the exchange by streams gives the bits of the one through host memory",
            exchanges,
        ),
        Check::new(
            "decode.b43_graph",
            "a captured step of 61 layers, replayed over growing and shrinking requests and padding, \
             gives the bits of eager steps",
            graph,
        ),
    ]
}

/// The kernels of a device, those of smaller devices too, and what their results may be off.
fn kernels<D: DecodeDevice>(device: &D) -> Vec<(Variant, f64)> {
    let simt = Variant {
        kernel: AttentionKernel::Simt,
        mma: None,
    };
    let sizes = MmaSize::ALL.into_iter();
    let sizes = sizes.filter(|size| device.mma_size() >= Some(*size));
    let mma = sizes.map(|size| Variant {
        kernel: AttentionKernel::Mma,
        mma: Some(size),
    });
    let mma = mma.map(|variant| (variant, MATRIX));
    core::iter::once((simt, PLAIN)).chain(mma).collect()
}

/// One step of a spec whose requests fill their room.
fn check<D: Subject>(device: &D, spec: &Spec, tolerance: f64) -> Checked {
    let named = |failure| match failure {
        Failure::Wrong(what) => Failure::Wrong(format!(
            "c = {}, {} heads a rank, {} queries, {:?}, {:?} {:?}: {what}",
            spec.dcp, spec.heads, spec.queries, spec.format, spec.kernel, spec.mma
        )),
        skipped @ Failure::Skipped(_) => skipped,
    };
    let run = || -> Checked {
        let mut rig = DecodeRig::new(device, spec.clone())?;
        rig.fill(&spec.room)?;
        let kept = rig.step(false)?;
        rig.compare(&kept, tolerance)
    };
    run().map_err(named)
}

fn dense<D: Subject>(device: &D) -> Checked {
    for (kernel, tolerance) in kernels(device) {
        for (dcp, heads) in [(1, 16), (2, 8), (3, 5), (8, 2), (8, 16)] {
            let spec = Spec {
                heads,
                ..Spec::new(dcp, kernel, &[1, 63, 64, 65, 0, 300])
            };
            check(device, &spec, tolerance)?;
        }
    }
    Ok(())
}

fn formats<D: Subject>(device: &D) -> Checked {
    for (kernel, tolerance) in kernels(device) {
        for format in [RowFormat::Fp8Tensor, RowFormat::Fp8Row, RowFormat::Fp8Tile] {
            let spec = Spec {
                format,
                heads: 4,
                ..Spec::new(4, kernel, &[3, 200, 129])
            };
            check(device, &spec, tolerance)?;
        }
        let spec = Spec {
            partials: OutputKind::Bf16,
            heads: 4,
            ..Spec::new(4, kernel, &[3, 200, 129])
        };
        check(device, &spec, MATRIX)?;
    }
    Ok(())
}

fn queries<D: Subject>(device: &D) -> Checked {
    for (kernel, tolerance) in kernels(device) {
        for (queries, dcp) in [(2, 2), (4, 8), (8, 3)] {
            let spec = Spec {
                queries,
                page_rows: 16,
                ..Spec::new(dcp, kernel, &[1, 7, 0, 128, 131])
            };
            check(device, &spec, tolerance)?;
        }
    }
    Ok(())
}

fn exchanges<D: Subject>(device: &D) -> Checked {
    for (kernel, _) in kernels(device) {
        let run = |exchange, one| -> Result<_, Failure> {
            let spec = Spec {
                exchange,
                layers: 3,
                partials: OutputKind::Bf16,
                ..Spec::new(4, kernel, &[100, 1, 0, 257])
            };
            let mut rig = DecodeRig::new(device, spec.clone())?;
            rig.fill(&spec.room)?;
            Ok(bits(&rig.step(one)?))
        };
        let want = run(CommBackend::Sim, false)?;
        for one in [false, true] {
            let got = run(CommBackend::Stream, one)?;
            let what = format_args!("{kernel:?}, one stream {one}: the exchanges differ");
            ensure(got == want, what)?;
        }
    }
    Ok(())
}

fn bits(kept: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let words = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect();
    kept.iter().map(words).collect()
}

fn graph<D: Subject>(device: &D) -> Checked {
    for (kernel, _) in kernels(device) {
        let spec = Spec {
            layers: LAYERS,
            page_rows: 16,
            ..Spec::new(2, kernel, &[200, 200, 200, 200])
        };
        let mut rig = DecodeRig::new(device, spec.clone())?;
        let stream = rig.streams[0].clone();
        let streams = StepStreams::One(&stream);
        rig.fill(&[16, 200, 1, 77])?;
        rig.begin(StepKind::Captured, streams)?;
        let mut failed = None;
        let captured = device.captured(&stream, &mut || {
            rig.layers(streams).map_err(|failure| {
                let reason = format!("{failure:?}");
                failed = Some(failure);
                GpuError::Argument {
                    call: "capture",
                    reason,
                }
            })
        });
        if let Some(failure) = failed {
            return Err(failure);
        }
        let Some(replay) = captured? else {
            return Err(Failure::Skipped("the device has no graphs".to_owned()));
        };
        replay(&stream)?;
        let mut got = vec![rig.end(streams)?];
        // Growing, shrinking, another number of requests, and the first lengths again.
        let lengths: [&[usize]; 4] = [&[17, 200, 2, 78], &[200, 3, 150], &[33], &[16, 200, 1, 77]];
        for lengths in lengths {
            rig.fill(lengths)?;
            rig.begin(StepKind::Captured, streams)?;
            replay(&stream)?;
            got.push(rig.end(streams)?);
        }
        let all = core::iter::once(&[16, 200, 1, 77][..]).chain(lengths);
        for (lengths, got) in all.zip(&got) {
            let mut eager = DecodeRig::new(device, spec.clone())?;
            eager.fill(lengths)?;
            let want = eager.step(true)?;
            let what = format_args!("{kernel:?}: the replay over {lengths:?} differs from eager");
            ensure(bits(got) == bits(&want), what)?;
        }
    }
    Ok(())
}
