// SPDX-License-Identifier: Apache-2.0
//! The ring of device memory through which jobs are staged, one for each direction.
//!
//! A unit takes the next slot. One of its steps is a kernel between planes and slot, the other
//! copies between slot and host; they run on two streams with an event between them, so that the
//! kernel of a unit runs beside the copies of another. The second step is on the direction's own
//! stream, where all ends of units are. The first step waits, on the device, for the end of the
//! unit that had the slot before; that was submitted, so nothing waits for what is still to come.

use std::sync::Arc;

use crate::device::Device;
use crate::error::GpuError;

/// Slots of a ring.
pub(super) const SLOTS: usize = 4;

/// A ring of slots.
#[derive(Debug)]
pub(super) struct Staging<D: Device> {
    /// One memory, as copies want it.
    pub(super) memory: Arc<[D::Memory]>,
    pub(super) slot_bytes: u64,
    /// Of the first steps.
    pub(super) stream: D::Stream,
}

impl<D: Device> Staging<D> {
    /// Allocates a ring of `bytes` bytes; `name` is that of the stream.
    pub(super) fn new(device: &D, bytes: u64, name: &str) -> Result<Self, GpuError> {
        // Slots begin where every unit of a kernel may.
        let slot_bytes = (bytes / SLOTS as u64) & !0xFF;
        Ok(Self {
            memory: Arc::from([device.alloc(slot_bytes * SLOTS as u64)?]),
            slot_bytes,
            stream: device.stream(name)?,
        })
    }
}

/// Who used the slots last.
#[derive(Debug)]
pub(super) struct Slots<D: Device> {
    last: [Option<D::Event>; SLOTS],
    next: usize,
}

impl<D: Device> Slots<D> {
    pub(super) const fn new() -> Self {
        Self {
            last: [const { None }; SLOTS],
            next: 0,
        }
    }

    /// Takes the next slot for a unit that ends with `end`: its index, and the end of the unit that
    /// had it before.
    pub(super) fn take(&mut self, end: &D::Event) -> (u64, Option<D::Event>) {
        let index = self.next;
        self.next = (index + 1) & (SLOTS - 1);
        let before = self
            .last
            .get_mut(index)
            .and_then(|last| last.replace(end.clone()));
        (index as u64, before)
    }
}

const _: () = assert!(SLOTS.is_power_of_two());
