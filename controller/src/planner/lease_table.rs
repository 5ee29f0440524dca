// SPDX-License-Identifier: Apache-2.0
//! The planner's side of leases: preallocated slots with generations.

use striata_core::prefix::{PageKey, PathLock};
use striata_core::{L1Page, OpId};

use crate::error::Error;
use crate::lease::LeaseId;

/// What the planner knows of a lease.
#[derive(Debug)]
pub(super) struct LeaseState {
    /// The lock on the path of pages that the index owns and the lease reads.
    pub(super) lock: PathLock,
    /// Keys of the request's whole pages, from the root.
    pub(super) keys: Vec<PageKey>,
    /// The page table.
    pub(super) table: Vec<L1Page>,
    /// Leading pages of the table that the index owns.
    pub(super) indexed: usize,
    /// Pages of the table that insert found to be in the index already, by table index: the lease
    /// still reads its own copy.
    pub(super) duplicates: Vec<L1Page>,
    /// Loads whose gates the lease passes.
    pub(super) loads: Vec<OpId>,
}

#[derive(Debug)]
struct LeaseSlot {
    generation: u32,
    state: Option<LeaseState>,
}

/// All leases of a planner.
#[derive(Debug)]
pub(super) struct LeaseTable {
    slots: Vec<LeaseSlot>,
    free: Vec<u32>,
    limit: u32,
}

impl LeaseTable {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            slots: (0..limit)
                .map(|_| LeaseSlot {
                    generation: 0,
                    state: None,
                })
                .collect(),
            free: (0..limit).rev().collect(),
            limit,
        }
    }

    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn check_room(&self) -> Result<(), Error> {
        if self.free.is_empty() {
            return Err(Error::TooManyLeases { limit: self.limit });
        }
        Ok(())
    }

    /// Takes a slot for `state`.
    pub(super) fn grant(&mut self, state: LeaseState) -> Result<LeaseId, Error> {
        let slot = self
            .free
            .pop()
            .ok_or(Error::TooManyLeases { limit: self.limit })?;
        let entry = &mut self.slots[slot as usize];
        entry.state = Some(state);
        Ok(LeaseId {
            slot,
            generation: entry.generation,
        })
    }

    pub(super) fn get(&mut self, id: LeaseId) -> Result<&mut LeaseState, Error> {
        let unknown = Error::UnknownLease {
            slot: id.slot,
            generation: id.generation,
        };
        self.slots
            .get_mut(id.slot as usize)
            .filter(|entry| entry.generation == id.generation)
            .and_then(|entry| entry.state.as_mut())
            .ok_or(unknown)
    }

    /// Takes the state out of a slot and makes the slot free; nothing if it was free.
    pub(super) fn remove(&mut self, slot: u32) -> Option<LeaseState> {
        let entry = self.slots.get_mut(slot as usize)?;
        let state = entry.state.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        Some(state)
    }
}
