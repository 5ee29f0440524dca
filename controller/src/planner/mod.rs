// SPDX-License-Identifier: Apache-2.0
//! The Planner: decisions only. It owns the prefix index, both allocators and the residency of
//! every page; it knows no device and no thread. It emits [`Order`]s and consumes [`Ack`]s.
//!
//! Replicas that get the same calls in the same order with the same arguments decide alike: no
//! clock, no randomness and no hash order enters a decision.

mod ack;
mod confirm;
mod deferred;
mod events;
mod evict;
mod grow;
mod insert;
mod lease_table;
mod load;
mod reserve;
mod stats;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use striata_core::alloc::PageAllocator;
use striata_core::config::{MAX_LEASES, PolicyName, WritePolicy};
use striata_core::evict::policy_by_name;
use striata_core::prefix::{Evicted, Namespace, PageKey, PathLock, PrefixIndex};
use striata_core::sync::Arc;
use striata_core::{FenceId, L1, L1Page, L2, L2Page, OpId, PagePair, PoolGeometry, Stripe};

use crate::error::Error;
use crate::lease::Lease;
use crate::order::{Ack, Order, OrderKind};
use crate::page_set::PageSet;
use crate::release_stack::ReleaseStack;
use crate::residency::{PageState, Residency};
use deferred::Deferred;
use lease_table::LeaseTable;

pub use confirm::Confirm;
pub use events::{EventKey, EventTier, KvEvent};
pub use evict::Room;
pub use insert::Inserted;
pub use reserve::Reserve;
pub use stats::PlannerStats;
pub use store::Stored;

/// What a planner decides with.
#[derive(Clone, Debug)]
pub struct PlannerConfig {
    /// The L1 pool; page 0 is its sink.
    pub pool: PoolGeometry,
    /// Pages of the L2 pool at first; 0 turns the tier off.
    pub l2_pages: u32,
    /// Pages that L2 may grow to, reserved from the start; none for as many as at first.
    pub l2_max_pages: Option<u32>,
    /// The eviction policy of both tiers.
    pub policy: PolicyName,
    /// When pages are stored.
    pub write_policy: WritePolicy,
    /// Fewer tokens than this are computed rather than loaded back.
    pub load_back_threshold: u64,
    /// Most pages that one request loads back.
    pub load_back_quota: Option<u32>,
    /// Report hits up to the whole prompt, where every token may be cached.
    pub full_length_hits: bool,
    /// Let host copies of pages that are on L1 go first when L2 is short.
    pub duplicates_first: bool,
    /// Most leases held at a time, 1 to 2^20.
    pub max_leases: u32,
    /// Most pages that stores in flight may have together, 1 at least; more are deferred, and
    /// [`Planner::maintain`] stores them.
    pub max_store_pages: Option<u32>,
    /// Pages of L1 that [`Planner::maintain`] keeps free by evicting ahead of need; fewer than L1
    /// has.
    pub free_watermark: u32,
    /// Whether cache events are kept for [`Planner::take_events`].
    pub events: bool,
}

impl PlannerConfig {
    /// A planner over `pool` and `l2_pages` pages of host memory, else with HiCache's defaults:
    /// lru, write-through, a load-back threshold of 10 tokens.
    #[must_use]
    pub fn new(pool: PoolGeometry, l2_pages: u32) -> Self {
        Self {
            pool,
            l2_pages,
            l2_max_pages: None,
            policy: PolicyName::Lru,
            write_policy: WritePolicy::WriteThrough,
            load_back_threshold: 10,
            load_back_quota: None,
            full_length_hits: false,
            duplicates_first: false,
            max_leases: 4096,
            max_store_pages: None,
            free_watermark: 0,
            events: false,
        }
    }

