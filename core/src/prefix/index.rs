// SPDX-License-Identifier: Apache-2.0
//! The index itself: its parts, its counts, and the match.

use super::arena::Arena;
use super::children::Children;
use super::edge::{Edge, EdgeStore, NONE};
use super::keys::PageKey;
use super::node::{Node, NodeId, Totals};
use super::places::Places;
use super::queues::Heaps;
use crate::evict::EvictionPolicy;
use crate::units::{L1, L1Page, L2, L2Page};

/// The node above all roots; it has no pages and stays.
pub(super) const TOP: u32 = 0;

/// A namespace in an index. Nothing is registered: roots come with their first page or lock and go
/// with their last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootId(PageKey);

impl RootId {
    /// The root of a namespace.
    #[must_use]
    pub const fn new(namespace: u128) -> Self {
        Self(PageKey::new(namespace))
    }
}

/// The longest prefix of some keys that the index holds: pages on L1, then pages on L2 alone.
///
/// It protects nothing; [`PrefixIndex::acquire`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMatch {
    pub(super) root: RootId,
    pub(super) node: Option<NodeId>,
    /// Leading pages on L1, or being loaded there.
    pub l1_pages: usize,
    /// Pages right after them on L2 alone.
    pub l2_pages: usize,
}

impl PathMatch {
    /// Pages matched on either tier.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.l1_pages.saturating_add(self.l2_pages)
    }

    /// The node in which the match ends, if it has pages.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        self.node
    }
}

/// What evictions let go. Vectors grow from call to call until [`Evicted::clear`].
#[derive(Debug, Default)]
pub struct Evicted {
    /// L1 pages that left the tree: the caller frees them.
    pub l1: Vec<L1Page>,
    /// L2 pages that left the tree: the caller frees them.
    pub l2: Vec<L2Page>,
    /// Keys of the pages that no match finds on L1 any more, if recorded: those of `l1`, but that
    /// [`PrefixIndex::retire`] names what locks and pins still hold as well, and
    /// [`PrefixIndex::sweep_retired`] names nothing twice.
    pub l1_keys: Vec<PageKey>,
    /// Keys of the pages that no match finds on L2 any more, likewise.
    pub l2_keys: Vec<PageKey>,
    /// Pages that left L1 and stay on L2.
    pub kept_on_l2: usize,
    /// L2 copies that went while the page stays on L1.
    pub copies_dropped: usize,
    /// Pages that an eviction left on no tier; retired ones do not count.
    pub dropped: usize,
    /// Whether keys are recorded, for cache events.
    pub record_keys: bool,
}

impl Evicted {
    /// Forgets what was let go and keeps the memory and the wish for keys.
    pub fn clear(&mut self) {
        self.l1.clear();
        self.l2.clear();
        self.l1_keys.clear();
        self.l2_keys.clear();
        self.kept_on_l2 = 0;
        self.copies_dropped = 0;
        self.dropped = 0;
    }

    pub(super) fn push_l1(&mut self, page: u32, key: PageKey) {
        self.l1.push(L1Page::new(page));
        if self.record_keys {
            self.l1_keys.push(key);
        }
    }

    pub(super) fn push_l2(&mut self, page: u32, key: PageKey) {
        self.l2.push(L2Page::new(page));
        if self.record_keys {
            self.l2_keys.push(key);
        }
    }
}

/// The prefix index of both tiers; see the [module](super) for its invariants.
#[derive(Debug)]
pub struct PrefixIndex {
    pub(super) policy: Box<dyn EvictionPolicy>,
    pub(super) nodes: Arena,
    pub(super) children: Children,
    pub(super) edges: EdgeStore,
    pub(super) l1: Places<L1>,
    pub(super) l2: Places<L2>,
    pub(super) heaps: Heaps,
    pub(super) totals: Totals,
    /// The last sequence number given out.
    pub(super) clock: u64,
    pub(super) exact_hits: bool,
    /// Scratch: the nodes of a path or of a subtree.
    pub(super) walk: Vec<u32>,
    /// Scratch: pages that an insert has claimed.
    pub(super) claimed: Vec<L1Page>,
    /// Scratch: nodes that an eviction from L1 has passed over.
    pub(super) aside: Vec<u32>,
    /// Roots that were retired and are still locked; they are not in the table of children.
    pub(super) retired_roots: usize,
}

impl PrefixIndex {
    /// An empty index over tiers of that many pages.
    #[must_use]
    pub fn new(policy: Box<dyn EvictionPolicy>, l1_pages: u32, l2_pages: u32) -> Self {
        let mut nodes = Arena::default();
        nodes.add(Edge::default());
        Self {
            policy,
            nodes,
            children: Children::default(),
            edges: EdgeStore::new(l1_pages as usize + l2_pages as usize),
            l1: Places::new(l1_pages),
            l2: Places::new(l2_pages),
            heaps: Heaps::default(),
            totals: Totals::default(),
            clock: 0,
            exact_hits: false,
            walk: Vec::new(),
            claimed: Vec::new(),
            aside: Vec::new(),
            retired_roots: 0,
        }
    }

