// SPDX-License-Identifier: Apache-2.0
//! More pages of L2 while the planner runs.

use super::Planner;

impl Planner {
    /// Pages of L2 now.
    #[must_use]
    pub const fn l2_pages(&self) -> u32 {
        self.l2_pages
    }

    /// Pages that L2 may grow to.
    #[must_use]
    pub const fn l2_max_pages(&self) -> u32 {
        self.config.l2_limit()
    }

    /// Takes the pages of L2 up to `pages` into use, at most those of
    /// [`Planner::l2_max_pages`], and returns how many L2 has now. They are free; nothing else
    /// changes, and L2 never shrinks. Every rank must have the pages already, and replicas must
    /// make the call at the same place among their calls.
    pub fn grow_l2(&mut self, pages: u32) -> u32 {
        let pages = pages.min(self.l2_max_pages());
        if pages > self.l2_pages {
            let before = self.l2_pages;
            self.l2.grow(pages);
            self.l2_states.grow(pages);
            self.index.grow_l2(pages);
            self.l2_pages = pages;
            tracing::info!(before, pages, "L2 has grown");
        }
        self.l2_pages
    }
}
