// SPDX-License-Identifier: Apache-2.0
//! Programs of calls of the planner, whose copies end in any order and with any number of pages:
//! every invariant holds after every call, whatever is not refused as it should is an error of the
//! program's own making, and when all is over no page is lost.

mod program;

use std::collections::{BTreeMap, BTreeSet};

pub use program::Input;
use program::{Op, Path};
use striata::{Ack, Confirm, Error, Lease, Order, OrderKind, Planner, PlannerConfig, Reserve};
use striata_core::config::{PolicyName, WritePolicy};
use striata_core::prefix::{Namespace, PageKey};
use striata_core::{L1Page, OpId, PageGeometry, PoolGeometry, PoolKind, Stripe};

/// Most calls of a program, and most leases.
const MAX_OPS: usize = 128;
const MAX_LEASES: u32 = 6;

/// A request: its lease and the keys that name its pages.
struct Request {
    lease: Lease,
    root: u8,
    path: Vec<u8>,
}

struct Machine {
    planner: Planner,
    requests: Vec<Request>,
    open: BTreeMap<OpId, Order>,
    w: u64,
    l1_pages: u64,
    l2_pages: u64,
}

const fn namespace(root: u8) -> Namespace {
    Namespace::from_digest(root as u128 + 7)
}

/// Each key names the whole prefix; namespaces share keys.
fn keys_of(path: &[u8]) -> Vec<PageKey> {
    let chain = path.iter().scan(1u128, |key, &symbol| {
        *key = *key << 1 | u128::from(symbol);
        Some(PageKey::new(*key))
    });
    chain.collect()
}

fn planner(input: &Input) -> (Planner, u64, u64) {
    let dcp = 1 + u32::from(input.dcp % 8);
    let page_rows = 1 + u32::from(input.page_rows % 4);
    let (l1, l2) = (
        1 + u64::from(input.l1_pages % 20),
        u32::from(input.l2_pages % 20),
    );
    let stripe = Stripe::new(dcp, page_rows).expect("a stripe");
    let page = PageGeometry::new(page_rows, 4, 1).expect("a page geometry");
    let rows = l1 * u64::from(page_rows);
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, rows).expect("a pool");
    let mut config = PlannerConfig::new(pool, l2);
    let pick = |n: u8, of: usize| usize::from(n) % of;
    config.policy = PolicyName::ALL[pick(input.policy, PolicyName::ALL.len())];
    config.write_policy = WritePolicy::ALL[pick(input.write_policy, WritePolicy::ALL.len())];
    config.load_back_threshold = input.threshold.into();
    config.load_back_quota = input.quota.map(|quota| u32::from(quota % 8));
    config.max_store_pages = input.max_store_pages.map(|pages| 1 + u32::from(pages % 8));
    config.free_watermark = u32::from(input.watermark % 8).min(pool.usable_pages() - 1);
    config.full_length_hits = input.full_length_hits;
    config.duplicates_first = input.duplicates_first;
    config.max_leases = MAX_LEASES;
    config.events = true;
    let usable = u64::from(pool.usable_pages());
    (Planner::new(config).expect("a planner"), usable, l2.into())
}

impl Machine {
    fn new(input: &Input) -> Self {
        let (planner, l1_pages, l2_pages) = planner(input);
        Self {
            w: planner.stripe().widened_page(),
            planner,
            requests: Vec::new(),
            open: BTreeMap::new(),
            l1_pages,
            l2_pages,
        }
    }

    fn at(&self, lease: u8) -> Option<usize> {
        (!self.requests.is_empty()).then(|| usize::from(lease) % self.requests.len())
    }

    fn tokens(&self, pages: usize, tail: u8) -> u64 {
        pages as u64 * self.w + u64::from(tail) % self.w
    }

