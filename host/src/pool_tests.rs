// SPDX-License-Identifier: Apache-2.0
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of these tests"
)]

use std::sync::Mutex;

use super::*;
use crate::backing::HugePages;
use crate::pin::{PagePinner, PinError, PinRegion};

const LAYOUTS: [HostLayout; 2] = [HostLayout::PageFirst, HostLayout::LayerFirst];

fn config(page_rows: u32, row_bytes: u32, layers: u32, pages: u32) -> HostPoolConfig {
    let page = PageGeometry::new(page_rows, row_bytes, layers).unwrap();
    HostPoolConfig {
        reserve_bytes: 0,
        ..HostPoolConfig::new(page, pages)
    }
}

#[test]
fn every_chunk_round_trips_in_both_layouts_and_touches_no_other() {
    for layout in LAYOUTS {
        for row_bytes in [4, 12, 576, 584, 656, 1152, 1168] {
            let config = config(3, row_bytes, 5, 7);
            let pool = HostPool::new(&HostPoolConfig { layout, ..config }).unwrap();
            let len = pool.geometry().chunk_bytes() as usize;
            for (page, layer) in [(0, 0), (6, 4), (3, 2), (2, 4), (6, 0)] {
                pool.words()
                    .iter()
                    .for_each(|w| w.store(u32::MAX, Ordering::Relaxed));
                let (page, layer) = (L2Page::new(page), LayerId::new(layer));
                let wrote: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5A).collect();
                pool.write_chunk(page, layer, &wrote).unwrap();
                let mut read = vec![0; len];
                pool.read_chunk(page, layer, &mut read).unwrap();
                assert_eq!(read, wrote);
                let first = pool.strides().offset(page.get(), layer) as usize / 4;
                let inside = first..first + len / 4;
                for (at, word) in pool.words().iter().enumerate() {
                    let guard = word.load(Ordering::Relaxed) == u32::MAX;
                    assert!(guard || inside.contains(&at), "{layout:?} word {at}");
                }
            }
        }
    }
}

#[test]
fn exclusive_views_are_the_same_memory() {
    let mut pool = HostPool::new(&config(2, 8, 2, 3)).unwrap();
    let (page, layer) = (L2Page::new(2), LayerId::new(1));
    pool.chunk_mut(page, layer).unwrap().fill(0x0403_0201);
    pool.chunk_bytes_mut(page, layer).unwrap()[3] = 9;
    let mut read = [0; 16];
    pool.read_chunk(page, layer, &mut read).unwrap();
    assert_eq!(read[..8], [1, 2, 3, 9, 1, 2, 3, 4]);
}

#[test]
fn what_is_not_there_is_refused_with_the_numbers() {
    let pool = HostPool::new(&config(2, 8, 2, 3)).unwrap();
    let (page, layer) = (L2Page::new(0), LayerId::new(0));
    let refused = pool.read_chunk(L2Page::new(3), layer, &mut [0; 16]);
    assert_eq!(refused, Err(HostError::Page { page: 3, pages: 3 }));
    let refused = pool.write_chunk(page, LayerId::new(u32::MAX), &[0; 16]);
    let layer_error = HostError::Layer {
        layer: u32::MAX,
        layers: 2,
    };
    assert_eq!(refused, Err(layer_error));
    let refused = pool.write_chunk(page, layer, &[1; 15]);
    assert_eq!(
        refused,
        Err(HostError::Length {
            expected: 16,
            actual: 15
        })
    );
    assert!(pool.words().iter().all(|w| w.load(Ordering::Relaxed) == 0));
    assert!(matches!(
        pool.check_copy(90, 10),
        Err(HostError::Range { bytes: 96, .. })
    ));
    assert_eq!(pool.chunk_of(96), None);
}

#[test]
fn too_much_memory_is_refused_with_figures_before_anything_is_mapped() {
    let machine = HostMemory {
        available: Some(100_000),
        ..HostMemory::default()
    };
    let wanted = HostPoolConfig {
        reserve_bytes: 50_000,
        ..config(64, 1152, 61, 1)
    };
    let refused = HostPool::on_machine(&wanted, &machine).unwrap_err();
    let expected = HostError::TooMuchMemory {
        needed: 4_497_408,
        available: 100_000,
        reserve: 50_000,
    };
    assert_eq!(refused, expected);
    for figure in ["4497408", "100000", "50000"] {
        assert!(refused.to_string().contains(figure));
    }
}

