// SPDX-License-Identifier: Apache-2.0
//! How long pages belong to copies: behaviours 24, 25 and 26 by the engine's own verbs, and what is
//! refused leaves the engine whole.

use striata_gpu::Device;
use striata_gpu::selftest::{Check, Checked};

use super::ensure;
use super::rig::{MILLI, Rig, Sizes, setup};
use crate::{Error, HiCache, Reserve};

/// All L1 pages of a rig here.
const ALL: u32 = 8;
const SMALL: Sizes = Sizes {
    dcp: 2,
    l1_pages: ALL,
    l2_pages: ALL,
};
/// Long enough that the host is back before the device is.
const HELD: u64 = 150 * MILLI;

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![
        Check::new(
            "hicache.b24_pages_of_stores",
            "pages that a store still has to read are not given out, and come back once it has",
            pages_of_stores,
        ),
        Check::new(
            "hicache.b24_pages_of_tables",
            "pages of a live page table are never given out",
            pages_of_tables,
        ),
        Check::new(
            "hicache.b25_store_after_write",
            "what comes back from L2 is what held kernels wrote before the store, 200 times",
            store_after_write,
        ),
        Check::new(
            "hicache.b26_cancelled_loads",
            "targets of a load that nobody wants any more are not given out while it runs",
            cancelled_loads,
        ),
        Check::new(
            "hicache.refusals",
            "calls in the wrong order and pools that do not fit are refused; the engine goes on",
            refusals,
        ),
    ]
}

fn pages_of_stores<D: Device>(device: &D) -> Checked {
    let real = !device.describe().simulated_time;
    let mut rig = Rig::new(device, SMALL)?;
    for salt in 0..5 {
        let first = rig.prompt(100 + salt, 3);
        let lease = rig.reserve(&first[..first.len() - 1])?;
        rig.forward(&lease, &rig.keys(&first))?;
        rig.hold(HELD)?;
        let held = rig.fence()?;
        rig.publish(&lease)?;
        drop(lease);
        // What is left can be had at once; all of it only when the stores have read their pages.
        let rest = rig.prompt(200 + salt, ALL - 3);
        match rig.ask(&rest[..rest.len() - 1])? {
            Reserve::Granted(lease) => drop(lease),
            refused => ensure(false, format_args!("5 of 8 pages: {refused:?}"))?,
        }
        let all = rig.prompt(300 + salt, ALL);
        let (lease, refused) = rig.granted_after(&all[..all.len() - 1], &held)?;
        ensure(
            refused > 0 || !real,
            format_args!("the stores had ended before anybody asked"),
        )?;
        rig.forward(&lease, &rig.keys(&all))?;
        rig.cache.step_end(&rig.streams)?;
        drop(lease);
        rig.check("pages of stores")?;
        rig.serve(&first)?;
        rig.check("what the stores took")?;
        rig.empty_l1()?;
    }
    Ok(())
}

fn pages_of_tables<D: Device>(device: &D) -> Checked {
    let mut rig = Rig::new(device, SMALL)?;
    let first = rig.prompt(1, 3);
    rig.serve(&first)?;
    rig.cache.drain()?;
    let lease = rig.reserve(&first)?;
    let other = rig.prompt(2, ALL - 3);
    // The lease has 3 pages that hit and one more; 4 are left.
    match rig.ask(&other[..other.len() - 1])? {
        Reserve::OutOfSpace {
            needed: 5,
            available: 4,
            ..
        } => {}
        other => ensure(
            false,
            format_args!("5 pages beside a table of 4 of 8: {other:?}"),
        )?,
    }
    rig.forward(&lease, &rig.keys(&first))?;
    rig.publish(&lease)?;
    drop(lease);
    drop(rig.reserve(&other[..other.len() - 1])?);
    rig.check("a live table")
}

fn store_after_write<D: Device>(device: &D) -> Checked {
    let mut rig = Rig::new(device, SMALL)?;
    for turn in 0..200 {
        // 20 ms as the behaviour says at first, then short enough for many turns.
        rig.hold(if turn < 10 { 20 * MILLI } else { MILLI / 5 })?;
        let prompt = rig.prompt(1000 + turn, 3);
        rig.serve(&prompt)?;
        rig.empty_l1()?;
        let served = rig.serve(&prompt)?;
        ensure(
            served.l2 == 3,
            format_args!("turn {turn}: {served:?} instead of 3 pages from L2"),
        )?;
        rig.check(&format!("turn {turn}"))?;
        rig.empty_l1()?;
    }
    Ok(())
}

