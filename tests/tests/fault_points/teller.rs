// SPDX-License-Identifier: Apache-2.0
//! Requests on an engine, as far as a fault lets them go, with everything checked on the way.

use std::cell::Cell;

use striata::core::config::WritePolicy;
use striata::gpu::GpuError;
use striata::gpu::sim::FaultPlan;
use striata::gpu::transfer::GateError;
use striata::{Confirm, Error, Lease, PlannerConfig, Prefix, Reserve};
use striata_tests::model::{contents_of, keys_of};
use striata_tests::stepped::{Forward, Sizes, Stepped, namespace};

use super::SIZES;

/// An engine, and whether a load that failed is what a fault may have led to.
#[derive(Debug)]
pub(crate) struct Teller {
    pub(crate) engine: Stepped,
    pub(crate) failed_loads: Cell<usize>,
    /// Resets so far: what is computed under a name after each of them has other bytes.
    epoch: u64,
    /// Paths that were asked for, the last one last.
    asked: Vec<Vec<u8>>,
}

impl Teller {
    pub(crate) fn new(seed: u64, sizes: Sizes, write_policy: WritePolicy) -> Self {
        let set = |config: &mut PlannerConfig| config.write_policy = write_policy;
        Self {
            engine: Stepped::new(seed, sizes, set),
            failed_loads: Cell::new(0),
            epoch: 0,
            asked: Vec::new(),
        }
    }

    fn reserve(&mut self, path: &[u8]) -> Result<Lease, Error> {
        self.asked.push(path.to_vec());
        let keys = keys_of(0, path);
        let tokens = path.len() as u64 * self.engine.page_tokens() + 1;
        loop {
            let prefix = Prefix::Keys {
                keys: &keys,
                tokens,
            };
            match self.engine.cache.reserve(namespace(0), prefix)? {
                Reserve::Granted(lease) => return Ok(lease),
                Reserve::NotNow { .. } => self.engine.settle()?,
                refused @ Reserve::OutOfSpace { .. } => {
                    panic!("{path:?}: {refused:?}, {:?}", self.engine.cache.stats())
                }
            }
        }
    }

    /// Forward of a lease; a fault that holds its gate back is let go.
    fn forward(&self, lease: &Lease, path: &[u8], known: usize) -> Result<Forward, Error> {
        self.forward_of(self.epoch, lease, path, known)
    }

    /// As [`Teller::forward`], with the bytes of an earlier epoch.
    fn forward_of(
        &self,
        epoch: u64,
        lease: &Lease,
        path: &[u8],
        known: usize,
    ) -> Result<Forward, Error> {
        let mut contents = contents_of(0, epoch, path);
        contents.resize(lease.pages().len(), 7);
        loop {
            match self.engine.forward(lease, &contents, known) {
                Err(Error::Gate {
                    source: GateError::Device(GpuError::Deadlock { .. }),
                    ..
                }) => self.engine.release_faults(),
                forward => return forward,
            }
        }
    }

    fn hits(&self, lease: &Lease) -> usize {
        usize::try_from(lease.hit_tokens() / self.engine.page_tokens()).unwrap()
    }

    /// What a lease's loads came to, held against what its forward has read.
    fn verdict(&mut self, lease: &Lease, forward: &Forward) -> Result<Confirm, Error> {
        let confirmed = self.engine.cache.confirm(lease)?;
        let wrong = self.engine.differing(forward)?.expect("it has run");
        let stand = match confirmed {
            Confirm::Done => u64::MAX,
            Confirm::LoadFailed { valid_tokens } => {
                self.failed_loads.set(self.failed_loads.get() + 1);
                valid_tokens / self.engine.page_tokens()
            }
            Confirm::Pending { op } => panic!("{op} is in flight for ever"),
        };
        assert!(
            wrong.iter().all(|page| *page as u64 >= stand),
            "{wrong:?} of {confirmed:?}"
        );
        Ok(confirmed)
    }

