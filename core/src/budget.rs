// SPDX-License-Identifier: Apache-2.0
//! What a configuration costs a rank, and how much fits in given bytes.
//!
//! ```text
//! bytes of a widened page on a rank = P rows of the target + W rows of the draft, which every
//!                                     rank holds whole: a draft layer costs c times as much
//! ```

use crate::geometry::PoolKind;
use crate::models::{Model, ModelError};
use crate::stripe::{Stripe, StripeError};
use crate::topology::{Topology, TopologyError};

/// Bytes of an element of weights and queries, bf16.
const BF16: u64 = 2;
/// Bytes of a value of partial results and of their LSE, f32.
const F32: u64 = 4;

/// Why nothing can be budgeted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// Heads that do not divide.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// An impossible page size.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// No single MLA pool, or states that do not divide.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What fits in some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Widened pages that can be used.
    pub pages: u64,
    /// Tokens of those, over all ranks of the group.
    pub tokens: u64,
    /// Bytes left over.
    pub left: u64,
}

/// Weights that query replication makes every rank of a group hold, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryWeights {
    /// The query projection of one layer, a rank's own heads.
    pub q_sharded: u64,
    /// The query projection of one layer, the heads of the group.
    pub q_replicated: u64,
    /// The absorbed key projection of one layer, own heads.
    pub kc_sharded: u64,
    /// The absorbed key projection of one layer, the heads of the group.
    pub kc_replicated: u64,
    /// What replication adds on a rank over all MLA layers.
    pub extra: u64,
}

/// Buffers of the decode and extend paths on a rank, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspaces {
    /// Queries of the group's heads.
    pub queries: u64,
    /// Partial results and their LSE, sent and received.
    pub exchange: u64,
    /// Rows of a prefix gather.
    pub gather: u64,
}

impl Workspaces {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.queries
            .saturating_add(self.exchange)
            .saturating_add(self.gather)
    }
}

