// SPDX-License-Identifier: Apache-2.0
//! The policies that ship.

use super::policy::{EvictionPolicy, EvictionRank, NodeMeta};

/// Hits from which [`Slru`] protects a node.
pub const SLRU_PROTECTED_HITS: u32 = 2;

/// Names that [`policy_by_name`] knows.
pub const POLICY_NAMES: [&str; 7] = ["lru", "lfu", "fifo", "mru", "filo", "slru", "priority"];

/// The policy of that name, if there is one; see [`POLICY_NAMES`].
#[must_use]
pub fn policy_by_name(name: &str) -> Option<Box<dyn EvictionPolicy>> {
    Some(match name {
        "lru" => Box::new(Lru),
        "lfu" => Box::new(Lfu),
        "fifo" => Box::new(Fifo),
        "mru" => Box::new(Mru),
        "filo" => Box::new(Filo),
        "slru" => Box::new(Slru),
        "priority" => Box::new(Priority),
        _ => return None,
    })
}

macro_rules! policy {
    ($(#[$doc:meta])* $name:ident, $text:literal, by_access: $access:literal, $rank:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl EvictionPolicy for $name {
            fn name(&self) -> &'static str {
                $text
            }

            fn rank(&self, node: &NodeMeta) -> EvictionRank {
                let rank: fn(&NodeMeta) -> [u64; 2] = $rank;
                EvictionRank(rank(node))
            }

            fn ranks_by_access_alone(&self) -> bool {
                $access
            }
        }
    };
}

policy!(
    /// Least recently used first.
    Lru, "lru", by_access: true, |node| [node.last_access, 0]
);
policy!(
    /// Fewest hits first, then least recently used.
    Lfu, "lfu", by_access: false, |node| [u64::from(node.hits), node.last_access]
);
policy!(
    /// Oldest first.
    Fifo, "fifo", by_access: false, |node| [node.created, 0]
);
policy!(
    /// Most recently used first.
    Mru, "mru", by_access: true, |node| [u64::MAX - node.last_access, 0]
);
policy!(
    /// Youngest first.
    Filo, "filo", by_access: false, |node| [u64::MAX - node.created, 0]
);
policy!(
    /// Segmented LRU: nodes under [`SLRU_PROTECTED_HITS`] hits first, each segment least recently
    /// used first.
    Slru, "slru", by_access: false,
    |node| [u64::from(node.hits >= SLRU_PROTECTED_HITS), node.last_access]
);
policy!(
    /// Lowest priority first, then least recently used.
    Priority, "priority", by_access: false,
    |node| [u64::from(node.priority.cast_unsigned() ^ 1 << 31), node.last_access]
);

#[cfg(test)]
mod tests {
    use super::*;

    fn node(created: u64, last_access: u64, hits: u32, priority: i32) -> NodeMeta {
        NodeMeta {
            created,
            last_access,
            hits,
            priority,
        }
    }

    /// The order in which a policy evicts four nodes.
    fn order(name: &str) -> Vec<usize> {
        let nodes = [
            node(1, 9, 1, 5),
            node(2, 3, 4, -7),
            node(3, 8, 2, 0),
            node(4, 4, 1, 0),
        ];
        let policy = policy_by_name(name).unwrap();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_key(|&at| policy.rank(&nodes[at]));
        order
    }

    #[test]
    fn each_policy_has_its_order() {
        assert_eq!(order("lru"), [1, 3, 2, 0]);
        assert_eq!(order("mru"), [0, 2, 3, 1]);
        assert_eq!(order("fifo"), [0, 1, 2, 3]);
        assert_eq!(order("filo"), [3, 2, 1, 0]);
        assert_eq!(order("lfu"), [3, 0, 2, 1]);
        assert_eq!(order("slru"), [3, 0, 1, 2]);
        assert_eq!(order("priority"), [1, 3, 2, 0]);
    }

    #[test]
    fn names_and_policies_agree() {
        for name in POLICY_NAMES {
            assert_eq!(policy_by_name(name).unwrap().name(), name);
        }
        assert!(policy_by_name("arc").is_none());
    }

    #[test]
    fn a_rank_by_access_ignores_everything_else() {
        for name in POLICY_NAMES {
            let policy = policy_by_name(name).unwrap();
            if policy.ranks_by_access_alone() {
                assert_eq!(
                    policy.rank(&node(1, 5, 0, 0)),
                    policy.rank(&node(4, 5, 9, 9))
                );
            }
        }
    }
}
