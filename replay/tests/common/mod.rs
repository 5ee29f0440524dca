// SPDX-License-Identifier: Apache-2.0
//! Configurations that tests begin with.
#![allow(dead_code, reason = "no test uses all of them")]

use striata_replay::{
    Capacity, ComputeModel, CopyPathChoice, DeviceChoice, HostCapacity, KeySource, ModelShape,
    Outputs, Parallel, Policy, ReplayConfig, ReplayReport, Selection, TraceSource, VerifyPolicy,
    WritePolicy,
};

/// A small model on `dcp` ranks with pages of `page_rows` rows, on the simulated device.
pub(crate) fn config(source: TraceSource, dcp: u32, page_rows: u32, l1_pages: u64) -> ReplayConfig {
    ReplayConfig {
        source,
        selection: Selection::default(),
        model: ModelShape {
            name: "small".to_owned(),
            layers: 3,
            row_bytes: 16,
            heads: 8,
            query_key_lanes: 192,
            value_lanes: 128,
            active_parameters: None,
        },
        parallel: Parallel {
            tp: dcp,
            dp: 1,
            dcp,
            page_rows,
            interleave: 1,
        },
        l1: Capacity::Pages(l1_pages),
        l2: HostCapacity::Off,
        policy: Policy::Lru,
        write_policy: WritePolicy::WriteThrough,
        host_layout: striata_core::HostLayout::PageFirst,
        device: DeviceChoice::Sim,
        scale_rows: None,
        metadata_only: false,
        keys: KeySource::Tokens,
        verify: VerifyPolicy::All,
        outputs: Outputs::Drop,
        compute: ComputeModel::default(),
        fault: None,
        faults: None,
        paranoid: false,
        copy_path: CopyPathChoice::Calibrated,
        attend: None,
    }
}

/// The same without bytes, with block keys.
pub(crate) fn metadata(
    source: TraceSource,
    dcp: u32,
    page_rows: u32,
    l1_pages: u64,
) -> ReplayConfig {
    ReplayConfig {
        metadata_only: true,
        verify: VerifyPolicy::None,
        keys: KeySource::Blocks,
        ..config(source, dcp, page_rows, l1_pages)
    }
}

/// Replays without a watcher.
pub(crate) fn run(config: &ReplayConfig) -> ReplayReport {
    striata_replay::replay(config, &mut ()).unwrap()
}
