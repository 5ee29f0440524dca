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
        let manual = self.manual.as_ref();
        manual.is_some_and(|submitter| submitter.lock().pump(self))
    }

    /// Where no thread submits: submits until `groups` groups of the job of `gate` are, or it has
    /// ended early. If its targets are in use, that waits for its fence; if a window is full, for
    /// the oldest group in it.
    pub(super) fn submit_up_to(&self, gate: &LoadGate<D>, groups: u32) -> Result<(), GpuError> {
        while self.manual.is_some() && gate.is_behind(groups) {
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
        while self.manual.is_some() && self.work.has_work() {
            if self.pump() {
                continue;
            }
            // Nothing can be submitted before a group in flight or a fence has ended.
            let Some(event) = self.obstacle().or_else(|| self.fence_of(|_| true)) else {
                break;
            };
            self.device.synchronize(&event)?;
        }
        Ok(())
    }

    /// Submits what was begun; the others were dropped.
    pub(super) fn stop_manual(&self) {
        if self.manual.is_some() {
            while self.pump() {}
            self.work.abandon();
        }
    }

    fn obstacle(&self) -> Option<D::Event> {
        self.manual.as_ref()?.lock().obstacle(self)
    }

    fn fence_of(&self, is_meant: impl Fn(JobId) -> bool) -> Option<D::Event> {
        let mut fences = Vec::new();
        self.work.fenced(&mut fences, |job| job.after.clone());
        let meant = fences.into_iter().find(|(id, _)| is_meant(*id));
        meant.map(|(_, fence)| fence)
    }
}
