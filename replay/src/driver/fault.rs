// SPDX-License-Identifier: Apache-2.0
//! Planting a fault: words of a host page are flipped just before the page is loaded back.

use std::sync::atomic::Ordering;

use striata::{Error, HiCache};
use striata_core::{L2Page, LayerId, PagePair};
use striata_gpu::Device;

use super::checks::{Checks, RowId};
use super::engine::Step;
use super::plan::Plan;

/// Counts the loads that are planned for this step, and corrupts the page that is due.
pub(crate) fn plant<D: Device>(
    cache: &HiCache<D>,
    plan: &Plan,
    step: Step<'_>,
    checks: &mut Checks,
) -> Result<(), Error> {
    for order in cache.planned_loads() {
        if let Some(at) = checks.loads(order.pages.len()) {
            corrupt(cache, plan, step, order.pages[at], checks)?;
        }
    }
    Ok(())
}

fn corrupt<D: Device>(
    cache: &HiCache<D>,
    plan: &Plan,
    step: Step<'_>,
    pair: PagePair,
    checks: &mut Checks,
) -> Result<(), Error> {
    let place = step.lease.pages().iter().position(|page| *page == pair.l1);
    let content = place.and_then(|at| step.identity.content.get(at));
    let Some(&content) = content else {
        return Ok(());
    };
    for (rank, shard) in (0..).zip(cache.shards().shards()) {
        let Some(host) = shard.host() else { continue };
        for layer in 0..plan.layers() {
            flip_rows(plan, host, pair.l2, LayerId::new(layer))?;
            for row in 0..plan.stripe.page_rows() {
                checks.corrupted(RowId {
                    replica: step.replica,
                    rank,
                    layer,
                    content,
                    row,
                });
            }
        }
    }
    Ok(())
}

/// Flips one bit of every row of a page in one layer, in another word of each row.
fn flip_rows(
    plan: &Plan,
    host: &striata_host::HostPool,
    page: L2Page,
    layer: LayerId,
) -> Result<(), Error> {
    let row_words = plan.row_words() as usize;
    let words = host.chunk_words(page, layer).map_err(std::sync::Arc::new)?;
    for (row, words) in words.chunks_exact(row_words).enumerate() {
        words[row % row_words].fetch_xor(1, Ordering::Relaxed);
    }
    Ok(())
}
