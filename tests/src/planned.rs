// SPDX-License-Identifier: Apache-2.0
//! A planner without devices: the test sees every order and decides how it ends.

use std::collections::BTreeMap;

use striata::core::config::WritePolicy;
use striata::core::prefix::{Namespace, PageKey};
use striata::core::{OpId, PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::{Ack, Confirm, Lease, Lookup, Order, OrderKind, Planner, PlannerConfig, Reserve};

/// Tokens of a widened page: c = 4, P = 2.
pub const W: u64 = 8;

/// The namespace of every request.
pub const NAMESPACE: Namespace = Namespace::from_digest(0x57A7);

/// A planner, and its orders that have not ended.
#[derive(Debug)]
pub struct Planned {
    /// The planner under test.
    pub planner: Planner,
    /// Orders in flight.
    pub open: BTreeMap<OpId, Order>,
    /// Stores that were raised.
    pub raised: Vec<OpId>,
    usable: u64,
    l2_pages: u64,
}

/// Keys of a chain of `pages` pages that begins with `first`.
#[must_use]
pub fn chain(first: u32, pages: usize) -> Vec<PageKey> {
    (0..pages as u128)
        .map(|i| PageKey::new(u128::from(first) << 32 | i))
        .collect()
}

impl Planned {
    /// A write-through planner over that many usable pages.
    #[must_use]
    pub fn new(l1_pages: u64, l2_pages: u32) -> Self {
        Self::with(l1_pages, l2_pages, |_| {})
    }

    /// A write-back planner.
    #[must_use]
    pub fn write_back(l1_pages: u64, l2_pages: u32) -> Self {
        Self::with(l1_pages, l2_pages, |config| {
            config.write_policy = WritePolicy::WriteBack
        })
    }

    /// A planner whose configuration `set` changes.
    ///
    /// # Panics
    /// A configuration that is refused.
    #[must_use]
    pub fn with(l1_pages: u64, l2_pages: u32, set: impl FnOnce(&mut PlannerConfig)) -> Self {
        let stripe = Stripe::new(4, 2).expect("a stripe");
        let page = PageGeometry::new(2, 8, 3).expect("a page geometry");
        let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, l1_pages * 2);
        let mut config = PlannerConfig::new(pool.expect("a pool"), l2_pages);
        // A page has fewer tokens than HiCache's threshold.
        config.load_back_threshold = 1;
        set(&mut config);
        let planner = Planner::new(config).expect("a planner");
        Self {
            planner,
            open: BTreeMap::new(),
            raised: Vec::new(),
            usable: l1_pages,
            l2_pages: l2_pages.into(),
        }
    }

    /// Collects new orders; a cancelled load ends with no page.
    ///
    /// # Panics
    /// A broken invariant.
    pub fn collect(&mut self) {
        let mut orders = Vec::new();
        self.planner.take_orders(&mut orders);
        for order in orders {
            match order.kind {
                OrderKind::Store | OrderKind::Load => {
                    self.open.insert(order.op, order);
                }
                OrderKind::Raise => self.raised.push(order.op),
                OrderKind::Cancel => {}
            }
        }
        self.check();
    }

    /// Ends an operation with `good` good pages.
    ///
    /// # Panics
    /// An operation that is not in flight; a broken invariant.
    pub fn end(&mut self, op: OpId, good: usize) {
        self.open.remove(&op).expect("an operation in flight");
        let good_pages = u32::try_from(good).expect("a small operation");
        self.planner
            .acknowledge(Ack { op, good_pages })
            .expect("an acknowledgement");
        self.collect();
    }

    /// Ends everything in flight, whole, in order.
    pub fn settle(&mut self) {
        self.collect();
        while let Some((&op, order)) = self.open.first_key_value() {
            let pages = order.pages.len();
            self.end(op, pages);
        }
    }

    /// The only operation in flight of a kind.
    ///
    /// # Panics
    /// None, or several.
    pub fn only(&mut self, kind: OrderKind) -> Order {
        self.collect();
        let mut found = self.open.values().filter(|order| order.kind == kind);
        let order = found.next().expect("an operation of the kind").clone();
        assert!(found.next().is_none(), "several operations of the kind");
        order
    }

    /// Asks for a request.
    ///
    /// # Panics
    /// Arguments that are refused.
    pub fn ask(&mut self, keys: &[PageKey], tokens: u64) -> Reserve {
        let outcome = self
            .planner
            .reserve(NAMESPACE, keys, tokens)
            .expect("an outcome");
        self.collect();
        outcome
    }

    /// Reserves a request that fits.
    ///
    /// # Panics
    /// One that does not.
    pub fn reserve(&mut self, keys: &[PageKey], tokens: u64) -> Lease {
        match self.ask(keys, tokens) {
            Reserve::Granted(lease) => lease,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Inserts a confirmed request and keeps its stores in flight.
    ///
    /// # Panics
    /// A request that is not confirmed.
    pub fn insert(&mut self, lease: &Lease) {
        assert_eq!(self.planner.confirm(lease).expect("a lease"), Confirm::Done);
        self.planner
            .insert(lease, lease.tokens(), true)
            .expect("an insert");
        self.collect();
    }

    /// Drops a lease and lets the planner know.
    ///
    /// # Panics
    /// Broken bookkeeping.
    pub fn release(&mut self, lease: Lease) {
        drop(lease);
        self.planner.apply_releases().expect("releases");
        self.collect();
    }

    /// Computes a chain of whole pages from start to end, and leaves its stores in flight.
    pub fn compute(&mut self, keys: &[PageKey]) {
        let lease = self.reserve(keys, keys.len() as u64 * W);
        self.insert(&lease);
        self.release(lease);
    }

    /// As [`Planned::reserve`], and leaves new orders with the planner.
    ///
    /// # Panics
    /// A request that does not fit.
    pub fn reserve_without_collecting(&mut self, keys: &[PageKey], tokens: u64) -> Lease {
        match self
            .planner
            .reserve(NAMESPACE, keys, tokens)
            .expect("an outcome")
        {
            Reserve::Granted(lease) => lease,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// As [`Planned::compute`], and all copies end.
    pub fn cache(&mut self, keys: &[PageKey]) {
        self.compute(keys);
        self.settle();
    }

    /// Pages of a chain on L1, and after those on L2 alone.
    #[must_use]
    pub fn pages(&self, keys: &[PageKey]) -> (u64, u64) {
        let tokens = keys.len() as u64 * W + 1;
        let Lookup {
            tokens_l1,
            tokens_l2,
        } = self.planner.lookup(NAMESPACE, keys, tokens);
        (tokens_l1 / W, tokens_l2 / W)
    }

    /// Free pages of both tiers.
    #[must_use]
    pub fn free(&self) -> (u64, u64) {
        let stats = self.planner.stats();
        (stats.free_pages_l1, stats.free_pages_l2)
    }

    /// Pages of both tiers that are in use.
    #[must_use]
    pub fn used(&self) -> (u64, u64) {
        let (l1, l2) = self.free();
        (self.usable - l1, self.l2_pages - l2)
    }

    /// Checks every invariant.
    ///
    /// # Panics
    /// A broken one.
    pub fn check(&self) {
        if let Err(broken) = self.planner.check_invariants() {
            panic!("{broken}");
        }
    }
}
