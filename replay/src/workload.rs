// SPDX-License-Identifier: Apache-2.0
//! From blocks to tokens and page keys.
//!
//! A token is a function of its block's id and its offset in the block, so that any widened page
//! size works on any trace. Tokens that no id names (a partial last block without one, generated
//! tokens, whole requests of traces without identity) are the request's own: nothing shares them.
//!
//! A page key made here names the whole prefix up to the page's end, because a block id does. It
//! is the block that holds the page's last token, and that token's offset in it: with 64-token
//! blocks and W = 512, page j is named by id 8j + 7.

use striata_core::Stripe;

use crate::config::Outputs;
use crate::trace::Request;

const BLOCK: u64 = 0x0062_6C6F_636B;
const OWN: u64 = 0x006F_776E;
const PARTIAL: u64 = 0x7061_7274;

/// Makes the tokens and the page keys of requests.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    stripe: Stripe,
    outputs: Outputs,
}

impl Workload {
    /// A workload for widened pages of `stripe`.
    #[must_use]
    pub const fn new(stripe: Stripe, outputs: Outputs) -> Self {
        Self { stripe, outputs }
    }

    /// Tokens that the request stores: its prompt, and what it generates if outputs are kept.
    #[must_use]
    pub const fn stored_tokens(self, request: &Request) -> u64 {
        match self.outputs {
            Outputs::Drop => request.input_tokens,
            Outputs::Keep => request.input_tokens + request.output_tokens,
        }
    }

    /// Replaces `out` by the stored tokens of the request.
    pub fn tokens(self, request: &Request, out: &mut Vec<u32>) {
        out.clear();
        let named = request.blocks.named_tokens(request.input_tokens);
        let mut left = named;
        for id in request.blocks.ids() {
            let block = TokenSeed::new(BLOCK, id);
            let tokens = left.min(request.blocks.block_tokens().into());
            out.extend((0..tokens).map(|offset| block.token(offset)));
            left -= tokens;
        }
        let own = TokenSeed::new(OWN, request.index);
        out.extend((named..self.stored_tokens(request)).map(|position| own.token(position)));
    }

    /// Replaces `out` by the keys of the whole widened pages of the request's stored tokens.
    pub fn page_keys(self, request: &Request, out: &mut Vec<u128>) {
        out.clear();
        let page = self.stripe.widened_page();
        let named = request.blocks.named_tokens(request.input_tokens);
        let block = u64::from(request.blocks.block_tokens());
        let mut block_start = 0;
        for run in request.blocks.runs() {
            let run_end = named.min(block_start + run.count * block);
            while let Some(last) = next_page_end(out, page).filter(|last| *last < run_end) {
                let into = last - block_start;
                out.push(key(BLOCK, run.first + into / block, into % block));
            }
            block_start = run_end;
        }
        let whole = self.stripe.whole_pages(self.stored_tokens(request));
        while (out.len() as u64) < whole {
            out.push(key(OWN, request.index, out.len() as u64));
        }
    }

    /// What names the request's last page if its tokens do not fill it: nothing shares that page.
    #[must_use]
    pub fn partial_page_key(self, request: &Request) -> u128 {
        key(PARTIAL, request.index, 0)
    }
}

/// Position of the last token of the page after those in `out`.
const fn next_page_end(out: &[u128], page: u64) -> Option<u64> {
    match (out.len() as u64 + 1).checked_mul(page) {
        Some(end) => Some(end - 1),
        None => None,
    }
}

const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

