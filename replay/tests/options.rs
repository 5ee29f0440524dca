// SPDX-License-Identifier: Apache-2.0
//! Options that cannot be are refused in one clear line, before anything is read or allocated.

mod common;

use striata_replay::trace::Bundled;
use striata_replay::{
    Capacity, DeviceChoice, Fault, HostCapacity, Parallel, RandomFaults, ReplayConfig, TraceSource,
    VerifyPolicy,
};

fn base() -> ReplayConfig {
    let source = TraceSource::Bundled(Bundled::MooncakeConversation);
    common::config(source, 2, 64, 100)
}

/// The refusal of a changed configuration: one line, and the fault of whoever asked.
fn refusal(change: impl FnOnce(&mut ReplayConfig)) -> String {
    let mut config = base();
    change(&mut config);
    let error = striata_replay::replay(&config, &mut ()).unwrap_err();
    assert!(error.is_usage(), "{error}");
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn tiers_without_a_page_or_with_too_many_are_refused() {
    // A page of 64 rows of 16 bytes in 3 layers has 3072 bytes; L1 has a sink page beside.
    let message = refusal(|c| c.l1 = Capacity::Bytes(6143));
    assert!(
        message.starts_with("L1 of 6143B holds no usable widened page"),
        "{message}"
    );
    let message = refusal(|c| c.l2 = HostCapacity::Fixed(Capacity::Bytes(3071)));
    assert!(message.starts_with("L2 of 3071B"), "{message}");
    let message = refusal(|c| c.l2 = HostCapacity::TimesL1(0.001));
    assert!(message.starts_with("L2 of 0.001 x L1"), "{message}");
    let message = refusal(|c| c.l1 = Capacity::Pages(u64::MAX));
    assert!(message.contains("more than the 4294967294"), "{message}");
    let message = refusal(|c| c.l1 = Capacity::Tokens(u64::MAX));
    assert!(message.contains("widened pages, more than"), "{message}");
}

#[test]
fn capacities_over_memory_are_refused_with_the_figures() {
    let message = refusal(|c| c.l1 = Capacity::Pages(4_000_000_000));
    assert!(message.contains("bytes of memory are needed"), "{message}");
    assert!(message.contains("2 ranks"), "{message}");
}

#[test]
fn impossible_ranks_and_rows_are_refused() {
    let ranks = |tp, dp, dcp| {
        refusal(|c| {
            c.parallel = Parallel {
                tp,
                dp,
                dcp,
                ..c.parallel
            };
        })
    };
    assert!(ranks(8, 1, 3).contains("3"));
    assert!(ranks(8, 3, 1).contains("dp 3 does not divide tp 8"));
    assert!(ranks(0, 1, 1).contains("tp is 0"));
    assert!(ranks(8, 4, 4).contains("crosses replica boundaries"));
    refusal(|c| c.parallel.page_rows = 0);
    refusal(|c| c.parallel.page_rows = u32::MAX);
    refusal(|c| c.parallel.interleave = 5);
    refusal(|c| c.scale_rows = Some(6));
    refusal(|c| c.scale_rows = Some(0));
    refusal(|c| c.model.layers = 0);
    refusal(|c| c.model.layers = u32::MAX);
    let message = refusal(|c| {
        c.parallel.page_rows = 1 << 16;
        c.model.row_bytes = 1 << 20;
        c.model.layers = 4096;
        c.l1 = Capacity::Pages(4_000_000_000);
    });
    assert!(message.contains("bytes of memory are needed"), "{message}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let message = refusal(|c| {
        c.metadata_only = true;
        c.verify = VerifyPolicy::None;
        c.fault = Some(Fault::CorruptPage(1));
    });
    assert!(
        message.contains("a fault and a replay without bytes exclude"),
        "{message}"
    );
    refusal(|c| c.metadata_only = true);
    refusal(|c| {
        c.fault = Some(Fault::CorruptPage(1));
        c.verify = VerifyPolicy::Sample;
    });
    // On a machine with a GPU this is a replay like any other.
    if striata_gpu::cuda::CudaDevice::new(0).is_err() {
        let message = refusal(|c| c.device = DeviceChoice::Cuda);
        assert!(
            message.starts_with("device cuda is not available"),
            "{message}"
        );
    }
    let message = refusal(|c| {
        c.metadata_only = true;
        c.verify = VerifyPolicy::None;
        c.faults = Some("3".parse().unwrap());
    });
    assert!(
        message.starts_with("random faults and a replay"),
        "{message}"
    );
    refusal(|c| c.compute.layer_us = f64::NAN);
    let message = refusal(|c| c.compute.prefill_tflops = Some(500.0));
    assert!(
        message.contains("no published number of active parameters"),
        "{message}"
    );
}

#[test]
fn names_and_sources_are_read_from_text() {
    assert_eq!("corrupt-page:7".parse(), Ok(Fault::CorruptPage(7)));
    for text in ["corrupt-page:0", "corrupt-page:", "corrupt-page:x", "other"] {
        assert!(
            text.parse::<Fault>()
                .unwrap_err()
                .to_string()
                .contains("corrupt-page:N")
        );
    }
    let faults = RandomFaults { seed: 9, rate: 0.5 };
    assert_eq!("9:0.5".parse(), Ok(faults));
    assert_eq!(
        "9".parse::<RandomFaults>().unwrap().rate,
        RandomFaults::RATE
    );
    for text in ["", "x", "9:", "9:1.5", "9:-1", "9:NaN", "-9", "9:0.5:1"] {
        let error = text.parse::<RandomFaults>().unwrap_err().to_string();
        assert!(error.contains("SEED:RATE"), "{error}");
    }
    let error = "gpu".parse::<DeviceChoice>().unwrap_err().to_string();
    assert_eq!(error, "unknown device \"gpu\"; known are auto, sim, cuda");
    assert_eq!(TraceSource::from("-"), TraceSource::Stdin);
    let bundled = TraceSource::Bundled(Bundled::AgenticCcU64);
    assert_eq!(TraceSource::from("agentic_cc_u64"), bundled);
    assert_eq!(TraceSource::from("./-"), TraceSource::File("./-".into()));
}
