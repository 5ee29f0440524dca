// SPDX-License-Identifier: Apache-2.0
//! Copies that run beside compute, so that it can be seen what they cost it.

use std::sync::Arc;

use striata_gpu::transfer::{LoadJob, StoreJob, TransferEngine};
use striata_gpu::{DeviceTime, Direction};

use super::error::BenchError;
use super::lists::Pairs;
use super::run::Bench;
use super::subject::{Launch, Subject};
use super::timing::{Mark, end_of, last_end, poll_until};

/// Who copies.
pub(super) enum Copier<D: Subject> {
    /// The engine.
    Engine(Arc<TransferEngine<D>>),
    /// A copy kernel, on this stream.
    Kernel(Launch<D>, D::Stream),
}

/// A copy that runs.
pub(super) struct Running<D: Subject> {
    mark: Mark<D>,
    /// The end of a kernel's copy; an engine is polled.
    end: Option<D::Event>,
}

/// Copies of one list of pages in one direction.
pub(super) struct Copies<D: Subject> {
    pub(super) name: String,
    pub(super) direction: Direction,
    pub(super) pairs: Pairs,
    pub(super) copier: Copier<D>,
    /// Whether the bars of the engine are for it.
    pub(super) judged: bool,
}

impl<D: Subject> Copies<D> {
    /// Starts one; what is submitted to other streams after this runs beside it.
    pub(super) fn start(&self, bench: &mut Bench<'_, D>) -> Result<Running<D>, BenchError> {
        let op = bench.op();
        let mark = Mark::set(&bench.device, &bench.tiers.marks)?;
        let pages = self.pairs.clone();
        let end = match (&self.copier, self.direction) {
            (Copier::Engine(engine), Direction::HostToDevice) => {
                let after = None;
                engine.load(LoadJob { op, pages, after })?;
                None
            }
            (Copier::Engine(engine), Direction::DeviceToHost) => {
                engine.store(StoreJob {
                    op,
                    pages,
                    after: None,
                    urgent: false,
                })?;
                None
            }
            (Copier::Kernel(launch, stream), _) => {
                launch(stream)?;
                Some(bench.tiers.fence(stream)?)
            }
        };
        Ok(Running { mark, end })
    }

    /// Waits for its end: when it began and when it had ended.
    pub(super) fn finish(
        &self,
        bench: &Bench<'_, D>,
        running: &Running<D>,
    ) -> Result<(DeviceTime, DeviceTime), BenchError> {
        let device = &bench.device;
        let ended = match (&self.copier, &running.end) {
            (_, Some(end)) => end_of(device, end)?,
            (Copier::Engine(engine), None) => {
                last_end(&poll_until(engine, "a job beside compute", 1)?)
            }
            (Copier::Kernel(..), None) => device.now(),
        };
        let began = running.mark.time(device)?;
        device.advance_to(ended);
        Ok((began, ended))
    }
}
