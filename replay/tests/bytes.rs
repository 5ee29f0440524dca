// SPDX-License-Identifier: Apache-2.0
//! Replays with bytes: every row that comes back is the one that was written, whatever the ranks.

mod common;

use striata_replay::{
    Capacity, ComputeModel, Fault, HostCapacity, KeySource, Outcome, Outputs, Parallel,
    ReplayConfig, ReplayObserver, ReplayReport, RequestRecord, Selection, TraceSource,
};

const REQUESTS: u64 = 700;
const L1_TOKENS: u64 = 10_000;
const L2_TOKENS: u64 = 40_000;

/// The first requests of the agent trace with both tiers so small that all kinds of copies occur.
fn agents(dcp: u32, page_rows: u32) -> ReplayConfig {
    let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let source = TraceSource::File(folder.join("agentic_text_blocks64.jsonl.zst"));
    let pages = |tokens: u64| tokens.div_ceil(u64::from(dcp) * u64::from(page_rows));
    let mut config = common::config(source, dcp, page_rows, pages(L1_TOKENS));
    config.l2 = HostCapacity::Fixed(Capacity::Pages(pages(L2_TOKENS)));
    config.selection.limit = Some(REQUESTS);
    config
}

fn clean(report: &ReplayReport) {
    assert_eq!((report.mismatches, report.errors), (0, 0), "{report:?}");
    assert_eq!(report.collective_calls, 0);
    assert!(report.simulated && !report.metadata_only);
    let hits = report.hit_tokens_l1 + report.hit_tokens_l2;
    assert_eq!(hits + report.computed_tokens, report.input_tokens);
    assert!(
        report.hit_tokens_l1 > 0 && report.hit_tokens_l2 > 0,
        "{report:?}"
    );
    assert!(report.stored_pages > 0 && report.loaded_pages > 0);
    assert!(report.l1.evicted_pages > 0 && report.l2.evicted_pages > 0);
    assert!(report.verified_rows > 0);
}

#[test]
fn every_byte_comes_back_for_any_number_of_ranks() {
    for (dcp, page_rows) in [(1, 64), (2, 64), (3, 16), (8, 64)] {
        let config = agents(dcp, page_rows);
        let report = common::run(&config);
        clean(&report);
        assert_eq!(report.requests, REQUESTS);
        // A hit page has P rows in each of 3 layers on each rank: a row a token and layer.
        let hits = report.hit_tokens_l1 + report.hit_tokens_l2;
        assert_eq!(report.verified_rows, hits * 3);
        let page_bytes = u64::from(page_rows) * 16 * 3;
        for rank in &report.ranks {
            assert_eq!(rank.bytes_to_device, report.loaded_pages * page_bytes);
            assert_eq!(rank.bytes_to_host, report.stored_pages * page_bytes);
        }
        assert!(report.load_gb_per_s > 0.0 && report.store_gb_per_s > 0.0);
        assert_eq!(report.first_layer_us.count, report.load_backs);
        assert!(report.first_layer_us.p50 <= report.all_layers_us.p50);
    }
}

#[test]
fn bytes_and_block_keys_decide_as_no_bytes_and_tokens_do() {
    let bytes = common::run(&agents(2, 64));
    let metadata = ReplayConfig {
        l2: agents(2, 64).l2,
        selection: agents(2, 64).selection,
        ..common::metadata(agents(2, 64).source, 2, 64, L1_TOKENS.div_ceil(128))
    };
    let hits = |report: &ReplayReport| {
        (
            report.hit_tokens_l1,
            report.hit_tokens_l2,
            report.stored_pages,
            report.l1,
            report.l2,
        )
    };
    for keys in [KeySource::Blocks, KeySource::Tokens] {
        let mut report = common::run(&ReplayConfig {
            keys,
            ..metadata.clone()
        });
        assert_eq!((report.verified_rows, report.simulated), (0, false));
        report.l1.bytes_per_rank = bytes.l1.bytes_per_rank;
        report.l2.bytes_per_rank = bytes.l2.bytes_per_rank;
        assert_eq!(hits(&report), hits(&bytes), "{keys}");
    }
}

