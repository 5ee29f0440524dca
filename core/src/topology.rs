// SPDX-License-Identifier: Apache-2.0
//! Which ranks form a replica, which form a DCP group, and which heads a rank keeps.
//!
//! ```text
//! tp = 8, dp = 2, c = 2
//! global rank        0 1 2 3 | 4 5 6 7     two replicas of attention TP 4
//! DCP group          0 0 1 1 | 2 2 3 3     consecutive ranks, never across the bar
//! DCP rank           0 1 0 1 | 0 1 0 1
//! ```
//!
//! Every group holds a whole striped copy of its replica's cache, for other heads.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::stripe::{rank_in_group, whole_share};
use crate::units::Rank;

/// Why a topology is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A size of zero.
    #[error("{what} is 0: it must be at least 1 (tp {tp}, dp {dp}, dcp size {dcp})")]
    Zero {
        /// Which size.
        what: &'static str,
        /// Tensor-parallel size.
        tp: u32,
        /// Attention data-parallel size.
        dp: u32,
        /// DCP size.
        dcp: u32,
    },
    /// Attention replicas of unequal size.
    #[error("dp {dp} does not divide tp {tp}")]
    Replicas {
        /// Tensor-parallel size.
        tp: u32,
        /// Attention data-parallel size.
        dp: u32,
    },
    /// A DCP group of more ranks than there are.
    #[error("dcp size {dcp} is larger than tp {tp}")]
    LargerThanTp {
        /// Tensor-parallel size.
        tp: u32,
        /// DCP size.
        dcp: u32,
    },
    /// A DCP group of more ranks than a replica has.
    #[error(
        "dcp size {dcp} crosses replica boundaries: attention TP is {attention_tp} \
         (tp {tp} / dp {dp})"
    )]
    CrossesReplicas {
        /// Tensor-parallel size.
        tp: u32,
        /// Attention data-parallel size.
        dp: u32,
        /// DCP size.
        dcp: u32,
        /// tp / dp.
        attention_tp: u32,
    },
    /// The weak rule holds and the strong one does not.
    #[error(
        "dcp size {dcp} crosses replica boundaries: attention TP is {attention_tp} (tp {tp} / dp \
         {dp}), which is not a multiple of {dcp}, although tp {tp} is"
    )]
    NotNested {
        /// Tensor-parallel size.
        tp: u32,
        /// Attention data-parallel size.
        dp: u32,
        /// DCP size.
        dcp: u32,
        /// tp / dp.
        attention_tp: u32,
    },
    /// Groups of unequal size.
    #[error("dcp size {dcp} does not divide tp {tp} (attention TP is {attention_tp})")]
    NotDivisor {
        /// Tensor-parallel size.
        tp: u32,
        /// DCP size.
        dcp: u32,
        /// tp / dp.
        attention_tp: u32,
    },
    /// Heads that do not fall evenly on the ranks.
    #[error(
        "{heads} heads do not divide by {ways}, the {what} (attention TP {attention_tp}, dcp size \
         {dcp})"
    )]
    Heads {
        /// Query heads of the model.
        heads: u32,
        /// What they do not divide by.
        ways: u32,
        /// Name of that.
        what: &'static str,
        /// tp / dp.
        attention_tp: u32,
        /// DCP size.
        dcp: u32,
    },
}

/// The ranks of an attention layer: tensor parallel, attention data parallel, DCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "TopologyFields", into = "TopologyFields")]
pub struct Topology {
    tp: u32,
    dp: u32,
    dcp: u32,
    attention_tp: u32,
    groups_per_replica: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFields {
    tp: u32,
    dp: u32,
    dcp: u32,
}

impl TryFrom<TopologyFields> for Topology {
    type Error = TopologyError;
    fn try_from(f: TopologyFields) -> Result<Self, TopologyError> {
        Self::new(f.tp, f.dp, f.dcp)
    }
}

impl From<Topology> for TopologyFields {
    fn from(t: Topology) -> Self {
        Self {
            tp: t.tp,
            dp: t.dp,
            dcp: t.dcp,
        }
    }
}

impl Topology {
    /// `tp` ranks in `dp` attention replicas, each divided into DCP groups of `dcp` ranks.
    ///
    /// # Errors
    /// A size of 0; dp that does not divide tp; c that does not divide tp / dp.
    pub const fn new(tp: u32, dp: u32, dcp: u32) -> Result<Self, TopologyError> {
        let sizes = [("tp", tp), ("dp", dp), ("dcp size", dcp)];
        let mut at = 0;
        while at < sizes.len() {
            if sizes[at].1 == 0 {
                let what = sizes[at].0;
                return Err(TopologyError::Zero { what, tp, dp, dcp });
            }
            at += 1;
        }
        if !tp.is_multiple_of(dp) {
            return Err(TopologyError::Replicas { tp, dp });
        }
        let attention_tp = tp / dp;
        if dcp > tp {
            return Err(TopologyError::LargerThanTp { tp, dcp });
        }
        if dcp > attention_tp {
            return Err(TopologyError::CrossesReplicas {
                tp,
                dp,
                dcp,
                attention_tp,
            });
        }
        match (whole_share(attention_tp, dcp), whole_share(tp, dcp)) {
            (Some(groups_per_replica), _) => Ok(Self {
                tp,
                dp,
                dcp,
                attention_tp,
                groups_per_replica,
            }),
            (None, Some(_)) => Err(TopologyError::NotNested {
                tp,
                dp,
                dcp,
                attention_tp,
            }),
            (None, None) => Err(TopologyError::NotDivisor {
                tp,
                dcp,
                attention_tp,
            }),
        }
    }

