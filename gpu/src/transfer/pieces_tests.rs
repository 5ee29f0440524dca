// SPDX-License-Identifier: Apache-2.0
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of tests are small"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use striata_core::HostLayout;

use super::*;

const L1_PAGES: u32 = 12;

fn pair(l1: u32, l2: u32) -> PagePair {
    PagePair {
        l1: L1Page::new(l1),
        l2: L2Page::new(l2),
    }
}

fn shape(page: PageGeometry, layout: HostLayout, l2_pages: u32, gap: Option<u64>) -> PieceShape {
    let plane = page.chunk_bytes() * u64::from(L1_PAGES);
    let planes = (0..page.layers()).map(|layer| match gap {
        Some(gap) => PlaneSpan {
            memory: 0,
            offset: 8 + u64::from(layer) * (plane + gap),
        },
        None => PlaneSpan {
            memory: layer,
            offset: 4 * u64::from(layer),
        },
    });
    PieceShape {
        planes: planes.collect(),
        uniform: gap.map(|gap| plane + gap),
        page,
        host: layout.strides(page, l2_pages),
        registration: u64::MAX,
    }
}

/// Every word that the pieces move: (plane, device byte) to host byte.
fn words(pieces: &[Piece]) -> BTreeMap<(u32, u64), u64> {
    let mut moved = BTreeMap::new();
    for piece in pieces {
        for row in 0..u64::from(piece.height) {
            for at in (0..piece.width).step_by(4) {
                let device = piece.device + row * piece.device_pitch + at;
                let host = piece.host + row * piece.host_pitch + at;
                let before = moved.insert((piece.plane, device), host);
                assert_eq!(before, None, "word {device} is written twice");
            }
        }
    }
    moved
}

fn expected(
    shape: &PieceShape,
    pairs: &[PagePair],
    layers: Range<u32>,
) -> BTreeMap<(u32, u64), u64> {
    let chunk = shape.page.chunk_bytes();
    let mut moved = BTreeMap::new();
    for layer in layers {
        let plane = shape.planes[layer as usize];
        for pair in pairs {
            for at in (0..chunk).step_by(4) {
                let device = plane.offset + u64::from(pair.l1.get()) * chunk + at;
                let host = shape.host.offset(pair.l2.get(), LayerId::new(layer)) + at;
                moved.insert((plane.memory, device), host);
            }
        }
    }
    moved
}

/// First and last byte on the host.
fn host_edges(piece: &Piece) -> (u64, u64) {
    let rows = u64::from(piece.height) - 1;
    (
        piece.host,
        piece.host + rows * piece.host_pitch + piece.width - 1,
    )
}

fn scattered(l2_pages: u32) -> impl Strategy<Value = Vec<PagePair>> {
    let l1 = Just((1..L1_PAGES).collect::<Vec<_>>()).prop_shuffle();
    let l2 = Just((0..l2_pages).collect::<Vec<_>>()).prop_shuffle();
    (l1, l2, 0..=8usize, any::<bool>()).prop_map(|(mut l1, mut l2, count, ordered)| {
        if ordered {
            l1.sort_unstable();
            l2.sort_unstable();
        }
        l1.into_iter()
            .zip(l2)
            .take(count)
            .map(|(a, b)| pair(a, b))
            .collect()
    })
}

proptest! {
    #[test]
    fn pieces_move_every_word_once_and_stay_in_a_registration(
        rows in 1u32..4, row_words in 1u32..4, layers in 1u32..7,
        layout in prop_oneof![Just(HostLayout::PageFirst), Just(HostLayout::LayerFirst)],
        gap in proptest::option::of(0u64..3), pairs in scattered(9),
        span in (0u32..7, 0u32..7), registration in proptest::option::of(1u64..40),
        load: bool,
    ) {
        let page = PageGeometry::new(rows, row_words * 4, layers).unwrap();
        let mut shape = shape(page, layout, 9, gap.map(|gap| gap * 4));
        if let Some(units) = registration {
            shape.registration = units * 4;
        }
        let range = span.0.min(layers)..(span.0.min(layers) + span.1).min(layers);
        let direction = if load { Direction::HostToDevice } else { Direction::DeviceToHost };
        let runs = page_runs(&pairs, direction).unwrap();
        let want = expected(&shape, &pairs, range.clone());
        let (mut plain, mut rectangles) = (Vec::new(), Vec::new());
        shape.runs(&runs, range.clone(), &mut plain);
        shape.rectangles(&runs, range, &mut rectangles);
        prop_assert!(plain.iter().all(|piece| piece.height == 1));
        for pieces in [&plain, &rectangles] {
            prop_assert_eq!(words(pieces), want.clone());
            for piece in pieces {
                let (first, last) = host_edges(piece);
                prop_assert_eq!(first / shape.registration, last / shape.registration);
            }
        }
        prop_assert!(rectangles.len() <= plain.len());
    }
}