    fn step(&mut self, op: &Op) -> Option<()> {
        match *op {
            Op::Reserve {
                path,
                tail,
                missing,
            } => self.reserve(path, tail, missing),
            Op::Load { path, tail } => self.load(path, tail),
            Op::Lookup { path, tail } => {
                let keys = keys_of(&path.symbols());
                let tokens = self.tokens(keys.len(), tail);
                let found = self.planner.lookup(namespace(path.root()), &keys, tokens);
                assert!(found.tokens_l1 + found.tokens_l2 <= tokens);
            }
            Op::StepBegin => self.planner.step_begin(),
            Op::StepEnd => {
                self.planner.step_end();
            }
            Op::Acknowledge { op, good } => self.acknowledge(op, good),
            Op::Confirm { lease } => self.confirm(self.at(lease)?),
            Op::Insert {
                lease,
                tokens,
                count_hit,
            } => self.insert(self.at(lease)?, tokens.into(), count_hit),
            Op::Extend {
                lease,
                tokens,
                keys,
            } => self.extend(self.at(lease)?, tokens.into(), keys),
            Op::Store { lease } => {
                let at = self.at(lease)?;
                let stored = self.planner.store(&self.requests[at].lease);
                let stored = stored.expect("a store");
                assert_eq!(stored.op.is_some(), stored.pages > 0);
            }
            Op::Drop { lease } => {
                let at = self.at(lease)?;
                self.requests.swap_remove(at);
            }
            Op::ApplyReleases => self.planner.apply_releases().expect("releases"),
            Op::Evict { pages } => {
                let room = self.planner.evict(pages.into()).expect("an eviction");
                assert!(room.freed <= usize::from(pages));
            }
            Op::Maintain => {
                self.planner.maintain().expect("an eviction");
            }
            Op::Reset { root } => {
                let root = namespace(u8::from(root));
                self.planner.reset(root).expect("a reset");
            }
            Op::TakeOrders => self.take_orders(),
        }
        Some(())
    }

    fn take_orders(&mut self) {
        let mut orders = Vec::new();
        self.planner.take_orders(&mut orders);
        for order in orders {
            if matches!(order.kind, OrderKind::Store | OrderKind::Load) {
                assert!(!order.pages.is_empty());
                self.open.insert(order.op, order);
            }
        }
    }

    fn reserve(&mut self, path: Path, tail: u8, missing: u8) {
        let symbols = path.symbols();
        let tokens = self.tokens(symbols.len(), tail);
        let keys = keys_of(&symbols);
        let given = keys.len() - usize::from(missing > 250).min(keys.len());
        match self
            .planner
            .reserve(namespace(path.root()), &keys[..given], tokens)
        {
            Ok(Reserve::Granted(lease)) => {
                assert_eq!(lease.pages().len() as u64, tokens.div_ceil(self.w));
                self.granted(lease, path.root(), symbols);
            }
            Ok(Reserve::NotNow { .. }) => {
                assert!(self.planner.stats().operations_in_flight > 0);
            }
            Ok(Reserve::OutOfSpace { .. }) | Err(Error::TooManyLeases { .. }) => {}
            Err(Error::EmptyRequest) => assert_eq!(tokens, 0),
            Err(Error::KeysShort { .. }) => assert!(given < keys.len()),
            Err(other) => panic!("{other}"),
        }
    }