    /// Pages that L2 may grow to.
    #[must_use]
    pub const fn l2_limit(&self) -> u32 {
        match self.l2_max_pages {
            Some(pages) => pages,
            None => self.l2_pages,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refused = |what: String| Err(Error::Config(what));
        let (pages, most) = (self.l2_pages, self.l2_limit());
        let leases = self.max_leases;
        if !(1..=MAX_LEASES).contains(&leases) {
            return refused(format!(
                "max_leases is {leases}: 1 to {MAX_LEASES} can be held"
            ));
        }
        if self.max_store_pages == Some(0) {
            return refused(
                "max_store_pages is 0: a store has a page at least; L2 is turned off by l2_pages"
                    .to_owned(),
            );
        }
        let (watermark, usable) = (self.free_watermark, self.pool.usable_pages());
        if watermark > 0 && watermark >= usable {
            return refused(format!(
                "free_watermark {watermark} would keep all {usable} pages of L1 free: a page at \
                 least is cached"
            ));
        }
        if most < pages {
            return refused(format!(
                "l2_max_pages {most} is below the {pages} pages of L2"
            ));
        }
        if pages == 0 && most > 0 {
            return refused(format!(
                "l2_max_pages is {most} and L2 is off: a tier begins with a page at least"
            ));
        }
        Ok(())
    }
}

/// An order that is not acknowledged, or a failed load that leases still point at.
#[derive(Debug)]
struct Operation {
    order: Order,
    /// The operation's own hold on the path whose pages it loads.
    lock: Option<PathLock>,
    /// Leases that pass this load's gate.
    holders: u32,
    /// Pages of a failed load, freed with the last holder.
    failed: Vec<L1Page>,
    /// What every rank reported, once known.
    good_pages: Option<u32>,
    /// Likewise, of a load whose pages stand on those of a load in flight: it ends after that one.
    arrived: Option<u32>,
    /// No lease wanted it any more, and it was told to stop.
    cancelled: bool,
    /// A store whose pages leave L1 after it.
    freeing: bool,
}

impl Operation {
    /// Whether every rank has reported its end.
    const fn has_ended(&self) -> bool {
        self.good_pages.is_some() || self.arrived.is_some()
    }
}

/// An operation that is about to be planned.
#[derive(Debug)]
struct Draft {
    kind: OrderKind,
    pages: Vec<PagePair>,
    after: Option<FenceId>,
    lock: Option<PathLock>,
    freeing: bool,
}

/// How a prefix stands in the tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// Leading tokens on L1.
    pub tokens_l1: u64,
    /// Tokens after those on L2 only.
    pub tokens_l2: u64,
}

/// Decides for one attention-DP replica. See the module's text.
#[derive(Debug)]
pub struct Planner {
    config: PlannerConfig,
    /// Pages of L2 now.
    l2_pages: u32,
    stripe: Stripe,
    /// Inserts after which a page is stored; none if it is stored when L1 evicts it.
    store_after: Option<u32>,
    index: PrefixIndex,
    l1: PageAllocator<L1>,
    l2: PageAllocator<L2>,
    l1_states: Residency<L1>,
    l2_states: Residency<L2>,
    /// The last fence of a step that used the page, by L1 page; 0 for none.
    l1_used_until: Vec<FenceId>,
    /// Which load brings the page, by L1 page; meaningful in state loading or failed only.
    l1_load: Vec<OpId>,
    /// L1 pages that a store in flight reads.
    storing: PageSet<L1>,
    /// Pages of stores in flight.
    storing_pages: u32,
    /// Pages of stores in flight that leave L1 once they are stored.
    freeing_pages: usize,
    /// Pages whose store waits.
    deferred: Deferred,
    /// Loads in flight that no lease wants any more.
    cancelled: u32,
    events: Vec<KvEvent>,
    leases: LeaseTable,
    releases: Arc<ReleaseStack>,
    operations: BTreeMap<OpId, Operation>,
    orders: Vec<Order>,
    next_op: u64,
    open_fence: FenceId,
    step_running: bool,
    stats: PlannerStats,
    evicted: Evicted,
    released: Vec<u32>,
    /// The table of the request that is asked about: its hits, while room is made for the rest.
    scratch_l1: Vec<L1Page>,
    /// Sources of its load, likewise.
    scratch_l2: Vec<L2Page>,
    /// Pages that an eviction has to store first.
    unstored: Vec<L1Page>,
    /// Targets of the store that is begun.
    store_targets: Vec<L2Page>,
    path_l1: Vec<Option<L1Page>>,
    path_l2: Vec<Option<L2Page>>,
}