    /// Ranks in all.
    #[must_use]
    pub const fn tp(self) -> u32 {
        self.tp
    }
    /// Attention data-parallel replicas.
    #[must_use]
    pub const fn dp(self) -> u32 {
        self.dp
    }
    /// c, ranks of a DCP group.
    #[must_use]
    pub const fn dcp(self) -> u32 {
        self.dcp
    }
    /// Ranks of a replica, tp / dp.
    #[must_use]
    pub const fn attention_tp(self) -> u32 {
        self.attention_tp
    }
    /// Replicas: each has requests and a cache of its own.
    #[must_use]
    pub const fn replicas(self) -> u32 {
        self.dp
    }
    /// DCP groups of a replica: whole copies of its cache, for other heads.
    #[must_use]
    pub const fn groups_per_replica(self) -> u32 {
        self.groups_per_replica
    }

    /// The global ranks of every DCP group, in order: c consecutive ranks each.
    pub fn groups(self) -> impl ExactSizeIterator<Item = Range<u32>> {
        (0..self.replicas() * self.groups_per_replica)
            .map(move |group| group * self.dcp..(group + 1) * self.dcp)
    }

    /// The replica of a global rank.
    #[must_use]
    pub const fn replica_of(self, global: u32) -> u32 {
        global / self.attention_tp
    }

    /// The rank inside its DCP group of a global rank: its attention-TP rank modulo c.
    #[must_use]
    pub const fn dcp_rank_of(self, global: u32) -> Rank {
        match rank_in_group(global % self.attention_tp, self.dcp) {
            Some(rank) => rank,
            // The constructor refused a size of 0.
            None => Rank::new(0),
        }
    }

    /// How `total` query heads of the model fall on the ranks.
    ///
    /// # Errors
    /// Heads that do not divide by c or by the attention TP.
    pub const fn heads(self, total: u32) -> Result<HeadShards, TopologyError> {
        let (dcp, attention_tp) = (self.dcp, self.attention_tp);
        let divisors = [(dcp, "dcp size"), (attention_tp, "attention TP")];
        let mut at = 0;
        while at < divisors.len() {
            let (ways, what) = divisors[at];
            if total == 0 || whole_share(total, ways).is_none() {
                return Err(TopologyError::Heads {
                    heads: total,
                    ways,
                    what,
                    attention_tp,
                    dcp,
                });
            }
            at += 1;
        }
        let local = total / attention_tp;
        Ok(HeadShards {
            local,
            gathered: local * dcp,
        })
    }
}

/// Query heads of a rank and of its DCP group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HeadShards {
    /// H, heads of one attention-TP rank.
    pub local: u32,
    /// H * c, heads that a rank attends for after the query gather: by DCP rank, then local head.
    pub gathered: u32,
}

impl HeadShards {
    /// The gathered heads that `rank` keeps after the merge: \[r * H, (r + 1) * H); empty for a
    /// rank outside the group.
    #[must_use]
    pub fn kept(self, rank: Rank) -> Range<u32> {
        match rank.get().checked_mul(self.local) {
            Some(first) if first < self.gathered => first..first.saturating_add(self.local),
            _ => 0..0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_numbers() {
        let refused = |tp, dp, dcp| Topology::new(tp, dp, dcp).unwrap_err().to_string();
        assert_eq!(
            refused(64, 4, 32),
            "dcp size 32 crosses replica boundaries: attention TP is 16 (tp 64 / dp 4)"
        );
        assert!(refused(12, 2, 4).contains("attention TP is 6"));
        assert!(refused(8, 1, 3).contains("dcp size 3 does not divide tp 8"));
        assert!(refused(8, 3, 1).contains("dp 3 does not divide tp 8"));
        assert!(refused(8, 1, 0).contains("dcp size is 0"));
        assert!(refused(8, 1, 16).contains("16 is larger than tp 8"));
    }

    /// Seen to fail if heads need not divide.
    #[test]
    fn b55_heads_divide_by_dcp_and_attention_tp() {
        let error = Topology::new(3, 1, 3).unwrap().heads(64).unwrap_err();
        assert_eq!(
            error.to_string(),
            "64 heads do not divide by 3, the dcp size (attention TP 3, dcp size 3)"
        );
        assert!(Topology::new(16, 1, 2).unwrap().heads(8).is_err());
        assert!(Topology::new(1, 1, 1).unwrap().heads(0).is_err());
        let shards = Topology::new(16, 2, 4).unwrap().heads(128).unwrap();
        assert_eq!((shards.local, shards.gathered), (16, 64));
        assert_eq!(shards.kept(Rank::new(3)), 48..64);
        assert_eq!(shards.kept(Rank::new(4)), 0..0);
        assert_eq!(shards.kept(Rank::new(u32::MAX)), 0..0);
        let absurd = HeadShards {
            local: 3 << 30,
            gathered: u32::MAX,
        };
        assert_eq!(absurd.kept(Rank::new(1)), 3 << 30..u32::MAX);
    }

    #[test]
    fn ranks_know_their_group_and_replica() {
        let t = Topology::new(8, 2, 2).unwrap();
        let ranks: Vec<_> = (0..8).map(|g| t.dcp_rank_of(g).get()).collect();
        assert_eq!(ranks, [0, 1, 0, 1, 0, 1, 0, 1]);
        let replicas: Vec<_> = (0..8).map(|g| t.replica_of(g)).collect();
        assert_eq!(replicas, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(t.groups().len(), 4);
    }
}