fn made(shape: &PieceShape, pairs: &[PagePair], rectangles: bool) -> Vec<Piece> {
    let runs = page_runs(pairs, Direction::HostToDevice).unwrap();
    let mut out = Vec::new();
    let layers = 0..shape.page.layers();
    if rectangles {
        shape.rectangles(&runs, layers, &mut out);
    } else {
        shape.runs(&runs, layers, &mut out);
    }
    out
}

#[test]
fn a_page_first_host_gives_one_rectangle_a_page_and_one_run_a_page_and_layer() {
    let page = PageGeometry::new(64, 1152, 61).unwrap();
    let shape = shape(page, HostLayout::PageFirst, 20, Some(0));
    let pairs = [pair(3, 7), pair(4, 8), pair(9, 1)];
    let rectangles = made(&shape, &pairs, true);
    assert_eq!(rectangles.len(), 3);
    let plane = 12 * 73_728;
    let first = Piece {
        plane: 0,
        height: 61,
        device: 8 + 3 * 73_728,
        host: 7 * 4_497_408,
        width: 73_728,
        device_pitch: plane,
        host_pitch: 73_728,
    };
    assert_eq!(rectangles[0], first);
    assert_eq!(made(&shape, &pairs, false).len(), 3 * 61);
}

#[test]
fn neighbours_on_both_tiers_are_one_piece_on_a_layer_first_host() {
    let page = PageGeometry::new(64, 1152, 61).unwrap();
    let mut shape = shape(page, HostLayout::LayerFirst, 20, Some(0));
    // Out of order, and 9 is a neighbour on one tier only.
    let pairs = [pair(4, 8), pair(3, 7), pair(5, 9), pair(6, 19)];
    let runs = made(&shape, &pairs, false);
    assert_eq!(runs.len(), 2 * 61);
    assert_eq!((runs[0].width, runs[1].width), (3 * 73_728, 73_728));
    assert_eq!(made(&shape, &pairs, true).len(), 2);
    // Registrations of two planes: rectangles end with them.
    shape.registration = 2 * shape.host.layer;
    let rectangles = made(&shape, &pairs[..1], true);
    assert_eq!(rectangles.len(), 31);
    assert_eq!((rectangles[0].height, rectangles[30].height), (2, 1));
}

/// Seen to fail if the offset of a page is computed in 32 bits.
#[test]
fn b40_offsets_are_64_bit_from_the_page_on() {
    let page = PageGeometry::new(64, 1152, 1).unwrap();
    let mut shape = shape(page, HostLayout::PageFirst, u32::MAX, Some(0));
    shape.planes = Box::from([PlaneSpan {
        memory: 0,
        offset: 0,
    }]);
    for number in [58_254, 58_255, 116_508, 116_509, u32::MAX - 1] {
        let pieces = made(&shape, &[pair(number, number)], false);
        let at = u64::from(number) * 73_728;
        assert_eq!((pieces[0].device, pieces[0].host), (at, at));
    }
}

#[test]
fn a_target_named_twice_is_refused_a_source_is_not() {
    let pairs = [pair(3, 1), pair(4, 2), pair(3, 5)];
    let error = page_runs(&pairs, Direction::HostToDevice).unwrap_err();
    assert_eq!(
        error.to_string(),
        "page 3 is named twice as the target of one host-to-device copy"
    );
    assert_eq!(page_runs(&pairs, Direction::DeviceToHost).unwrap().len(), 2);
}
