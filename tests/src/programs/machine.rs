// SPDX-License-Identifier: Apache-2.0
//! Runs programs on an engine and holds it against the model after every call.

use striata::core::prefix::PageKey;
use striata::gpu::GpuError;
use striata::gpu::sim::FaultPlan;
use striata::{Confirm, Error, KvEvent, Lease, PlannerStats, Prefix, Reserve};

use super::droppers::{Away, Droppers};
use super::ops::{Op, Path, Program, ROOTS};
use crate::model::{Content, Model, contents_of, keys_of};
use crate::stepped::{Forward, Stepped, namespace};

/// A lease that is held, and what its request has done.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) lease: Lease,
    pub(super) number: u64,
    pub(super) root: u8,
    pub(super) epoch: u64,
    /// Whole pages of the request that have keys.
    pub(super) path: Vec<u8>,
    /// Content of the table.
    pub(super) contents: Vec<Content>,
    /// Leading pages whose rows exist once the loads have come and what was enqueued has run.
    pub(super) written: usize,
    pub(super) forwards: Vec<Forward>,
    pub(super) confirmed: Option<Confirm>,
}

/// An engine beside its model. The model lets a request's pages go when the request is handed to
/// whoever drops it, so it allows the release to take effect at any time after that.
#[derive(Debug)]
pub struct Machine<'a> {
    pub(super) engine: Stepped,
    pub(super) model: Model,
    pub(super) requests: Vec<Request>,
    next: u64,
    pub(super) step_running: bool,
    full_length_hits: bool,
    pub(super) l1_pages: usize,
    events: Vec<KvEvent>,
    /// Who drops leases beside the calls; none if calls wait until they are dropped.
    droppers: Option<&'a Droppers>,
    pub(super) away: Away,
    /// Calls that began while a lease was on its way.
    overlaps: u64,
}

impl<'a> Machine<'a> {
    /// An engine for `program`.
    ///
    /// # Panics
    /// Sizes that the engine refuses.
    #[must_use]
    pub fn new(program: &Program, droppers: &'a Droppers) -> Self {
        Self {
            droppers: program.concurrent.then_some(droppers),
            away: Away::default(),
            overlaps: 0,
            engine: Stepped::new(program.seed, program.sizes, |config| {
                program.configure(config)
            }),
            model: Model::default(),
            requests: Vec::new(),
            next: 0,
            step_running: false,
            full_length_hits: program.full_length_hits,
            l1_pages: usize::try_from(program.sizes.l1_pages).unwrap(),
            events: Vec::new(),
        }
    }

    /// Runs one call, if it can be made, and checks everything.
    ///
    /// # Panics
    /// What does not hold.
    pub fn step(&mut self, op: &Op) {
        self.overlaps += u64::from(self.away.count() > 0);
        match *op {
            Op::Serve { path, settled } => self.serve_beside(path, settled),
            Op::Reserve { path, tail } => self.reserve(path, tail),
            Op::Load { path } => self.load(path),
            Op::Lookup { path } => self.lookup(path),
            Op::StartLoads => self.start_loads(),
            Op::Forward { lease } => self.on(lease, Self::forward),
            Op::StepEnd => self.step_end(),
            Op::Confirm { lease } => self.on(lease, Self::confirm),
            Op::Insert {
                lease,
                pages,
                chunk,
            } => {
                self.on(lease, |machine, at| machine.insert(at, pages.into(), chunk));
            }
            Op::Extend { lease, bits, pages } => {
                self.on(lease, |machine, at| machine.extend(at, bits, pages.into()));
            }
            Op::Store { lease } => self.on(lease, |machine, at| {
                machine
                    .engine
                    .cache
                    .store(&machine.requests[at].lease)
                    .unwrap();
            }),
            Op::Drop { lease, elsewhere } => {
                self.on(lease, |machine, at| machine.drop_request(at, elsewhere));
            }
            Op::Evict { pages } => self.evict(pages.into()),
            Op::Reset { root } => {
                self.engine.cache.reset(namespace(root)).unwrap();
                self.model.reset(root);
            }
            Op::Poll => self.engine.cache.poll().unwrap(),
            Op::Pump { times } => (0..times).for_each(|_| {
                self.engine.cache.pump();
            }),
            Op::Run { steps } => (0..steps).for_each(|_| {
                self.engine.scheduler.step().unwrap();
            }),
            Op::Fault {
                rank,
                class,
                nth,
                fault,
            } => {
                let rank = usize::from(rank) % self.engine.ranks();
                let plan = FaultPlan::new().with(class, nth.into(), fault);
                self.engine.device(rank).arm(&plan);
            }
            Op::Release => self.engine.release_faults(),
            Op::Settle => {
                self.engine.settle().unwrap();
                self.step_running = false;
            }
        }
        self.check();
    }

