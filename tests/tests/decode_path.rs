// SPDX-License-Identifier: Apache-2.0
//! Steps of the decode path on simulated devices against attention over whole sequences in f64.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use proptest::prelude::*;
use striata::core::config::CommBackend;
use striata::core::{RowFormat, Stripe};
use striata::decode::{DcpMlaConfig, DecodeError, StepFault, StepKind};
use striata::gpu::Device;
use striata::gpu::decode::{Attend, DecodeDevice, Plan, Rows, View};
use striata::kernels::Base;
use striata::kernels::decode::{AttendKernel, KernelFormat, MmaSize, OutputForm, OutputKind};
use striata_tests::decode::{LAYER, Rig, RigSpec, assert_rows_close, upload};

/// Relative error of results in f32.
const F32: f64 = 1e-5;

fn check(spec: RigSpec, seed: u64) {
    let name = format!("{spec:?}");
    let mut rig = Rig::new(spec, seed);
    rig.poison_results();
    let got = rig
        .step(StepKind::Eager)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_rows_close(&got, &rig.dense(), F32);
}

#[test]
fn every_length_up_to_40_in_ragged_batches_for_any_number_of_ranks() {
    for dcp in [1, 2, 3, 4, 8] {
        let stripe = Stripe::new(dcp, 4).unwrap();
        let lengths: Vec<usize> = (0..=40).collect();
        check(RigSpec::new(stripe, &lengths), u64::from(dcp));
    }
}

#[test]
fn one_to_eight_queries_with_requests_shorter_than_them() {
    for (dcp, queries) in (1..=8).flat_map(|q| [(1, q), (3, q), (8, q)]) {
        let stripe = Stripe::new(dcp, 4).unwrap();
        check(
            RigSpec {
                queries,
                heads: 1,
                ..RigSpec::new(stripe, &[0, 1, 2, 7, 8, 31, 32, 33])
            },
            u64::from(queries),
        );
    }
}

#[test]
fn lengths_at_the_edges_of_pages() {
    for (dcp, rows) in [(1, 64), (2, 64), (8, 16)] {
        let stripe = Stripe::new(dcp, rows).unwrap();
        let w = stripe.widened_page() as usize;
        let lengths = [w - 1, w, w + 1, 2 * w, 2 * w + dcp as usize];
        check(
            RigSpec {
                heads: 1,
                ..RigSpec::new(stripe, &lengths)
            },
            9,
        );
    }
}

#[test]
fn every_row_format_and_an_interleaved_stripe() {
    for format in [
        RowFormat::Bf16,
        RowFormat::Fp8Tensor,
        RowFormat::Fp8Row,
        RowFormat::Fp8Tile,
    ] {
        let stripe = Stripe::with_interleave(3, 8, 4).unwrap();
        check(
            RigSpec {
                format,
                queries: 2,
                ..RigSpec::new(stripe, &[5, 50, 0, 73])
            },
            11,
        );
    }
}

#[test]
fn results_in_bf16_are_within_its_precision() {
    let spec = RigSpec::new(Stripe::new(4, 8).unwrap(), &[3, 90, 31, 0]);
    let config = DcpMlaConfig {
        partials: OutputKind::Bf16,
        ..spec.config()
    };
    let mut rig = Rig::with_config(spec, config, 3);
    let got = rig.step(StepKind::Eager).unwrap();
    assert_rows_close(&got, &rig.dense(), 5e-3);
}

#[test]
fn exchanges_agree_bit_for_bit_on_any_streams() {
    for dcp in [2, 3, 8] {
        let of = |exchange, one| {
            let spec = RigSpec {
                exchange,
                queries: 2,
                ..RigSpec::new(Stripe::new(dcp, 4).unwrap(), &[1, 40, 17])
            };
            let mut rig = Rig::new(spec, 5);
            let names = (rig.mla.exchange_name(), exchange.name());
            assert_eq!(names.0, Some(names.1));
            let queries = vec![rig.query.clone(); dcp as usize];
            let got = rig.step_with(StepKind::Eager, &queries, one).unwrap();
            // The second step reads what the first wrote, on streams of the other kind.
            let again = rig.step_with(StepKind::Eager, &queries, !one).unwrap();
            assert_eq!(got.bits(), again.bits());
            got.bits()
        };
        let want = of(CommBackend::Stream, false);
        assert_eq!(of(CommBackend::Stream, true), want);
        assert_eq!(of(CommBackend::Sim, false), want);
        assert_eq!(of(CommBackend::Sim, true), want);
    }
}