#[test]
fn replicas_take_their_own_sessions() {
    let mut config = agents(2, 64);
    config.parallel = Parallel {
        tp: 8,
        dp: 2,
        ..config.parallel
    };
    let report = common::run(&config);
    clean(&report);
    assert_eq!((report.ranks.len(), report.replicas.len()), (8, 2));
    let requests: u64 = report.replicas.iter().map(|r| r.requests).sum();
    assert_eq!(requests, REQUESTS);
    assert!(
        report
            .replicas
            .iter()
            .all(|r| r.requests > 20 && r.hit_tokens_l1 > 0)
    );
}

#[test]
fn a_corrupted_page_is_reported_as_exactly_its_rows() {
    let mut config = agents(2, 16);
    config.fault = Some(Fault::CorruptPage(7));
    let report = common::run(&config);
    // 16 rows in each of 3 layers on each of 2 ranks.
    let fault = report.fault.unwrap();
    assert!(fault.exact, "{fault:?}");
    assert_eq!(
        (fault.corrupted_rows, fault.reported_rows, report.mismatches),
        (96, 96, 96)
    );
    assert_eq!(report.mismatched_rows.len(), 96);
    let first = report.mismatched_rows[0];
    assert!(
        report
            .mismatched_rows
            .iter()
            .all(|row| (row.page, row.request) == (first.page, first.request))
    );
    let mut positions: Vec<u64> = report
        .mismatched_rows
        .iter()
        .map(|row| row.position)
        .collect();
    positions.sort_unstable();
    positions.dedup();
    let start = first.page * 32;
    assert_eq!(positions, (start..start + 32).collect::<Vec<_>>());
}

#[test]
fn a_fault_that_never_occurs_is_said() {
    let mut config = agents(2, 64);
    config.fault = Some(Fault::CorruptPage(1_000_000));
    config.selection.limit = Some(30);
    let report = common::run(&config);
    let fault = report.fault.unwrap();
    assert_eq!((fault.corrupted_rows, fault.reported_rows), (0, 0));
    assert!(
        report
            .notices
            .iter()
            .any(|notice| notice.contains("did not occur"))
    );
}

/// Keeps every record.
#[derive(Default)]
struct Records(Vec<RequestRecord>, Option<u64>);

impl ReplayObserver for Records {
    fn started(&mut self, total: Option<u64>) {
        self.1 = total;
    }
    fn request_done(&mut self, record: &RequestRecord, done: u64, total: Option<u64>) {
        self.0.push(record.clone());
        assert_eq!((done, total), (self.0.len() as u64, self.1));
    }
}

#[test]
fn kept_outputs_are_stored_and_large_requests_refused() {
    let mut config = agents(2, 64);
    config.l1 = Capacity::Pages(10);
    config.outputs = Outputs::Keep;
    config.selection = Selection {
        skip: 10,
        limit: Some(60),
    };
    let mut records = Records::default();
    let report = striata_replay::replay(&config, &mut records).unwrap();
    assert_eq!((records.1, records.0.len()), (Some(60), 60));
    assert_eq!(records.0[0].index, 10);
    assert_eq!((report.mismatches, report.errors), (0, 0));
    for record in &records.0 {
        let pages = record.input_tokens.div_ceil(128);
        assert_eq!(record.outcome == Outcome::Refused, pages > 10, "{record:?}");
    }
    assert!(report.refused_requests > 0);
    let truncated = records
        .0
        .iter()
        .filter(|r| r.outcome == Outcome::Truncated)
        .count() as u64;
    assert_eq!(report.truncated_requests, truncated);
}

#[test]
fn computing_hides_loads_and_arrivals_queue() {
    let mut config = agents(2, 64);
    config.compute = ComputeModel {
        layer_us: 0.0,
        ..ComputeModel::default()
    };
    let bare = common::run(&config);
    assert!(bare.stall_us.total > 0.0);
    config.compute.layer_us = 10_000.0;
    let hidden = common::run(&config);
    assert!(hidden.stall_us.total < bare.stall_us.total);
    // With a time scale of 0 nobody queues: 3 layers of 10 ms each, and the first one's load.
    assert!(
        hidden.ttft_ms.p50 >= 30.0 && hidden.ttft_ms.max < 60.0,
        "{:?}",
        hidden.ttft_ms
    );
    config.compute.time_scale = 1e-6;
    let queued = common::run(&config);
    assert!(queued.ttft_ms.max > 1000.0, "{:?}", queued.ttft_ms);
}
