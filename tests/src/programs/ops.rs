// SPDX-License-Identifier: Apache-2.0
//! What programs are made of.

use core::fmt;

use striata::PlannerConfig;
use striata::core::config::{PolicyName, WritePolicy};
use striata::gpu::sim::{Fault, OpClass};

use crate::stepped::Sizes;

/// Namespaces of a program.
pub const ROOTS: u8 = 2;

/// A path of whole pages of two kinds, packed: so short that programs share much.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Path {
    pub(crate) root: u8,
    bits: u8,
    len: u8,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.root, self.symbols())
    }
}

impl Path {
    /// The first `len` of six pages whose kinds `bits` says, in namespace `root`; all are taken
    /// modulo what there is.
    #[must_use]
    pub const fn new(root: u8, bits: u8, len: u8) -> Self {
        Self {
            root: root % ROOTS,
            bits,
            len: len % 7,
        }
    }

    /// Its pages.
    #[must_use]
    pub fn symbols(self) -> Vec<u8> {
        (0..self.len).map(|at| self.bits >> at & 1).collect()
    }
}

/// One call, or what the world does between two calls. Leases and ranks are named modulo their
/// number.
#[derive(Clone, Debug)]
pub enum Op {
    /// Reserve, forward, the end of the step, insert and drop.
    Serve {
        /// What is asked for.
        path: Path,
        /// Whether every copy is awaited, or all are left in flight.
        settled: bool,
    },
    /// Asks for a page table.
    Reserve {
        /// What is asked for.
        path: Path,
        /// Whether a token comes after the whole pages.
        tail: bool,
    },
    /// Loads what is on L2.
    Load {
        /// Of this.
        path: Path,
    },
    /// Asks how a prompt stands.
    Lookup {
        /// Which.
        path: Path,
    },
    /// Begins a step.
    StartLoads,
    /// Enqueues the forward of a lease.
    Forward {
        /// Which.
        lease: u8,
    },
    /// Ends the step.
    StepEnd,
    /// Asks how a lease's loads went.
    Confirm {
        /// Which.
        lease: u8,
    },
    /// Gives pages to the index.
    Insert {
        /// Whose.
        lease: u8,
        /// The first so many.
        pages: u8,
        /// Whether more will come.
        chunk: bool,
    },
    /// Grows a lease.
    Extend {
        /// Which.
        lease: u8,
        /// Kinds of the new pages.
        bits: u8,
        /// How many.
        pages: u8,
    },
    /// Stores what L2 lacks of a lease's path.
    Store {
        /// Whose.
        lease: u8,
    },
    /// Drops a lease.
    Drop {
        /// Which.
        lease: u8,
        /// Whether another thread does.
        elsewhere: bool,
    },
    /// Evicts from L1.
    Evict {
        /// So many pages at most.
        pages: u8,
    },
    /// Forgets a namespace.
    Reset {
        /// Which.
        root: u8,
    },
    /// Takes in what has ended.
    Poll,
    /// Does units of submission.
    Pump {
        /// How often.
        times: u8,
    },
    /// Runs operations of the devices.
    Run {
        /// How many.
        steps: u8,
    },
    /// Lets something go wrong.
    Fault {
        /// On which rank.
        rank: u8,
        /// With what.
        class: OpClass,
        /// With which of those, from now on.
        nth: u8,
        /// What.
        fault: Fault,
    },
    /// Lets go what faults hold.
    Release,
    /// Lets everything end that was begun.
    Settle,
}

/// An engine and what is done to it.
#[derive(Clone)]
pub struct Program {
    /// What the scheduler's choices follow from.
    pub seed: u64,
    /// Sizes of the engine.
    pub sizes: Sizes,
    /// Eviction.
    pub policy: PolicyName,
    /// When pages are stored.
    pub write_policy: WritePolicy,
    /// Whether pages with a copy on L2 are evicted first.
    pub duplicates_first: bool,
    /// Most pages of a request that are loaded back.
    pub quota: Option<u32>,
    /// Most pages in stores.
    pub max_store_pages: Option<u32>,
    /// Pages of L1 that are kept free.
    pub watermark: u32,
    /// Whether a request may hit all of its tokens.
    pub full_length_hits: bool,
    /// Whether calls go on while other threads drop leases.
    pub concurrent: bool,
    /// What is done.
    pub ops: Vec<Op>,
}

impl fmt::Debug for Program {
    /// A call a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            sizes,
            policy,
            write_policy,
            ops,
            ..
        } = self;
        writeln!(f, "seed {seed}, {sizes:?}, {policy}, {write_policy}")?;
        let Self {
            duplicates_first,
            quota,
            max_store_pages,
            watermark,
            ..
        } = self;
        writeln!(f, "duplicates first {duplicates_first}, quota {quota:?}, ")?;
        writeln!(
            f,
            "at most {max_store_pages:?} in stores, watermark {watermark}, "
        )?;
        writeln!(f, "full-length hits {}", self.full_length_hits)?;
        writeln!(f, "concurrent {}", self.concurrent)?;
        ops.iter().try_for_each(|op| writeln!(f, "{op:?}"))
    }
}

impl Program {
    pub(crate) fn configure(&self, config: &mut PlannerConfig) {
        config.policy = self.policy;
        config.write_policy = self.write_policy;
        config.duplicates_first = self.duplicates_first;
        config.load_back_quota = self.quota;
        config.max_store_pages = self.max_store_pages;
        config.free_watermark = self.watermark;
        config.full_length_hits = self.full_length_hits;
        config.max_leases = 16;
    }
}
