// SPDX-License-Identifier: Apache-2.0
//! Growth of L2 while serving: every rank first, then the Planner.
//!
//! What takes long, making memory present and registering it, touches no decision and may run on
//! any thread ([`L2Grower`]); the Planner takes up what all ranks have by a call of its own, so that
//! replicas can agree when.

use std::sync::Arc;
use std::time::Duration;

use striata_gpu::Device;
use striata_host::{HostError, HostPool};

use crate::error::Error;
use crate::hicache::HiCache;

/// What became of a growth of L2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowL2 {
    /// All ranks have the pages, and the Planner uses them.
    Grown {
        /// Pages of L2 before.
        pages_before: u32,
        /// Pages now.
        pages: u32,
        /// The longest that a rank's driver was held.
        longest_stall: Duration,
    },
    /// More than L2 may ever have; nothing was done.
    AboveMaximum {
        /// Pages of L2.
        pages: u32,
        /// Pages asked for, those before with them.
        asked: u32,
        /// Pages that it may grow to.
        max_pages: u32,
    },
    /// A rank could not grow. L2 stays as it is; what other ranks have more is used once this one
    /// has it too.
    Refused {
        /// The rank.
        rank: usize,
        /// Pages of L2.
        pages: u32,
        /// Pages asked for, those before with them.
        asked: u32,
        /// Why.
        cause: HostError,
    },
}

/// Grows the host pools of all ranks, on whatever thread holds it.
#[derive(Clone, Debug)]
pub struct L2Grower {
    /// Every pool of every rank, beside its rank.
    hosts: Vec<(usize, Arc<HostPool>)>,
}

impl L2Grower {
    /// Over all host pools of all ranks, in order.
    pub(crate) const fn new(hosts: Vec<(usize, Arc<HostPool>)>) -> Self {
        Self { hosts }
    }

    /// Pages that every rank has in every pool.
    #[must_use]
    pub fn pages(&self) -> u32 {
        let pages = self.hosts.iter().map(|(_, host)| host.pages());
        pages.min().unwrap_or(0)
    }

    /// Grows every pool of every rank to `pages` pages, one after the other, and returns the longest that a
    /// driver was held. Blocks while memory is made present; copies of other pages go on.
    ///
    /// # Errors
    /// The first rank that could not, and why: it is as it was, those before it have grown.
    pub fn grow_to(&self, pages: u32) -> Result<Duration, (usize, HostError)> {
        let mut longest = Duration::ZERO;
        for (rank, host) in &self.hosts {
            let growth = host.grow_to(pages).map_err(|cause| (*rank, cause))?;
            longest = longest.max(growth.longest_stall);
        }
        Ok(longest)
    }
}

impl<D: Device> HiCache<D> {
    /// Grows L2 by `more` pages on every rank and takes them into use. Blocks while memory is made
    /// present; [`HiCache::l2_grower`] does that part elsewhere.
    ///
    /// # Errors
    /// A poisoned engine; broken bookkeeping. A growth that cannot be is an outcome.
    pub fn grow_l2(&mut self, more: u32) -> Result<GrowL2, Error> {
        self.poll()?;
        self.check_alive()?;
        let (pages, max_pages) = (self.planner().l2_pages(), self.planner().l2_max_pages());
        let asked = pages.saturating_add(more);
        if asked > max_pages {
            return Ok(GrowL2::AboveMaximum {
                pages,
                asked,
                max_pages,
            });
        }
        match self.l2_grower().grow_to(asked) {
            Ok(longest_stall) => Ok(GrowL2::Grown {
                pages_before: pages,
                pages: self.take_up_l2(),
                longest_stall,
            }),
            Err((rank, cause)) => Ok(GrowL2::Refused {
                rank,
                pages,
                asked,
                cause,
            }),
        }
    }

    /// What grows the host pools of all ranks, for a thread beside the one that serves. Its pages
    /// are used after [`HiCache::take_up_l2`].
    #[must_use]
    pub fn l2_grower(&self) -> L2Grower {
        let hosts = self.shards().shards().iter().enumerate();
        let hosts = hosts.flat_map(|(rank, shard)| {
            let hosts = shard.pools().filter_map(|pool| pool.host().cloned());
            hosts.map(move |host| (rank, host))
        });
        L2Grower::new(hosts.collect())
    }
}
