// SPDX-License-Identifier: Apache-2.0
//! Random programs.

use proptest::prelude::*;
use striata::core::PoolKind;
use striata::core::config::{PolicyName, WritePolicy};
use striata::gpu::Direction;
use striata::gpu::sim::{Fault, OpClass};
use striata_tests::programs::{Op, Path, Program, ROOTS};
use striata_tests::stepped::{Side, Sizes};

fn path() -> impl Strategy<Value = Path> {
    let len = prop_oneof![1 => 0u8..2, 5 => 2u8..7];
    (0..ROOTS, any::<u8>(), len).prop_map(|(root, bits, len)| Path::new(root, bits, len))
}

/// What the engine goes on after. A copy may fail; whatever else there is may only come late, since
/// a device whose kernels, records or waits fail is lost.
fn fault() -> impl Strategy<Value = Op> {
    let copy = prop_oneof![Just(Direction::HostToDevice), Just(Direction::DeviceToHost)];
    let of_copies = prop_oneof![
        4 => (0usize..4).prop_map(|good_pieces| Fault::Fail { good_pieces }),
        1 => (1u64..1_000_000).prop_map(|nanos| Fault::Delay { nanos }),
        2 => Just(Fault::Hold),
    ];
    let other = proptest::sample::select(vec![OpClass::Record, OpClass::Wait, OpClass::Kernel]);
    let late = prop_oneof![
        1 => (1u64..1_000_000).prop_map(|nanos| Fault::Delay { nanos }),
        2 => Just(Fault::Hold),
    ];
    let what = prop_oneof![
        5 => (copy.prop_map(OpClass::CopyOf), of_copies),
        2 => (other, late),
    ];
    (any::<u8>(), 0u8..3, what).prop_map(|(rank, nth, (class, fault))| Op::Fault {
        rank,
        class,
        nth,
        fault,
    })
}

/// What breaks an engine for good: a device that dies at any operation, a copy that is refused.
pub(crate) fn end() -> impl Strategy<Value = (u8, OpClass, u8, Fault)> {
    let classes = vec![
        OpClass::Any,
        OpClass::Copy,
        OpClass::Record,
        OpClass::Wait,
        OpClass::Kernel,
    ];
    let what = prop_oneof![
        4 => proptest::sample::select(classes).prop_map(|class| (class, Fault::Die)),
        1 => Just((OpClass::Copy, Fault::Refuse)),
    ];
    (any::<u8>(), what, 0u8..8).prop_map(|(rank, (class, fault), nth)| (rank, class, nth, fault))
}

fn op(resets: bool) -> impl Strategy<Value = Op> {
    let lease = any::<u8>;
    prop_oneof![
        20 => (path(), any::<bool>())
            .prop_map(|(path, settled)| Op::Serve { path, settled }),
        14 => (path(), any::<bool>()).prop_map(|(path, tail)| Op::Reserve { path, tail }),
        4 => path().prop_map(|path| Op::Load { path }),
        3 => path().prop_map(|path| Op::Lookup { path }),
        6 => Just(Op::StartLoads),
        14 => lease().prop_map(|lease| Op::Forward { lease }),
        7 => Just(Op::StepEnd),
        6 => lease().prop_map(|lease| Op::Confirm { lease }),
        12 => (lease(), 0u8..8, any::<bool>())
            .prop_map(|(lease, pages, chunk)| Op::Insert { lease, pages, chunk }),
        5 => (lease(), any::<u8>(), 1u8..3)
            .prop_map(|(lease, bits, pages)| Op::Extend { lease, bits, pages }),
        2 => lease().prop_map(|lease| Op::Store { lease }),
        12 => (lease(), any::<bool>()).prop_map(|(lease, elsewhere)| Op::Drop { lease, elsewhere }),
        6 => (0u8..8).prop_map(|pages| Op::Evict { pages }),
        4 => Just(Op::Evict { pages: 16 }),
        1 => (0..ROOTS).prop_map(move |root| if resets { Op::Reset { root } } else { Op::Poll }),
        5 => Just(Op::Poll),
        8 => (1u8..6).prop_map(|times| Op::Pump { times }),
        8 => (1u8..30).prop_map(|steps| Op::Run { steps }),
        5 => fault(),
        2 => Just(Op::Release),
        5 => Just(Op::Settle),
    ]
}

/// Pools beside the main one, in half of the programs.
fn sides() -> impl Strategy<Value = [Option<Side>; 2]> {
    let side = |kind| {
        (1u32..6, 1u32..5).prop_map(move |(row_words, layers)| {
            Some(Side {
                kind,
                row_words,
                layers,
            })
        })
    };
    prop_oneof![
        5 => Just([None; 2]),
        4 => side(PoolKind::Replicated).prop_map(|side| [side, None]),
        1 => (side(PoolKind::Replicated), side(PoolKind::Striped)).prop_map(Into::into),
    ]
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let call_pieces = prop_oneof![Just(512usize), Just(3)];
    (
        1u32..=8,
        1u32..3,
        1u32..3,
        1u32..4,
        4u64..14,
        0u32..14,
        call_pieces,
        sides(),
    )
        .prop_map(
            |(dcp, groups, page_rows, layers, l1_pages, l2_pages, call_pieces, sides)| Sizes {
                dcp,
                groups: if dcp <= 2 { groups } else { 1 },
                // A page of one token leaves no room for a tail.
                page_rows: if dcp == 1 { page_rows + 1 } else { page_rows },
                layers,
                l1_pages,
                l2_pages,
                call_pieces,
                sides,
            },
        )
}

/// Programs of `calls` calls on average, with or without resets of namespaces.
pub(crate) fn program(calls: usize, resets: bool) -> impl Strategy<Value = Program> {
    let policies = (
        proptest::sample::select(PolicyName::ALL.to_vec()),
        proptest::sample::select(WritePolicy::ALL.to_vec()),
        any::<bool>(),
        any::<bool>(),
    );
    let limits = (
        proptest::option::weighted(0.3, 0u32..3),
        proptest::option::weighted(0.3, 1u32..4),
        prop_oneof![3 => Just(0u32), 1 => 1u32..4],
        proptest::bool::weighted(0.2),
    );
    let ops = proptest::collection::vec(op(resets), 1..=2 * calls);
    (any::<u64>(), sizes(), policies, limits, ops).prop_map(
        |(seed, sizes, (policy, write_policy, duplicates_first, concurrent), limits, ops)| {
            Program {
                seed,
                sizes,
                policy,
                write_policy,
                duplicates_first,
                quota: limits.0,
                max_store_pages: limits.1,
                watermark: limits.2,
                full_length_hits: limits.3,
                concurrent,
                ops,
            }
        },
    )
}
