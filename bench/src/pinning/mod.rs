// SPDX-License-Identifier: Apache-2.0
//! The pinning benchmark: how fast the host tier becomes usable, beside the driver's own page-locked
//! allocation in the same run, and what its growth costs who is served meanwhile.
//!
//! | file | room |
//! |---|---|
//! | `options` | [`PinningOptions`]: what is measured |
//! | `peer` | [`Peer`]: the platform's own allocation |
//! | `creation` | pools and the peer's allocations, in turn |
//! | `growth` | a pool that grows beside loads |
//! | `report` | [`PinningReport`] |

mod creation;
mod growth;
mod options;
mod peer;
mod report;

use std::time::Instant;

pub use options::PinningOptions;
pub use peer::{Allocated, Peer};
pub use report::{Absent, BAR, BAR_BYTES, GrowthFigures, Ours, PeerFigures, PinningReport};

use crate::transfer::{BenchError, Verdict};

/// Measures a device.
///
/// # Errors
/// Options that make no sense, memory that cannot be had, a device that fails.
pub fn run<D: Peer>(
    device: &D,
    options: &PinningOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<PinningReport, BenchError> {
    let began = Instant::now();
    options.check()?;
    let created = creation::measure(device, options, progress)?;
    let mut growth = Vec::new();
    for chunk_bytes in options.growth_chunks.iter().copied() {
        progress("growth");
        growth.push(growth::measure(device, options, chunk_bytes)?);
    }
    let described = device.describe();
    let ratio = match &created.peer {
        Ok(peer) => Some(created.ours.gib_per_s.median / peer.gib_per_s.median),
        Err(_) => None,
    };
    Ok(PinningReport {
        device: described.backend.to_owned(),
        device_name: described.name,
        simulated: described.simulated_time,
        page_bytes: options.shape.page()?.page_bytes(),
        bytes: created.bytes,
        reps: options.reps,
        ratio,
        bar: BAR,
        verdict: verdict(ratio, options.bytes, described.simulated_time),
        ours: created.ours,
        peer: created.peer.as_ref().ok().cloned(),
        peer_absent: created.peer.err(),
        growth,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Whether the pool is as much faster as it must be; small pools and modelled devices decide
/// nothing.
fn verdict(ratio: Option<f64>, bytes: u64, simulated: bool) -> Verdict {
    match ratio {
        Some(_) if simulated || bytes < BAR_BYTES => Verdict::NotJudged,
        Some(ratio) if ratio >= BAR => Verdict::Reached,
        Some(_) => Verdict::Missed,
        None => Verdict::NotJudged,
    }
}

#[cfg(test)]
mod tests {
    use striata_gpu::sim::{SimConfig, SimDevice};

    use super::*;

    #[test]
    fn the_simulated_device_is_measured_without_a_peer() {
        let device = SimDevice::new(SimConfig::new(0));
        let options = PinningOptions {
            bytes: 16 << 20,
            growth_bytes: 4 << 20,
            growth_chunks: vec![1 << 20, 2 << 20],
            ..PinningOptions::simulated()
        };
        let mut said = Vec::new();
        let report = run(&device, &options, &mut |part| said.push(part.to_owned())).unwrap();
        assert!(report.simulated && report.peer.is_none() && report.ratio.is_none());
        assert!(report.peer_absent.is_some());
        assert_eq!(report.verdict, Verdict::NotJudged);
        assert_eq!(report.ours.gib_per_s.count, options.reps);
        let gib = report.bytes as f64 / f64::from(1 << 30);
        let rate = gib / report.ours.seconds.median;
        assert!((report.ours.gib_per_s.median / rate - 1.0).abs() < 1e-6);
        assert_eq!(report.bytes % report.page_bytes, 0);
        assert!(report.bytes <= options.bytes && options.bytes - report.bytes < report.page_bytes);
        assert_eq!(report.growth.len(), 2);
        for growth in &report.growth {
            assert!(growth.pages > 0 && growth.steps > 0 && growth.pages_per_s > 0.0);
            assert!(growth.longest_stall_ms <= growth.longest_step_ms);
            assert!(growth.load_ms_quiet.count > 0);
        }
        assert!(said.iter().any(|part| part == "growth"));
    }

    #[test]
    fn only_full_pools_of_a_real_device_are_judged() {
        assert_eq!(verdict(Some(5.0), BAR_BYTES, false), Verdict::Reached);
        assert_eq!(verdict(Some(4.9), BAR_BYTES, false), Verdict::Missed);
        assert_eq!(verdict(Some(9.0), BAR_BYTES - 1, false), Verdict::NotJudged);
        assert_eq!(verdict(Some(9.0), BAR_BYTES, true), Verdict::NotJudged);
        assert_eq!(verdict(None, BAR_BYTES, false), Verdict::NotJudged);
    }

    #[test]
    fn options_without_sense_are_refused() {
        let refused = |change: fn(&mut PinningOptions)| {
            let mut options = PinningOptions::simulated();
            change(&mut options);
            let error = options.check().unwrap_err();
            assert!(error.is_usage(), "{error}");
            error.to_string()
        };
        assert!(refused(|o| o.bytes = 100).contains("100"));
        assert!(refused(|o| o.reps = 0).contains("reps"));
        assert!(refused(|o| o.load_pages = 0).contains("load pages"));
        refused(|o| o.shape.row_bytes = 6);
    }
}
