// SPDX-License-Identifier: Apache-2.0
//! What of CUDA can be used, found by loading the libraries and opening the devices.

use indicatif::BinaryBytes;
use serde::Serialize;
use striata::gpu::cuda::{CudaDevice, survey};
use striata::gpu::{Device, GpuError};

use super::Calibrate;
use super::calibration::Calibrated;

/// A library that is loaded at run time; keys of `--json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) purpose: String,
    pub(super) version: Option<String>,
    /// Why it cannot be used, and what to do.
    pub(super) problem: Option<String>,
}

/// A GPU; keys of `--json`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Gpu {
    index: usize,
    name: Option<String>,
    architecture: Option<String>,
    memory_bytes: Option<u64>,
    memory_free_bytes: Option<u64>,
    copies_of_runs: Option<String>,
    copies_of_rectangles: Option<String>,
    /// What it cannot do, why, and what to do.
    absent: Vec<String>,
}

/// Libraries and devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Cuda {
    pub(super) libraries: Vec<Library>,
    pub(super) gpus: Vec<Gpu>,
    pub(super) calibrations: Vec<Calibrated>,
}

impl Cuda {
    /// Loads the libraries and opens every visible device.
    pub(super) fn look(calibrate: Calibrate) -> Self {
        let survey = survey();
        let libraries = survey.libraries.into_iter().map(|library| {
            let (version, problem) = match library.version {
                Ok(version) => (Some(version), None),
                Err(error) => (None, Some(reason(&error))),
            };
            Library {
                name: library.name.to_owned(),
                purpose: library.purpose.to_owned(),
                version,
                problem,
            }
        });
        let gpus = survey.devices.iter().enumerate();
        let opened = survey.devices.iter().flatten();
        let calibrated = |device: &CudaDevice| {
            let name = format!("GPU {} ({})", device.index(), device.describe().name);
            Calibrated::of_gpu(&name, device, calibrate == Calibrate::Again)
        };
        Self {
            calibrations: match calibrate {
                Calibrate::No => Vec::new(),
                Calibrate::Once | Calibrate::Again => opened.map(calibrated).collect(),
            },
            libraries: libraries.collect(),
            gpus: gpus
                .map(|(index, device)| match device {
                    Ok(device) => Gpu::of(index, device),
                    Err(error) => Gpu {
                        index,
                        absent: vec![format!("it cannot be opened: {}", reason(error))],
                        ..Gpu::default()
                    },
                })
                .collect(),
        }
    }

    /// One sentence a fact.
    pub(super) fn sentences(&self) -> Vec<String> {
        let libraries = self.libraries.iter().map(Library::sentence);
        let gpus = self.gpus.iter().flat_map(Gpu::sentences);
        libraries.chain(gpus).collect()
    }
}

/// What went wrong, without the backend's name before it.
fn reason(error: &GpuError) -> String {
    match error {
        GpuError::Unavailable { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

impl Library {
    fn sentence(&self) -> String {
        let Self { name, purpose, .. } = self;
        match (&self.version, &self.problem) {
            (Some(version), _) => format!("{name} {version} can be used (for {purpose})."),
            (None, Some(problem)) => format!("No {name} (for {purpose}): {problem}."),
            (None, None) => format!("{name} is there (for {purpose})."),
        }
    }
}

impl Gpu {
    fn of(index: usize, device: &CudaDevice) -> Self {
        let description = device.describe();
        let [runs, rectangles] = device.copy_calls();
        let mut absent = Vec::new();
        if let Err(error) = device.load_kernels() {
            absent.push(format!("no kernels: {}", reason(&error)));
        }
        if !device.copies_in_batches() {
            absent.push(format!(
                "no batched copies: the driver is of CUDA {} and 12.8 has them, so small pages \
                 are copied more slowly; install driver 570 or newer",
                device.driver_version()
            ));
        }
        Self {
            index,
            name: Some(description.name),
            architecture: Some(device.architecture().to_owned()),
            memory_bytes: description.memory_bytes,
            memory_free_bytes: device.free_bytes().ok(),
            copies_of_runs: Some(runs.to_owned()),
            copies_of_rectangles: Some(rectangles.to_owned()),
            absent,
        }
    }

    fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let (Some(name), Some(architecture)) = (&self.name, &self.architecture) {
            let bytes = |bytes: Option<u64>| {
                bytes.map_or_else(|| "?".to_owned(), |b| BinaryBytes(b).to_string())
            };
            said.push(format!(
                "GPU {}: {name} ({architecture}), {} of memory, {} of it free.",
                self.index,
                bytes(self.memory_bytes),
                bytes(self.memory_free_bytes)
            ));
        }
        if let (Some(runs), Some(rectangles)) = (&self.copies_of_runs, &self.copies_of_rectangles) {
            said.push(format!(
                "GPU {} copies plain runs by {runs} and rectangles by {rectangles}.",
                self.index
            ));
        }
        let absent = self.absent.iter();
        said.extend(absent.map(|what| format!("GPU {}: {what}.", self.index)));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_says_what_it_is_and_what_it_lacks() {
        let gpu = Gpu {
            index: 1,
            name: Some("NVIDIA H200".to_owned()),
            architecture: Some("sm_90a".to_owned()),
            memory_bytes: Some(140 << 30),
            memory_free_bytes: Some(70 << 30),
            copies_of_runs: Some("a copy a run".to_owned()),
            copies_of_rectangles: Some("a 2-D copy a rectangle".to_owned()),
            absent: vec!["no kernels: libnvrtc was not found".to_owned()],
        };
        let text = gpu.sentences().join("\n");
        for part in [
            "GPU 1: NVIDIA H200 (sm_90a), 140.00 GiB",
            "70.00 GiB",
            "a copy a run",
        ] {
            assert!(text.contains(part), "{part:?} is missing from {text}");
        }
        assert!(
            text.ends_with("no kernels: libnvrtc was not found."),
            "{text}"
        );
        let broken = Gpu {
            absent: vec!["it cannot be opened: no".to_owned()],
            ..Gpu::default()
        };
        assert_eq!(broken.sentences(), ["GPU 0: it cannot be opened: no."]);
    }

    #[test]
    fn a_library_says_what_it_is_for_and_what_to_do() {
        let library = |version: Option<&str>, problem: Option<&str>| Library {
            name: "libcuda".to_owned(),
            purpose: "GPUs".to_owned(),
            version: version.map(str::to_owned),
            problem: problem.map(str::to_owned),
        };
        assert_eq!(
            library(Some("13.0"), None).sentence(),
            "libcuda 13.0 can be used (for GPUs)."
        );
        assert_eq!(
            library(None, Some("install it")).sentence(),
            "No libcuda (for GPUs): install it."
        );
        assert!(
            library(None, None)
                .sentence()
                .starts_with("libcuda is there")
        );
    }
}