#[test]
fn sizes_without_sense_are_refused() {
    assert!(matches!(
        HostPool::new(&config(4, 8, 1, 0)),
        Err(HostError::Empty {
            pages: 0,
            page_bytes: 32
        })
    ));
    assert!(matches!(
        HostPool::new(&config(0, 8, 1, 5)),
        Err(HostError::Empty { .. })
    ));
    let huge = config(1 << 16, 1 << 16, 1 << 8, u32::MAX);
    assert!(matches!(
        HostPool::new(&huge),
        Err(HostError::TooLarge { .. })
    ));
}

/// Remembers what is registered and refuses after some.
#[derive(Debug)]
struct Registrations {
    held: Mutex<Vec<PinRegion>>,
    room: usize,
}

impl PagePinner for Registrations {
    fn locks_pages(&self) -> bool {
        true
    }
    fn register(&self, region: PinRegion) -> Result<(), PinError> {
        let mut held = self.held.lock().unwrap();
        if held.len() == self.room {
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

fn registrations(room: usize) -> Arc<Registrations> {
    let held = Mutex::default();
    Arc::new(Registrations { held, room })
}

#[test]
fn registrations_cover_the_pool_on_whole_pages_and_end_with_it() {
    for layout in LAYOUTS {
        let pinner = registrations(usize::MAX);
        let wanted = HostPoolConfig {
            layout,
            chunk_bytes: 1 << 20,
            pinner: pinner.clone(),
            ..config(64, 1152, 8, 19)
        };
        let pool = HostPool::new(&wanted).unwrap();
        let held = pinner.held.lock().unwrap().clone();
        let report = pool.report();
        assert!(report.pinned && held.len() > 2);
        assert_eq!(
            (held.len(), pool.registered()),
            (report.chunks, report.chunks)
        );
        assert_eq!(held[0].address, pool.address());
        for pair in held.windows(2) {
            assert_eq!(pair[0].address + pair[0].bytes, pair[1].address);
            assert_eq!(pair[1].address % rustix::param::page_size(), 0);
        }
        let bytes: usize = held.iter().map(|r| r.bytes).sum();
        assert_eq!(bytes as u64, pool.bytes());
        let chunk = pool.geometry().chunk_bytes();
        for page in 0..19 {
            for layer in 0..8 {
                let at = pool.strides().offset(page, LayerId::new(layer));
                assert_eq!(pool.check_copy(at, chunk), Ok(()));
            }
        }
        drop(pool);
        assert!(pinner.held.lock().unwrap().is_empty());
    }
}

#[test]
fn a_refused_registration_leaves_nothing_registered() {
    let pinner = registrations(2);
    let wanted = HostPoolConfig {
        chunk_bytes: 1 << 20,
        pinner: pinner.clone(),
        ..config(64, 1152, 8, 19)
    };
    let refused = HostPool::new(&wanted).unwrap_err();
    assert!(matches!(refused, HostError::Register { chunk: 2, .. }));
    assert!(pinner.held.lock().unwrap().is_empty());
}

#[test]
fn every_choice_of_memory_pages_works_or_says_why() {
    for huge_pages in [
        HugePages::Auto,
        HugePages::Explicit,
        HugePages::Transparent,
        HugePages::Off,
    ] {
        let wanted = HostPoolConfig {
            huge_pages,
            ..config(64, 1152, 61, 3)
        };
        match HostPool::new(&wanted) {
            Ok(pool) => {
                let report = pool.report();
                assert!(report.huge_bytes.unwrap_or(0) <= report.bytes);
                assert!(report.prefault_threads > 0);
                let off = huge_pages == HugePages::Off;
                assert!(!off || report.backing == Backing::Ordinary);
            }
            Err(error) => assert!(matches!(error, HostError::HugePages { .. }), "{error}"),
        }
    }
}

#[test]
fn a_pool_that_is_not_prefaulted_says_so_and_works() {
    let wanted = HostPoolConfig {
        prefault: false,
        ..config(64, 1152, 61, 2)
    };
    let pool = HostPool::new(&wanted).unwrap();
    assert_eq!(pool.report().prefault, PrefaultWay::Skipped);
    assert_eq!(pool.words()[0].load(Ordering::Relaxed), 0);
}