    fn on(&mut self, lease: u8, call: impl FnOnce(&mut Self, usize)) {
        if !self.requests.is_empty() {
            let at = usize::from(lease) % self.requests.len();
            call(self, at);
        }
    }

    fn check(&mut self) {
        self.engine.check();
        self.engine.cache.take_events(&mut self.events);
        self.model.note(&self.events).unwrap();
        self.events.clear();
        for at in 0..self.requests.len() {
            self.read_back(at);
        }
    }

    fn reserve(&mut self, path: Path, tail: bool) {
        let (root, symbols) = (path.root, path.symbols());
        let keys = keys_of(root, &symbols);
        let tokens = symbols.len() as u64 * self.engine.page_tokens() + u64::from(tail);
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        // The call takes in what has been dropped before it.
        let away = self.away.count();
        let outcome = self.engine.cache.reserve(namespace(root), prefix);
        match outcome {
            Ok(Reserve::Granted(lease)) => self.granted(lease, root, symbols),
            Ok(Reserve::NotNow { .. }) => {
                // What it names may have ended within the call: the load of a lease that another
                // thread has dropped, which was never started and is cancelled at once.
                assert!(self.engine.cache.stats().operations_in_flight > 0 || away > 0);
            }
            Ok(Reserve::OutOfSpace { needed, .. }) => self.check_refusal(needed, away),
            Err(Error::EmptyRequest) => assert_eq!(tokens, 0),
            Err(Error::TooManyLeases { .. }) => assert!(self.requests.len() + away >= 16),
            Err(other) => panic!("{other}"),
        }
    }

    fn serve_beside(&mut self, path: Path, settled: bool) {
        let before = self.next;
        self.reserve(path, true);
        let at = self.requests.len().wrapping_sub(1);
        if self.next == before {
            return;
        }
        self.forward(at);
        if settled {
            self.engine.settle().unwrap();
        }
        self.step_end();
        self.insert(at, usize::MAX, false);
        self.drop_request(at, false);
        if settled {
            self.engine.settle().unwrap();
            self.step_running = false;
        }
    }

    /// With nothing held and nothing in flight, whatever fits is granted.
    fn check_refusal(&self, needed: u64, away: usize) {
        let held = self.requests.len() + away;
        let idle = held == 0 && self.engine.cache.stats().operations_in_flight == 0;
        assert!(
            !idle || needed > self.l1_pages as u64,
            "{needed} pages are refused"
        );
    }

    fn load(&mut self, path: Path) {
        let (root, symbols) = (path.root, path.symbols());
        let keys = keys_of(root, &symbols);
        let tokens = symbols.len() as u64 * self.engine.page_tokens() + 1;
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let away = self.away.count();
        match self.engine.cache.load(namespace(root), prefix) {
            Ok(None | Some(Reserve::NotNow { .. })) => {}
            Ok(Some(Reserve::OutOfSpace { needed, .. })) => self.check_refusal(needed, away),
            Ok(Some(Reserve::Granted(lease))) => {
                let pages = lease.pages().len();
                assert_eq!(lease.hit_tokens(), pages as u64 * self.engine.page_tokens());
                self.granted(lease, root, symbols[..pages].to_vec());
            }
            Err(Error::TooManyLeases { .. }) => assert!(self.requests.len() + away >= 16),
            Err(other) => panic!("{other}"),
        }
    }

    pub(super) fn granted(&mut self, lease: Lease, root: u8, path: Vec<u8>) {
        let (number, epoch) = (self.next, self.model.epoch(root));
        self.next += 1;
        let hits = usize::try_from(lease.hit_tokens() / self.engine.page_tokens()).unwrap();
        let most = self.model.matchable(root, &path);
        assert!(hits <= most, "{hits} pages hit, {most} were ever inserted");
        let mut contents = contents_of(root, epoch, &path);
        // What fills no page is the request's own.
        contents.resize(lease.pages().len(), u128::MAX - u128::from(number));
        for (page, content) in lease.pages().iter().zip(&contents) {
            self.model.hold(number, *page, *content).unwrap();
        }
        self.requests.push(Request {
            lease,
            number,
            root,
            epoch,
            path,
            contents,
            written: hits,
            forwards: Vec::new(),
            confirmed: None,
        });
    }

