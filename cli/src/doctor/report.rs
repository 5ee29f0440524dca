// SPDX-License-Identifier: Apache-2.0
//! What the machine offers and lacks, as data and as sentences.

use indicatif::BinaryBytes;
use serde::Serialize;
use striata::host::{HostMemory, TransparentMode};
use striata_replay::{DeviceChoice, Devices};

use super::Calibrate;
use super::calibration::Calibrated;
use super::cuda::{Cuda, Gpu, Library};
use super::driver::Driver;

/// The oldest driver that can be used.
const MINIMUM_DRIVER: &str = "525.60";

/// The machine; keys of `--json`. What cannot be told is null.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DoctorReport {
    version: &'static str,
    platform: String,
    cores: Option<usize>,
    memory_total_bytes: Option<u64>,
    memory_available_bytes: Option<u64>,
    memory_spare_bytes: Option<u64>,
    huge_page_bytes: Option<u64>,
    huge_pages_total: Option<u64>,
    huge_pages_free: Option<u64>,
    transparent_huge_pages: Option<&'static str>,
    numa_nodes: Option<usize>,
    gpu_driver_library: Option<String>,
    gpu_driver_version: Option<String>,
    gpus: Vec<String>,
    minimum_driver: &'static str,
    cuda_backend: bool,
    libraries: Vec<Library>,
    cuda_devices: Vec<Gpu>,
    auto_device: &'static str,
    calibrations: Vec<Calibrated>,
    #[serde(skip)]
    cuda_sentences: Vec<String>,
}

impl DoctorReport {
    /// Looks at this machine.
    pub(super) fn of_this_machine(calibrate: Calibrate) -> Self {
        let auto = match Devices::open(DeviceChoice::Auto) {
            Ok(Devices::Cuda(_)) => "cuda",
            Ok(Devices::Sim { .. }) | Err(_) => "sim",
        };
        // A GPU that is not chosen would only be measured by what it lacks.
        let mut cuda = Cuda::look(if auto == "cuda" {
            calibrate
        } else {
            Calibrate::No
        });
        if auto == "sim" && calibrate == Calibrate::Again {
            cuda.calibrations.push(Calibrated::of_sim());
        }
        Self::of(&HostMemory::probe(), &Driver::look(), cuda, auto)
    }

