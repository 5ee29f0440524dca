// SPDX-License-Identifier: Apache-2.0
//! A check that hangs cannot be ended from within the process; it can be named.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::{Check, Outcome, Progress, run};
use crate::device::Device;
use crate::error::GpuError;

/// As [`run`], and calls `hung` on another thread with the name of the first check that takes
/// longer than `patience`: what is left is to say so and to end the process.
///
/// # Errors
/// The watching thread cannot be started; no check was run then.
pub fn run_watched<D: Device>(
    device: &D,
    checks: Vec<Check<D>>,
    patience: Duration,
    hung: impl FnOnce(&'static str) + Send + 'static,
    mut tell: impl FnMut(Progress<'_>),
) -> Result<Vec<Outcome>, GpuError> {
    let (begun, told) = mpsc::channel();
    let watch = move || {
        if let Some(name) = overdue(&told, patience) {
            hung(name);
        }
    };
    let watch = thread::Builder::new()
        .name("selftest watch".to_owned())
        .spawn(watch)
        .map_err(|error| GpuError::Thread {
            what: "the watch of the self-test".to_owned(),
            reason: error.to_string(),
        })?;
    let outcomes = run(device, checks, |progress| {
        let current = match progress {
            Progress::Begins(name) => Some(name),
            Progress::Ended(_) => None,
        };
        // A watch that has called `hung` listens no more.
        let _ = begun.send(current);
        tell(progress);
    });
    drop(begun);
    watch.join().map_err(|_| GpuError::Thread {
        what: "the watch of the self-test".to_owned(),
        reason: "it panicked".to_owned(),
    })?;
    Ok(outcomes)
}

/// The check that was begun and did not end in time; none once there are no more.
fn overdue(told: &Receiver<Option<&'static str>>, patience: Duration) -> Option<&'static str> {
    let mut current = None;
    loop {
        match told.recv_timeout(patience) {
            Ok(next) => current = next,
            Err(RecvTimeoutError::Timeout) if current.is_some() => return current,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::Checked;
    use crate::sim::{SimConfig, SimDevice};

    fn slow(_: &SimDevice) -> Checked {
        thread::sleep(Duration::from_millis(1500));
        Ok(())
    }

    fn quick(_: &SimDevice) -> Checked {
        Ok(())
    }

    fn hung(checks: Vec<Check<SimDevice>>) -> Option<&'static str> {
        let (send, found) = mpsc::channel();
        let device = SimDevice::new(SimConfig::new(0));
        let patience = Duration::from_millis(500);
        let hung = move |name| send.send(name).unwrap();
        let count = checks.len();
        let outcomes = run_watched(&device, checks, patience, hung, |_| ()).unwrap();
        assert_eq!(outcomes.len(), count);
        found.recv().ok()
    }

    #[test]
    fn a_check_that_takes_too_long_is_named() {
        let slow = || Check::new("slow", "", slow);
        let quick = || Check::new("quick", "", quick);
        assert_eq!(hung(vec![quick(), slow(), quick()]), Some("slow"));
        assert_eq!(hung(vec![quick(), quick()]), None);
        assert_eq!(hung(Vec::new()), None);
    }
}
