// SPDX-License-Identifier: Apache-2.0
//! Conversations that grow, more than L1 holds: every page that comes back is verified on the
//! device.

use striata_gpu::Device;
use striata_gpu::selftest::{Check, Checked, Failure};
use striata_gpu::sim::{SimConfig, SimDevice};

use super::ensure;
use super::rig::{Rig, Served, Sizes};

/// Conversations, and turns of each.
const TALKS: u32 = 5;
const TURNS: u32 = 6;

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![
        Check::new(
            "hicache.c1",
            "conversations over both tiers, one rank, decisions as on the simulated device",
            |device| conversations(device, 1, Rig::new, Rig::new),
        ),
        Check::new(
            "hicache.c2",
            "the same striped over 2 ranks on this device",
            |device| conversations(device, 2, Rig::new, Rig::new),
        ),
        Check::new(
            "hicache.c8",
            "the same striped over 8 ranks on this device",
            |device| conversations(device, 8, Rig::new, Rig::new),
        ),
        Check::new(
            "hicache.side_pools",
            "the same striped over 4 ranks, with a pool of other rows that every rank has whole",
            |device| conversations(device, 4, Rig::with_side_pool, Rig::with_side_pool),
        ),
        Check::new(
            "hicache.overlapping",
            "8 ranks, steps that follow each other while loads and stores are in flight",
            overlapping,
        ),
    ]
}

const fn sizes(dcp: u32) -> Sizes {
    // Two conversations fit on L1, all of them on L2.
    Sizes {
        dcp,
        l1_pages: 18,
        l2_pages: 64,
    }
}

/// Every turn of every conversation, in an order that makes most of them come back from L2.
fn turns() -> impl Iterator<Item = (u32, u32)> {
    (1..=TURNS).flat_map(|turn| (1..=TALKS).map(move |talk| (talk, turn)))
}

/// Makes a rig on a device.
type Make<D> = fn(&D, Sizes) -> Result<Rig<D>, Failure>;

/// Serves all turns one after the other, with no copy in flight between them.
fn serve_all<D: Device>(device: &D, dcp: u32, make: Make<D>) -> Result<Vec<Served>, Failure> {
    let mut rig = make(device, sizes(dcp))?;
    let mut served = Vec::new();
    for (talk, turn) in turns() {
        let prompt = rig.prompt(talk, turn);
        served.push(rig.serve(&prompt)?);
        rig.check(&format!("turn {turn} of conversation {talk}"))?;
    }
    Ok(served)
}

/// The same on a device and on the simulated one.
fn conversations<D: Device>(
    device: &D,
    dcp: u32,
    make: Make<D>,
    model: Make<SimDevice>,
) -> Checked {
    let served = serve_all(device, dcp, make)?;
    let pages: u64 = served.iter().map(|served| served.l2).sum();
    ensure(
        pages > 20,
        format_args!("only {pages} pages came back from L2"),
    )?;
    for ((talk, turn), served) in turns().zip(&served) {
        let hit = served.l1 + served.l2;
        ensure(
            hit == u64::from(turn - 1),
            format_args!("turn {turn} of conversation {talk} hit {hit} pages: {served:?}"),
        )?;
    }
    let model = serve_all(&SimDevice::new(SimConfig::new(0)), dcp, model)?;
    ensure(
        served == model,
        format_args!("the simulated device served {model:?}, this one {served:?}"),
    )
}

fn overlapping<D: Device>(device: &D) -> Checked {
    let mut rig = Rig::new(device, sizes(8))?;
    let mut from_l2 = 0;
    for round in 0..4 {
        for (talk, turn) in turns() {
            // What a model computes.
            rig.hold(50_000)?;
            let prompt = rig.prompt(talk, turn);
            from_l2 += rig.serve(&prompt)?.l2;
        }
        rig.check(&format!("round {round}"))?;
    }
    ensure(from_l2 > 0, format_args!("no page came back from L2"))
}
