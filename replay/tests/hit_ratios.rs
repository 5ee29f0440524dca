// SPDX-License-Identifier: Apache-2.0
//! Hit ratios of the bundled traces equal those of an independent program: whole pages of 512
//! tokens, one tier, LRU, the deepest pages of a request oldest, outputs dropped, file order.

mod common;

use striata_replay::TraceSource;
use striata_replay::trace::Bundled;

const UNLIMITED: u64 = 1_000_000;

/// Hit ratios of 512-token pages, P = 64 and c = 8, by capacity in pages.
fn check(trace: Bundled, expected: &[(u64, f64)]) {
    for &(pages, ratio) in expected {
        let config = common::metadata(TraceSource::Bundled(trace), 8, 64, pages);
        let report = common::run(&config);
        let tolerance = match pages {
            UNLIMITED => 0.000_05,
            5000.. => 0.003,
            // Requests larger than such pools are refused here and truncated there.
            _ => 0.02,
        };
        assert!(
            (report.hit_ratio - ratio).abs() <= tolerance,
            "{trace} {pages}: {}",
            report.hit_ratio
        );
        let hits = report.hit_tokens_l1 + report.hit_tokens_l2;
        assert_eq!(hits + report.computed_tokens, report.input_tokens);
    }
}

#[test]
fn mooncake_conversation_hits_as_an_independent_program_says() {
    let expected = [
        (UNLIMITED, 0.3734),
        (1000, 0.0459),
        (2000, 0.0564),
        (5000, 0.1209),
        (10_000, 0.2193),
        (20_000, 0.2995),
        (50_000, 0.3632),
        (100_000, 0.3710),
    ];
    check(Bundled::MooncakeConversation, &expected);
}

#[test]
fn agentic_cc_u64_hits_as_an_independent_program_says() {
    let expected = [
        (UNLIMITED, 0.9614),
        (1000, 0.0322),
        (2000, 0.1072),
        (5000, 0.5088),
        (10_000, 0.8306),
        (20_000, 0.9357),
        (50_000, 0.9613),
        (100_000, 0.9614),
    ];
    check(Bundled::AgenticCcU64, &expected);
}
