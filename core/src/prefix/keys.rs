// SPDX-License-Identifier: Apache-2.0
//! Page keys: a cryptographic chain over the tokens of a prefix.
//!
//! The chain runs in units of [`UNIT_TOKENS`] tokens, whatever c and P are:
//!
//! ```text
//! digest_i = H("unit", tokens of unit i, extra identities in unit i)
//! chain_i  = H("link", chain_{i-1}, digest_i) cut to 128 bits,   chain_{-1} = namespace
//! ```
//!
//! The key of a page is the chain value at the page's end. Where W is no multiple of the unit
//! (c = 3, P = 16, or pages below 64 tokens) a page may end inside a unit; its key is then
//! H("part", chain at the last whole unit, the tokens of the unit up to the page's end). Either way
//! the key is a function of the namespace and of the tokens before the page's end, and prefixes of
//! equal length have equal keys under every c and P.
//!
//! The namespace holds semantics only. Placement (c, P, rank, row format, pool) belongs to the
//! identity of stored bytes, not of content.

use core::fmt;

use super::index::RootId;
use crate::stripe::Stripe;
use crate::units::TokenPos;

/// Tokens of a unit of the chain.
pub const UNIT_TOKENS: usize = 64;
/// Version of the chain; it enters every namespace.
pub const CHAIN_VERSION: u32 = 1;

/// Identity of a page's content: of all tokens up to the page's end and of the namespace.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey(u128);

impl PageKey {
    /// Wraps a key: an engine may bring block keys of its own.
    #[must_use]
    pub const fn new(key: u128) -> Self {
        Self(key)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageKey({self})")
    }
}

/// What makes equal tokens mean different KV rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceParts<'a> {
    /// Model and revision of its weights.
    pub model: &'a str,
    /// Adapter (LoRA), empty if none.
    pub adapter: &'a str,
    /// Salt of the tenant, empty if prefixes are shared by all.
    pub tenant_salt: &'a [u8],
    /// Quantisation of the KV rows.
    pub kv_quantisation: &'a str,
}

/// Root of a chain: a digest of [`NamespaceParts`] and [`CHAIN_VERSION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(u128);

impl Namespace {
    /// The namespace of these parts.
    #[must_use]
    pub fn new(parts: &NamespaceParts<'_>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("striata prefix namespace");
        hasher.update(&CHAIN_VERSION.to_le_bytes());
        let fields = [
            parts.model.as_bytes(),
            parts.adapter.as_bytes(),
            parts.tenant_salt,
            parts.kv_quantisation.as_bytes(),
        ];
        for field in fields {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
        Self(cut(&hasher.finalize()))
    }

    /// Wraps a digest that the caller made.
    #[must_use]
    pub const fn from_digest(digest: u128) -> Self {
        Self(digest)
    }

    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The root of this namespace in an index.
    #[must_use]
    pub const fn root(self) -> RootId {
        RootId::new(self.0)
    }
}

fn cut(hash: &blake3::Hash) -> u128 {
    let mut low = [0; 16];
    low.copy_from_slice(&hash.as_bytes()[..16]);
    u128::from_le_bytes(low)
}

/// An extra identity at a position that is already behind the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an extra identity at position {position} comes too late: the chain is at {at} already")]
pub struct MarkError {
    /// The refused position.
    pub position: u64,
    /// Tokens that the chain has taken in.
    pub at: u64,
}

/// Appends the keys of the whole pages of `tokens` to `out`.
pub fn page_keys(namespace: Namespace, stripe: Stripe, tokens: &[u32], out: &mut Vec<PageKey>) {
    KeyChain::new(namespace, stripe).extend(tokens, out);
}

/// A chain that grows with its request, chunk by chunk.
#[derive(Clone, Debug)]
pub struct KeyChain {
    chain: u128,
    page_tokens: u64,
    /// Tokens taken in.
    taken: u64,
    next_page_end: u64,
    /// Tokens of the unit in progress.
    unit: [u32; UNIT_TOKENS],
    /// Identities at or after the start of the unit in progress, by position.
    marks: Vec<(u64, u128)>,
}

impl KeyChain {
    /// The chain of an empty prefix, for pages of `stripe`.
    #[must_use]
    pub fn new(namespace: Namespace, stripe: Stripe) -> Self {
        let page_tokens = stripe.widened_page();
        Self {
            chain: namespace.0,
            page_tokens,
            taken: 0,
            next_page_end: page_tokens,
            unit: [0; UNIT_TOKENS],
            marks: Vec::new(),
        }
    }

