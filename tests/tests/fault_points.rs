// SPDX-License-Identifier: Apache-2.0
//! Every kind of fault at every copy of short programs. Afterwards all invariants hold, what is
//! readable is right, the error names its cause, and no page is lost.

use std::cell::Cell;

use striata::core::PoolKind;
use striata::core::config::WritePolicy;
use striata::gpu::Device;
use striata::gpu::GpuError;
use striata::gpu::sim::{Fault, FaultPlan, OpClass};
use striata::gpu::transfer::GateError;
use striata::{Confirm, Error, Lease, PlannerConfig, Prefix, Reserve};
use striata_tests::model::{contents_of, keys_of};
use striata_tests::stepped::{Forward, Side, Sizes, Stepped, namespace};

const SIZES: Sizes = Sizes {
    dcp: 2,
    groups: 1,
    page_rows: 2,
    layers: 3,
    l1_pages: 10,
    l2_pages: 6,
    call_pieces: 4,
    sides: [None; 2],
};
/// The same with a pool beside it, whole on every rank.
const MIXED: Sizes = Sizes {
    sides: [
        Some(Side {
            kind: PoolKind::Replicated,
            row_words: 3,
            layers: 2,
        }),
        None,
    ],
    ..SIZES
};
const FAULTS: [Fault; 6] = [
    Fault::Fail { good_pieces: 0 },
    Fault::Fail { good_pieces: 2 },
    Fault::Delay { nanos: 1_000_000 },
    Fault::Hold,
    Fault::Refuse,
    Fault::Die,
];

/// A program: what it does on an engine, as far as the engine lets it.
type Story = fn(&mut Teller) -> Result<(), Error>;

const STORIES: [(&str, WritePolicy, Story); 5] = [
    ("store", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[0, 0, 0]).map(|_| ())
    }),
    ("store, evict, load", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[0, 0, 0, 0])?;
        teller.engine.cache.evict(16)?;
        teller.serve(&[0, 0, 0, 0, 1]).map(|_| ())
    }),
    ("write-back", WritePolicy::WriteBack, |teller| {
        teller.serve(&[0, 0, 0, 0])?;
        teller.serve(&[1, 0, 0, 0])?;
        teller.serve(&[1, 1, 0, 0, 1])?;
        teller.serve(&[0, 0, 0, 0, 1]).map(|_| ())
    }),
    ("chunked prefill", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[1, 1, 0])?;
        teller.engine.cache.evict(16)?;
        teller.serve_chunks(&[1, 1, 0, 0, 1, 0])
    }),
    ("shared load", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[0, 1, 0])?;
        teller.engine.cache.evict(16)?;
        teller.share(&[0, 1, 0])
    }),
];

/// An engine, and whether a load that failed is what a fault may have led to.
struct Teller {
    engine: Stepped,
    failed_loads: Cell<usize>,
}

impl Teller {
    fn new(seed: u64, sizes: Sizes, write_policy: WritePolicy) -> Self {
        let set = |config: &mut PlannerConfig| config.write_policy = write_policy;
        Self {
            engine: Stepped::new(seed, sizes, set),
            failed_loads: Cell::new(0),
        }
    }

