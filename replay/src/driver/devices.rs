// SPDX-License-Identifier: Apache-2.0
//! Which device a replay runs on, and whether its tiers fit there.
//!
//! Every rank of a replay on a GPU shares the one GPU: each has its own pools, its own streams and
//! its own thread, as it would have with a GPU of its own.

use striata_gpu::GpuError;
use striata_gpu::cuda::CudaDevice;
use striata_gpu::sim::{SimConfig, SimDevice};
use striata_host::HostMemory;

use super::plan::Plan;
use super::row_log;
use crate::config::{DeviceChoice, ReplayConfig};
use crate::error::ConfigError;

/// A device that was chosen.
#[derive(Debug)]
pub enum Devices {
    /// A simulated device for each rank.
    Sim {
        /// Why it is not a GPU, if that was left open.
        why: Option<String>,
    },
    /// One GPU for all ranks.
    Cuda(CudaDevice),
}

impl Devices {
    /// Opens what was asked for: a GPU is the first visible one, with its kernels loaded.
    ///
    /// # Errors
    /// No GPU that can be used, if one was asked for.
    pub fn open(choice: DeviceChoice) -> Result<Self, ConfigError> {
        match choice {
            DeviceChoice::Sim => Ok(Self::Sim { why: None }),
            DeviceChoice::Cuda => Ok(Self::Cuda(cuda()?)),
            DeviceChoice::Auto => match cuda() {
                Ok(device) => Ok(Self::Cuda(device)),
                Err(error) => Ok(Self::Sim {
                    why: Some(format!("--device auto is the simulated device: {error}")),
                }),
            },
        }
    }
}

/// The first visible GPU with every kernel loaded, so that a missing compiler is found at once.
fn cuda() -> Result<CudaDevice, GpuError> {
    let device = CudaDevice::new(0)?;
    device.load_kernels()?;
    Ok(device)
}

/// The simulated devices of a replica.
pub(crate) fn simulated(plan: &Plan, replica: u32) -> Vec<SimDevice> {
    let first = replica * plan.topology.attention_tp();
    let ranks = first..first + plan.topology.attention_tp();
    ranks
        .map(|rank| SimDevice::new(SimConfig::new(rank)))
        .collect()
}

impl Devices {
    /// Refuses tiers of `ranks` ranks of a replay that do not fit where they will be.
    ///
    /// # Errors
    /// Options that are refused; tiers that do not fit.
    pub fn check_ranks(&self, config: &ReplayConfig, ranks: u32) -> Result<(), ConfigError> {
        self.check_plan(&Plan::new(config)?, ranks)
    }

    /// Refuses tiers that do not fit where they will be.
    pub(crate) fn check_memory(&self, plan: &Plan) -> Result<(), ConfigError> {
        self.check_plan(plan, plan.topology.tp())
    }

    fn check_plan(&self, plan: &Plan, ranks: u32) -> Result<(), ConfigError> {
        let (l1_bytes, l2_bytes) = plan.bytes_per_rank();
        let of_all = |bytes: u64| bytes.saturating_mul(ranks.into());
        let spare = HostMemory::probe().spare();
        let Self::Cuda(device) = self else {
            // Both tiers are in this machine's memory.
            let needed = of_all(l1_bytes.saturating_add(l2_bytes));
            return match spare {
                Some(spare) if needed > spare => Err(ConfigError::TooMuchMemory {
                    needed,
                    spare,
                    ranks,
                    l1_bytes,
                    l2_bytes,
                }),
                _ => Ok(()),
            };
        };
        fits(
            "L1",
            "GPU",
            ranks,
            l1_bytes,
            on_gpu(plan, ranks),
            device.free_bytes()?,
        )?;
        spare.map_or(Ok(()), |spare| {
            fits("L2", "host", ranks, l2_bytes, of_all(l2_bytes), spare)
        })
    }
}

/// Bytes of GPU memory of all ranks: L1 and the verifiers' logs.
fn on_gpu(plan: &Plan, ranks: u32) -> u64 {
    let (l1_bytes, _) = plan.bytes_per_rank();
    let log = plan.verify_stride.map_or(0, |_| row_log::BYTES);
    l1_bytes.saturating_add(log).saturating_mul(ranks.into())
}

fn fits(
    tier: &'static str,
    place: &'static str,
    ranks: u32,
    tier_bytes: u64,
    needed: u64,
    spare: u64,
) -> Result<(), ConfigError> {
    if needed <= spare {
        return Ok(());
    }
    Err(ConfigError::TierTooLarge {
        tier,
        place,
        ranks,
        tier_bytes,
        needed,
        spare,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_does_not_fit_is_refused_with_the_figures() {
        assert!(fits("L1", "GPU", 8, 10, 80, 80).is_ok());
        let refused = fits("L1", "GPU", 8, 10, 81, 80).unwrap_err().to_string();
        for part in ["L1", "GPU", "8 ranks", "10 bytes", "81", "80"] {
            assert!(refused.contains(part), "{part:?} is missing from {refused}");
        }
    }
}
