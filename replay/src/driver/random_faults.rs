// SPDX-License-Identifier: Apache-2.0
//! Random faults of simulated devices, planned anew before each request: copies that fail in part,
//! that come late, and that begin only when they are let go.
//!
//! A call that is refused and a device that dies are no random faults: the engine goes on with
//! neither, by design, so nothing would be left to replay. `tests/tests/fault_points` has them at
//! every operation of short programs.

use core::time::Duration;
use std::sync::Arc;

use striata_core::sync::{AtomicBool, Ordering, thread};
use striata_gpu::GpuError;
use striata_gpu::sim::{Fault, FaultPlan, OpClass, SimDevice};

use crate::config::RandomFaults;

/// Copies of a rank and request that may meet a fault: more than a request has.
const COPIES: u64 = 256;
/// Most pieces of a failing copy that arrive, and the longest delay.
const MOST_PIECES: u64 = 64;
const LONGEST_DELAY_NS: u64 = 5_000_000;
/// How often held copies are let go. Modelled time does not pass meanwhile, so that no result
/// follows from it.
const HELD_FOR: Duration = Duration::from_micros(200);

/// The devices, and what decides on their faults.
#[derive(Debug)]
pub(crate) struct FaultSource {
    devices: Vec<SimDevice>,
    state: u64,
    /// A draw below this is a fault, of 2^32.
    threshold: u64,
    /// What errors call the copies that may fail now.
    planned: Vec<String>,
    _release: Release,
}

/// Lets go what faults hold, again and again: the replay itself waits for held copies.
#[derive(Debug)]
struct Release {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Release {
    fn of(devices: Vec<SimDevice>) -> std::io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let release = move || {
            while !told.load(Ordering::Acquire) {
                thread::park_timeout(HELD_FOR);
                devices.iter().for_each(SimDevice::release_faults);
            }
        };
        let builder = thread::Builder::new().name("release-faults".to_owned());
        Ok(Self {
            over,
            thread: Some(builder.spawn(release)?),
        })
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

impl FaultSource {
    /// # Errors
    /// A thread that cannot be started.
    pub(crate) fn new(faults: RandomFaults, devices: Vec<SimDevice>) -> Result<Self, GpuError> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is from 0 to 1"
        )]
        let threshold = (faults.rate * 2f64.powi(32)) as u64;
        let release = Release::of(devices.clone()).map_err(|error| GpuError::Thread {
            what: "release-faults".to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            devices,
            state: faults.seed,
            threshold,
            planned: Vec::new(),
            _release: release,
        })
    }

    /// A number below 2^32.
    const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) >> 32
    }

    /// Decides on the faults of the next request.
    pub(crate) fn plan(&mut self) {
        self.planned.clear();
        for rank in 0..self.devices.len() {
            let mut plan = FaultPlan::new();
            for nth in 0..COPIES {
                if self.draw() >= self.threshold {
                    continue;
                }
                let fault = self.fault();
                if matches!(fault, Fault::Fail { .. }) {
                    self.planned.push(format!("copy {nth} of sim{rank} "));
                }
                plan = plan.with(OpClass::Copy, nth, fault);
            }
            self.devices[rank].arm(&plan);
        }
    }

    fn fault(&mut self) -> Fault {
        match self.draw() % 8 {
            0 | 1 => Fault::Delay {
                nanos: self.draw() % LONGEST_DELAY_NS,
            },
            2 => Fault::Hold,
            _ => Fault::Fail {
                good_pieces: usize::try_from(self.draw() % MOST_PIECES).unwrap_or_default(),
            },
        }
    }

    /// Whether an error names a copy that was meant to fail.
    pub(crate) fn explains(&self, cause: &str) -> bool {
        self.planned
            .iter()
            .any(|name| cause.contains(name.as_str()))
    }

    /// Nothing goes wrong from now on.
    pub(crate) fn end(&self) {
        for device in &self.devices {
            device.arm(&FaultPlan::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_gpu::Device;
    use striata_gpu::sim::SimConfig;

    fn source(rate: f64) -> (SimDevice, FaultSource) {
        let device = SimDevice::new(SimConfig::new(0));
        let faults = RandomFaults { seed: 1, rate };
        let source = FaultSource::new(faults, vec![device.clone()]).unwrap();
        (device, source)
    }

    /// Seen to fail, by waiting for ever, if `Release` lets nothing go.
    #[test]
    fn what_is_held_is_let_go() {
        let (device, _source) = source(0.0);
        device.arm(&FaultPlan::new().with(OpClass::Any, 0, Fault::Hold));
        let stream = device.stream("copies").unwrap();
        let event = device.event().unwrap();
        device.record(&event, &stream).unwrap();
        device.synchronize(&event).unwrap();
    }

    /// Seen to fail if `fault` draws no hold.
    #[test]
    fn every_kind_of_fault_is_drawn() {
        let (_device, mut source) = source(1.0);
        let drawn: Vec<_> = (0..100).map(|_| source.fault()).collect();
        let of = |wanted: fn(&Fault) -> bool| drawn.iter().filter(|fault| wanted(fault)).count();
        let fails = of(|fault| matches!(fault, Fault::Fail { .. }));
        let delays = of(|fault| matches!(fault, Fault::Delay { .. }));
        let holds = of(|fault| matches!(fault, Fault::Hold));
        assert!(fails.min(delays).min(holds) > 5, "{drawn:?}");
        assert_eq!(fails + delays + holds, 100);
    }
}
