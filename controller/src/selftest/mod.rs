// SPDX-License-Identifier: Apache-2.0
//! Checks of the whole engine on a device, for machines where tests are not built: those of
//! [`striata_gpu::selftest`], and those of [`crate::HiCache`] with its allocators on top.
//!
//! | file | checks |
//! |---|---|
//! | `serving` | requests of c = 1, 2 and 8 ranks on one device, pushed to L2 and loaded back; of several pools |
//! | `decode` | attention of c ranks against f64, exchanges, faults, a captured step |
//! | `lifetime` | pages under copies, stores behind kernels, cancelled loads, refusals |

mod decode;
mod decode_rig;
mod lifetime;
mod rig;
mod serving;

use core::fmt;

use striata_gpu::selftest::{self, Check, Checked, Failure, Subject};

/// Every check of the engine on a backend, in the order in which they are run: what others rest on
/// comes first.
#[must_use]
pub fn checks<D: Subject>() -> Vec<Check<D>> {
    let mut checks = selftest::checks::<D>();
    checks.extend(serving::checks());
    checks.extend(lifetime::checks());
    checks.extend(decode::checks());
    checks
}

/// Ends a check with a message unless a condition holds.
fn ensure(holds: bool, message: fmt::Arguments<'_>) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Failure::Wrong(message.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_gpu::sim::{SimConfig, SimDevice};

    #[test]
    fn the_engine_passes_every_check_on_the_simulated_device() {
        let device = SimDevice::new(SimConfig::new(0));
        let mut checks = serving::checks();
        checks.extend(lifetime::checks());
        checks.extend(decode::checks());
        for outcome in selftest::run(&device, checks, |_| ()) {
            assert!(!outcome.is_failure(), "{outcome:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = checks::<SimDevice>().iter().map(|c| c.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