#[test]
fn one_rank_gives_the_bits_of_the_kernel_alone() {
    let spec = RigSpec {
        queries: 2,
        ..RigSpec::new(Stripe::new(1, 16).unwrap(), &[100, 3, 0, 16])
    };
    let mut rig = Rig::new(spec, 8);
    let got = rig.step(StepKind::Eager).unwrap();
    assert_eq!(rig.mla.exchange_name(), None);

    // The kernel over the same rows, told of one rank, with a plan of its own.
    let (device, stream) = (&rig.devices[0], &rig.streams[0]);
    let shape = rig.config.plan_shape(striata_tests::decode::rank(0), 4);
    let plan = Plan::new(device, shape).unwrap();
    let mut host = shape.host_plan();
    let places: Vec<_> = (0..shape.attend.batch)
        .map(|place| striata::kernels::decode::PlanPlace {
            global_len: rig
                .rows
                .get(place as usize)
                .map_or(0, |_| rig.tokens(place as usize)) as i32,
            source_row: place,
            kept_pages: 0,
            new_tokens: 0,
        })
        .collect();
    let mut source = vec![0; (shape.source_rows * shape.source_width) as usize];
    for (row, pages) in source
        .chunks_exact_mut(shape.source_width as usize)
        .zip(&rig.pages)
    {
        for (entry, page) in row.iter_mut().zip(pages) {
            *entry = page.get() as i32;
        }
    }
    shape.build(&places, &source, &mut host).unwrap();
    for (at, bytes) in [
        (
            plan.layout.local_lens,
            bytemuck::cast_slice(&host.local_lens),
        ),
        (
            plan.layout.global_lens,
            bytemuck::cast_slice(&host.global_lens),
        ),
        (plan.layout.cells, bytemuck::cast_slice(&host.cells)),
    ] {
        device.write(&plan.memory, at, bytes).unwrap();
    }
    let query = upload(device, bytemuck::cast_slice(&rig.query));
    let form = OutputForm {
        kind: OutputKind::F32,
        destinations: 1,
    };
    let output = device.alloc(form.bytes(shape.attend).unwrap()).unwrap();
    let (memory, offset) = rig.planes[0].plane(LAYER).unwrap();
    let job = Attend {
        kernel: AttendKernel::Simt,
        plan: &plan,
        rows: Rows {
            at: View { memory, offset },
            format: KernelFormat::Bf16,
            scale: rig.config.row_scale,
            rows: rig.config.pool.rows(),
        },
        query: View::all(&query),
        query_strides: rig.mla.dense_query_strides(),
        scale: rig.config.scale,
        base: Base::E,
        form,
        output: View::all(&output),
        workspace: View::all(&output),
        tally: None,
    };
    device.attend(stream, &job).unwrap();
    let event = device.event().unwrap();
    device.record(&event, stream).unwrap();
    device.synchronize(&event).unwrap();
    let mut alone = vec![0u32; device.memory_len(&output) as usize / 4];
    device
        .read(&output, 0, bytemuck::cast_slice_mut(&mut alone))
        .unwrap();
    assert_eq!(got.bits(), alone);
}

#[test]
fn a_partial_without_a_number_fails_the_step_and_is_named() {
    let spec = RigSpec {
        queries: 2,
        ..RigSpec::new(Stripe::new(4, 8).unwrap(), &[30, 41, 22])
    };
    let mut rig = Rig::new(spec, 6);
    let mut queries = vec![rig.query.clone(); 4];
    // Request 1, query 1, head 5 of the 8: rank 2 keeps it; rank 3's partial is broken.
    let row = (2 + 1) * 8 + 5;
    queries[3][row * 576] = 0x7FFF;
    let error = rig.step_with(StepKind::Eager, &queries, false).unwrap_err();
    let DecodeError::Fault { rank: 2, fault } = error else {
        panic!("{error}");
    };
    let want = StepFault::LogSumExp {
        count: 1,
        partial: 3,
        request: 1,
        query: 1,
        head: 5,
    };
    assert_eq!(fault, want);
    // The fault is told once, and the path goes on.
    let got = rig.step(StepKind::Eager).unwrap();
    assert_rows_close(&got, &rig.dense(), F32);
}

/// With one rank nothing is merged, and a row without a number fails the step all the same.
#[test]
fn a_result_without_a_number_fails_the_step_of_one_rank_and_is_named() {
    let spec = RigSpec {
        queries: 2,
        ..RigSpec::new(Stripe::new(1, 8).unwrap(), &[30, 41, 22])
    };
    let mut rig = Rig::new(spec, 6);
    let mut query = rig.query.clone();
    for (request, head) in [(1, 1), (2, 0)] {
        query[((request * 2 + 1) * 2 + head) * 576] = 0x7FFF;
    }
    let error = rig.step_with(StepKind::Eager, &[query], false).unwrap_err();
    let DecodeError::Fault { rank: 0, fault } = error else {
        panic!("{error}");
    };
    let want = StepFault::LogSumExp {
        count: 2,
        partial: 0,
        request: 1,
        query: 1,
        head: 1,
    };
    assert_eq!(fault, want);
    let got = rig.step(StepKind::Eager).unwrap();
    assert_rows_close(&got, &rig.dense(), F32);
}

