// SPDX-License-Identifier: Apache-2.0
//! Checks of a device and of the transfer engine on it, for machines where tests are not built.
//!
//! Every check stands alone: it makes what it needs on the device that it is given and says in one
//! line what is wrong. Checks that every backend passes are generic; a backend adds its own through
//! [`Subject`], and crates above add theirs with [`Check::new`].
//!
//! | file | checks |
//! |---|---|
//! | `memory` | reads, writes, copies against a model of bytes, refusals |
//! | `rows` | fingerprints against the reference |
//! | `row_lists` | single rows by the transfer engine |
//! | `transfer` | page copies by random plans, against the simulated device |
//! | `order` | gates, fences, completions, times |
//! | `decode` | the decode path: plans, rows, attention, merges, captured steps |
//! | `large` | offsets beyond 32 bits |
//! | `on_cuda`, `twins` | captures, lent streams, older drivers' calls; kernels against references |
//! | `watch` | a check that hangs is named |

mod decode;
mod large;
mod memory;
#[cfg(feature = "cuda")]
mod on_cuda;
mod order;
mod random;
mod rig;
mod row_lists;
mod rows;
mod transfer;
#[cfg(feature = "cuda")]
mod twins;
mod watch;

pub use watch::run_watched;

use core::fmt;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use crate::decode::{DecodeDevice, ValueDevice};
use crate::device::Device;
use crate::error::GpuError;
use crate::sim::SimDevice;

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It found something wrong.
    Wrong(String),
    /// It cannot be done here.
    Skipped(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// What a check returns.
pub type Checked = Result<(), Failure>;

/// Ends a check with a message unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::selftest::Failure::Wrong(format!($($message)+)));
        }
    };
}
use ensure;

/// One check of a device.
#[derive(Clone, Copy)]
pub struct Check<D> {
    /// Name, with the numbers of the behaviours that it shows.
    pub name: &'static str,
    /// What it shows, in one line.
    pub about: &'static str,
    run: fn(&D) -> Checked,
}

impl<D> Check<D> {
    /// A check: its name, what it shows in one line, and how.
    #[must_use]
    pub const fn new(name: &'static str, about: &'static str, run: fn(&D) -> Checked) -> Self {
        Self { name, about, run }
    }
}

impl<D> fmt::Debug for Check<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was right.
    Passed,
    /// It cannot be done here, and why.
    Skipped(String),
    /// What was wrong.
    Failed(String),
}

/// A check that was run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name of the check.
    pub name: &'static str,
    /// What became of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// Whether it found something wrong.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

/// Work that was captured and can be submitted to a stream again.
pub type Replayed<D> = Box<dyn Fn(&<D as Device>::Stream) -> Result<(), GpuError>>;

/// A backend that can be checked.
pub trait Subject: DecodeDevice + ValueDevice {
    /// Checks of this backend alone.
    #[must_use]
    fn own_checks() -> Vec<Check<Self>> {
        Vec::new()
    }

    /// Captures what `body` submits to `stream`; none if the backend has no graphs.
    ///
    /// # Errors
    /// What `body` returns; a capture that fails.
    fn captured(
        &self,
        _: &Self::Stream,
        _: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Replayed<Self>>, GpuError> {
        Ok(None)
    }
}

impl Subject for SimDevice {
    fn own_checks() -> Vec<Check<Self>> {
        decode::checks()
    }
}

#[cfg(feature = "cuda")]
impl Subject for crate::cuda::CudaDevice {
    fn own_checks() -> Vec<Check<Self>> {
        let mut checks = twins::checks();
        checks.extend(on_cuda::checks());
        checks.extend(decode::checks());
        checks.extend(decode::graph_checks());
        checks
    }

    fn captured(
        &self,
        stream: &Self::Stream,
        body: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Replayed<Self>>, GpuError> {
        let graph = self.capture(stream, body)?;
        Ok(Some(Box::new(move |stream| graph.launch(stream))))
    }
}

/// All checks of a backend, in the order in which they are run: what others rest on comes first.
#[must_use]
pub fn checks<D: Subject>() -> Vec<Check<D>> {
    let mut checks = memory::checks();
    checks.extend(rows::checks());
    checks.extend(transfer::checks());
    checks.extend(row_lists::checks());
    checks.extend(order::checks());
    checks.extend(large::checks());
    checks.extend(D::own_checks());
    checks
}

/// What a run tells while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A check begins.
    Begins(&'static str),
    /// A check has ended.
    Ended(&'a Outcome),
}

/// Runs checks in their order.
pub fn run<D: Device>(
    device: &D,
    checks: Vec<Check<D>>,
    mut tell: impl FnMut(Progress<'_>),
) -> Vec<Outcome> {
    let outcomes = checks.into_iter().map(|check| {
        tell(Progress::Begins(check.name));
        let outcome = run_one(device, check);
        tell(Progress::Ended(&outcome));
        outcome
    });
    outcomes.collect()
}

fn run_one<D: Device>(device: &D, check: Check<D>) -> Outcome {
    let begin = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| (check.run)(device)));
    let verdict = match result {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(Failure::Wrong(message))) => Verdict::Failed(message),
        Ok(Err(Failure::Skipped(why))) => Verdict::Skipped(why),
        Err(_) => Verdict::Failed("it panicked; the message stands above".to_owned()),
    };
    Outcome {
        name: check.name,
        verdict,
        took: begin.elapsed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimConfig;

    fn broken(_: &SimDevice) -> Checked {
        ensure!(false, "found {}", 7);
        Ok(())
    }

    #[test]
    fn the_simulated_device_passes_every_check() {
        let device = SimDevice::new(SimConfig::new(0));
        let outcomes = run(&device, checks(), |_| ());
        assert_eq!(outcomes.len(), checks::<SimDevice>().len());
        for outcome in outcomes {
            assert!(!outcome.is_failure(), "{outcome:?}");
        }
    }

    #[test]
    fn a_check_that_finds_something_says_what() {
        let device = SimDevice::new(SimConfig::new(0));
        let check = Check::new("broken", "", broken);
        let outcome = run_one(&device, check);
        assert_eq!(outcome.verdict, Verdict::Failed("found 7".to_owned()));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = checks::<SimDevice>()
            .iter()
            .map(|check| check.name)
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
