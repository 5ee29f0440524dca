// SPDX-License-Identifier: Apache-2.0
//! Submission without a thread: by `pump`, and by whoever would wait for the thread.

use core::ptr;

use super::error::TransferError;
use super::gate::LoadGate;
use super::shared::Core;
use crate::device::Device;
use crate::error::GpuError;

impl<D: Device> Core<D> {
    /// Does one unit of submission; false if there was nothing to do, or a thread does it.
    pub(super) fn pump(&self) -> bool {
        let manual = self.manual.as_ref();
        manual.is_some_and(|submitter| submitter.lock().pump(self))
    }

    /// Submits until `groups` groups of the job of `gate` are, or it has failed. If its targets are
    /// in use, that waits for its fence.
    pub(super) fn submit_up_to(&self, gate: &LoadGate<D>, groups: u32) -> Result<(), GpuError> {
        while gate.is_behind(groups) {
            if self.pump() {
                continue;
            }
            match self.fence_of(|other| ptr::eq(other, gate)) {
                Some(fence) => self.device.synchronize(&fence).map(drop)?,
                None => {
                    let (what, op) = ("a gate", gate.op());
                    return Err(GpuError::Deadlock {
                        what: what.to_owned(),
                        blocked: format!("operation {op} is in no queue"),
                    });
                }
            }
        }
        Ok(())
    }

    /// Submits every job, also those whose fence is still open.
    pub(super) fn submit_all(&self) -> Result<(), TransferError> {
        while self.manual.is_some() && self.queue.has_unsubmitted() {
            if self.pump() {
                continue;
            }
            // Nothing can be submitted without a fence of a parked load.
            let Some(fence) = self.fence_of(|_| true) else {
                break;
            };
            self.device.synchronize(&fence)?;
        }
        Ok(())
    }

    /// Finishes the job that was begun and drops the others.
    pub(super) fn stop_manual(&self) {
        if let Some(submitter) = &self.manual {
            submitter.lock().stop(self);
            self.queue.abandon();
        }
    }

    fn fence_of(&self, is_meant: impl Fn(&LoadGate<D>) -> bool) -> Option<D::Event> {
        self.manual.as_ref()?.lock().fence_of(is_meant)
    }
}
