// SPDX-License-Identifier: Apache-2.0
//! Completions: which jobs have ended, and how.

use super::engine::TransferEngine;
use super::job::{Completion, End, Outcome, Submitted};
use super::queue_entry::JobId;
use crate::device::{Device, DeviceTime, Direction};
use crate::error::GpuError;

/// What a job is asked for, to tell whether it has ended.
struct Front<D: Device> {
    id: JobId,
    ended: Option<D::Event>,
    first: Option<D::Event>,
}

/// When the first group and the whole of a job ended.
type Ends = (Option<DeviceTime>, DeviceTime);

impl<D: Device> TransferEngine<D> {
    /// Appends the completions of jobs that ended since the last call. Never blocks.
    ///
    /// Within a direction they come in the order in which the jobs ended; jobs without pages come
    /// at once.
    pub fn poll(&self, out: &mut Vec<Completion>) {
        let _one_at_a_time = self.poller.lock();
        self.core.ledger.take_at_once(out);
        for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
            while let Some(completion) = self.poll_one(direction) {
                out.push(completion);
            }
        }
    }

    /// The oldest submitted job of a direction, if it has ended.
    fn poll_one(&self, direction: Direction) -> Option<Completion> {
        let core = &*self.core;
        let front = core.ledger.front(direction, |job| {
            let is_load = direction == Direction::HostToDevice && job.end == End::Whole;
            Front {
                id: job.gate.id(),
                ended: job.ended.clone(),
                first: job.gate.first_group().filter(|_| is_load).cloned(),
            }
        })?;
        let ((first, finished), lost) = match self.ends(&front) {
            Ok(None) => return None,
            Ok(Some(ends)) => (ends, None),
            Err(cause) => ((None, core.device.now()), Some(cause)),
        };
        if let Some(cause) = &lost {
            core.poison(cause.clone());
        }
        let job = core.ledger.remove(direction, front.id)?;
        let outcome = self.outcome_of(&job, lost);
        let size = job.plan.size;
        core.ledger.count(direction, size, job.bytes, &outcome);
        Some(size.completion(&job.gate, direction, first, finished, outcome))
    }

    fn outcome_of(&self, job: &Submitted<D>, lost: Option<GpuError>) -> Outcome {
        let found = || self.core.outcome(&job.plan, &job.gate, job.units);
        match (&job.end, lost) {
            (End::Failed(cause), _) => Outcome::failed(cause.clone()),
            (_, Some(cause)) => Outcome::failed(cause),
            (End::Whole, None) => found().unwrap_or_else(Outcome::failed),
            (End::Cancelled, None) => Outcome {
                good_pages: 0,
                cancelled: true,
                ..found().unwrap_or_else(Outcome::failed)
            },
        }
    }

    /// None as long as the job runs.
    fn ends(&self, front: &Front<D>) -> Result<Option<Ends>, GpuError> {
        let device = &self.core.device;
        let Some(ended) = &front.ended else {
            return Ok(Some((None, device.now())));
        };
        let Some(finished) = device.event_time(ended)? else {
            return Ok(None);
        };
        let first = front.first.as_ref();
        let first = first.map(|event| device.synchronize(event)).transpose()?;
        Ok(Some((first, finished)))
    }
}
