// SPDX-License-Identifier: Apache-2.0
//! Plans from page pairs.

use super::{CopyDirection, CopyPlan, PlanError};
use crate::geometry::PoolKind;
use crate::stripe::Stripe;
use crate::units::{L1, L2, PageId, PagePair, Tier};

impl CopyPlan {
    /// Plans the copy of `pages`, in their order, between tiers of `l1_pages` and `l2_pages` pages.
    ///
    /// # Errors
    /// A page outside its tier; a destination named twice.
    pub fn from_pages(
        kind: PoolKind,
        stripe: Stripe,
        direction: CopyDirection,
        pages: &[PagePair],
        l1_pages: u32,
        l2_pages: u32,
    ) -> Result<Self, PlanError> {
        for (index, pair) in pages.iter().enumerate() {
            check_page(index, pair.l1, l1_pages)?;
            check_page(index, pair.l2, l2_pages)?;
        }
        Self::from_checked(kind, stripe, direction, pages.to_vec())
    }

    /// The last check, shared by both forms: no destination twice.
    pub(super) fn from_checked(
        kind: PoolKind,
        stripe: Stripe,
        direction: CopyDirection,
        pages: Vec<PagePair>,
    ) -> Result<Self, PlanError> {
        let (tier, target): (_, fn(&PagePair) -> u32) = match direction {
            CopyDirection::HostToDevice => (L1::NAME, |pair| pair.l1.get()),
            CopyDirection::DeviceToHost => (L2::NAME, |pair| pair.l2.get()),
        };
        // Pages that were allocated together ascend, and ascending pages cannot repeat.
        if !pages.is_sorted_by(|a, b| target(a) < target(b)) {
            let mut order: Vec<usize> = (0..pages.len()).collect();
            order.sort_by_key(|&index| (target(&pages[index]), index));
            let twice = order
                .windows(2)
                .find(|w| target(&pages[w[0]]) == target(&pages[w[1]]));
            if let Some(w) = twice {
                return Err(PlanError::DestinationTwice {
                    tier,
                    page: target(&pages[w[0]]),
                    first: w[0],
                    second: w[1],
                });
            }
        }
        Ok(Self {
            kind,
            stripe,
            direction,
            pages,
        })
    }
}

fn check_page<T: Tier>(index: usize, page: PageId<T>, pages: u32) -> Result<(), PlanError> {
    if page.get() < pages {
        return Ok(());
    }
    Err(PlanError::PageRange {
        index,
        tier: T::NAME,
        page: u64::from(page.get()),
        pages: u64::from(pages),
    })
}
