// SPDX-License-Identifier: Apache-2.0
//! Submission without a thread: by `pump`, and by whoever would wait for the thread.

use super::error::TransferError;
use super::gate::LoadGate;
use super::queue_entry::JobId;
use super::shared::Core;
use crate::device::Device;
use crate::error::GpuError;

impl<D: Device> Core<D> {
    /// Does one unit of submission; false if there was nothing to do, or a thread does it.
    pub(super) fn pump(&self) -> bool {
        self.is_manual() && self.submitter.lock().pump(self)
    }

    /// Where no thread submits: submits until `units` units of the job of `gate` are, or it has
    /// ended early. If its targets are in use, that waits for its fence; if a window is full, for
    /// the oldest unit in it.
    pub(super) fn submit_up_to(&self, gate: &LoadGate<D>, units: u32) -> Result<(), GpuError> {
        while self.is_manual() && gate.is_behind(units) {
            if self.pump() {
                continue;
            }
            let fence = || self.fence_of(|id| id == gate.id());
            match fence().or_else(|| self.obstacle()) {
                Some(event) => self.device.synchronize(&event).map(drop)?,
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
        while self.is_manual() && self.work.has_work() {
            if self.pump() {
                continue;
            }
            // Nothing can be submitted before a unit in flight or a fence has ended.
            let Some(event) = self.obstacle().or_else(|| self.fence_of(|_| true)) else {
                break;
            };
            self.device.synchronize(&event)?;
        }
        Ok(())
    }

    /// Submits what was begun; the others were dropped.
    pub(super) fn stop_manual(&self) {
        if self.is_manual() {
            while self.pump() {}
            self.work.abandon();
        }
    }

    fn obstacle(&self) -> Option<D::Event> {
        self.submitter.lock().obstacle(self)
    }

    fn fence_of(&self, is_meant: impl Fn(JobId) -> bool) -> Option<D::Event> {
        let mut fences = Vec::new();
        self.work.fenced(&mut fences, |job| job.after.clone());
        let meant = fences.into_iter().find(|(id, _)| is_meant(*id));
        meant.map(|(_, fence)| fence)
    }
}