/// Bytes of a token's cell on a rank when a draft of `draft_layers` layers is replicated beside
/// `target_layers` striped ones of `target_cell` bytes together:
/// floor(cell * (1 + L_draft * c / L_target)). Without target layers there is no cell.
#[must_use]
pub fn token_cell(target_cell: u64, target_layers: u32, draft_layers: u32, dcp: u32) -> u64 {
    let target = u128::from(target_layers);
    let all = target + u128::from(draft_layers) * u128::from(dcp);
    let cell = (u128::from(target_cell) * all).checked_div(target);
    u64::try_from(cell.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// The costs of one model on one topology.
#[derive(Clone, Debug)]
pub struct Budget<'a> {
    model: &'a Model,
    topology: Topology,
    stripe: Stripe,
    draft_layers: u32,
}

impl<'a> Budget<'a> {
    /// Costs with physical pages of `page_rows` rows and a draft of `draft_layers` MLA layers of
    /// the target's rows.
    ///
    /// # Errors
    /// Heads that do not divide, rows of several formats, an impossible page size.
    pub fn new(
        model: &'a Model,
        topology: Topology,
        page_rows: u32,
        draft_layers: u32,
    ) -> Result<Self, BudgetError> {
        let stripe = Stripe::new(topology.dcp(), page_rows)?;
        topology.heads(model.heads())?;
        model.row_format()?;
        Ok(Self {
            model,
            topology,
            stripe,
            draft_layers,
        })
    }

    fn row_bytes(&self) -> u64 {
        // The constructor saw that there is one format.
        let row = self.model.row_format();
        row.map_or(0, |row| u64::from(row.row_bytes()))
    }

    /// Bytes of one row of a rank in all layers, the draft's c-fold share in it.
    #[must_use]
    pub fn token_cell(&self) -> u64 {
        token_cell(
            self.model.token_bytes(),
            self.model.mla_layers(),
            self.draft_layers,
            self.topology.dcp(),
        )
    }

    /// Bytes of one widened page on a rank, in the pools of one kind.
    #[must_use]
    pub fn page_bytes(&self, kind: PoolKind) -> u64 {
        let rows = u64::from(self.stripe.page_rows());
        match kind {
            PoolKind::Striped => rows * self.model.token_bytes(),
            PoolKind::Replicated => {
                let draft = u64::from(self.draft_layers).saturating_mul(self.row_bytes());
                self.stripe.widened_page().saturating_mul(draft)
            }
            PoolKind::PerRequest => 0,
        }
    }

    fn whole_page_bytes(&self) -> u64 {
        let striped = self.page_bytes(PoolKind::Striped);
        striped.saturating_add(self.page_bytes(PoolKind::Replicated))
    }

    /// What fits in `bytes` of a rank's GPU memory: one page is the sink.
    #[must_use]
    pub fn l1_fit(&self, bytes: u64) -> Fit {
        self.fit(bytes, 1)
    }

    /// What fits in `bytes` of a rank's host memory.
    #[must_use]
    pub fn l2_fit(&self, bytes: u64) -> Fit {
        self.fit(bytes, 0)
    }

    fn fit(&self, bytes: u64, reserved: u64) -> Fit {
        let page = self.whole_page_bytes();
        let all = bytes.checked_div(page).unwrap_or(0);
        let pages = all.saturating_sub(reserved);
        Fit {
            pages,
            tokens: pages.saturating_mul(self.stripe.widened_page()),
            left: bytes - all * page,
        }
    }

    /// Bytes of a rank's GPU memory for `pages` usable widened pages and the sink.
    #[must_use]
    pub fn l1_bytes(&self, pages: u64) -> u64 {
        self.l2_bytes(pages.saturating_add(1))
    }

    /// Bytes of a rank's host memory for `pages` widened pages.
    #[must_use]
    pub fn l2_bytes(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.whole_page_bytes())
    }

    /// Recurrent states that fit in `bytes` of a rank. c changes nothing: a state belongs to a
    /// request, and its heads are divided among the attention-TP ranks. None if the model has no
    /// recurrent layer.
    ///
    /// # Errors
    /// Heads that do not divide.
    pub fn states_fit(&self, bytes: u64) -> Result<Option<u64>, BudgetError> {
        let state = self.model.state_bytes(self.topology.attention_tp())?;
        Ok(bytes.checked_div(state))
    }

    /// What query replication costs, in bf16.
    ///
    /// # Errors
    /// Heads that do not divide.
    pub fn query_weights(&self) -> Result<QueryWeights, BudgetError> {
        let heads = self.topology.heads(self.model.heads())?;
        let (nope, rope) = (self.model.nope_head_dim(), self.model.rope_dim());
        let input = self.model.q_lora_rank().unwrap_or(self.model.hidden());
        let head_q = (u64::from(nope) + u64::from(rope)).saturating_mul(u64::from(input) * BF16);
        let head_kc = u64::from(nope) * u64::from(self.model.kv_lora_rank()) * BF16;
        let of = |heads: u32, bytes: u64| u64::from(heads).saturating_mul(bytes);
        let mut weights = QueryWeights {
            q_sharded: of(heads.local, head_q),
            q_replicated: of(heads.gathered, head_q),
            kc_sharded: of(heads.local, head_kc),
            kc_replicated: of(heads.gathered, head_kc),
            extra: 0,
        };
        let more_q = weights.q_replicated - weights.q_sharded;
        let more_kc = weights.kc_replicated - weights.kc_sharded;
        weights.extra = of(self.model.mla_layers(), more_q.saturating_add(more_kc));
        Ok(weights)
    }

    /// Buffers for batches of `tokens` query tokens and gathers of `gather_rows` rows. Sizes are
    /// those of packed messages with bf16 outputs and f32 LSE; one rank alone exchanges nothing.
    ///
    /// # Errors
    /// Heads that do not divide.
    pub fn workspaces(&self, tokens: u64, gather_rows: u64) -> Result<Workspaces, BudgetError> {
        let heads = u64::from(self.topology.heads(self.model.heads())?.gathered);
        let latent = u64::from(self.model.kv_lora_rank());
        let rope = u64::from(self.model.rope_dim());
        let rows = tokens.saturating_mul(heads);
        let exchange = if self.stripe.is_identity() {
            0
        } else {
            rows.saturating_mul(2 * (latent * BF16 + F32))
        };
        Ok(Workspaces {
            queries: rows.saturating_mul((latent + rope) * BF16),
            exchange,
            gather: gather_rows.saturating_mul(self.row_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn deepseek() -> Model {
        Model::preset("deepseek-v3.1").unwrap()
    }

    #[test]
    fn the_draft_term_grows_with_c() {
        let cells: Vec<_> = [1, 4, 8].map(|c| token_cell(1000, 60, 2, c)).to_vec();
        assert_eq!(cells, [1033, 1133, 1266]);
        assert_eq!(token_cell(1000, 60, 0, 8), 1000);
        assert_eq!(token_cell(1000, 0, 2, 8), 0);
        assert_eq!(token_cell(u64::MAX, 1, u32::MAX, u32::MAX), u64::MAX);
        let model = deepseek();
        let topology = Topology::new(8, 1, 8).unwrap();
        let budget = Budget::new(&model, topology, 64, 1).unwrap();
        // 61 striped layers, and one replicated layer of 8 times the rows.
        assert_eq!(budget.token_cell(), 1152 * (61 + 8));
        assert_eq!(budget.l1_bytes(0), 64 * budget.token_cell());
    }

    #[test]
    fn replicated_queries_of_deepseek_cost_4_6_gib() {
        let model = deepseek();
        let topology = Topology::new(8, 1, 8).unwrap();
        let budget = Budget::new(&model, topology, 64, 0).unwrap();
        let weights = budget.query_weights().unwrap();
        assert_eq!(
            (weights.q_replicated, weights.q_sharded),
            (72 * MIB, 9 * MIB)
        );
        assert_eq!(
            (weights.kc_replicated, weights.kc_sharded),
            (16 * MIB, 2 * MIB)
        );
        assert_eq!(weights.extra, 61 * (63 + 14) * MIB);
        // Those bytes hold about 70 thousand rows a rank, 560 thousand tokens of the group.
        assert_eq!(budget.l2_fit(weights.extra).tokens, 560_640);
    }

    #[test]
    fn what_fits_counts_the_sink_on_l1_only() {
        let model = deepseek();
        let budget = Budget::new(&model, Topology::new(8, 1, 4).unwrap(), 64, 0).unwrap();
        let page = 64 * 70_272;
        let l1 = budget.l1_fit(10 * page + 5);
        assert_eq!((l1.pages, l1.tokens, l1.left), (9, 9 * 256, 5));
        assert_eq!(budget.l1_bytes(9), 10 * page);
        assert_eq!(budget.l2_fit(10 * page).pages, 10);
        assert_eq!(budget.l1_fit(page - 1).pages, 0);
    }

    #[test]
    fn states_do_not_depend_on_c() {
        let model = Model::preset("kimi-linear-48b").unwrap();
        let states = |c| {
            let topology = Topology::new(4, 1, c).unwrap();
            let budget = Budget::new(&model, topology, 64, 0).unwrap();
            budget.states_fit(1 << 30).unwrap()
        };
        assert_eq!(states(1), Some((1 << 30) / 10_854_400));
        assert_eq!(states(4), states(1));
        let deepseek = deepseek();
        let budget = Budget::new(&deepseek, Topology::new(4, 1, 4).unwrap(), 64, 0).unwrap();
        assert_eq!(budget.states_fit(1 << 30).unwrap(), None);
    }

    #[test]
    fn workspaces_follow_the_batch() {
        let model = deepseek();
        let budget = Budget::new(&model, Topology::new(8, 1, 8).unwrap(), 64, 0).unwrap();
        let work = budget.workspaces(64, 1000).unwrap();
        // 131,584 bytes a token each way.
        assert_eq!(work.exchange, 64 * 2 * 131_584);
        assert_eq!(work.queries, 64 * 128 * 1152);
        assert_eq!(work.gather, 1_152_000);
        assert_eq!(work.total(), work.exchange + work.queries + work.gather);
        let alone = Budget::new(&model, Topology::new(8, 1, 1).unwrap(), 64, 0).unwrap();
        assert_eq!(alone.workspaces(64, 0).unwrap().exchange, 0);
    }
}