    /// Tokens taken in so far.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.taken
    }

    /// Gives a position an identity beside its token, such as the digest of an image that a
    /// placeholder token stands for.
    ///
    /// # Errors
    /// A position that the chain has taken in already.
    pub fn mark(&mut self, position: TokenPos, identity: u128) -> Result<(), MarkError> {
        let position = position.get();
        if position < self.taken {
            return Err(MarkError {
                position,
                at: self.taken,
            });
        }
        let at = self.marks.partition_point(|&(p, _)| p <= position);
        self.marks.insert(at, (position, identity));
        Ok(())
    }

    /// Takes tokens in and appends the keys of the pages that they complete to `out`.
    ///
    /// **Cost**: one hash of 256 B and one of 48 B a unit.
    pub fn extend(&mut self, tokens: &[u32], out: &mut Vec<PageKey>) {
        let mut rest = tokens;
        while !rest.is_empty() {
            let filled = self.filled();
            let to_unit_end = UNIT_TOKENS - filled;
            let to_page_end = self.next_page_end - self.taken;
            let step = rest
                .len()
                .min(to_unit_end)
                .min(usize::try_from(to_page_end).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at(step);
            self.unit[filled..filled + step].copy_from_slice(now);
            self.taken += step as u64;
            rest = later;
            let part = filled + step;
            if part == UNIT_TOKENS {
                self.link();
            }
            if self.taken == self.next_page_end {
                self.next_page_end = self.next_page_end.saturating_add(self.page_tokens);
                out.push(PageKey(match part {
                    UNIT_TOKENS => self.chain,
                    _ => self.chained(b"part", part),
                }));
            }
        }
    }

    /// Tokens of the unit in progress.
    fn filled(&self) -> usize {
        usize::try_from(self.taken % UNIT_TOKENS as u64).unwrap_or(0)
    }

    /// Digests the whole unit in progress into the chain.
    fn link(&mut self) {
        self.chain = self.chained(b"link", UNIT_TOKENS);
        let behind = self.marks.partition_point(|&(p, _)| p < self.taken);
        self.marks.drain(..behind);
    }

    /// The chain value with the first `part` tokens of the unit in progress on top.
    fn chained(&self, tag: &[u8; 4], part: usize) -> u128 {
        let mut message = [0; 52];
        message[..4].copy_from_slice(tag);
        message[4..20].copy_from_slice(&self.chain.to_le_bytes());
        message[20..].copy_from_slice(self.digest(part).as_bytes());
        cut(&blake3::hash(&message))
    }

    /// Digest of the first `part` tokens of the unit in progress, all that were taken in of it, and
    /// of the identities among them. Those have a tag and a count of tokens before them, so that
    /// no tokens can pass for an identity.
    fn digest(&self, part: usize) -> blake3::Hash {
        let mut message = [0; 4 + 4 * UNIT_TOKENS];
        message[..4].copy_from_slice(b"unit");
        for (bytes, token) in message[4..].chunks_exact_mut(4).zip(&self.unit[..part]) {
            bytes.copy_from_slice(&token.to_le_bytes());
        }
        let message = &message[..4 + 4 * part];
        let marked = self.marks.partition_point(|&(p, _)| p < self.taken);
        if marked == 0 {
            return blake3::hash(message);
        }
        let start = self.taken - part as u64;
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"mark");
        hasher.update(&(part as u64).to_le_bytes());
        hasher.update(message);
        for (position, identity) in &self.marks[..marked] {
            hasher.update(&(position - start).to_le_bytes());
            hasher.update(&identity.to_le_bytes());
        }
        hasher.finalize()
    }
}
