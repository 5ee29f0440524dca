// SPDX-License-Identifier: Apache-2.0
//! What must be reached on an H200 with the model's rows. Bars of times are for devices that measure
//! them; what makes the benchmark meaningful is judged everywhere.

use super::report::{OffloadBar, SystemReport, TraceReport};
use super::system::System;
use super::tally::ratio;
use crate::transfer::{Side, Verdict};

/// Most stall share, over that of loading everything first.
const STALL: f64 = 0.10;
/// Least rate while loading, over the link.
const RATE: f64 = 0.93;
/// Least share of the hit tokens that come from L2: less is no benchmark of offloading.
const FROM_L2: f64 = 0.5;

/// Every bar of a trace. `measured` says whether times are those of a device.
pub(super) fn of(trace: &TraceReport, measured: bool) -> Vec<OffloadBar> {
    let mut bars = Vec::new();
    if let (Some(ours), Some(then)) = (trace.of(System::Striata), trace.of(System::LoadThenCompute))
    {
        // Without a stall to compare with there is nothing to judge.
        let stalls = measured && then.stall_share > 0.0;
        let share = ratio(ours.stall_share, then.stall_share);
        let what = "stall share, over that of load, then compute";
        bars.push(bar(what, share, Side::AtMost, STALL, stalls));
        let rate = ours.load_share_of_link.unwrap_or(0.0);
        let loads = measured && ours.loads > 0;
        let what = "load rate while loading, over the link";
        bars.push(bar(what, rate, Side::AtLeast, RATE, loads));
    }
    let from_l2 = trace.l2_share_of_hits;
    let what = "share of the hit tokens that come from L2";
    bars.push(bar(what, from_l2, Side::AtLeast, FROM_L2, true));
    let what = "most bytes loaded by a system, over the least";
    bars.push(bar(what, spread(trace), Side::AtMost, 1.0, true));
    let wrong: u64 = trace.systems.iter().map(|s| s.wrong_rows + s.errors).sum();
    let what = "rows that differ and operations that failed";
    bars.push(bar(what, wrong as f64, Side::AtMost, 0.0, true));
    bars
}

/// The largest of the bytes that systems with an L2 loaded, over the smallest: 1 where all did the
/// same work.
fn spread(trace: &TraceReport) -> f64 {
    let with_l2 = |system: &&SystemReport| system.system != System::NoL2;
    let bytes = trace.systems.iter().filter(with_l2).map(|s| s.loaded_bytes);
    let (least, most) = bytes.fold((f64::INFINITY, 0.0f64), |(least, most), bytes| {
        (least.min(bytes), most.max(bytes))
    });
    if most > 0.0 { most / least } else { 1.0 }
}

fn bar(what: &str, value: f64, side: Side, limit: f64, judged: bool) -> OffloadBar {
    let reached = match side {
        Side::AtLeast => value >= limit,
        Side::AtMost => value <= limit,
    };
    OffloadBar {
        what: what.to_owned(),
        value,
        side,
        limit,
        verdict: match (judged, reached) {
            (false, _) => Verdict::NotJudged,
            (true, true) => Verdict::Reached,
            (true, false) => Verdict::Missed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::report::{GeometryEcho, Quantiles, Times};

    fn system(system: System, stall_share: f64, loaded_bytes: f64) -> SystemReport {
        SystemReport {
            system,
            title: system.title().to_owned(),
            times: Times::Measured,
            requests: 10,
            ttft_ms: Quantiles::default(),
            prefill_s: 1.0,
            compute_s: 0.9,
            stall_s: stall_share,
            stall_share,
            least_stall_share: 0.0,
            loads: 5,
            load_s: 0.1,
            loaded_bytes,
            stored_bytes: 0.0,
            load_gb_per_s: Some(52.0),
            load_share_of_link: Some(0.95),
            hit_ratio: 0.9,
            hit_ratio_l1: 0.3,
            hit_ratio_l2: 0.6,
            verified_rows: 1,
            wrong_rows: 0,
            errors: 0,
            error_messages: Vec::new(),
        }
    }

    fn trace() -> TraceReport {
        TraceReport {
            trace: "t".to_owned(),
            replicas: 1,
            skipped: 0,
            filled: 0,
            requests: 10,
            left_out: 0,
            geometry: GeometryEcho::default(),
            l2_share_of_hits: 0.66,
            systems: vec![
                system(System::NoL2, 0.0, 0.0),
                system(System::LoadThenCompute, 0.2, 1e9),
                system(System::Striata, 0.02, 1e9),
            ],
            bars: Vec::new(),
            seconds: 0.0,
        }
    }

    fn verdicts(trace: &TraceReport, measured: bool) -> Vec<Verdict> {
        of(trace, measured)
            .into_iter()
            .map(|bar| bar.verdict)
            .collect()
    }

    // Seen to fail if the sides are swapped, and if modelled times are judged.
    #[test]
    fn each_bar_is_missed_by_what_it_is_for_and_by_nothing_else() {
        use Verdict::{Missed, NotJudged, Reached};
        assert_eq!(verdicts(&trace(), true), [Reached; 5]);
        let missed = |at: usize, change: fn(&mut TraceReport)| {
            let mut trace = trace();
            change(&mut trace);
            let mut expected = [Reached; 5];
            expected[at] = Missed;
            assert_eq!(verdicts(&trace, true), expected, "bar {at}");
        };
        missed(0, |t| t.systems[2].stall_share = 0.0201);
        missed(1, |t| t.systems[2].load_share_of_link = Some(0.929));
        missed(2, |t| t.l2_share_of_hits = 0.499);
        missed(3, |t| t.systems[1].loaded_bytes = 1e9 + 1.0);
        missed(4, |t| t.systems[1].wrong_rows = 1);
        missed(4, |t| t.systems[1].errors = 1);
        let simulated = [NotJudged, NotJudged, Reached, Reached, Reached];
        assert_eq!(verdicts(&trace(), false), simulated);
    }

    #[test]
    fn nothing_that_stalls_and_nothing_that_loads_is_not_judged() {
        let mut trace = trace();
        trace.systems[1].stall_share = 0.0;
        trace.systems[2].loads = 0;
        assert_eq!(verdicts(&trace, true)[..2], [Verdict::NotJudged; 2]);
    }
}
