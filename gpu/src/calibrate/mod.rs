// SPDX-License-Identifier: Apache-2.0
//! Calibration: which path is the fastest on this device and link, found by copying.
//!
//! Jobs of a few pages run through real transfer engines, each with one path forced, on scratch
//! pools of at most 8 pages. From the medians the rules of [`TransferPaths`] are chosen; a rule of
//! the built-in table stays unless another was faster beyond noise. Measurements are kept on disk by
//! GPU and driver, so that only the first start of an engine takes the time.
//!
//! Only speed depends on the result: every path moves the same bytes, and no decision of a planner
//! looks at it, so ranks and replicas may differ in it.
//!
//! | file | room |
//! |---|---|
//! | `cells` | what is measured: chunk bytes, planes, pages; the paths that are tried |
//! | `scratch` | the pools of one chunk size |
//! | `probe` | the measurements |
//! | `choose` | from measurements to rules |
//! | `file` | measurements on disk |

mod cells;
mod choose;
mod file;
mod probe;
mod scratch;

use std::time::{Duration, Instant};

pub use cells::rule_name;
pub use file::CacheKey;

use serde::{Deserialize, Serialize};
use striata_core::geometry::GeometryError;
use striata_core::stripe::StripeError;
use striata_host::HostError;

#[cfg(feature = "cuda")]
use crate::cuda::CudaDevice;
use crate::device::Device;
use crate::error::GpuError;
use crate::planes::PlanesError;
use crate::transfer::{PageRule, PlaneKind, TransferError, TransferPaths};
use crate::user_cache::UserCache;

/// How a device is calibrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationOptions {
    /// About how long it may take. A device on which three measurements of each job take longer is
    /// given thrice that; chunk sizes that were not reached then keep their built-in rules, and
    /// large chunks come first. Zero measures nothing.
    pub budget: Duration,
    /// Layers of the scratch pools.
    pub layers: u32,
    /// Most measurements of a job on a path; the median counts.
    pub reps: usize,
    /// What the measurements are kept under on disk; none to keep nothing.
    pub key: Option<CacheKey>,
    /// Measure even if measurements are kept.
    pub fresh: bool,
}

impl Default for CalibrationOptions {
    /// About 100 ms, the layers of DeepSeek-V3.1, kept nowhere.
    fn default() -> Self {
        Self {
            budget: Duration::from_millis(100),
            layers: 61,
            reps: 5,
            key: None,
            fresh: false,
        }
    }
}

/// The median rate of one job on one path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// How the planes stood to each other.
    pub planes: PlaneKind,
    /// Bytes of a page in one layer.
    pub chunk_bytes: u64,
    /// Pages of the job.
    pub pages: u32,
    /// Path and layer groups.
    pub rule: PageRule,
    /// 1e9 bytes a second.
    pub gb_per_s: f64,
    /// How many measurements the median is of.
    pub count: usize,
}

/// All medians.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// Layers of the scratch pools.
    pub layers: u32,
    /// Host to device.
    pub loads: Vec<Measured>,
    /// Device to host.
    pub stores: Vec<Measured>,
}

/// Where the measurements of a calibration come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationSource {
    /// Measured now.
    Fresh {
        /// How long it took.
        took: Duration,
        /// Where it is kept from now on.
        kept: Option<String>,
    },
    /// Read from disk.
    Cached {
        /// The file.
        file: String,
    },
}

/// What a device was found to be best at.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The rules for a transfer engine.
    pub paths: TransferPaths,
    /// What they were chosen from.
    pub measured: Measurements,
    /// Where that comes from.
    pub source: CalibrationSource,
    /// Whether the times are modelled.
    pub simulated: bool,
}

/// Why a device was not calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// Layers that make no page.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Pages that make no stripe.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The scratch planes could not be made.
    #[error(transparent)]
    Planes(#[from] PlanesError),
    /// The scratch host pool could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] GpuError),
    /// A job failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// Calibrates a device, or takes what is kept of it. What is kept and cannot be used, because it is
/// damaged or of something else, is said once as a warning and measured again.
///
/// **Cost**: the budget and the making of the scratch pools, together up to 90 MB on each side, one
/// chunk size after the other; from disk, a read.
///
/// # Errors
/// No room for the scratch pools; a device that fails.
pub fn calibrate<D: Device>(
    device: &D,
    options: &CalibrationOptions,
) -> Result<Calibration, CalibrationError> {
    let cache = options.key.as_ref().and_then(|key| {
        let cache = UserCache::of_user("calibration")?;
        Some((cache, key))
    });
    calibrate_in(
        device,
        options,
        cache.as_ref().map(|(cache, key)| (cache, *key)),
    )
}

/// Calibrates a GPU with the default options, kept by its name and driver; `fresh` measures even if
/// something is kept.
///
/// # Errors
/// As [`calibrate`].
#[cfg(feature = "cuda")]
pub fn calibrate_cuda(device: &CudaDevice, fresh: bool) -> Result<Calibration, CalibrationError> {
    let options = CalibrationOptions {
        key: Some(CacheKey::of(device)),
        fresh,
        ..CalibrationOptions::default()
    };
    calibrate(device, &options)
}

fn calibrate_in<D: Device>(
    device: &D,
    options: &CalibrationOptions,
    cache: Option<(&UserCache, &CacheKey)>,
) -> Result<Calibration, CalibrationError> {
    let simulated = device.describe().simulated_time;
    if let Some((cache, key)) = cache.filter(|_| !options.fresh)
        && let Some(measured) = file::read(cache, key, options.layers)
    {
        return Ok(Calibration {
            paths: choose::paths(&measured),
            measured,
            source: CalibrationSource::Cached {
                file: cache.path(&key.file_name()).display().to_string(),
            },
            simulated,
        });
    }
    let began = Instant::now();
    let measured = probe::measure(device, options, began)?;
    let took = began.elapsed();
    let kept = cache
        .filter(|_| !measured.loads.is_empty())
        .and_then(|(cache, key)| file::write(cache, key, &measured));
    tracing::info!(?took, ?kept, "calibrated");
    Ok(Calibration {
        paths: choose::paths(&measured),
        measured,
        source: CalibrationSource::Fresh { took, kept },
        simulated,
    })
}

#[cfg(test)]
mod tests;
