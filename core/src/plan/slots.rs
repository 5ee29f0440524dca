// SPDX-License-Identifier: Apache-2.0
//! Plans from the two slot lists of the widened space, as HiCache calls its copies.

use super::{CopyDirection, CopyPlan, PlanError, paging};
use crate::geometry::PoolKind;
use crate::stripe::Stripe;
use crate::units::{L1, L2, PageId, PagePair, Slot, Tier};

impl CopyPlan {
    /// Plans the copy between `device_slots` and `host_slots`, pair by pair.
    ///
    /// **Units** slots of the widened space; capacities are slots of each tier.
    ///
    /// # Errors
    /// In this order: lists of unequal length; not whole widened pages; a pair with two owners;
    /// a slot out of range; slots that are not one page in order; a destination named twice.
    pub fn from_slots(
        kind: PoolKind,
        stripe: Stripe,
        direction: CopyDirection,
        device_slots: &[Slot],
        host_slots: &[Slot],
        device_capacity_slots: u64,
        host_capacity_slots: u64,
    ) -> Result<Self, PlanError> {
        let paging = paging(kind, stripe);
        check_shape(paging, device_slots, host_slots)?;
        if kind == PoolKind::Striped && !stripe.is_identity() {
            check_owners(stripe, device_slots, host_slots)?;
        }
        check_range::<L1>(device_slots, device_capacity_slots)?;
        check_range::<L2>(host_slots, host_capacity_slots)?;
        let l1 = pages_of::<L1>(paging, device_slots)?;
        let l2 = pages_of::<L2>(paging, host_slots)?;
        let pages = l1
            .into_iter()
            .zip(l2)
            .map(|(l1, l2)| PagePair { l1, l2 })
            .collect();
        Self::from_checked(kind, stripe, direction, pages)
    }
}

fn check_shape(paging: Stripe, device: &[Slot], host: &[Slot]) -> Result<(), PlanError> {
    if device.len() != host.len() {
        return Err(PlanError::Length {
            device: device.len(),
            host: host.len(),
        });
    }
    if paging.is_whole_pages(device.len() as u64) {
        return Ok(());
    }
    Err(PlanError::NotWholePages {
        slots: device.len(),
        page_slots: paging.widened_page(),
    })
}

fn check_owners(stripe: Stripe, device: &[Slot], host: &[Slot]) -> Result<(), PlanError> {
    for (index, (&device, &host)) in device.iter().zip(host).enumerate() {
        let owners = (stripe.owner_of_slot(device), stripe.owner_of_slot(host));
        if owners.0 != owners.1 {
            return Err(PlanError::Owner {
                index,
                device: device.get(),
                host: host.get(),
                device_owner: owners.0.get(),
                host_owner: owners.1.get(),
                dcp: stripe.dcp(),
            });
        }
    }
    Ok(())
}

fn check_range<T: Tier>(slots: &[Slot], capacity: u64) -> Result<(), PlanError> {
    match slots.iter().position(|slot| slot.get() >= capacity) {
        None => Ok(()),
        Some(index) => Err(PlanError::SlotRange {
            index,
            tier: T::NAME,
            slot: slots[index].get(),
            capacity,
        }),
    }
}

/// The pages that the slots spell out, each run of a page's slots being one page in order.
fn pages_of<T: Tier>(paging: Stripe, slots: &[Slot]) -> Result<Vec<PageId<T>>, PlanError> {
    let page_slots = paging.widened_page();
    // A page of more slots than an address has entries cannot be in a list that exists.
    let page_len = usize::try_from(page_slots).unwrap_or(usize::MAX);
    let mut pages = Vec::with_capacity(slots.len() / page_len);
    for (entry, run) in slots.chunks(page_len).enumerate() {
        let page = paging.page_number(run[0]);
        let page = u32::try_from(page).map_err(|_| PlanError::PageRange {
            index: entry,
            tier: T::NAME,
            page,
            pages: 1 << 32,
        })?;
        let page = PageId::new(page);
        let broken = run
            .iter()
            .zip(paging.page_slots(page))
            .position(|(slot, due)| slot.get() != due);
        if let Some(offset) = broken {
            return Err(PlanError::PageOrder {
                index: entry * page_len + offset,
                tier: T::NAME,
                slot: run[offset].get(),
                expected: paging.page_slots(page).start + offset as u64,
                page_slots,
            });
        }
        pages.push(page);
    }
    Ok(pages)
}