impl Planner {
    /// A planner of empty tiers.
    ///
    /// # Errors
    /// A policy that is not built; no lease allowed, or more than a million.
    pub fn new(config: PlannerConfig) -> Result<Self, Error> {
        let policy = policy_by_name(config.policy.name()).ok_or_else(|| Error::NotBuilt {
            what: format!("eviction policy {}", config.policy),
        })?;
        let store_after = match config.write_policy {
            WritePolicy::WriteThrough => Some(1),
            WritePolicy::WriteThroughSelective => Some(2),
            WritePolicy::WriteBack => None,
        };
        config.check()?;
        let pages = config.pool.pages();
        let mut index = PrefixIndex::new(policy, pages, config.l2_pages);
        if store_after.is_some_and(|inserts| inserts > 1) {
            index = index.with_exact_hits();
        }
        let releases = Arc::new(ReleaseStack::new(config.max_leases));
        Ok(Self {
            stripe: config.pool.stripe(),
            l2_pages: config.l2_pages,
            store_after,
            index,
            l1: PageAllocator::new(pages, 1),
            l2: PageAllocator::new(config.l2_pages, 0),
            l1_states: Residency::new(pages),
            l2_states: Residency::new(config.l2_pages),
            l1_used_until: vec![FenceId::default(); pages as usize],
            l1_load: vec![OpId::default(); pages as usize],
            storing: PageSet::new(pages),
            storing_pages: 0,
            freeing_pages: 0,
            deferred: Deferred::new(pages),
            cancelled: 0,
            events: Vec::new(),
            leases: LeaseTable::new(config.max_leases),
            releases,
            operations: BTreeMap::new(),
            orders: Vec::new(),
            next_op: 1,
            open_fence: FenceId::new(1),
            step_running: false,
            stats: PlannerStats::default(),
            evicted: Evicted::default(),
            released: Vec::new(),
            scratch_l1: Vec::new(),
            scratch_l2: Vec::new(),
            unstored: Vec::new(),
            store_targets: Vec::new(),
            path_l1: Vec::new(),
            path_l2: Vec::new(),
            config,
        })
    }

    /// The stripe of the widened space.
    #[must_use]
    pub const fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// What the planner was made with.
    #[must_use]
    pub const fn config(&self) -> &PlannerConfig {
        &self.config
    }

    /// Counters since the start, and the levels of now.
    #[must_use]
    pub fn stats(&self) -> PlannerStats {
        let mut stats = self.stats;
        stats.pages_l1 = u64::from(self.config.pool.usable_pages());
        stats.pages_l2 = u64::from(self.l2_pages);
        stats.free_pages_l1 = self.l1.free_pages() as u64;
        stats.free_pages_l2 = self.l2.free_pages() as u64;
        stats.resident_pages_l1 = u64::from(self.l1_states.count(PageState::Resident));
        stats.resident_pages_l2 = u64::from(self.l2_states.count(PageState::Resident));
        let (evictable, cached) = (self.index.evictable_l1(), self.index.resident_l1());
        stats.evictable_pages_l1 = evictable as u64;
        stats.pinned_pages_l1 = cached.saturating_sub(evictable) as u64;
        let (evictable, cached) = (self.index.evictable_l2(), self.index.resident_l2());
        stats.evictable_pages_l2 = evictable as u64;
        stats.pinned_pages_l2 = cached.saturating_sub(evictable) as u64;
        let given_up = self.operations.values().filter(|op| op.cancelled);
        let given_up: usize = given_up.map(|op| op.order.pages.len()).sum();
        let failed = u64::from(self.l1_states.count(PageState::Failed));
        stats.quarantined_pages_l1 = failed + given_up as u64;
        stats.leases = self.leases.held();
        stats.operations_in_flight = self.in_flight();
        stats
    }

    /// How `keys`, whole pages of a prompt of `tokens` tokens, stand in the tiers. Nothing is
    /// pinned and nothing counts as used.
    ///
    /// A hit is whole widened pages, at most floor((L - 1) / W) of them, so that one token is
    /// left to compute (unless full-length hits are configured); 0 is an ordinary answer.
    #[must_use]
    pub fn lookup(&self, namespace: Namespace, keys: &[PageKey], tokens: u64) -> Lookup {
        let limit = self.hit_limit(keys, tokens);
        let found = self.index.match_prefix(namespace.root(), &keys[..limit]);
        let w = self.stripe.widened_page();
        Lookup {
            tokens_l1: found.l1_pages as u64 * w,
            tokens_l2: found.l2_pages as u64 * w,
        }
    }

    fn hit_limit(&self, keys: &[PageKey], tokens: u64) -> usize {
        let pages = if self.config.full_length_hits {
            self.stripe.whole_pages(tokens)
        } else {
            self.stripe.hit_limit(tokens)
        };
        usize::try_from(pages).unwrap_or(usize::MAX).min(keys.len())
    }

    /// Takes the orders planned since the last call, in order.
    pub fn take_orders(&mut self, out: &mut Vec<Order>) {
        out.append(&mut self.orders);
    }

    /// A step begins: leases granted so far take part in it.
    pub const fn step_begin(&mut self) {
        self.step_running = true;
    }

