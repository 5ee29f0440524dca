// SPDX-License-Identifier: Apache-2.0
//! The shadows of all memories of a program.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use striata_host::HostPool;

use super::access::{Place, Touch};
use super::clock::VectorClock;
use super::shadow::{Access, Clash, Shadow};
use crate::sim::memory::WeakMemory;

/// Shadows by the keys of their memories. An entry keeps its key from being used again.
#[derive(Debug, Default)]
pub(super) struct Memories {
    known: BTreeMap<usize, Known>,
    pools: u64,
}

#[derive(Debug)]
struct Known {
    alive: Alive,
    /// The number of a host pool, in the order in which they were first seen.
    pool: u64,
    shadow: Shadow,
}

#[derive(Debug)]
enum Alive {
    Device(WeakMemory),
    Host(Weak<HostPool>),
}

impl Alive {
    fn of(place: Place<'_>) -> Self {
        match place {
            Place::Device(memory) => Self::Device(memory.downgrade()),
            Place::Host(pool) => Self::Host(Arc::downgrade(pool)),
        }
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Device(memory) => memory.is_alive(),
            Self::Host(pool) => pool.strong_count() > 0,
        }
    }
}

impl Memories {
    /// Enters an access by who has `clock`, or finds what it races with.
    pub(super) fn touch(
        &mut self,
        touch: &Touch<'_>,
        access: Access,
        clock: &VectorClock,
    ) -> Result<(), Clash> {
        let bytes = touch.bytes.clone();
        self.known(touch.place).shadow.touch(bytes, access, clock)
    }

    /// Bytes in words: `bytes [0, 64) of memory 3 of sim0`.
    pub(super) fn describe(&mut self, place: Place<'_>, bytes: &Range<u64>) -> String {
        let Range { start, end } = bytes;
        match place {
            Place::Device(memory) => {
                let (number, device) = (memory.number(), memory.owner().name());
                format!("bytes [{start}, {end}) of memory {number} of {device}")
            }
            Place::Host(_) => {
                let pool = self.known(place).pool;
                format!("bytes [{start}, {end}) of host pool {pool}")
            }
        }
    }

    fn known(&mut self, place: Place<'_>) -> &mut Known {
        let key = place.key();
        if !self.known.contains_key(&key) {
            self.known.retain(|_, known| known.alive.is_alive());
        }
        self.known.entry(key).or_insert_with(|| {
            let pool = self.pools;
            self.pools += u64::from(matches!(place, Place::Host(_)));
            Known {
                alive: Alive::of(place),
                pool,
                shadow: Shadow::default(),
            }
        })
    }
}