#[test]
fn steps_out_of_order_and_lists_that_do_not_fit_are_refused() {
    let spec = RigSpec::new(Stripe::new(2, 8).unwrap(), &[30]);
    let mut rig = Rig::new(spec.clone(), 6);
    let streams = rig.streams.clone();
    let streams = striata::decode::StepStreams::Each(&streams);
    let text = |error: Result<(), DecodeError>| error.unwrap_err().to_string();
    assert_eq!(
        text(rig.mla.end_step(streams)),
        "end_step was called outside a step"
    );
    let few = striata::decode::StepStreams::Each(&rig.streams[..1]);
    let begun = rig
        .mla
        .begin_step(StepKind::Eager, &[], Vec::new(), &[], few);
    assert_eq!(
        text(begun),
        "1 streams were given for the 2 ranks of a dcp group"
    );
    rig.mla
        .begin_step(StepKind::Eager, &[], Vec::new(), &[], streams)
        .unwrap();
    let twice = rig
        .mla
        .begin_step(StepKind::Eager, &[], Vec::new(), &[], streams);
    assert_eq!(
        text(twice),
        "begin_step was called before the step before was ended"
    );
    assert_eq!(
        text(rig.mla.layer(LAYER, &[], streams)),
        "0 inputs were given for the 2 ranks of a dcp group"
    );
    // A step of nothing is a step.
    rig.mla.end_step(streams).unwrap();
    rig.mla.confirm().unwrap();

    let config = spec.config();
    let refused = |config: DcpMlaConfig, part: &str| {
        let devices = rig.devices.clone();
        let error = striata::decode::DcpMla::new(config, devices, &rig.planes);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    for backend in [
        CommBackend::A2a,
        CommBackend::AgRs,
        CommBackend::Peer,
        CommBackend::FiA2a,
    ] {
        let mut config = config;
        config.settings.exchange = Some(backend);
        refused(
            config,
            &format!("dcp_comm_backend {backend} cannot be used here"),
        );
    }
    refused(
        DcpMlaConfig {
            kernel_rows: 3,
            ..config
        },
        "kernel page of 3 rows",
    );
    refused(
        DcpMlaConfig {
            mma: Some(MmaSize::Small),
            ..config
        },
        "small was asked for, none run",
    );
    refused(
        DcpMlaConfig {
            queries: 9,
            ..config
        },
        "s_q is 9",
    );
    refused(
        DcpMlaConfig {
            scale: 0.0,
            ..config
        },
        "finite and above 0",
    );
    let mut heads = config;
    heads.settings.heads.gathered = 5;
    refused(heads, "the number of heads is 5");
}

/// A path whose merge takes base-2 partials for natural ones cannot be made.
#[test]
fn a_mistaken_base_does_not_pass_the_start_up_check() {
    let spec = RigSpec::new(Stripe::new(2, 8).unwrap(), &[30]);
    for base in [Base::E, Base::Two] {
        let config = DcpMlaConfig {
            base,
            ..spec.config()
        };
        let mut rig = Rig::with_config(spec.clone(), config, 2);
        let got = rig.step(StepKind::Eager).unwrap();
        let (o, mut lse) = rig.dense();
        if base == Base::Two {
            lse.iter_mut()
                .for_each(|lse| *lse /= std::f64::consts::LN_2);
        }
        assert_rows_close(&got, &(o, lse), F32);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any stripe, kernel page, queries and lengths.
    #[test]
    fn any_batch_equals_dense_attention(
        seed in any::<u64>(),
        dcp in 1u32..9,
        (rows, interleave, kernel_rows) in prop::sample::select(vec![
            (1, 1, 1), (4, 1, 2), (8, 2, 4), (64, 1, 16), (6, 3, 6),
        ]),
        queries in 1u32..5,
        lengths in prop::collection::vec(0usize..90, 1..6),
        format in prop::sample::select(vec![RowFormat::Bf16, RowFormat::Fp8Row]),
    ) {
        let stripe = Stripe::with_interleave(dcp, rows, interleave).unwrap();
        let spec = RigSpec { queries, heads: 1, format, ..RigSpec::new(stripe, &lengths) };
        let config = DcpMlaConfig { kernel_rows, ..spec.config() };
        let mut rig = Rig::with_config(spec, config, seed);
        rig.poison_results();
        let got = rig.step(StepKind::Eager).unwrap();
        assert_rows_close(&got, &rig.dense(), F32);
    }
}