    /// The fence that the next [`Planner::step_end`] will stand for.
    #[must_use]
    pub const fn open_fence(&self) -> FenceId {
        self.open_fence
    }

    /// The running step has been submitted; its fence stands for all that it read and wrote.
    pub const fn step_end(&mut self) -> FenceId {
        let fence = self.open_fence;
        self.open_fence = FenceId::new(fence.get() + 1);
        self.step_running = false;
        fence
    }

    /// The fence after which rows that the engine has touched so far are settled.
    fn fence_of_use(&self) -> FenceId {
        if self.step_running {
            self.open_fence
        } else {
            FenceId::new(self.open_fence.get() - 1)
        }
    }

    fn in_flight(&self) -> usize {
        self.operations
            .values()
            .filter(|op| op.good_pages.is_none())
            .count()
    }

    /// What a request that does not fit waits for: the last store that makes room, if one does, else
    /// the oldest operation in flight.
    fn wait_for(&self) -> Option<OpId> {
        let running = |operation: &&Operation| operation.good_pages.is_none();
        let makes_room = |operation: &&Operation| operation.freeing && running(operation);
        let last = self.operations.values().rev().find(makes_room);
        let waited = last.or_else(|| self.operations.values().find(running));
        waited.map(|operation| operation.order.op)
    }

    /// Lets the stores that a request waits for go before loads: `after`, and those before it that
    /// make room as well.
    fn raise(&mut self, after: OpId) {
        for (&op, operation) in self.operations.range_mut(..=after) {
            let waited = op == after || operation.freeing;
            let order = &mut operation.order;
            if !waited || order.urgent || order.kind != OrderKind::Store {
                continue;
            }
            order.urgent = true;
            // Nobody may have seen the order yet.
            let planned = self.orders.iter_mut().find(|planned| planned.op == op);
            match planned {
                Some(planned) => planned.urgent = true,
                None => self.orders.push(Order {
                    op,
                    kind: OrderKind::Raise,
                    pages: Vec::new(),
                    after: None,
                    urgent: true,
                }),
            }
        }
    }

    fn issue(&mut self, draft: Draft) -> OpId {
        let op = OpId::new(self.next_op);
        self.next_op += 1;
        let Draft {
            kind,
            pages,
            after,
            lock,
            freeing,
        } = draft;
        tracing::debug!(%op, ?kind, pages = pages.len(), freeing, "operation planned");
        let order = Order {
            op,
            kind,
            pages,
            after,
            urgent: false,
        };
        self.orders.push(order.clone());
        let operation = Operation {
            order,
            lock,
            holders: 0,
            failed: Vec::new(),
            good_pages: None,
            arrived: None,
            cancelled: false,
            freeing,
        };
        self.operations.insert(op, operation);
        op
    }

    /// Checks every invariant of design section 5 that a planner can see. Cost: the size of the
    /// tiers; for tests and debugging.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.index.check_invariants()?;
        let sum = |counts: [u32; 6]| counts.iter().sum::<u32>();
        let l1 = PageState::ALL.map(|s| self.l1_states.count(s));
        if sum(l1) != self.config.pool.pages() {
            return Err(format!("L1 states {l1:?} do not add up"));
        }
        let l2 = PageState::ALL.map(|s| self.l2_states.count(s));
        if sum(l2) != self.l2_pages || self.l2.usable_pages() != self.l2_pages as usize {
            return Err(format!(
                "L2 states {l2:?} do not add up to {} pages",
                self.l2_pages
            ));
        }
        // The sink counts as free in the states and is in no allocator.
        let resident = |pages: u32| pages as usize;
        let checks = [
            (
                "L1 free",
                self.l1_states.count(PageState::Free) - 1,
                self.l1.free_pages(),
            ),
            (
                "L2 free",
                self.l2_states.count(PageState::Free),
                self.l2.free_pages(),
            ),
            (
                "L1 resident or loading",
                self.l1_states.count(PageState::Resident)
                    + self.l1_states.count(PageState::Loading),
                self.index.resident_l1(),
            ),
            (
                "L2 resident",
                self.l2_states.count(PageState::Resident),
                self.index.resident_l2(),
            ),
        ];
        match checks
            .into_iter()
            .find(|(_, states, owner)| resident(*states) != *owner)
        {
            Some((what, states, owner)) => Err(format!(
                "{what}: {states} pages by state, {owner} by their owner"
            )),
            None => Ok(()),
        }
    }
}
