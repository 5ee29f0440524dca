// SPDX-License-Identifier: Apache-2.0
//! Random faults of simulated devices, planned anew before each request.

use striata_gpu::sim::{Fault, FaultPlan, OpClass, SimDevice};

use crate::config::RandomFaults;

/// Copies of a rank and request that may meet a fault: more than a request has.
const COPIES: u64 = 256;
/// Most pieces of a failing copy that arrive, and the longest delay.
const MOST_PIECES: u64 = 64;
const LONGEST_DELAY_NS: u64 = 5_000_000;

/// The devices, and what decides on their faults.
#[derive(Debug)]
pub(crate) struct FaultSource {
    devices: Vec<SimDevice>,
    state: u64,
    /// A draw below this is a fault, of 2^32.
    threshold: u64,
    /// What errors call the copies that may fail now.
    planned: Vec<String>,
}

impl FaultSource {
    pub(crate) fn new(faults: RandomFaults, devices: Vec<SimDevice>) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is from 0 to 1"
        )]
        let threshold = (faults.rate * 2f64.powi(32)) as u64;
        Self {
            devices,
            state: faults.seed,
            threshold,
            planned: Vec::new(),
        }
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
        if self.draw().is_multiple_of(4) {
            return Fault::Delay {
                nanos: self.draw() % LONGEST_DELAY_NS,
            };
        }
        Fault::Fail {
            good_pieces: usize::try_from(self.draw() % MOST_PIECES).unwrap_or_default(),
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
