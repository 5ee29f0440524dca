// SPDX-License-Identifier: Apache-2.0
//! Ends of steps: what a step read and wrote is settled once its fence has completed.

use std::collections::BTreeMap;

use striata_core::FenceId;
use striata_gpu::Device;

use super::Shard;
use crate::error::Error;

/// Recorded fences that have not completed on every rank.
#[derive(Debug)]
pub(super) struct Fences<D: Device> {
    recorded_until: FenceId,
    /// By rank.
    events: BTreeMap<FenceId, Vec<D::Event>>,
}

impl<D: Device> Default for Fences<D> {
    fn default() -> Self {
        Self {
            recorded_until: FenceId::default(),
            events: BTreeMap::new(),
        }
    }
}

impl<D: Device> Fences<D> {
    pub(super) fn is_recorded(&self, fence: FenceId) -> bool {
        fence <= self.recorded_until
    }

    /// The event of a rank; none once the fence has completed everywhere.
    pub(super) fn event(&self, fence: FenceId, rank: usize) -> Option<D::Event> {
        self.events
            .get(&fence)
            .and_then(|events| events.get(rank))
            .cloned()
    }

    pub(super) fn record(&mut self, fence: FenceId, events: Vec<D::Event>) {
        self.recorded_until = self.recorded_until.max(fence);
        self.events.insert(fence, events);
    }

    /// Forgets the oldest fences as far as they have completed on every rank.
    pub(super) fn forget_complete(&mut self, shards: &[Shard<D>]) -> Result<(), Error> {
        while let Some(entry) = self.events.first_entry() {
            for (shard, event) in shards.iter().zip(entry.get()) {
                if !shard.device.is_complete(event)? {
                    return Ok(());
                }
            }
            entry.remove();
        }
        Ok(())
    }
}