const fn mix32(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

const fn key(domain: u64, id: u64, offset: u64) -> u128 {
    const LANE: u64 = 0x9E37_79B9_7F4A_7C15;
    let low = mix64(mix64(id ^ domain.rotate_left(24)).wrapping_add(offset));
    let high = mix64(mix64(id.wrapping_add(LANE) ^ domain).wrapping_sub(offset.wrapping_mul(LANE)));
    (high as u128) << 64 | low as u128
}

/// What the tokens of one block are made from.
#[derive(Clone, Copy)]
struct TokenSeed {
    low: u32,
    high: u32,
}

impl TokenSeed {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the halves of a 64-bit hash are wanted"
    )]
    const fn new(domain: u64, id: u64) -> Self {
        let hash = mix64(id ^ mix64(domain));
        Self {
            low: hash as u32,
            high: (hash >> 32) as u32,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an offset is below 2^32, and tokens are 32-bit hashes anyway"
    )]
    const fn token(self, offset: u64) -> u32 {
        mix32(
            self.low
                .wrapping_add((offset as u32).wrapping_mul(0x9E37_79B1)),
        ) ^ self.high
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::trace::{Blocks, Run};

    fn request(index: u64, input_tokens: u64, block_tokens: u32, runs: &[(u64, u64)]) -> Request {
        let mut blocks = Blocks::new(block_tokens);
        for &(first, count) in runs {
            blocks.push(Run { first, count });
        }
        Request {
            index,
            arrival: 0.0,
            input_tokens,
            output_tokens: 3,
            session: None,
            blocks,
        }
    }

    fn keys(workload: Workload, request: &Request) -> Vec<u128> {
        let mut out = Vec::new();
        workload.page_keys(request, &mut out);
        out
    }

    #[test]
    fn a_page_of_eight_blocks_is_named_by_the_eighth() {
        let workload = Workload::new(Stripe::new(8, 64).unwrap(), Outputs::Drop);
        let got = keys(workload, &request(5, 1100, 64, &[(10, 9), (40, 8)]));
        assert_eq!(got, [key(BLOCK, 17, 63), key(BLOCK, 46, 63)]);
        let got = keys(workload, &request(5, 600, 64, &[(10, 7)]));
        assert_eq!(got, [key(OWN, 5, 0)]);
    }

    #[test]
    fn generated_tokens_and_unnamed_prompts_are_the_requests_own() {
        let stripe = Stripe::new(2, 4).unwrap();
        let keep = Workload::new(stripe, Outputs::Keep);
        let drop = Workload::new(stripe, Outputs::Drop);
        let (a, b) = (request(1, 13, 8, &[(9, 1)]), request(2, 13, 8, &[(9, 1)]));
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        keep.tokens(&a, &mut of_a);
        keep.tokens(&b, &mut of_b);
        assert_eq!((of_a.len(), &of_a[..8]), (16, &of_b[..8]));
        assert!(of_a[8..].iter().zip(&of_b[8..]).all(|(a, b)| a != b));
        drop.tokens(&a, &mut of_b);
        assert_eq!(of_b, of_a[..13]);
        assert_eq!(keys(keep, &a).len(), 2);
        assert_eq!(keys(drop, &a), keys(drop, &b));
        assert_ne!(keys(keep, &a)[1], keys(keep, &b)[1]);
    }

    proptest! {
        /// Two pages have the same key exactly if the tokens up to their ends are the same.
        #[test]
        fn keys_and_tokens_name_the_same_prefixes(
            dcp in 1u32..5,
            rows in 1u32..40,
            block in 1u32..40,
            shapes in prop::collection::vec((0u64..4, 0u64..6, 0u64..40), 1..6),
        ) {
            let workload = Workload::new(Stripe::new(dcp, rows).unwrap(), Outputs::Drop);
            let page = usize::try_from(u64::from(dcp) * u64::from(rows)).unwrap();
            let mut prefix_of: HashMap<u128, Vec<u32>> = HashMap::new();
            let mut prefixes: HashSet<Vec<u32>> = HashSet::new();
            for (index, (shared, own, tail)) in (0u64..).zip(shapes) {
                // Blocks 1.. are shared by all; the rest hangs behind them and is the shape's own.
                let first = 100 * (shared + 1);
                let tokens = (shared + own) * u64::from(block) + tail;
                let request = request(index, tokens, block, &[(1, shared), (first, own)]);
                let (mut all, mut keys) = (Vec::new(), Vec::new());
                workload.tokens(&request, &mut all);
                workload.page_keys(&request, &mut keys);
                prop_assert_eq!(all.len() as u64, tokens);
                prop_assert_eq!(keys.len(), all.len() / page);
                for (key, end) in keys.into_iter().zip((page..).step_by(page)) {
                    let prefix = all[..end].to_vec();
                    prefixes.insert(prefix.clone());
                    prop_assert_eq!(prefix_of.entry(key).or_insert_with(|| prefix.clone()), &prefix);
                }
            }
            prop_assert_eq!(prefixes.len(), prefix_of.len());
        }
    }
}