    fn of(memory: &HostMemory, driver: &Driver, mut cuda: Cuda, auto_device: &'static str) -> Self {
        let missing = "libnccl.so.2 is not where the loader looks, and is not missed";
        cuda.libraries.push(Library {
            name: "libnccl".to_owned(),
            purpose: "exchanges between GPUs, of which this version has none".to_owned(),
            version: None,
            problem: driver.collectives.is_none().then(|| missing.to_owned()),
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory_total_bytes: memory.total,
            memory_available_bytes: memory.available,
            memory_spare_bytes: memory.spare(),
            huge_page_bytes: memory.huge_page_bytes,
            huge_pages_total: memory.huge_pages_total,
            huge_pages_free: memory.huge_pages_free,
            transparent_huge_pages: memory.transparent.map(|mode| match mode {
                TransparentMode::Always => "always",
                TransparentMode::Madvise => "madvise",
                TransparentMode::Never => "never",
            }),
            numa_nodes: memory.numa_nodes.as_ref().map(Vec::len),
            gpu_driver_library: driver.library.as_ref().map(|p| p.display().to_string()),
            gpu_driver_version: driver.version.clone(),
            gpus: driver.gpus.clone(),
            minimum_driver: MINIMUM_DRIVER,
            cuda_backend: true,
            cuda_sentences: cuda.sentences(),
            calibrations: cuda.calibrations,
            libraries: cuda.libraries,
            cuda_devices: cuda.gpus,
            auto_device,
        }
    }

    /// The copy paths of each device.
    pub(super) fn calibrations(&self) -> &[Calibrated] {
        &self.calibrations
    }

    /// One sentence a fact.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut said = vec![
            format!("striata {} on {}.", self.version, self.platform),
            self.cores_sentence(),
            self.memory_sentence(),
            self.huge_sentence(),
            self.transparent_sentence(),
            self.numa_sentence(),
            self.driver_sentence(),
        ];
        said.extend_from_slice(&self.cuda_sentences);
        said.push(self.device_sentence());
        said
    }

    fn device_sentence(&self) -> String {
        let device = match self.auto_device {
            "cuda" => "the first GPU; striata selftest checks it",
            _ => "the simulated device: real bytes in host memory, modelled times",
        };
        format!("--device auto chooses {device}.")
    }

    fn cores_sentence(&self) -> String {
        match self.cores {
            Some(1) => "1 core may be used.".to_owned(),
            Some(cores) => format!("{cores} cores may be used."),
            None => "The number of cores cannot be told.".to_owned(),
        }
    }

    fn memory_sentence(&self) -> String {
        match (self.memory_total_bytes, self.memory_spare_bytes) {
            (Some(total), Some(spare)) => format!(
                "{} of memory, of which a pool can take at most {} now.",
                BinaryBytes(total),
                BinaryBytes(spare)
            ),
            (Some(total), None) => format!("{} of memory.", BinaryBytes(total)),
            (None, _) => "The size of the memory cannot be told.".to_owned(),
        }
    }

    fn huge_sentence(&self) -> String {
        let bytes = self.huge_page_bytes.map(BinaryBytes);
        match (self.huge_pages_total, self.huge_pages_free, bytes) {
            (Some(0), _, _) => "No explicit huge pages are reserved; the host tier does without \
                                (vm.nr_hugepages reserves them)."
                .to_owned(),
            (Some(total), Some(free), Some(bytes)) => {
                format!("{free} of {total} explicit huge pages of {bytes} are free.")
            }
            _ => "This platform tells nothing of explicit huge pages.".to_owned(),
        }
    }

    fn transparent_sentence(&self) -> String {
        match self.transparent_huge_pages {
            Some("never") => {
                "Transparent huge pages are off (never): the host tier may fall back to small pages."
                    .to_owned()
            }
            Some(mode) => format!("Transparent huge pages are on ({mode}): the host tier asks for them."),
            None => "This platform tells nothing of transparent huge pages.".to_owned(),
        }
    }

    fn numa_sentence(&self) -> String {
        match self.numa_nodes {
            Some(1) => "One NUMA node: all memory is equally near.".to_owned(),
            Some(nodes) => format!("{nodes} NUMA nodes."),
            None => "This platform tells nothing of NUMA nodes.".to_owned(),
        }
    }

    fn driver_sentence(&self) -> String {
        let gpus = match self.gpus.as_slice() {
            [] => "no GPU is listed".to_owned(),
            gpus => format!("GPUs: {}", gpus.join(", ")),
        };
        match (&self.gpu_driver_library, &self.gpu_driver_version) {
            (None, None) => {
                "No GPU driver: there is neither libcuda.so.1 nor /proc/driver/nvidia.".to_owned()
            }
            (Some(library), None) => format!(
                "The GPU driver library is at {library}, but its kernel module is not loaded, as \
                 /proc/driver/nvidia tells."
            ),
            (None, Some(version)) => format!(
                "The GPU kernel module {version} is loaded ({gpus}), but libcuda.so.1 is not \
                 where the loader looks."
            ),
            (Some(library), Some(version)) => {
                format!(
                    "GPU driver {version} ({MINIMUM_DRIVER} or newer is needed) with {library}; \
                     {gpus}."
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(library: bool, version: bool) -> Driver {
        Driver {
            library: library.then(|| "/usr/lib/libcuda.so.1".into()),
            collectives: None,
            version: version.then(|| "570.1".to_owned()),
            gpus: Vec::new(),
        }
    }

    fn report(memory: &HostMemory, driver: &Driver) -> DoctorReport {
        DoctorReport::of(memory, driver, Cuda::default(), "sim")
    }

    #[test]
    fn nothing_known_is_said_too() {
        let report = report(&HostMemory::default(), &driver(false, false));
        let text = report.sentences().join("\n");
        for part in [
            "cannot be told",
            "tells nothing",
            "No GPU driver",
            "simulated device",
            "No libnccl",
        ] {
            assert!(text.contains(part), "{part:?} is missing from {text}");
        }
    }

    #[test]
    fn half_a_driver_is_named_as_such() {
        let text = |library, version| {
            report(&HostMemory::default(), &driver(library, version)).driver_sentence()
        };
        assert!(text(true, false).contains("not loaded"));
        assert!(text(false, true).contains("not where the loader looks"));
        assert!(text(true, true).starts_with("GPU driver 570.1"));
    }

    #[test]
    fn figures_stand_in_the_sentences() {
        let memory = HostMemory {
            total: Some(24 << 30),
            available: Some(8 << 30),
            huge_pages_total: Some(10),
            huge_pages_free: Some(4),
            huge_page_bytes: Some(2 << 20),
            transparent: Some(TransparentMode::Madvise),
            numa_nodes: Some(vec![0, 1]),
            ..HostMemory::default()
        };
        let text = report(&memory, &driver(false, false))
            .sentences()
            .join("\n");
        for part in [
            "24.00 GiB",
            "8.00 GiB",
            "4 of 10",
            "(madvise)",
            "2 NUMA nodes",
        ] {
            assert!(text.contains(part), "{part:?} is missing from {text}");
        }
    }
}
