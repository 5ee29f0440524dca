// SPDX-License-Identifier: Apache-2.0
//! A newtype for every index space, so that mixing two does not compile.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

use serde::{Deserialize, Serialize};

macro_rules! index {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name($repr);

        impl $name {
            /// Wraps a plain number.
            #[must_use]
            pub const fn new(value: $repr) -> Self {
                Self(value)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index!(
    /// Index of a token in its request, from 0.
    TokenPos,
    u64
);
index!(
    /// Index in the widened space of a tier; the same on every rank.
    Slot,
    u64
);
index!(
    /// Index of a row in one rank's buffer.
    Row,
    u64
);
index!(
    /// Rank inside a DCP group, 0 <= r < c.
    Rank,
    u32
);
index!(
    /// Index of a layer among the layers of one pool.
    LayerId,
    u32
);
index!(
    /// Replicated id of an asynchronous operation, in submission order.
    OpId,
    u64
);
index!(
    /// Replicated id of the end of a step; see `step_end` of the controller.
    FenceId,
    u64
);

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::L1 {}
    impl Sealed for super::L2 {}
}

/// A storage tier; it tags page ids, so that a GPU page is never taken for a host page.
pub trait Tier: sealed::Sealed + Copy + fmt::Debug + Send + Sync + 'static {
    /// Name in messages and metrics.
    const NAME: &'static str;
}

/// The GPU pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L1 {}
/// The pinned host pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2 {}

impl Tier for L1 {
    const NAME: &'static str = "L1";
}
impl Tier for L2 {
    const NAME: &'static str = "L2";
}

/// Id of a widened page of tier `T`; on each rank the physical page has the same id.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct PageId<T> {
    id: u32,
    #[serde(skip)]
    tier: PhantomData<T>,
}

/// A page of the GPU pool.
pub type L1Page = PageId<L1>;
/// A page of the pinned host pool.
pub type L2Page = PageId<L2>;

impl<T> PageId<T> {
    /// Wraps a plain page number.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            tier: PhantomData,
        }
    }

    /// The plain page number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.id
    }

    /// The page number as an index into arrays by page.
    #[must_use]
    pub const fn index(self) -> usize {
        self.id as usize
    }
}

impl<T> Clone for PageId<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for PageId<T> {}
impl<T> PartialEq for PageId<T> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl<T> Eq for PageId<T> {}
impl<T> PartialOrd for PageId<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for PageId<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.id.cmp(&other.id)
    }
}
impl<T> Hash for PageId<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}
impl<T: Tier> fmt::Debug for PageId<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", T::NAME, self.id)
    }
}
impl<T> fmt::Display for PageId<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// One widened page on both tiers: source and destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PagePair {
    /// The page of the GPU pool.
    pub l1: L1Page,
    /// The page of the host pool.
    pub l2: L2Page,
}
