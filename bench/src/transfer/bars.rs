// SPDX-License-Identifier: Apache-2.0
//! What must be reached on an H200, 61 layers of 73,728 B a page, page-first host pool.

use super::figure::{Bar, BarOf};

/// Least ratio of both directions at once.
pub(super) const BOTH: Bar = Bar::ratio_at_least(0.97);
/// Least ratio of row lists, each way.
pub(super) const ROWS: Bar = Bar::ratio_at_least(0.85);
/// Most that a consumer as fast as the load takes, over the load and one layer.
pub(super) const CONSUMER: Bar = Bar::at_most(BarOf::Ratio, 1.05);
/// Most microseconds of CPU that a page of a store takes.
pub(super) const STORE_CPU: Bar = Bar::at_most(BarOf::Median, 2.0);
/// Most microseconds of CPU that a page of a layered load takes.
pub(super) const LOAD_CPU: Bar = Bar::at_most(BarOf::Median, 30.0);
/// Most microseconds of a foreign copy of 4 KiB beside a load.
pub(super) const FOREIGN: Bar = Bar::at_most(BarOf::P99, 1200.0);
/// Most slowdown of small decode GEMMs beside a store.
pub(super) const GEMMS_BESIDE_STORE: Bar = Bar::at_most(BarOf::Ratio, 1.015);
/// Most slowdown of small decode GEMMs beside a load.
pub(super) const GEMMS_BESIDE_LOAD: Bar = Bar::at_most(BarOf::Ratio, 1.04);
/// Pages from which the CPU time of a page is judged: below, a call is shared by too few.
pub(super) const CPU_PAGES: u32 = 64;

/// Least ratio of a layered load.
pub(super) const fn load(pages: u32) -> Option<Bar> {
    let ratio = match pages {
        1 => 0.82,
        2 => 0.86,
        8 => 0.935,
        64 => 0.975,
        512 => 0.985,
        _ => return None,
    };
    Some(Bar::ratio_at_least(ratio))
}

/// Most microseconds until the first layer of a load is ready.
pub(super) const fn first_layer(pages: u32) -> Option<Bar> {
    let micros = match pages {
        8 => 25.0,
        64 => 120.0,
        _ => return None,
    };
    Some(Bar::at_most(BarOf::Median, micros))
}

/// Least ratio of a store.
pub(super) const fn store(pages: u32) -> Option<Bar> {
    let ratio = match pages {
        1 => 0.87,
        2 => 0.91,
        8 => 0.95,
        64 => 0.96,
        512 => 0.965,
        _ => return None,
    };
    Some(Bar::ratio_at_least(ratio))
}

/// Least ratio of a store from planes that are an allocation a layer.
pub(super) const fn separate_store(pages: u32) -> Option<Bar> {
    if pages >= 8 {
        Some(Bar::ratio_at_least(0.93))
    } else {
        None
    }
}

/// The bar of a consumer as fast as the load.
pub(super) const fn consumer(pages: u32) -> Option<Bar> {
    match pages {
        64 | 256 | 512 => Some(CONSUMER),
        _ => None,
    }
}