fn cancelled_loads<D: Device>(device: &D) -> Checked {
    let mut rig = Rig::new(device, SMALL)?;
    let wanted = rig.prompt(1, 3);
    rig.serve(&wanted)?;
    for (turn, started) in [true, false, true, false].into_iter().enumerate() {
        // Every page of L1 was used by a step that the device has not ended, so the load waits.
        rig.empty_l1()?;
        let busy = rig.prompt(50, ALL);
        let lease = rig.reserve(&busy[..busy.len() - 1])?;
        rig.forward(&lease, &rig.keys(&busy))?;
        rig.hold(HELD)?;
        rig.cache.step_end(&rig.streams)?;
        drop(lease);
        let lease = rig.reserve(&wanted)?;
        let hit = lease.hit_tokens_l2();
        ensure(
            hit == 3 * rig.cache.stripe().widened_page(),
            format_args!("{hit} tokens are to come from L2"),
        )?;
        if started {
            rig.cache.start_loads()?;
        }
        drop(lease);
        rig.cache.poll()?;
        let left = rig.cache.planned_loads().len();
        ensure(
            left == 0,
            format_args!("{left} loads are planned that nobody wants"),
        )?;
        let other = rig.prompt(60, ALL);
        let other = &other[..other.len() - 1];
        // Nothing of the load was submitted, so it ends at once, and compute on the same stream may
        // have its pages.
        let lease = rig.reserve(other)?;
        rig.forward(&lease, &rig.keys(other))?;
        rig.publish(&lease)?;
        drop(lease);
        // A load that came late would have overwritten these.
        let lease = rig.reserve(other)?;
        rig.forward(&lease, &rig.keys(other))?;
        rig.publish(&lease)?;
        drop(lease);
        rig.check(&format!("turn {turn}: pages of a cancelled load"))?;
        rig.cache.reset(rig.namespace)?;
        rig.serve(&wanted)?;
    }
    rig.check("after cancelled loads")
}

fn refusals<D: Device>(device: &D) -> Checked {
    let mut rig = Rig::new(device, SMALL)?;
    let prompt = rig.prompt(1, 3);
    rig.serve(&prompt)?;
    rig.empty_l1()?;
    let lease = rig.reserve(&prompt)?;
    let gates = rig.cache.gates(&lease, 0);
    ensure(
        matches!(gates, Err(Error::NotStarted { .. })),
        format_args!("gates of a load that is not started: {gates:?}"),
    )?;
    let inserted = rig.cache.insert(&lease, lease.tokens());
    ensure(
        matches!(inserted, Err(Error::Unconfirmed { .. })),
        format_args!("an insert before the loads are confirmed: {inserted:?}"),
    )?;
    let fence = rig.cache.step_end(&rig.streams[..1]);
    ensure(
        matches!(fence, Err(Error::RankCount { .. })),
        format_args!("a step of one stream on two ranks: {fence:?}"),
    )?;
    rig.cache.start_loads()?;
    rig.forward(&lease, &rig.keys(&prompt))?;
    rig.publish(&lease)?;
    drop(lease);
    rig.check("after refused calls")?;
    if let Some(bytes) = device.describe().memory_bytes {
        let page = setup(SMALL)?.planner.pool.page().page_bytes();
        let l1_pages = u32::try_from(bytes / page + 1)?;
        let large = setup(Sizes { l1_pages, ..SMALL })?;
        let made = HiCache::new(&large, vec![device.clone(), device.clone()]);
        ensure(
            made.is_err(),
            format_args!("an L1 of more than the {bytes} bytes of the device was made"),
        )?;
    }
    let served = rig.serve(&prompt)?;
    ensure(
        served.l1 == 3,
        format_args!("the prompt is not on L1 after refusals: {served:?}"),
    )?;
    rig.check("after refusals")
}