    fn load(&mut self, path: Path, tail: u8) {
        let symbols = path.symbols();
        let tokens = self.tokens(symbols.len(), tail);
        let loaded = self
            .planner
            .load(namespace(path.root()), &keys_of(&symbols), tokens);
        match loaded {
            Ok(Some(Reserve::Granted(lease))) => {
                let pages = lease.pages().len();
                self.granted(lease, path.root(), symbols[..pages].to_vec());
            }
            Ok(_) | Err(Error::TooManyLeases { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn granted(&mut self, lease: Lease, root: u8, path: Vec<u8>) {
        assert!(lease.hit_tokens() <= lease.pages().len() as u64 * self.w);
        self.requests.push(Request { lease, root, path });
    }

    /// Ends an operation in flight as it likes; others are refused and change nothing.
    fn acknowledge(&mut self, op: u8, good: u8) {
        let Some((&id, order)) = self.open.iter().nth(usize::from(op) % 16) else {
            let ack = Ack {
                op: OpId::new(u64::MAX),
                good_pages: 0,
            };
            let refused = self.planner.acknowledge(ack);
            return assert!(matches!(refused, Err(Error::UnknownOperation { .. })));
        };
        let pages = u32::try_from(order.pages.len()).expect("a small operation");
        let ack = Ack {
            op: id,
            good_pages: u32::from(good) % (pages + 2),
        };
        match self.planner.acknowledge(ack) {
            Ok(()) => {
                self.open.remove(&id);
                let again = self.planner.acknowledge(ack);
                assert!(matches!(again, Err(Error::UnknownOperation { .. })));
            }
            Err(Error::AckTooLarge { .. }) => assert!(ack.good_pages > pages),
            Err(other) => panic!("{other}"),
        }
    }

    fn confirm(&mut self, at: usize) {
        let lease = &self.requests[at].lease;
        match self.planner.confirm(lease).expect("a lease") {
            Confirm::Done => {}
            Confirm::Pending { op } => assert!(lease.loads().contains(&op)),
            Confirm::LoadFailed { valid_tokens } => assert!(valid_tokens < lease.hit_tokens()),
        }
    }

    fn insert(&mut self, at: usize, tokens: u64, count_hit: bool) {
        let request = &self.requests[at];
        let covered = request.lease.pages().len() as u64 * self.w;
        let tokens = tokens % (covered + self.w);
        let confirmed = self.planner.confirm(&request.lease).expect("a lease");
        match self.planner.insert(&request.lease, tokens, count_hit) {
            Ok(inserted) => {
                assert_eq!(confirmed, Confirm::Done);
                for duplicate in inserted.duplicates {
                    let own = request.lease.pages()[duplicate.index];
                    assert_eq!(own, duplicate.duplicate);
                    assert_ne!(own, duplicate.kept);
                }
            }
            Err(Error::Unconfirmed { .. }) => assert_ne!(confirmed, Confirm::Done),
            Err(Error::BeyondLease { .. }) => assert!(tokens > covered),
            Err(Error::KeysShort { .. }) => {
                assert!(tokens >= (request.path.len() as u64 + 1) * self.w);
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn extend(&mut self, at: usize, tokens: u64, keys: u8) {
        let request = &mut self.requests[at];
        let before = request.lease.pages().len();
        let tokens = tokens % (self.w * 12);
        let grown = self.planner.extend(&mut request.lease, tokens);
        if grown.expect("a lease").is_some() {
            return assert_eq!(request.lease.pages().len(), before);
        }
        assert!(request.lease.pages().len() as u64 * self.w >= tokens);
        let named = request.path.len();
        let more = request.lease.pages().len().saturating_sub(named);
        request
            .path
            .extend((0..more).map(|page| keys >> (page % 8) & 1));
        let keys = keys_of(&request.path);
        self.planner
            .append_keys(&request.lease, &keys[named..])
            .expect("a lease");
    }

    /// What must hold after every call: the planner's invariants, and that live tables share pages
    /// only as hits of the same prefix.
    fn check(&self) {
        self.planner.check_invariants().expect("a sound planner");
        let mut seen: BTreeMap<L1Page, (u8, Option<&[u8]>)> = BTreeMap::new();
        for request in &self.requests {
            let mut own = BTreeSet::new();
            for (at, page) in request.lease.pages().iter().enumerate() {
                assert!(own.insert(*page), "a table has page {page} twice");
                let named = request.path.get(..=at);
                let before = seen.insert(*page, (request.root, named));
                if let Some((root, prefix)) = before {
                    assert!(named.is_some() && (root, prefix) == (request.root, named));
                }
            }
        }
    }

    /// Ends everything; with nothing held, both tiers can be emptied.
    fn finish(mut self) {
        self.requests.clear();
        for _ in 0..64 {
            self.planner.apply_releases().expect("releases");
            self.take_orders();
            while !self.open.is_empty() {
                self.acknowledge(0, 1);
                self.take_orders();
            }
            self.planner.evict(usize::MAX).expect("an eviction");
        }
        self.check();
        for root in 0..2 {
            self.planner.reset(namespace(root)).expect("a reset");
        }
        self.take_orders();
        while !self.open.is_empty() {
            self.acknowledge(0, 0);
        }
        self.check();
        let stats = self.planner.stats();
        let free = (stats.free_pages_l1, stats.free_pages_l2);
        assert_eq!(free, (self.l1_pages, self.l2_pages), "{stats:?}");
    }
}

/// Runs a program and empties the planner.
pub fn run(input: &Input) {
    let mut machine = Machine::new(input);
    for op in input.ops.iter().take(MAX_OPS) {
        // A call that lacks a lease is left out.
        if machine.step(op).is_some() {
            machine.check();
        }
    }
    machine.finish();
}
