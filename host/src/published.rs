// SPDX-License-Identifier: Apache-2.0
//! How many pages of a pool may be used: a number that one grower at a time raises and any thread
//! reads.

use striata_core::sync::{AtomicU32, Ordering};

/// Pages `0..get()` are present and registered, and stay so as long as the pool.
#[derive(Debug)]
pub(crate) struct Published(AtomicU32);

impl Published {
    pub(crate) fn new(pages: u32) -> Self {
        Self(AtomicU32::new(pages))
    }

    /// Pages that may be used. Whatever was done to them before they were published has happened
    /// before what the caller does with them.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Publishes the pages up to `pages`, which the caller has made ready. The grower's lock is
    /// held.
    pub(crate) fn raise(&self, pages: u32) {
        self.0.store(pages, Ordering::Release);
    }
}
