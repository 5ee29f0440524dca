// SPDX-License-Identifier: Apache-2.0
//! Programs whose engine breaks for good: a device dies at some operation, or a copy is refused.
//!
//! From then on calls fail. What must hold: an error that is no outcome names the fault; once the
//! engine knows, everybody who asks for pages is told; bookkeeping stays sound after every call; what
//! was read before is right; and in the end every page and every operation is accounted for, so that
//! nothing is given to anyone that a copy may still write.

use striata::core::prefix::PageKey;
use striata::gpu::sim::{Fault, FaultPlan, OpClass};
use striata::{Confirm, Error, Prefix, Reserve};

use super::machine::{Machine, is_stuck};
use super::ops::{Op, Path};
use crate::model::keys_of;
use crate::stepped::namespace;

/// What breaks an engine.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// On which rank, modulo their number.
    pub rank: u8,
    /// With which operations.
    pub class: OpClass,
    /// With which of those.
    pub nth: u8,
    /// What: the end of the device, or a refused copy.
    pub fault: Fault,
}

/// Calls on an engine that may break at any of them.
#[derive(Debug)]
struct Broken<'m, 'a> {
    machine: &'m mut Machine<'a>,
    /// What every cause contains.
    name: String,
}

impl Machine<'_> {
    /// Runs `ops` while the engine breaks, and then sees what is left of it. False if the fault did
    /// not strike: then the engine is as it was.
    ///
    /// # Panics
    /// What does not hold.
    pub fn break_down(&mut self, end: End, ops: &[Op]) -> bool {
        let rank = usize::from(end.rank) % self.engine.ranks();
        self.engine.release_faults();
        for each in 0..self.engine.ranks() {
            self.engine.device(each).arm(&FaultPlan::new());
        }
        let plan = FaultPlan::new().with(end.class, end.nth.into(), end.fault);
        self.engine.device(rank).arm(&plan);
        let name = format!("{} {} of sim{rank}", end.class, end.nth);
        let mut broken = Broken {
            machine: self,
            name,
        };
        for op in ops {
            if let Err(error) = broken.call(op) {
                broken.explained(&error);
            }
            broken.check();
        }
        if broken.machine.engine.device(rank).faults_left() > 0 {
            broken.machine.engine.device(rank).arm(&FaultPlan::new());
            return false;
        }
        broken.finish();
        true
    }
}

impl Broken<'_, '_> {
    /// An error that is an outcome, or one that names the fault.
    fn explained(&self, error: &Error) {
        let outcome = matches!(
            error,
            Error::Unconfirmed { .. }
                | Error::NotStarted { .. }
                | Error::TooManyLeases { .. }
                | Error::EmptyRequest
        );
        let text = error.to_string();
        assert!(
            outcome || text.contains(&self.name),
            "{}: {text}",
            self.name
        );
    }

    /// What holds after every call, broken or not.
    fn check(&mut self) {
        let cache = &self.machine.engine.cache;
        if let Err(broken) = cache.check_invariants() {
            panic!("{broken}");
        }
        let bugs = self.machine.engine.scheduler.bugs();
        assert!(bugs.is_empty(), "{bugs:?}");
        let poisoned = cache.poisoned().map(str::to_owned);
        if let Some(cause) = poisoned {
            assert!(cause.contains(&self.name), "{}: {cause}", self.name);
            self.is_refused();
        }
    }

    /// Who asks a poisoned engine for pages is told why there are none.
    fn is_refused(&mut self) {
        let keys = keys_of(0, &[0]);
        let tokens = self.machine.engine.page_tokens() + 1;
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let cache = &mut self.machine.engine.cache;
        let asked = cache.reserve(namespace(0), prefix).map(|_| "reserve");
        let loaded = cache.load(namespace(0), prefix).map(|_| "load");
        let started = cache.start_loads().map(|()| "start_loads");
        let evicted = cache.evict(1).map(|_| "evict");
        for call in [asked, loaded, started, evicted] {
            let error = call.expect_err("a poisoned engine goes on");
            assert!(error.to_string().contains(&self.name), "{error}");
        }
    }

    fn call(&mut self, op: &Op) -> Result<(), Error> {
        let engine = &mut self.machine.engine;
        match *op {
            Op::Serve { path, settled } => self.serve(path, settled),
            Op::Reserve { path, tail } => self.reserve(path, tail).map(|_| ()),
            Op::StartLoads => self.step_begin(),
            Op::Forward { lease } => self.on(lease, Self::forward),
            Op::StepEnd => self.step_end(),
            Op::Confirm { lease } => self.on(lease, |broken, at| broken.confirm(at).map(|_| ())),
            Op::Insert { lease, pages, .. } => {
                self.on(lease, |broken, at| broken.insert(at, pages.into()))
            }
            Op::Store { lease } => self.on(lease, |broken, at| {
                let machine = &mut *broken.machine;
                let stored = machine.engine.cache.store(&machine.requests[at].lease);
                stored.map(|_| ())
            }),
            Op::Drop { lease, .. } => self.on(lease, |broken, at| {
                broken.machine.drop_request(at, false);
                Ok(())
            }),
            Op::Evict { pages } => engine.cache.evict(pages.into()).map(|_| ()),
            Op::Reset { root } => {
                engine.cache.reset(namespace(root))?;
                self.machine.model.reset(root);
                Ok(())
            }
            Op::Load { path } | Op::Lookup { path } => self.load(path),
            Op::Extend { .. } | Op::Poll | Op::Fault { .. } => engine.cache.poll(),
            Op::Pump { times } => {
                (0..times).for_each(|_| {
                    engine.cache.pump();
                });
                Ok(())
            }
            Op::Run { steps } => {
                for _ in 0..steps {
                    engine.scheduler.step()?;
                }
                Ok(())
            }
            Op::Release => {
                engine.release_faults();
                Ok(())
            }
            Op::Settle => self.settle(),
        }
    }

