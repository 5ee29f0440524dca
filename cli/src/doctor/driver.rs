// SPDX-License-Identifier: Apache-2.0
//! What of a GPU driver is installed, told from files alone: it explains why loading it fails.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The driver library that a CUDA backend loads.
const LIBRARY: &str = "libcuda.so.1";
/// The library of collectives.
const COLLECTIVES: &str = "libnccl.so.2";
/// Where loaders look without being told.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// What there is of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// The driver library, if the loader would find it.
    pub(super) library: Option<PathBuf>,
    /// The library of collectives, likewise.
    pub(super) collectives: Option<PathBuf>,
    /// Version of the kernel module, if it is loaded.
    pub(super) version: Option<String>,
    /// GPUs that the kernel module lists.
    pub(super) gpus: Vec<String>,
}

impl Driver {
    /// Looks for it.
    pub(super) fn look() -> Self {
        let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .chain(FOLDERS.map(PathBuf::from))
            .collect();
        Self {
            library: find(LIBRARY, &folders),
            collectives: find(COLLECTIVES, &folders),
            version: fs::read_to_string("/proc/driver/nvidia/version")
                .ok()
                .and_then(|text| version(&text)),
            gpus: gpus(Path::new("/proc/driver/nvidia/gpus")),
        }
    }
}

fn find(library: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let files = folders.iter().map(|folder| folder.join(library));
    files.into_iter().find(|file| file.exists())
}

/// The first word with a point in the module's line, such as `570.86.15`.
fn version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM"))?;
    line.split_whitespace()
        .find(|word| word.contains('.') && word.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
        .map(str::to_owned)
}

/// Model names, one a GPU, in the order of their bus addresses.
fn gpus(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            fs::read_to_string(path.join("information"))
                .ok()
                .and_then(|text| model(&text))
                .unwrap_or_else(|| "a GPU of unknown model".to_owned())
        })
        .collect()
}

fn model(information: &str) -> Option<String> {
    let rest = information
        .lines()
        .find_map(|line| line.strip_prefix("Model:"))?;
    Some(rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_tells_its_version_and_models() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 1 2025\n\
            GCC version:  gcc version 11.4.0\n";
        assert_eq!(version(text).as_deref(), Some("570.86.15"));
        assert_eq!(version("GCC version: 11.4.0"), None);
        let text = "Model: \t\t NVIDIA H200\nIRQ: 1\n";
        assert_eq!(model(text).as_deref(), Some("NVIDIA H200"));
    }

    #[test]
    fn a_machine_without_the_files_has_no_driver() {
        assert_eq!(find(LIBRARY, &[PathBuf::from("/nowhere")]), None);
        assert!(gpus(Path::new("/nowhere")).is_empty());
    }
}
