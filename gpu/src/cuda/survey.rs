// SPDX-License-Identifier: Apache-2.0
//! What of CUDA is here, for people.

use super::device::CudaDevice;
use super::driver::{dotted, driver};
use super::nvrtc::nvrtc;
use crate::error::GpuError;

/// A library that is loaded at run time.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name.
    pub name: &'static str,
    /// What needs it.
    pub purpose: &'static str,
    /// Its version, or why it cannot be used and what to do.
    pub version: Result<String, GpuError>,
}

/// Libraries and devices.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Libraries, whether they are here or not.
    pub libraries: Vec<Library>,
    /// Every visible device, or why it cannot be used.
    pub devices: Vec<Result<CudaDevice, GpuError>>,
}

/// Looks for libraries and opens every device.
#[must_use]
pub fn survey() -> Survey {
    let driver = driver();
    let count = driver.as_ref().map_or(0, |driver| driver.device_count());
    let libraries = vec![
        Library {
            name: "libcuda",
            purpose: "everything on GPUs; CUDA 12.0 or newer",
            version: driver.map(|driver| dotted(driver.version().unwrap_or(0))),
        },
        Library {
            name: "libnvrtc",
            purpose: "kernels; 12.0 or newer, not newer than the driver",
            version: nvrtc().map(|nvrtc| {
                let (major, minor) = nvrtc.version();
                format!("{major}.{minor}")
            }),
        },
    ];
    let indices = 0..u32::try_from(count).unwrap_or(0);
    Survey {
        libraries,
        devices: indices.map(CudaDevice::new).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_never_panics_and_names_what_is_missing() {
        let survey = survey();
        assert_eq!(survey.libraries.len(), 2);
        for library in &survey.libraries {
            if let Err(error) = &library.version {
                assert!(error.to_string().contains(library.name), "{error}");
            }
        }
    }
}
