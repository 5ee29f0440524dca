// SPDX-License-Identifier: Apache-2.0
//! Every kernel compiles for every architecture that we name, and spills no register. Skipped where
//! there is no compiler library; `STRIATA_REQUIRE_NVRTC` makes that a failure.
#![cfg(all(feature = "cuda", not(loom)))]

use striata_gpu::GpuError;
use striata_gpu::cuda::compile_report;
use striata_kernels::source::{SOURCES, Source};

const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"];

#[test]
fn every_kernel_compiles_for_every_architecture_without_spills() {
    for source in &SOURCES {
        for architecture in ARCHITECTURES {
            match compile_report(source, architecture) {
                Ok(report) => {
                    assert!(report.bytes > 0);
                    assert!(
                        report.log.contains("bytes spill"),
                        "no figures: {}",
                        report.log
                    );
                    assert!(
                        report.spills.is_empty(),
                        "{} {architecture}: {report:?}",
                        source.name
                    );
                }
                Err(GpuError::Unavailable { reason, .. }) => {
                    assert!(
                        std::env::var_os("STRIATA_REQUIRE_NVRTC").is_none(),
                        "{reason}"
                    );
                    println!("skipped: {reason}");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_source_that_does_not_compile_names_itself_and_the_place() {
    let broken = Source {
        text: "extern \"C\" __global__ void f() { nonsense(); }",
        ..SOURCES[0]
    };
    match compile_report(&broken, "sm_90a") {
        Err(GpuError::Kernel {
            source_file,
            reason,
            ..
        }) => {
            assert_eq!(source_file, "rows.cu");
            assert!(reason.contains("nonsense"), "{reason}");
        }
        Err(GpuError::Unavailable { reason, .. }) => println!("skipped: {reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_architecture_that_the_compiler_does_not_know_is_an_error() {
    match compile_report(&SOURCES[0], "sm_999") {
        Err(GpuError::Kernel { reason, .. }) => {
            assert!(reason.contains("does not know"), "{reason}")
        }
        Err(GpuError::Unavailable { reason, .. }) => println!("skipped: {reason}"),
        other => panic!("{other:?}"),
    }
}