    fn lookup(&mut self, path: Path) {
        let symbols = path.symbols();
        let (keys, w) = (keys_of(path.root, &symbols), self.engine.page_tokens());
        let tokens = symbols.len() as u64 * w + 1;
        let found = (self.engine.cache).lookup(
            namespace(path.root),
            Prefix::Keys {
                keys: &keys,
                tokens,
            },
        );
        let pages = usize::try_from((found.tokens_l1 + found.tokens_l2) / w).unwrap();
        assert!(pages <= self.model.matchable(path.root, &symbols));
        if let Some(told) = self.model.told(path.root, &symbols) {
            assert_eq!(pages, told, "lookup and events differ");
        }
    }

    fn start_loads(&mut self) {
        self.engine.cache.start_loads().unwrap();
        self.step_running = true;
    }

    fn step_end(&mut self) {
        self.engine.step_end().unwrap();
        self.step_running = false;
    }

    fn forward(&mut self, at: usize) {
        if !self.step_running {
            self.start_loads();
        }
        let request = &mut self.requests[at];
        let known = request.written;
        match self
            .engine
            .forward(&request.lease, &request.contents, known)
        {
            Ok(forward) => {
                request.forwards.push(forward);
                request.written = request.contents.len();
            }
            // Loads of this step, or of pages that this step has used.
            Err(Error::NotStarted { .. }) => self.step_end(),
            // What the gate waits for is held back by a fault.
            Err(Error::Gate { source, .. }) if is_stuck(&source) => {
                self.engine.release_faults();
                self.forward(at);
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn confirm(&mut self, at: usize) {
        let request = &mut self.requests[at];
        let confirmed = self.engine.cache.confirm(&request.lease).unwrap();
        if let Confirm::LoadFailed { valid_tokens } = confirmed {
            assert!(valid_tokens < request.lease.hit_tokens());
        }
        if let Some(before) = request.confirmed {
            assert_eq!(before, confirmed, "a verdict has changed");
        }
        if !matches!(confirmed, Confirm::Pending { .. }) {
            request.confirmed = Some(confirmed);
        }
    }

    /// Looks at what a request's forwards have read, as soon as that and the verdict on its loads
    /// are known.
    fn read_back(&mut self, at: usize) {
        let engine = &self.engine;
        let Request {
            lease,
            forwards,
            confirmed,
            ..
        } = &mut self.requests[at];
        let right = match confirmed {
            None if !lease.loads().is_empty() => return,
            Some(Confirm::LoadFailed { valid_tokens }) => *valid_tokens / engine.page_tokens(),
            _ => u64::MAX,
        };
        forwards.retain(|forward| {
            let Some(differing) = engine.differing(forward).unwrap() else {
                return true;
            };
            let wrong = differing.iter().find(|page| (**page as u64) < right);
            assert_eq!(
                wrong, None,
                "page read wrong bytes: {lease:?}, {confirmed:?}"
            );
            false
        });
    }

    fn insert(&mut self, at: usize, pages: usize, chunk: bool) {
        self.confirm(at);
        let request = &self.requests[at];
        let pages = pages.min(request.path.len()).min(request.written);
        let tokens = pages as u64 * self.engine.page_tokens();
        let cache = &mut self.engine.cache;
        let inserted = if chunk {
            cache.insert_chunk(&request.lease, tokens)
        } else {
            cache.insert(&request.lease, tokens)
        };
        let done = request.confirmed == Some(Confirm::Done);
        let inserted = match inserted {
            Ok(inserted) => inserted,
            Err(Error::Unconfirmed { .. }) => return assert!(!done),
            Err(other) => panic!("{other}"),
        };
        assert!(done, "an insert over a load that did not arrive");
        self.model
            .insert(request.root, request.epoch, &request.path[..pages]);
        for duplicate in inserted.duplicates {
            let own = request.lease.pages()[duplicate.index];
            assert_eq!(own, duplicate.duplicate);
            assert_ne!(own, duplicate.kept);
        }
    }

    fn extend(&mut self, at: usize, bits: u8, pages: usize) {
        let w = self.engine.page_tokens();
        let request = &mut self.requests[at];
        if request.path.len() + pages > 10 {
            return;
        }
        let more = (0..pages).map(|page| bits >> page & 1);
        let path: Vec<u8> = request.path.iter().copied().chain(more).collect();
        let tokens = path.len() as u64 * w;
        match self
            .engine
            .cache
            .extend(&mut request.lease, tokens)
            .unwrap()
        {
            None => {}
            Some(Reserve::Granted(_)) => panic!("an extension grants no lease"),
            Some(Reserve::NotNow { .. }) => return,
            Some(Reserve::OutOfSpace { .. }) => return,
        }
        let keys: Vec<PageKey> = keys_of(request.root, &path);
        let new = &keys[request.path.len()..];
        self.engine.cache.append_keys(&request.lease, new).unwrap();
        // What was the tail is a whole page now.
        request.written = request.written.min(request.path.len());
        request.contents = contents_of(request.root, request.epoch, &path);
        assert_eq!(request.contents.len(), request.lease.pages().len());
        for (page, content) in request.lease.pages().iter().zip(&request.contents) {
            self.model.hold(request.number, *page, *content).unwrap();
        }
        request.path = path;
    }

    pub(super) fn drop_request(&mut self, at: usize, elsewhere: bool) {
        let request = self.requests.swap_remove(at);
        self.model.release(request.number);
        match self.droppers {
            _ if !elsewhere => drop(request),
            Some(droppers) => {
                let turn = request.number;
                droppers.hand(request, turn, &self.away);
            }
            None => std::thread::spawn(move || drop(request)).join().unwrap(),
        }
    }

    fn evict(&mut self, pages: usize) {
        let before = self.engine.cache.stats().free_pages_l1;
        let room = self.engine.cache.evict(pages).unwrap();
        assert!(room.freed <= pages);
        assert_eq!(room.freeing > 0, room.after.is_some());
        let after = self.engine.cache.stats().free_pages_l1;
        assert!(after >= before + room.freed as u64);
    }

    /// Ends everything, reads all that is cached, and empties the tiers. Returns the counters of
    /// before, and how many calls began while a lease was on its way.
    ///
    /// # Panics
    /// What does not hold; a page that is lost.
    pub fn finish(&mut self) -> (PlannerStats, u64) {
        self.away.join();
        let stats = self.engine.cache.stats();
        self.engine.settle().unwrap();
        self.step_running = false;
        for at in 0..self.requests.len() {
            self.confirm(at);
            self.read_back(at);
            assert!(self.requests[at].confirmed.is_some(), "pending for ever");
            assert!(self.requests[at].forwards.is_empty());
        }
        while !self.requests.is_empty() {
            self.drop_request(0, false);
        }
        (0..self.engine.ranks()).for_each(|rank| self.engine.device(rank).arm(&FaultPlan::new()));
        self.engine.settle().unwrap();
        self.check();
        let prefixes: Vec<_> = self.model.longest().cloned().collect();
        for (root, path) in prefixes {
            self.serve(root, path);
        }
        self.engine.empty(ROOTS).unwrap();
        self.engine.check();
        (stats, self.overlaps)
    }

    /// A request from start to end, with nothing beside it.
    fn serve(&mut self, root: u8, path: Vec<u8>) {
        let keys = keys_of(root, &path);
        let tokens = path.len() as u64 * self.engine.page_tokens();
        let tokens = tokens + u64::from(!self.full_length_hits);
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        match self.engine.cache.reserve(namespace(root), prefix).unwrap() {
            Reserve::Granted(lease) => self.granted(lease, root, path),
            Reserve::OutOfSpace { needed, .. } => return self.check_refusal(needed, 0),
            Reserve::NotNow { .. } => {
                self.engine.settle().unwrap();
                return self.serve(root, path);
            }
        }
        self.forward(0);
        self.engine.settle().unwrap();
        self.step_running = false;
        self.confirm(0);
        assert_eq!(self.requests[0].confirmed, Some(Confirm::Done));
        self.check();
        assert!(self.requests[0].forwards.is_empty());
        self.drop_request(0, false);
        self.engine.cache.poll().unwrap();
        self.check();
    }
}

/// Whether a wait could not end because nothing could run.
pub(super) fn is_stuck(error: &striata::gpu::transfer::GateError) -> bool {
    use striata::gpu::transfer::{GateError, JobFailure};
    match error {
        GateError::Device(cause)
        | GateError::Failed {
            cause: JobFailure::Device(cause),
            ..
        } => matches!(cause, GpuError::Deadlock { .. }),
        _ => false,
    }
}
