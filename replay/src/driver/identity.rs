// SPDX-License-Identifier: Apache-2.0
//! What names the content of the request that is served: buffers that are reused.

use striata::Prefix;
use striata_core::prefix::{PageKey, page_keys};

use super::plan::Plan;
use crate::config::KeySource;
use crate::trace::Request;

/// Keys, tokens and content of one request.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// Content of the whole pages, from block ids: what fingerprints are made from, whatever the
    /// index is asked with.
    pub(crate) content: Vec<u128>,
    /// Content of the last page if it is not whole.
    pub(crate) partial: u128,
    /// Keys of the whole pages, as the index knows them, if the plan says that they are needed
    /// beside the tokens.
    keys: Vec<PageKey>,
    /// The tokens, if the index hashes them.
    tokens: Vec<u32>,
}

impl Identity {
    /// Takes the place of the request before.
    pub(crate) fn fill(&mut self, plan: &Plan, request: &Request) {
        plan.workload.page_keys(request, &mut self.content);
        self.partial = plan.workload.partial_page_key(request);
        self.keys.clear();
        match plan.keys {
            KeySource::Blocks => {
                self.tokens.clear();
                self.keys
                    .extend(self.content.iter().copied().map(PageKey::new));
            }
            KeySource::Tokens => {
                plan.workload.tokens(request, &mut self.tokens);
                if plan.hashes_keys {
                    page_keys(plan.namespace, plan.stripe, &self.tokens, &mut self.keys);
                }
            }
        }
    }

    /// Keys of the first `pages` whole pages, or of all that there are.
    pub(crate) fn keys(&self, pages: u64) -> &[PageKey] {
        let pages = usize::try_from(pages).unwrap_or(usize::MAX);
        &self.keys[..pages.min(self.keys.len())]
    }

    /// Keys of the whole pages after those of a prompt of `prompt_tokens`.
    pub(crate) fn keys_after(&self, plan: &Plan, prompt_tokens: u64) -> &[PageKey] {
        let prompt = self.keys(plan.stripe.whole_pages(prompt_tokens)).len();
        &self.keys[prompt..]
    }

    /// The prompt, as the controller is asked with it.
    pub(crate) fn prefix(&self, plan: &Plan, tokens: u64) -> Prefix<'_> {
        let end = usize::try_from(tokens).unwrap_or(usize::MAX);
        match plan.keys {
            KeySource::Tokens => Prefix::Tokens(&self.tokens[..end.min(self.tokens.len())]),
            KeySource::Blocks => Prefix::Keys {
                keys: self.keys(plan.stripe.whole_pages(tokens)),
                tokens,
            },
        }
    }
}
