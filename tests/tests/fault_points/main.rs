// SPDX-License-Identifier: Apache-2.0
//! Every kind of fault at every copy, event record, event wait and kernel of short programs, on
//! every rank: stores, loads, evictions, aborts, retractions, resets. Afterwards all invariants
//! hold, what is readable is right, the error names its cause, and no page is lost.

mod teller;

use striata::core::PoolKind;
use striata::core::config::WritePolicy;
use striata::gpu::sim::{Fault, FaultPlan, OpClass};
use striata::{Confirm, Error, Prefix};
use striata_tests::model::keys_of;
use striata_tests::stepped::{Side, Sizes, namespace};

use teller::Teller;

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

const STORIES: [(&str, WritePolicy, Story); 12] = [
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
    (
        "store at the second insert",
        WritePolicy::WriteThroughSelective,
        |teller| {
            teller.serve(&[0, 0, 1])?;
            teller.serve(&[0, 0, 1])?;
            teller.engine.cache.evict(16)?;
            teller.serve(&[0, 0, 1, 1]).map(|_| ())
        },
    ),
    ("write-back eviction", WritePolicy::WriteBack, |teller| {
        teller.serve(&[0, 0, 1])?;
        teller.engine.cache.evict(16)?;
        teller.engine.settle()?;
        teller.serve(&[0, 0, 1, 1]).map(|_| ())
    }),
    (
        "insert within a step",
        WritePolicy::WriteThrough,
        |teller| {
            teller.serve_in_step(&[1, 0, 1, 0])?;
            teller.engine.cache.evict(16)?;
            teller.serve_in_step(&[1, 0, 1, 0, 1])
        },
    ),
    ("abort of a load", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[0, 1, 1])?;
        teller.engine.cache.evict(16)?;
        teller.abort(&[0, 1, 1])?;
        teller.serve(&[0, 1, 1, 0]).map(|_| ())
    }),
    ("retraction", WritePolicy::WriteThrough, |teller| {
        teller.retract(&[1, 0, 0, 1], 2)?;
        teller.serve(&[1, 0, 0, 1]).map(|_| ())
    }),
    ("reset under a lease", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[1, 0, 1])?;
        teller.reset_under_a_lease(&[1, 0, 1])?;
        teller.serve(&[1, 0, 1, 1]).map(|_| ())
    }),
    ("reset under a load", WritePolicy::WriteThrough, |teller| {
        teller.serve(&[1, 1, 1])?;
        teller.engine.cache.evict(16)?;
        teller.reset_under_a_lease(&[1, 1, 1])?;
        teller.serve(&[1, 1, 1, 1]).map(|_| ())
    }),
];

/// Tells a story in which one operation of a class goes wrong; false if the story has no such
/// operation.
fn tell(
    sizes: Sizes,
    (name, write_policy, story): (&str, WritePolicy, Story),
    (rank, class, nth): (usize, OpClass, u64),
    fault: Fault,
) -> bool {
    let mut teller = Teller::new(nth, sizes, write_policy);
    let plan = FaultPlan::new().with(class, nth, fault);
    teller.engine.device(rank).arm(&plan);
    let told = story(&mut teller);
    if teller.engine.device(rank).faults_left() > 0 {
        told.unwrap();
        assert_eq!(teller.engine.cache.shards().fault(), None);
        teller.end();
        return false;
    }
    let what = format!("{name}: {fault:?} at {class} {nth} of rank {rank}: {told:?}");
    let cause = teller.engine.cache.shards().fault().map(str::to_owned);
    let named = |text: &str| text.contains(&format!("{class} {nth} of sim{rank}"));
    match fault {
        Fault::Delay { .. } | Fault::Hold => {
            assert!(told.is_ok() && cause.is_none(), "{what}, {cause:?}");
            assert_eq!(teller.failed_loads.get(), 0);
            teller.end();
        }
        Fault::Fail { .. } if class == OpClass::Copy => {
            assert!(told.is_ok(), "{what}");
            let cause = cause.expect("a copy has failed");
            assert!(named(&cause), "{what}, {cause}");
            assert!(cause.contains(&format!("rank {rank}")), "{what}, {cause}");
            teller.end();
        }
        Fault::Refuse if told.is_err() && teller.engine.cache.shards().poisoned().is_none() => {
            // Who was refused is told, and may try again.
            let refused = told.unwrap_err().to_string();
            assert!(named(&refused), "{what}");
            teller.end();
        }
        Fault::Fail { .. } | Fault::Refuse | Fault::Die => {
            if let Err(error) = &told {
                let cause = cause.clone().unwrap_or_default();
                assert!(
                    named(&error.to_string()) || named(&cause),
                    "{what}, {cause}"
                );
            }
            teller.end_broken(&what, named);
        }
    }
    true
}

/// Every fault at every operation of a class in every story; returns how many were told.
fn tell_all(sizes: Sizes, class: OpClass, faults: &[Fault]) -> usize {
    let mut told = 0;
    for story in STORIES {
        for rank in 0..2 {
            for fault in faults {
                told += (0..)
                    .take_while(|nth| tell(sizes, story, (rank, class, *nth), *fault))
                    .count();
            }
        }
    }
    told
}

/// Seen to fail if the pages of an operation are those of its last part, and if stores do not wait
/// for the fence of their pages.
#[test]
fn every_fault_at_every_copy() {
    let told = tell_all(SIZES, OpClass::Copy, &FAULTS);
    assert!(told > 100, "{told}");
}

/// The end of a step among them: what is stored or loaded behind a fence that was not recorded is
/// what it was meant to be, or nothing.
///
/// Seen to fail if a fence that could not be recorded counts as recorded.
#[test]
fn every_fault_at_every_event_record() {
    let told = tell_all(SIZES, OpClass::Record, &FAULTS[1..]);
    assert!(told > 100, "{told}");
}

/// Seen to fail if stores do not wait for the fence of their pages.
#[test]
fn every_fault_at_every_event_wait() {
    let told = tell_all(SIZES, OpClass::Wait, &FAULTS[1..]);
    assert!(told > 100, "{told}");
}

/// Seen to fail if stores do not wait for the fence of their pages.
#[test]
fn every_fault_at_every_kernel() {
    let told = tell_all(SIZES, OpClass::Kernel, &FAULTS[1..]);
    assert!(told > 100, "{told}");
}

/// In some of the copies the main pool goes wrong, in the others the pool beside it.
///
/// Seen to fail as [`every_fault_at_every_copy`].
#[test]
fn every_fault_at_every_copy_of_two_pools() {
    let told = tell_all(MIXED, OpClass::Copy, &FAULTS);
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
    teller.end_broken("refused", |text| text.contains("copy 0 of sim1"));
}
