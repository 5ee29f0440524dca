// SPDX-License-Identifier: Apache-2.0
//! One request of a trace, whatever its format.

/// Most input or output tokens of a request.
pub const MAX_TOKENS: u64 = 1 << 31;

/// Consecutive block ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first id.
    pub first: u64,
    /// How many ids.
    pub count: u64,
}

/// The prefix blocks of a request, run-length coded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    block_tokens: u32,
    runs: Vec<Run>,
}

impl Blocks {
    /// No ids yet, for blocks of `block_tokens` tokens; 0 if the format has none.
    #[must_use]
    pub const fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens,
            runs: Vec::new(),
        }
    }

    /// Appends ids; a run that continues the last one is merged with it.
    pub fn push(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        if let Some(last) = self.runs.last_mut()
            && last.first.checked_add(last.count) == Some(run.first)
        {
            last.count = last.count.saturating_add(run.count);
            return;
        }
        self.runs.push(run);
    }

    /// Tokens of a block; 0 if the request has no identity.
    #[must_use]
    pub const fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// The runs, in order.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The number of ids.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.runs
            .iter()
            .fold(0, |sum, run| sum.saturating_add(run.count))
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs
            .iter()
            .flat_map(|run| (run.first..).zip(0..run.count).map(|(id, _)| id))
    }

    /// Tokens that the ids name, of a prompt of `input_tokens`: the last block may be partial.
    #[must_use]
    pub fn named_tokens(&self, input_tokens: u64) -> u64 {
        self.count()
            .saturating_mul(u64::from(self.block_tokens))
            .min(input_tokens)
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Index in the trace, from 0.
    pub index: u64,
    /// Seconds since the trace began.
    pub arrival: f64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// The session it belongs to, if the format tells.
    pub session: Option<u64>,
    /// Its prefix blocks.
    pub blocks: Blocks,
}

impl Request {
    /// What names the request's neighbours: its session, else its second block (the first is often
    /// a system prompt that all share), else its first block, else its index.
    #[must_use]
    pub fn affinity(&self) -> u64 {
        self.session
            .or_else(|| self.blocks.ids().take(2).last())
            .unwrap_or(self.index)
    }
}