    /// A request from start to end.
    pub(crate) fn serve(&mut self, path: &[u8]) -> Result<Confirm, Error> {
        let lease = self.reserve(path)?;
        self.engine.cache.start_loads()?;
        let forward = self.forward(&lease, path, self.hits(&lease))?;
        self.engine.settle()?;
        let confirmed = self.verdict(&lease, &forward)?;
        let tokens = path.len() as u64 * self.engine.page_tokens();
        let inserted = self.engine.cache.insert(&lease, tokens);
        match confirmed {
            Confirm::Done => inserted.map(|_| ())?,
            _ => assert!(matches!(inserted, Err(Error::Unconfirmed { .. }))),
        }
        self.engine.check();
        drop(lease);
        self.engine.settle()?;
        self.engine.check();
        Ok(confirmed)
    }

    /// A prefill that inserts its first four pages before it computes the others.
    pub(crate) fn serve_chunks(&mut self, path: &[u8]) -> Result<(), Error> {
        let mut lease = self.reserve(&path[..4])?;
        self.engine.cache.start_loads()?;
        let first = self.forward(&lease, &path[..4], self.hits(&lease))?;
        self.engine.settle()?;
        if self.verdict(&lease, &first)? != Confirm::Done {
            return Ok(());
        }
        let w = self.engine.page_tokens();
        self.engine.cache.insert_chunk(&lease, 4 * w)?;
        self.engine.check();
        let tokens = path.len() as u64 * w;
        let grown = self.engine.cache.extend(&mut lease, tokens)?;
        assert!(grown.is_none(), "{grown:?}");
        let keys = keys_of(0, path);
        self.engine.cache.append_keys(&lease, &keys[4..])?;
        self.engine.cache.start_loads()?;
        let second = self.forward(&lease, path, 4)?;
        self.engine.step_end()?;
        self.engine.cache.insert(&lease, tokens)?;
        self.engine.settle()?;
        self.verdict(&lease, &second)?;
        self.engine.check();
        drop(lease);
        self.engine.settle()
    }

    /// Two requests that wait for one load and go on differently.
    pub(crate) fn share(&mut self, path: &[u8]) -> Result<(), Error> {
        let paths = [0, 1].map(|last| [path, &[last]].concat());
        let first = self.reserve(&paths[0])?;
        let second = self.reserve(&paths[1])?;
        self.engine.cache.start_loads()?;
        let forwards = [
            self.forward(&first, &paths[0], self.hits(&first))?,
            self.forward(&second, &paths[1], self.hits(&second))?,
        ];
        self.engine.settle()?;
        let verdicts = [
            self.verdict(&first, &forwards[0])?,
            self.verdict(&second, &forwards[1])?,
        ];
        assert_eq!(verdicts[0], verdicts[1]);
        drop(first);
        self.engine.check();
        drop(second);
        self.engine.settle()
    }

    /// A request that goes away before its load starts, and one that goes away while its copies are
    /// queued.
    pub(crate) fn abort(&mut self, path: &[u8]) -> Result<(), Error> {
        drop(self.reserve(path)?);
        self.engine.cache.poll()?;
        self.engine.check();
        let lease = self.reserve(path)?;
        self.engine.cache.start_loads()?;
        self.engine.cache.pump();
        drop(lease);
        self.engine.cache.poll()?;
        self.engine.check();
        self.engine.settle()
    }

    /// A request that is taken out of its batch: what it has inserted stays, what it has only
    /// computed does not, and its stores go on without it.
    pub(crate) fn retract(&mut self, path: &[u8], inserted: u64) -> Result<(), Error> {
        let lease = self.reserve(path)?;
        self.engine.cache.start_loads()?;
        let forward = self.forward(&lease, path, self.hits(&lease))?;
        let tokens = inserted * self.engine.page_tokens();
        self.engine.cache.insert_chunk(&lease, tokens)?;
        drop(lease);
        self.engine.cache.poll()?;
        self.engine.check();
        self.engine.settle()?;
        assert!(self.engine.differing(&forward)?.is_some());
        Ok(())
    }

