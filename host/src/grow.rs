// SPDX-License-Identifier: Apache-2.0
//! Growth of a pool while its pages are in use.

use std::time::{Duration, Instant};

use crate::backing::{Backing, check_budget};
use crate::budget::HostMemory;
use crate::error::HostError;
use crate::pool::HostPool;

/// What one growth did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Pages before.
    pub pages_before: u32,
    /// Pages now.
    pub pages: u32,
    /// Bytes that were made present and registered. None where the registration before had room,
    /// more than the pages need where it has now.
    pub bytes: u64,
    /// Registrations made.
    pub chunks: usize,
    /// From the begin until the memory was present.
    pub prefault_time: Duration,
    /// In registrations, together.
    pub register_time: Duration,
    /// In the longest registration: as long as any other call into the driver had to wait.
    pub longest_stall: Duration,
    /// From the begin to the end.
    pub total_time: Duration,
}

impl HostPool {
    /// Pages that the pool may grow to.
    #[must_use]
    pub const fn max_pages(&self) -> u32 {
        self.max_pages
    }

    /// Grows to `pages` pages while copies and readers of the others go on: makes the next chunks
    /// present and registers them one by one, so that the device's lock is held for the length of
    /// one. The pages may be used once this returns. One growth runs at a time; others wait for it.
    /// Fewer pages than there are do nothing.
    ///
    /// # Errors
    /// More pages than are reserved; more memory than the machine can spare; a prefault or a
    /// registration that failed. Then the pool is as it was.
    pub fn grow_to(&self, pages: u32) -> Result<Growth, HostError> {
        let began = Instant::now();
        let mut pins = self.pins.lock();
        let pages_before = self.pages();
        let mut growth = Growth {
            pages_before,
            pages: pages_before,
            ..Growth::default()
        };
        if pages <= pages_before {
            return Ok(growth);
        }
        if pages > self.max_pages {
            return Err(HostError::AboveReserve {
                pages: pages_before,
                asked: pages,
                max_pages: self.max_pages,
            });
        }
        let (held, chunks) = (pins.len(), self.pinning.chunks);
        let count = chunks.holding(self.bytes_of(pages));
        if count > held {
            let last = chunks.range(count - 1).end;
            growth.bytes = last - chunks.range(held).start;
            growth.chunks = count - held;
            // Explicit huge pages were set aside at first.
            if self.report().backing != Backing::Explicit {
                check_budget(growth.bytes, self.reserve_bytes, &HostMemory::probe())?;
            }
            let pinned = self.pinning.pin(&self.region, &mut pins, count)?;
            growth.prefault_time = pinned.prefault_time;
            growth.register_time = pinned.register_time;
            growth.longest_stall = pinned.longest_register;
        }
        self.published.raise(pages);
        growth.pages = pages;
        growth.total_time = began.elapsed();
        tracing::debug!(?growth, "host pool grown");
        Ok(growth)
    }
}
