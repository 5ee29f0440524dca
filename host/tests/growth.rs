// SPDX-License-Identifier: Apache-2.0
//! Growth of a pool while it is in use.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use striata_core::{HostLayout, L2Page, LayerId, PageGeometry};
use striata_host::{HostError, HostPool, HostPoolConfig, PagePinner, PinError, PinRegion};

/// Bytes of a page of [`growing`]: three memory pages.
const PAGE: u64 = 12_288;
/// Pages of a registration of [`growing`].
const CHUNK: u32 = 4;

/// Remembers what is registered and refuses after some.
#[derive(Debug)]
struct Registrations {
    held: Mutex<Vec<PinRegion>>,
    room: Mutex<usize>,
}

impl Registrations {
    fn with_room(room: usize) -> Arc<Self> {
        let (held, room) = (Mutex::default(), Mutex::new(room));
        Arc::new(Self { held, room })
    }
    fn set_room(&self, room: usize) {
        *self.room.lock().unwrap() = room;
    }
    fn held(&self) -> Vec<PinRegion> {
        self.held.lock().unwrap().clone()
    }
}

impl PagePinner for Registrations {
    fn locks_pages(&self) -> bool {
        true
    }
    fn register(&self, region: PinRegion) -> Result<(), PinError> {
        let mut held = self.held.lock().unwrap();
        if held.len() >= *self.room.lock().unwrap() {
            let reason = "full".to_owned();
            return Err(PinError { code: 2, reason });
        }
        held.push(region);
        Ok(())
    }
    fn unregister(&self, region: PinRegion) -> Result<(), PinError> {
        assert_eq!(self.held.lock().unwrap().pop(), Some(region));
        Ok(())
    }
}

fn growing(pages: u32, max_pages: u32, pinner: Arc<Registrations>) -> HostPoolConfig {
    let page = PageGeometry::new(64, 48, 4).unwrap();
    assert_eq!(page.page_bytes(), PAGE);
    HostPoolConfig {
        max_pages: Some(max_pages),
        chunk_bytes: u64::from(CHUNK) * PAGE,
        reserve_bytes: 0,
        pinner,
        ..HostPoolConfig::new(page, pages)
    }
}

/// What a page holds in a layer, different for each.
fn content(page: u32, layer: u32) -> Vec<u8> {
    let word = (page * 4 + layer + 1).to_ne_bytes();
    word.repeat(64 * 48 / word.len())
}

fn write(pool: &HostPool, pages: std::ops::Range<u32>) {
    for (page, layer) in pages.flat_map(|page| (0..4).map(move |layer| (page, layer))) {
        let bytes = content(page, layer);
        let (page, layer) = (L2Page::new(page), LayerId::new(layer));
        pool.write_chunk(page, layer, &bytes).unwrap();
    }
}

fn check(pool: &HostPool, pages: std::ops::Range<u32>) {
    let mut read = vec![0; 64 * 48];
    for (page, layer) in pages.flat_map(|page| (0..4).map(move |layer| (page, layer))) {
        let (at, of) = (L2Page::new(page), LayerId::new(layer));
        pool.read_chunk(at, of, &mut read).unwrap();
        assert_eq!(read, content(page, layer), "page {page} layer {layer}");
    }
}

// Seen to fail if a growth publishes no page.
#[test]
fn pages_before_the_growth_stay_and_those_after_it_are_there() {
    let pinner = Registrations::with_room(usize::MAX);
    let pool = HostPool::new(&growing(5, 30, pinner.clone())).unwrap();
    let (address, offset) = (pool.address(), |page| {
        pool.offset_of(L2Page::new(page), LayerId::new(1))
    });
    assert_eq!((pool.pages(), pool.max_pages()), (5, 30));
    assert_eq!(pool.report().present_bytes, 2 * u64::from(CHUNK) * PAGE);
    assert_eq!(pool.bytes(), 5 * PAGE);
    assert_eq!(offset(5), Err(HostError::Page { page: 5, pages: 5 }));
    let outside = HostError::Range {
        offset: 4 * PAGE,
        len: 2 * PAGE,
        bytes: 5 * PAGE,
    };
    assert_eq!(pool.check_copy(4 * PAGE, 2 * PAGE), Err(outside));
    write(&pool, 0..5);

    let growth = pool.grow_to(17).unwrap();
    assert_eq!((growth.pages_before, growth.pages), (5, 17));
    assert_eq!((growth.chunks, growth.bytes), (3, 12 * PAGE));
    assert!(growth.longest_stall <= growth.register_time);
    assert!(growth.register_time <= growth.total_time);
    assert_eq!((pool.pages(), pool.bytes()), (17, 17 * PAGE));
    assert_eq!(pool.words().len() as u64, 17 * PAGE / 4);
    assert_eq!(pool.address(), address);
    assert_eq!(offset(16), Ok(16 * PAGE + PAGE / 4));
    check(&pool, 0..5);
    write(&pool, 5..17);
    check(&pool, 0..17);
    // The last registration has room for three more: they cost nothing.
    let free = pool.grow_to(20).unwrap();
    assert_eq!((free.pages, free.chunks, free.bytes), (20, 0, 0));

    let held = pinner.held();
    assert_eq!((held.len(), pool.registered()), (5, 5));
    for pair in held.windows(2) {
        assert_eq!(pair[0].address + pair[0].bytes, pair[1].address);
    }
    drop(pool);
    assert!(pinner.held().is_empty());
}

