// SPDX-License-Identifier: Apache-2.0
//! Which pages of a job arrived, where a device can tell which pieces of a copy did.

use core::ops::Range;

use striata_core::PagePair;

use super::gate::LoadGate;
use super::job::Outcome;
use super::paths::CopyPath;
use super::plan::JobPlan;
use super::shared::Core;
use crate::device::{CopyFailure, Device};
use crate::error::GpuError;

impl<D: Device> Core<D> {
    /// What arrived of a job whose copies have ended, and of which `units` units were submitted.
    ///
    /// # Errors
    /// A lost device.
    pub(super) fn outcome(
        &self,
        plan: &JobPlan,
        gate: &LoadGate<D>,
        units: u32,
    ) -> Result<Outcome, GpuError> {
        let mut outcome = plan.size.all_good();
        let mut missing = Vec::new();
        for unit in 0..units {
            for event in gate.halfway(unit).into_iter().chain(gate.event(unit)) {
                let failures = self.device.copy_failures(event)?;
                if !failures.is_empty() {
                    missing.extend(plan.missing(unit, self.call_pieces(), &failures));
                }
                let cause = failures.into_iter().next().map(|failure| failure.cause);
                outcome.error = outcome.error.or(cause);
            }
        }
        if outcome.error.is_none() {
            return Ok(outcome);
        }
        let is_missing = |pair: &PagePair| {
            let page = match plan.path {
                CopyPath::Staged => pair.l2.get(),
                _ => pair.l1.get(),
            };
            missing
                .iter()
                .any(|pages: &Range<u32>| pages.contains(&page))
        };
        let first = plan.pages.iter().position(is_missing);
        outcome.good_pages = first.unwrap_or(plan.pages.len());
        Ok(outcome)
    }
}

impl JobPlan {
    /// Pages, of L2 if they were staged and of L1 else, with bytes in pieces that calls of one unit did not deliver.
    fn missing(&self, unit: u32, call_pieces: usize, failures: &[CopyFailure]) -> Vec<Range<u32>> {
        let mut pieces = Vec::new();
        self.pieces(unit, 0, &mut pieces);
        let of_call = |failure: &CopyFailure| {
            let call = pieces.chunks(call_pieces).nth(failure.call);
            call.unwrap_or_default()
                .get(failure.good_pieces..)
                .unwrap_or_default()
        };
        failures
            .iter()
            .flat_map(of_call)
            .map(|piece| match self.path {
                CopyPath::Staged => self.host.shape.host_pages_of(piece),
                _ => self.host.shape.pages_of(piece),
            })
            .collect()
    }
}
