// SPDX-License-Identifier: Apache-2.0
//! Why the index refuses a call.

/// A call that contradicts the index; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The lock is not one of this index.
    #[error("the path lock is not one of this index")]
    UnknownLock,
    /// Keys and pages of an insert do not pair up.
    #[error("{keys} page keys were given with {pages} L1 pages")]
    Lengths {
        /// Keys given.
        keys: usize,
        /// Pages given.
        pages: usize,
    },
    /// An insert must cover the path that its lock holds.
    #[error("the lock holds a path of {held} pages and only {keys} keys were given")]
    ShorterThanLock {
        /// Keys given.
        keys: usize,
        /// Pages of the locked path.
        held: usize,
    },
    /// The keys of an insert leave the locked path.
    #[error("key {index} is not the one that the locked path has there")]
    OffPath {
        /// Index of the first key that differs.
        index: usize,
    },
    /// The page id is not one of the tier.
    #[error("{tier} page {page} is out of range: the tier has {total} pages")]
    PageRange {
        /// Tier of the page.
        tier: &'static str,
        /// The page.
        page: u32,
        /// Pages of the tier.
        total: usize,
    },
    /// The page stands in the tree, or twice in the call.
    #[error("{tier} page {page} has an owner already")]
    PageOwned {
        /// Tier of the page.
        tier: &'static str,
        /// The page.
        page: u32,
    },
    /// Load targets must continue the L1 prefix of a path over pages that L2 holds.
    #[error(
        "page {index} of the path cannot be loaded: {resident} lead on L1, then {loadable} on L2"
    )]
    NotLoadable {
        /// Index in the path.
        index: usize,
        /// Pages of the path on L1.
        resident: usize,
        /// Pages right after them that are on L2.
        loadable: usize,
    },
}
