// SPDX-License-Identifier: Apache-2.0
//! Codes of the driver: which of them end the device, and what to do about the others.

use super::driver::{Driver, Status};
use crate::error::GpuError;

pub(super) const SUCCESS: Status = 0;
pub(super) const INVALID_VALUE: Status = 1;
pub(super) const OUT_OF_MEMORY: Status = 2;
pub(super) const NOT_READY: Status = 600;

/// Whether no call of this context works after `status`: faults that were found asynchronously, and
/// a context that is gone.
pub(super) const fn is_fatal(status: Status) -> bool {
    matches!(
        status,
        4 // deinitialised
        | 46 // device unavailable
        | 214 // uncorrectable memory error
        | 220 // uncorrectable link error
        | 226 // contained fault
        | 700 // illegal address
        | 702 // launch timeout
        | 709 // context is destroyed
        | 710 // assert
        | 714
            ..=719 // stack, instruction, alignment, address space, counter, launch
        | 721 // tensor memory
        | 810 // the client was ended
        | 999 // unknown
    )
}

/// What to do after `status`.
const fn advice(status: Status) -> &'static str {
    match status {
        INVALID_VALUE => "this is a fault of ours or memory of another device: report it",
        OUT_OF_MEMORY => "make pools smaller or end other processes on the device",
        3 | 101 => "check the device index and CUDA_VISIBLE_DEVICES",
        100 => "no device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
        200 | 209 | 218 | 222 => {
            "libnvrtc is newer than the driver understands: match them or update the driver"
        }
        304 => "the system refused: check the limit of locked memory (ulimit -l)",
        712 => "the host memory is registered already: one owner must register it",
        801 => "the device or the driver does not support this: update the driver",
        802 => "start the fabric manager",
        803 => "driver library and kernel module differ: reboot or reinstall the driver",
        900..=908 | 917 => "a stream is being captured: make this call outside of the capture",
        _ if is_fatal(status) => "the process must be restarted",
        _ => "see the documentation of the driver",
    }
}

/// The error of a call that returned `status`.
pub(super) fn refusal(driver: &Driver, call: &'static str, status: Status) -> GpuError {
    let (name, reason) = driver.words(status);
    GpuError::Driver {
        call,
        code: status,
        name,
        reason,
        advice: advice(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_fatal_and_refusals_are_not() {
        for status in [214, 700, 715, 719, 999] {
            assert!(is_fatal(status));
            assert_eq!(advice(status), "the process must be restarted");
        }
        for status in [INVALID_VALUE, OUT_OF_MEMORY, 600, 712, 900, 906] {
            assert!(!is_fatal(status));
        }
    }
}
