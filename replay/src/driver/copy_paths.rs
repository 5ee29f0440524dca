// SPDX-License-Identifier: Apache-2.0
//! Which way the bytes of the replay's copies take.

use striata_gpu::Direction;
use striata_gpu::calibrate::{CalibrationSource, calibrate_cuda};
use striata_gpu::cuda::CudaDevice;
use striata_gpu::transfer::{CopyPath, LayerCut, PageRule, TransferPaths};

use crate::config::CopyPathChoice;

/// The rules of transfer engines, and how they came to be.
pub(super) struct Paths {
    pub(super) rules: TransferPaths,
    pub(super) origin: String,
    /// What a reader should know.
    pub(super) notice: Option<String>,
}

impl Paths {
    /// Of a simulated device, of which nothing can be found out.
    pub(super) fn simulated(choice: CopyPathChoice) -> Self {
        match forced(choice) {
            Some(path) => Self::forced(path),
            None => Self::built_in(),
        }
    }

    /// Of a GPU.
    pub(super) fn of(choice: CopyPathChoice, device: &CudaDevice) -> Self {
        if let Some(path) = forced(choice) {
            return Self::forced(path);
        }
        if choice == CopyPathChoice::BuiltIn {
            return Self::built_in();
        }
        match calibrate_cuda(device, false) {
            Ok(found) => Self {
                rules: found.paths,
                origin: match found.source {
                    CalibrationSource::Cached { file } => format!("calibrated, from {file}"),
                    CalibrationSource::Fresh { .. } => "calibrated now".to_owned(),
                },
                notice: None,
            },
            Err(error) => Self {
                notice: Some(format!(
                    "the device was not calibrated, built-in copy paths are used: {error}"
                )),
                ..Self::built_in()
            },
        }
    }

    fn built_in() -> Self {
        Self {
            rules: TransferPaths::built_in(),
            origin: CopyPathChoice::BuiltIn.name().to_owned(),
            notice: None,
        }
    }

    fn forced(path: CopyPath) -> Self {
        let rule = |cut| PageRule { path, cut };
        let rules = TransferPaths::built_in()
            .forced(Direction::HostToDevice, rule(LayerCut::Growing(200)))
            .forced(Direction::DeviceToHost, rule(LayerCut::Whole));
        Self {
            rules,
            origin: format!("{} alone", path.name()),
            notice: None,
        }
    }
}

/// The path that is asked for by name.
fn forced(choice: CopyPathChoice) -> Option<CopyPath> {
    let named = |path: &CopyPath| path.name() == choice.name();
    CopyPath::ALL.into_iter().find(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_can_be_forced_by_its_name() {
        for path in CopyPath::ALL {
            let choice: CopyPathChoice = path.name().parse().unwrap();
            let paths = Paths::simulated(choice);
            for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
                let rules = paths.rules.of(direction).uniform;
                assert!(rules.iter().flatten().all(|rule| rule.path == path));
            }
            assert!(paths.origin.starts_with(path.name()));
        }
        let others = CopyPathChoice::ALL.len() - CopyPath::ALL.len();
        assert_eq!(others, 2);
        let paths = Paths::simulated(CopyPathChoice::Calibrated);
        assert_eq!(paths.rules, TransferPaths::built_in());
        assert_eq!(paths.origin, "built-in");
    }
}