// Seen to fail if a growth publishes no page.
#[test]
fn a_growth_that_fails_leaves_the_pool_as_it_was() {
    let pinner = Registrations::with_room(3);
    let pool = HostPool::new(&growing(4, 40, pinner.clone())).unwrap();
    write(&pool, 0..4);
    let refused = pool.grow_to(20).unwrap_err();
    let HostError::Register { chunk, chunks, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!((chunk, chunks), (3, 5));
    assert_eq!((pool.pages(), pinner.held().len()), (4, 1));
    assert!(pool.offset_of(L2Page::new(4), LayerId::new(0)).is_err());
    check(&pool, 0..4);
    pinner.set_room(usize::MAX);
    assert_eq!(pool.grow_to(20).unwrap().chunks, 4);
    write(&pool, 4..20);
    check(&pool, 0..20);
}

#[test]
fn growth_beyond_what_is_reserved_is_refused_with_the_numbers() {
    let pool = HostPool::new(&growing(4, 8, Registrations::with_room(9))).unwrap();
    let refused = HostError::AboveReserve {
        pages: 4,
        asked: 9,
        max_pages: 8,
    };
    assert_eq!(pool.grow_to(9), Err(refused.clone()));
    for figure in ["4 pages", "to 9", "8 are"] {
        assert!(refused.to_string().contains(figure), "{refused}");
    }
    assert_eq!(pool.grow_to(3).unwrap().pages, 4, "a pool never shrinks");
    assert_eq!(pool.grow_to(8).unwrap().pages, 8);
    let plain = HostPoolConfig {
        max_pages: None,
        ..growing(4, 8, Registrations::with_room(9))
    };
    let plain = HostPool::new(&plain).unwrap();
    assert_eq!(plain.max_pages(), 4);
    assert!(plain.grow_to(5).is_err());
}

#[test]
fn pools_that_could_not_grow_are_refused_at_once() {
    let wanted = HostPoolConfig {
        layout: HostLayout::LayerFirst,
        ..growing(4, 8, Registrations::with_room(9))
    };
    let refused = HostPool::new(&wanted).unwrap_err();
    let layer_first = HostError::LayerFirstGrowth {
        pages: 4,
        max_pages: 8,
    };
    assert_eq!(refused, layer_first);
    let refused = HostPool::new(&growing(4, 3, Registrations::with_room(9))).unwrap_err();
    assert!(matches!(
        refused,
        HostError::AboveReserve {
            asked: 4,
            max_pages: 3,
            ..
        }
    ));
    let absurd = growing(4, u32::MAX, Registrations::with_room(9));
    let absurd = HostPoolConfig {
        page: PageGeometry::new(1 << 16, 1 << 16, 1 << 8).unwrap(),
        ..absurd
    };
    assert!(matches!(
        HostPool::new(&absurd),
        Err(HostError::TooLarge { .. })
    ));
}

/// Readers and writers of the pages that there are go on while another thread grows the pool, and
/// find each new page usable as soon as they see it.
#[test]
fn pages_are_used_while_the_pool_grows() {
    let pool = HostPool::new(&growing(2, 200, Registrations::with_room(usize::MAX))).unwrap();
    write(&pool, 0..2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for pages in (3..=200).step_by(7) {
                pool.grow_to(pages).unwrap();
            }
            pool.grow_to(200).unwrap();
        });
        let user = || {
            let mut known = 2;
            while known < 200 {
                let pages = pool.pages();
                assert!(pages >= known);
                write(&pool, known..pages);
                check(&pool, 0..pages);
                let bytes = u64::from(pages) * PAGE;
                assert!(pool.check_copy(bytes - PAGE, PAGE).is_ok());
                assert!(pool.words().len() as u64 >= bytes / 4);
                known = pages;
            }
        };
        scope.spawn(user);
        scope.spawn(user);
    });
    check(&pool, 0..200);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Growths of any size, some of which fail, between writes: pages, registrations and bytes are
    /// those of a model.
    // Seen to fail if a growth publishes no page.
    #[test]
    fn any_growths_keep_every_byte(
        first in 1u32..10,
        steps in proptest::collection::vec((0u32..14, any::<bool>()), 1..12),
    ) {
        let pinner = Registrations::with_room(usize::MAX);
        let max_pages = 64;
        let pool = HostPool::new(&growing(first, max_pages, pinner.clone())).unwrap();
        let chunks = |pages: u32| pages.div_ceil(CHUNK) as usize;
        let (mut pages, mut held) = (first, chunks(first));
        write(&pool, 0..pages);
        for (more, fails) in steps {
            let asked = pages + more;
            pinner.set_room(if fails { held } else { usize::MAX });
            let grown = pool.grow_to(asked);
            let needs = chunks(asked).saturating_sub(held);
            if asked > max_pages {
                let refused = HostError::AboveReserve { pages, asked, max_pages };
                prop_assert_eq!(grown, Err(refused));
            } else if fails && needs > 0 {
                let refused = matches!(grown, Err(HostError::Register { .. }));
                prop_assert!(refused, "{:?}", grown);
            } else {
                let growth = grown.unwrap();
                prop_assert_eq!((growth.pages, growth.chunks), (asked, needs));
                write(&pool, pages..asked);
                (pages, held) = (asked, held + needs);
            }
            prop_assert_eq!((pool.pages(), pinner.held().len()), (pages, held));
            check(&pool, 0..pages);
        }
        prop_assert!(pool.words().iter().all(|word| word.load(Ordering::Relaxed) != 0));
    }
}
