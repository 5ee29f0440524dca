// SPDX-License-Identifier: Apache-2.0
//! Cache events for routers: which pages became readable or went, by tier.

use serde::{Deserialize, Serialize};
use striata_core::prefix::PageKey;

use super::Planner;

/// Something that a router wants to know. Keys name whole widened pages; block sizes are those of
/// the widened page, [`Planner::event_block_tokens`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum KvEvent {
    /// Pages became readable on a tier, parents before children.
    Stored {
        /// `L1` or `L2`.
        tier: EventTier,
        /// The page before the first; none at the start of a prefix.
        parent: Option<EventKey>,
        /// The pages.
        pages: Vec<EventKey>,
    },
    /// Pages are no longer on a tier.
    Removed {
        /// `L1` or `L2`.
        tier: EventTier,
        /// The pages.
        pages: Vec<EventKey>,
    },
}

/// A tier in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventTier {
    /// The GPU pool.
    L1,
    /// The pinned host pool.
    L2,
}

/// A page key in an event: 32 hexadecimal digits in text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey(pub PageKey);

impl Serialize for EventKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EventKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let key = u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)?;
        Ok(Self(PageKey::new(key)))
    }
}

impl Planner {
    /// Tokens of the blocks that events name: the widened page.
    #[must_use]
    pub const fn event_block_tokens(&self) -> u64 {
        self.stripe.widened_page()
    }

    /// Takes the events since the last call, in order; none unless the configuration keeps them.
    pub fn take_events(&mut self, out: &mut Vec<KvEvent>) {
        out.append(&mut self.events);
    }

    pub(super) fn stored_event(
        &mut self,
        tier: EventTier,
        parent: Option<PageKey>,
        pages: impl Iterator<Item = PageKey>,
    ) {
        if !self.config.events {
            return;
        }
        let pages: Vec<_> = pages.map(EventKey).collect();
        if !pages.is_empty() {
            self.events.push(KvEvent::Stored {
                tier,
                parent: parent.map(EventKey),
                pages,
            });
        }
    }

    pub(super) fn removed_event(&mut self, tier: EventTier, pages: &[PageKey]) {
        if self.config.events && !pages.is_empty() {
            let pages = pages.iter().copied().map(EventKey).collect();
            self.events.push(KvEvent::Removed { tier, pages });
        }
    }
}
