// SPDX-License-Identifier: Apache-2.0
//! Completions: which jobs have ended, and how.

use super::engine::TransferEngine;
use super::job::{Completion, Outcome};
use crate::device::{Device, DeviceTime, Direction};
use crate::error::GpuError;

impl<D: Device> TransferEngine<D> {
    /// Appends the completions of jobs that ended since the last call. Never blocks.
    ///
    /// Within a direction they come in the order in which the jobs were submitted; jobs without
    /// pages come at once.
    pub fn poll(&self, out: &mut Vec<Completion>) {
        let _one_at_a_time = self.poller.lock();
        self.core.queue.take_at_once(out);
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            while let Some(completion) = self.poll_one(direction) {
                out.push(completion);
            }
        }
    }

    /// The oldest submitted job of a direction, if it has ended.
    fn poll_one(&self, direction: Direction) -> Option<Completion> {
        let queue = &self.core.queue;
        let (ended, first) = queue.front(direction, |job| {
            let is_load = direction == Direction::HostToDevice && job.error.is_none();
            let first = job.gate.event(0).filter(|_| is_load).cloned();
            (job.ended.clone(), first)
        })?;
        let (first, finished, lost) = match self.times(ended.as_ref(), first.as_ref()) {
            Ok(None) => return None,
            Ok(Some((first, finished))) => (first, finished, None),
            Err(cause) => (None, self.core.device.now(), Some(cause)),
        };
        if let Some(cause) = &lost {
            queue.poison(cause.clone());
        }
        let job = queue.pop(direction)?;
        let outcome = match job.error.clone().or(lost) {
            Some(cause) => Outcome::failed(cause),
            None => self
                .core
                .outcome(&job.plan, &job.gate)
                .unwrap_or_else(Outcome::failed),
        };
        let size = job.plan.size;
        queue.count(direction, size, &outcome);
        Some(size.completion(&job.gate, direction, first, finished, outcome))
    }

    /// When the first group and the whole of a job ended; none as long as it runs.
    fn times(
        &self,
        ended: Option<&D::Event>,
        first: Option<&D::Event>,
    ) -> Result<Option<(Option<DeviceTime>, DeviceTime)>, GpuError> {
        let device = &self.core.device;
        let Some(ended) = ended else {
            return Ok(Some((None, device.now())));
        };
        let Some(finished) = device.event_time(ended)? else {
            return Ok(None);
        };
        let first = first.map(|event| device.synchronize(event)).transpose()?;
        Ok(Some((first, finished)))
    }
}
