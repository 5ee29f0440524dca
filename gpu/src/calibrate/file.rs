// SPDX-License-Identifier: Apache-2.0
//! Measurements on disk: JSON by GPU and driver.
//!
//! Only measurements are kept; rules are chosen from them at every start, so that another version
//! of the choice needs no new measurement. Nothing in a file is trusted: what does not fit is
//! measured again.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::{Measured, Measurements};
use crate::user_cache::UserCache;

/// Raised when what is measured or the form of the file changes.
const FORMAT: u32 = 1;
/// No file of ours has more rows.
const MOST_ROWS: usize = 10_000;
/// No link is faster, in GB/s.
const FASTEST: f64 = 1e5;

/// What measurements hold for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// Name of the GPU.
    pub gpu: String,
    /// Version of its driver.
    pub driver: String,
}

impl CacheKey {
    /// What measurements of a GPU hold for.
    #[cfg(feature = "cuda")]
    pub(super) fn of(device: &crate::cuda::CudaDevice) -> Self {
        use crate::device::Device;
        let module = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
        let module = module.as_deref().and_then(module_version);
        let cuda = device.driver_version();
        Self {
            gpu: device.describe().name,
            driver: match module {
                Some(module) => format!("{module} CUDA {cuda}"),
                None => format!("CUDA {cuda}"),
            },
        }
    }

    /// The name of the file in the cache folder.
    pub(super) fn file_name(&self) -> String {
        format!(
            "transfer-{}-{}-v{FORMAT}.json",
            slug(&self.gpu),
            slug(&self.driver)
        )
    }
}

/// The version of the kernel module: the first word of points and digits in its line.
#[cfg(any(feature = "cuda", test))]
fn module_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM"))?;
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|b| b == b'.' || b.is_ascii_digit());
    line.split_whitespace().find(is_version)
}

/// Letters, digits and points as they are, hyphens for the rest.
fn slug(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let letters = text.chars().map(|c| if plain(c) { c } else { '-' });
    letters.take(64).collect()
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    format: u32,
    gpu: String,
    driver: String,
    measured: Measurements,
}

/// What is kept under `key`, if it is there, whole, and of pools of `layers` layers.
pub(super) fn read(cache: &UserCache, key: &CacheKey, layers: u32) -> Option<Measurements> {
    let name = key.file_name();
    let bytes = match cache.read(&name) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            let file = cache.path(&name);
            tracing::warn!(file = %file.display(), %error, "calibration cannot be read; it is measured");
            return None;
        }
    };
    match decode(&bytes, key, layers) {
        Ok(measured) => Some(measured),
        Err(why) => {
            let file = cache.path(&name);
            tracing::warn!(file = %file.display(), why, "calibration cannot be used; it is measured again");
            None
        }
    }
}

/// Keeps measurements under `key`; returns where. A failure costs a measurement next time and no
/// more.
pub(super) fn write(cache: &UserCache, key: &CacheKey, measured: &Measurements) -> Option<String> {
    let name = key.file_name();
    let kept = Kept {
        format: FORMAT,
        gpu: key.gpu.clone(),
        driver: key.driver.clone(),
        measured: measured.clone(),
    };
    let file = cache.path(&name).display().to_string();
    let encoded = serde_json::to_vec_pretty(&kept).map_err(std::io::Error::other);
    match encoded.and_then(|bytes| cache.write(&name, &[&bytes])) {
        Ok(()) => Some(file),
        Err(error) => {
            tracing::warn!(file, %error, "calibration cannot be kept");
            None
        }
    }
}

/// The measurements of a file, or what is wrong with it.
fn decode(bytes: &[u8], key: &CacheKey, layers: u32) -> Result<Measurements, String> {
    let kept: Kept = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Kept {
        format,
        gpu,
        driver,
        measured,
    } = kept;
    if format != FORMAT {
        return Err(format!("its format is {format}, not {FORMAT}"));
    }
    if (&gpu, &driver) != (&key.gpu, &key.driver) {
        return Err(format!(
            "it is of {gpu} with driver {driver}, not of {} with {}",
            key.gpu, key.driver
        ));
    }
    if measured.layers != layers {
        let theirs = measured.layers;
        return Err(format!("it is of {theirs} layers, not of {layers}"));
    }
    let rows = measured.loads.len().saturating_add(measured.stores.len());
    if rows == 0 || rows > MOST_ROWS {
        return Err(format!("it has {rows} rows"));
    }
    let mut all = measured.loads.iter().chain(&measured.stores);
    match all.find(|row| !is_sound(row)) {
        Some(row) => Err(format!("a row makes no sense: {row:?}")),
        None => Ok(measured),
    }
}

fn is_sound(row: &Measured) -> bool {
    let rate = row.gb_per_s.is_finite() && row.gb_per_s > 0.0 && row.gb_per_s < FASTEST;
    rate && row.count > 0 && row.pages > 0 && row.chunk_bytes > 0
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