    /// Adds the L2 pages up to `l2_pages`, which stand nowhere yet. A lower number does nothing.
    pub fn grow_l2(&mut self, l2_pages: u32) {
        self.l2.grow(l2_pages);
        self.edges.raise_limit(self.l1.count() + self.l2.count());
    }

    /// Keeps pages of different hit counts in different nodes even if the policy does not look at
    /// hits. A write policy with a threshold above one hit needs it; the price is a deeper tree.
    #[must_use]
    pub fn with_exact_hits(mut self) -> Self {
        self.exact_hits = true;
        self
    }

    /// The root of a namespace.
    #[must_use]
    pub const fn root(&self, namespace: u128) -> RootId {
        RootId::new(namespace)
    }

    /// The eviction policy.
    #[must_use]
    pub fn policy(&self) -> &dyn EvictionPolicy {
        &*self.policy
    }

    /// Pages on L1, with those of retired namespaces until [`PrefixIndex::sweep_retired`].
    #[must_use]
    pub const fn resident_l1(&self) -> usize {
        self.totals.l1 + self.l1.in_limbo()
    }

    /// Pages on L2, with those of retired namespaces until [`PrefixIndex::sweep_retired`].
    #[must_use]
    pub const fn resident_l2(&self) -> usize {
        self.totals.l2 + self.l2.in_limbo()
    }

    /// L1 pages that no path lock and no pin holds: what [`PrefixIndex::evict_l1`] can free, exact
    /// while nothing is pinned and an upper bound otherwise (a pin also holds what is above it).
    #[must_use]
    pub const fn evictable_l1(&self) -> usize {
        self.totals.free_l1
    }

    /// L2 pages that [`PrefixIndex::evict_l2`] can free, exact while nothing is pinned and an upper
    /// bound otherwise.
    #[must_use]
    pub const fn evictable_l2(&self) -> usize {
        self.totals.free_l2 + self.totals.free_copies
    }

    /// Nodes that hold pages or locks.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len() - 1
    }

    /// The longest prefix of `keys` that is on a tier. Recency is left alone.
    ///
    /// **Cost**: one table probe a node and one comparison a page.
    #[must_use]
    pub fn match_prefix(&self, root: RootId, keys: &[PageKey]) -> PathMatch {
        let mut found = PathMatch {
            root,
            node: None,
            l1_pages: 0,
            l2_pages: 0,
        };
        let Some(mut at) = self.find_root(root) else {
            return found;
        };
        let mut rest = keys;
        while let Some(&first) = rest.first() {
            let Some(child) = self.children.find(&self.nodes, at, first) else {
                break;
            };
            let node = &self.nodes[child];
            let equal = common_prefix(&node.edge.keys, rest);
            let on_l1 = equal.min(node.l1_len as usize);
            let held = if node.lost == 0 {
                equal
            } else {
                on_l1 + leading_on_l2(&node.edge.l2[on_l1..equal])
            };
            found.l1_pages += on_l1;
            found.l2_pages += held - on_l1;
            if held > 0 {
                found.node = Some(self.nodes.id(child));
            }
            if held < node.edge.len() {
                break;
            }
            rest = &rest[held..];
            at = child;
        }
        found
    }

    pub(super) fn find_root(&self, root: RootId) -> Option<u32> {
        self.children.find(&self.nodes, TOP, root.0)
    }

    /// The node of a root, made if there is none.
    pub(super) fn root_node(&mut self, root: RootId) -> u32 {
        if let Some(at) = self.find_root(root) {
            return at;
        }
        let at = self.nodes.add(Edge::default());
        let seq = self.tick();
        let node = &mut self.nodes[at];
        node.first_key = root.0;
        node.seq = seq;
        self.link(at, TOP);
        at
    }

    /// A new sequence number.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Changes a node and keeps the counts of the index.
    pub(super) fn update<R>(
        &mut self,
        at: u32,
        change: impl FnOnce(&mut Node, &mut Places<L1>, &mut Places<L2>) -> R,
    ) -> R {
        let node = &mut self.nodes[at];
        self.totals -= node.share();
        let result = change(node, &mut self.l1, &mut self.l2);
        self.totals += node.share();
        result
    }

    /// Refills the scratch walk with the nodes from the root down to `at`.
    pub(super) fn walk_to(&mut self, mut at: u32) {
        self.walk.clear();
        while at != TOP {
            self.walk.push(at);
            at = self.nodes[at].parent;
        }
        self.walk.reverse();
    }
}

/// How many leading pages have a copy.
pub(super) fn leading_on_l2(l2: &[u32]) -> usize {
    l2.iter().take_while(|&&page| page != NONE).count()
}

/// Length of the common prefix, in blocks that the compiler can vectorise.
pub(super) fn common_prefix(a: &[PageKey], b: &[PageKey]) -> usize {
    const BLOCK: usize = 8;
    let blocks = a
        .chunks_exact(BLOCK)
        .zip(b.chunks_exact(BLOCK))
        .take_while(|(a, b)| {
            a.iter()
                .zip(*b)
                .fold(0, |differ, (a, b)| differ | (a.get() ^ b.get()))
                == 0
        })
        .count();
    let done = blocks * BLOCK;
    let tail = a[done..].iter().zip(&b[done..]);
    done + tail.take_while(|(a, b)| a == b).count()
}