    fn on(
        &mut self,
        lease: u8,
        call: impl FnOnce(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self.machine.requests.len() {
            0 => Ok(()),
            requests => call(self, usize::from(lease) % requests),
        }
    }

    /// Whether it was granted.
    fn reserve(&mut self, path: Path, tail: bool) -> Result<bool, Error> {
        let (root, symbols) = (path.root, path.symbols());
        let keys: Vec<PageKey> = keys_of(root, &symbols);
        let engine = &mut self.machine.engine;
        let tokens = symbols.len() as u64 * engine.page_tokens() + u64::from(tail);
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let outcome = engine.cache.reserve(namespace(root), prefix)?;
        let Reserve::Granted(lease) = outcome else {
            return Ok(false);
        };
        self.machine.granted(lease, root, symbols);
        Ok(true)
    }

    fn load(&mut self, path: Path) -> Result<(), Error> {
        let (root, symbols) = (path.root, path.symbols());
        let keys = keys_of(root, &symbols);
        let tokens = symbols.len() as u64 * self.machine.engine.page_tokens() + 1;
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let cache = &mut self.machine.engine.cache;
        if let Some(Reserve::Granted(lease)) = cache.load(namespace(root), prefix)? {
            let pages = lease.pages().len();
            self.machine.granted(lease, root, symbols[..pages].to_vec());
        }
        Ok(())
    }

    fn serve(&mut self, path: Path, settled: bool) -> Result<(), Error> {
        if !self.reserve(path, true)? {
            return Ok(());
        }
        let at = self.machine.requests.len() - 1;
        self.forward(at)?;
        if settled {
            self.settle()?;
        }
        self.step_end()?;
        self.insert(at, usize::MAX)?;
        self.machine.drop_request(at, false);
        if settled {
            self.settle()?;
        }
        Ok(())
    }

    fn step_begin(&mut self) -> Result<(), Error> {
        self.machine.engine.cache.start_loads()?;
        self.machine.step_running = true;
        Ok(())
    }

    /// A step that could not be ended has ended all the same.
    fn step_end(&mut self) -> Result<(), Error> {
        self.machine.step_running = false;
        self.machine.engine.step_end()
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.machine.step_running = false;
        self.machine.engine.settle()
    }

    fn forward(&mut self, at: usize) -> Result<(), Error> {
        if !self.machine.step_running {
            self.step_begin()?;
        }
        let machine = &mut *self.machine;
        let request = &mut machine.requests[at];
        let enqueue = |known| {
            machine
                .engine
                .forward(&request.lease, &request.contents, known)
        };
        let forward = match enqueue(request.written) {
            Err(Error::Gate { source, .. }) if is_stuck(&source) => {
                machine.engine.release_faults();
                enqueue(request.written)?
            }
            forward => forward?,
        };
        request.forwards.push(forward);
        request.written = request.contents.len();
        Ok(())
    }

    fn confirm(&mut self, at: usize) -> Result<Confirm, Error> {
        let machine = &mut *self.machine;
        let request = &mut machine.requests[at];
        let confirmed = machine.engine.cache.confirm(&request.lease)?;
        if !matches!(confirmed, Confirm::Pending { .. }) {
            request.confirmed = Some(confirmed);
        }
        Ok(confirmed)
    }

    fn insert(&mut self, at: usize, pages: usize) -> Result<(), Error> {
        let confirmed = self.confirm(at)?;
        let machine = &mut *self.machine;
        let request = &machine.requests[at];
        let pages = pages.min(request.path.len()).min(request.written);
        let tokens = pages as u64 * machine.engine.page_tokens();
        machine.engine.cache.insert(&request.lease, tokens)?;
        assert_eq!(confirmed, Confirm::Done);
        let path = &request.path[..pages];
        machine.model.insert(request.root, request.epoch, path);
        Ok(())
    }

    /// With every lease gone nothing is in flight, no page is lost, and the engine stays refused.
    fn finish(&mut self) {
        self.machine.away.join();
        while !self.machine.requests.is_empty() {
            self.machine.drop_request(0, false);
        }
        for _ in 0..3 {
            let engine = &mut self.machine.engine;
            engine.release_faults();
            // Each of these may fail, and names the cause; what has ended is taken in all the same.
            let calls = [
                engine.cache.start_loads(),
                engine.step_end(),
                engine.cache.drain(),
                engine.scheduler.run().map(|_| ()).map_err(Error::from),
                engine.cache.poll(),
            ];
            for error in calls.into_iter().filter_map(Result::err) {
                self.explained(&error);
            }
            self.check();
        }
        self.is_refused();
        let cache = &self.machine.engine.cache;
        let stats = cache.stats();
        let open = (stats.leases, stats.operations_in_flight);
        assert_eq!(open, (0, 0), "{}: {stats:?}", self.name);
        assert_eq!(
            stats.free_pages_l1 + stats.resident_pages_l1,
            self.machine.l1_pages as u64,
            "{}: {stats:?}",
            self.name
        );
    }
}