    fn reserve(&mut self, path: &[u8]) -> Result<Lease, Error> {
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
        let mut contents = contents_of(0, 0, path);
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
    fn serve(&mut self, path: &[u8]) -> Result<Confirm, Error> {
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
    fn serve_chunks(&mut self, path: &[u8]) -> Result<(), Error> {
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
    fn share(&mut self, path: &[u8]) -> Result<(), Error> {
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

    /// With the fault over, everything can be served, and everything can go.
    fn end(mut self) {
        for rank in 0..self.engine.ranks() {
            self.engine.device(rank).arm(&FaultPlan::new());
        }
        self.engine.settle().unwrap();
        self.engine.check();
        for path in [&[0, 0, 0, 0, 1][..], &[1, 1, 0, 0, 1, 0], &[0, 1, 0, 1]] {
            assert_eq!(self.serve(path).unwrap(), Confirm::Done);
        }
        self.engine.empty(1).unwrap();
    }

    /// A rank whose engine is broken: what its operations held is back, and what is cached on L1 is
    /// what it was.
    fn end_broken(mut self, what: &str) {
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
    }
}

/// Copies of each rank in a story without faults.
fn copies(sizes: Sizes, write_policy: WritePolicy, story: Story) -> Vec<u64> {
    let mut teller = Teller::new(0, sizes, write_policy);
    story(&mut teller).unwrap();
    let ranks = 0..teller.engine.ranks();
    let copies = ranks.map(|rank| teller.engine.device(rank).stats().copies);
    let copies = copies.collect();
    assert_eq!(teller.engine.cache.shards().fault(), None);
    teller.end();
    copies
}

/// Tells a story in which one copy goes wrong.
fn tell(
    sizes: Sizes,
    (name, write_policy, story): (&str, WritePolicy, Story),
    (rank, nth): (usize, u64),
    fault: Fault,
) {
    let mut teller = Teller::new(nth, sizes, write_policy);
    let plan = FaultPlan::new().with(OpClass::Copy, nth, fault);
    teller.engine.device(rank).arm(&plan);
    let told = story(&mut teller);
    let what = format!("{name}: {fault:?} at copy {nth} of rank {rank}: {told:?}");
    let cause = teller.engine.cache.shards().fault().map(str::to_owned);
    let named = |text: &str| text.contains(&format!("copy {nth} of sim{rank}"));
    match fault {
        Fault::Delay { .. } | Fault::Hold => {
            assert!(told.is_ok() && cause.is_none(), "{what}, {cause:?}");
            assert_eq!(teller.failed_loads.get(), 0);
            teller.end();
        }
        Fault::Fail { .. } => {
            assert!(told.is_ok(), "{what}");
            let cause = cause.expect("a copy has failed");
            assert!(named(&cause), "{what}, {cause}");
            assert!(cause.contains(&format!("rank {rank}")), "{what}, {cause}");
            teller.end();
        }
        Fault::Refuse | Fault::Die => {
            if let Err(error) = &told {
                let cause = cause.clone().unwrap_or_default();
                assert!(
                    named(&error.to_string()) || named(&cause),
                    "{what}, {cause}"
                );
            }
            teller.end_broken(&what);
        }
    }
}

/// Every fault at every copy of every story; returns how many were told.
fn tell_all(sizes: Sizes) -> usize {
    let mut told = 0;
    for story in STORIES {
        let (name, write_policy, tale) = story;
        for (rank, copies) in copies(sizes, write_policy, tale).into_iter().enumerate() {
            assert!(copies > 0, "{name}");
            for nth in 0..copies {
                for fault in FAULTS {
                    tell(sizes, story, (rank, nth), fault);
                    told += 1;
                }
            }
        }
    }
    told
}

#[test]
fn every_fault_at_every_copy() {
    let told = tell_all(SIZES);
    assert!(told > 100, "{told}");
}

/// In some of the copies the main pool goes wrong, in the others the pool beside it.
#[test]
fn every_fault_at_every_copy_of_two_pools() {
    let told = tell_all(MIXED);
    assert!(told > 200, "{told}");
}

/// A load that fails in any layer on any rank: `confirm` says how many tokens stand, the same to
/// all that wait for it; nothing that was computed over it is ever matched.
///
/// Seen to fail if insert takes what rests on a failed load, or if pages that a load did not bring
/// count as loaded.
#[test]
fn b36_a_failed_load_at_every_layer_and_rank() {
    let (path, longer) = (&[0, 1, 0, 1][..], &[0, 1, 0, 1, 1][..]);
    let mut stands = [false; 4];
    for rank in 0..2 {
        for nth in 0..4 {
            for good_pieces in 0..4 {
                let mut teller = Teller::new(nth, SIZES, WritePolicy::WriteThrough);
                teller.serve(path).unwrap();
                teller.engine.cache.evict(16).unwrap();
                assert!(teller.engine.cache.take_reports().count() > 0);
                let plan = FaultPlan::new().with(OpClass::Copy, nth, Fault::Fail { good_pieces });
                teller.engine.device(rank).arm(&plan);
                let confirmed = teller.serve(longer).unwrap();
                let Some(load) = teller.engine.cache.take_reports().next() else {
                    panic!("no load");
                };
                let w = teller.engine.page_tokens();
                if load.good_pages == 4 {
                    // Fewer pieces than the fault lets through.
                    assert_eq!(confirmed, Confirm::Done);
                    continue;
                }
                let valid_tokens = u64::from(load.good_pages) * w;
                assert_eq!(confirmed, Confirm::LoadFailed { valid_tokens });
                stands[load.good_pages as usize] = true;
                let keys = keys_of(0, longer);
                let prefix = Prefix::Keys {
                    keys: &keys,
                    tokens: 5 * w + 1,
                };
                let found = teller.engine.cache.lookup(namespace(0), prefix);
                assert_eq!(found.tokens_l1, valid_tokens);
                assert_eq!(found.tokens_l1 + found.tokens_l2, 4 * w, "never the fifth");
                teller.end();
            }
        }
    }
    assert!(
        stands.iter().filter(|seen| **seen).count() > 1,
        "{stands:?}"
    );
}

/// The error of a call on a broken rank is the first cause.
#[test]
fn later_calls_name_the_first_cause() {
    let mut teller = Teller::new(0, SIZES, WritePolicy::WriteThrough);
    let plan = FaultPlan::new().with(OpClass::Copy, 0, Fault::Refuse);
    teller.engine.device(1).arm(&plan);
    let first = teller.serve(&[0, 0]).unwrap_err();
    let second = teller.serve(&[1, 1]).unwrap_err();
    for error in [first, second] {
        assert!(
            matches!(
                error,
                Error::Transfer { rank: 1, .. } | Error::Poisoned { .. }
            ),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("rank 1") && text.contains("copy 0 of sim1"),
            "{text}"
        );
    }
    teller.end_broken("refused");
}