    /// A reset of the namespace while a lease reads what it forgets; the lease goes on, and what it
    /// inserts is its own.
    pub(crate) fn reset_under_a_lease(&mut self, path: &[u8]) -> Result<(), Error> {
        let lease = self.reserve(path)?;
        self.engine.cache.start_loads()?;
        self.engine.cache.reset(namespace(0))?;
        self.epoch += 1;
        let forward = self.forward_of(self.epoch - 1, &lease, path, self.hits(&lease))?;
        self.engine.settle()?;
        self.verdict(&lease, &forward)?;
        self.engine.check();
        drop(lease);
        self.engine.settle()
    }

    /// A request that inserts within its step, as an engine does: what it stores waits for the end
    /// of the step, and so does what is loaded over the pages that it gives back.
    pub(crate) fn serve_in_step(&mut self, path: &[u8]) -> Result<(), Error> {
        let lease = self.reserve(path)?;
        self.engine.cache.start_loads()?;
        let forward = self.forward(&lease, path, self.hits(&lease))?;
        if !lease.loads().is_empty() {
            self.engine.settle()?;
            if self.verdict(&lease, &forward)? != Confirm::Done {
                return Ok(());
            }
        }
        let tokens = path.len() as u64 * self.engine.page_tokens();
        self.engine.cache.insert(&lease, tokens)?;
        drop(lease);
        self.engine.step_end()?;
        self.engine.check();
        self.engine.settle()?;
        let wrong = self.engine.differing(&forward)?;
        assert_eq!(wrong, Some(Vec::new()));
        Ok(())
    }

    /// With the fault over, what was asked for is right, everything can be served, and everything
    /// can go.
    pub(crate) fn end(mut self) {
        for rank in 0..self.engine.ranks() {
            self.engine.device(rank).arm(&FaultPlan::new());
        }
        self.engine.settle().unwrap();
        self.engine.check();
        let asked = std::mem::take(&mut self.asked);
        let others = [&[0, 0, 0, 0, 1][..], &[1, 1, 0, 0, 1, 0], &[0, 1, 0, 1]];
        let asked = asked.iter().rev().map(Vec::as_slice);
        for path in asked.chain(others) {
            assert_eq!(self.serve(path).unwrap(), Confirm::Done);
        }
        self.engine.empty(1).unwrap();
    }

    /// A rank whose engine is broken: what its operations held is back, and what is cached on L1 is
    /// what it was.
    ///
    /// Whoever asks for pages afterwards is told the first cause.
    pub(crate) fn end_broken(mut self, what: &str, named: impl Fn(&str) -> bool) {
        for _ in 0..3 {
            self.engine.release_faults();
            // Each of these fails and names the cause; what has ended is taken in all the same.
            let _ = self.engine.cache.start_loads();
            let _ = self.engine.step_end();
            let _ = self.engine.cache.drain();
            let _ = self.engine.scheduler.run();
            let _ = self.engine.cache.poll();
        }
        self.engine.check();
        let stats = self.engine.cache.stats();
        let open = (stats.leases, stats.operations_in_flight);
        assert_eq!(open, (0, 0), "{what}: {stats:?}");
        assert_eq!(
            stats.free_pages_l1 + stats.resident_pages_l1,
            SIZES.l1_pages
        );
        let l2 = stats.free_pages_l2 + stats.resident_pages_l2;
        assert_eq!(l2, u64::from(SIZES.l2_pages), "{stats:?}");
        for path in [&[1, 1][..], &[0, 0, 0]] {
            let refused = self.reserve(path).map(|_| ()).unwrap_err();
            let cause = self.engine.cache.poisoned().unwrap_or_default();
            assert!(
                named(&refused.to_string()) && named(cause),
                "{what}: {refused}, {cause}"
            );
        }
    }
}
