// SPDX-License-Identifier: Apache-2.0
//! Page copies by the transfer engine.

use striata_core::HostLayout;

use super::memory::{ROW_SIZES, first_difference};
use super::random::Random;
use super::rig::{Layout, Rig};
use super::{Check, Checked, Failure, ensure};
use crate::device::{Device, Direction};
use crate::sim::{SimConfig, SimDevice};
use crate::transfer::{CopyPath, LayerCut, PageRule, TransferConfig, TransferPaths};

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "transfer.b41_round_trips",
            about: "pages of every row size come back elsewhere, pages beside them are kept",
            run: round_trips,
        },
        Check {
            name: "transfer.every_path",
            about: "every path brings the same bytes, in slices and through a small ring",
            run: every_path,
        },
        Check {
            name: "transfer.random_plans",
            about: "random plans leave the same bytes on the simulated device and on this one",
            run: random_plans,
        },
        Check {
            name: "transfer.full_size",
            about: "61 layers of full rows, both layouts, foreign planes",
            run: full_size,
        },
    ]
}

/// Stores odd pages, wipes them, loads them to even pages.
fn round_trip<D: Device>(device: &D, layout: Layout, config: TransferConfig, salt: u64) -> Checked {
    let rig = Rig::with_config(device, layout, config)?;
    rig.set_bytes(|_, _| 0xA5)?;
    let mut random = Random::new(salt);
    let pages = (layout.l1_pages - 1) / 2;
    let all: Vec<_> = (0..layout.l1_pages)
        .map(|page| (page, u64::from(page)))
        .collect();
    rig.fill(&all)?;
    let filled = rig.fence()?;
    let host = random.order(pages);
    let slots = host.iter().map(|slot| 1 + slot);
    let sources = random.order(pages).into_iter().map(|index| 1 + 2 * index);
    let out: Vec<(u32, u32)> = sources.zip(slots).collect();
    rig.engine.store(rig.store_job(1, &out, Some(filled)))?;
    let done = rig.finish()?;
    let good = done.iter().map(|done| done.good_pages).sum::<usize>();
    ensure!(
        good == out.len(),
        "{good} of {} pages were stored",
        out.len()
    );
    for &(page, slot) in &out {
        let wrong = rig.wrong_host_words(slot, u64::from(page))?;
        ensure!(
            wrong == 0,
            "{wrong} words of host page {slot} are wrong: {layout:?}"
        );
    }
    let wiped: Vec<_> = out.iter().map(|&(page, _)| (page, 999)).collect();
    rig.fill(&wiped)?;
    let targets = random.order(pages).into_iter().map(|index| 2 + 2 * index);
    let back: Vec<(u32, u32)> = targets.zip(out.iter().map(|&(_, slot)| slot)).collect();
    let gate = rig
        .engine
        .load(rig.load_job(2, &back, Some(rig.fence()?)))?;
    gate.wait_all(&rig.compute)?;
    let mut expected: Vec<_> = wiped;
    expected.push((0, 0));
    expected.extend(
        back.iter()
            .zip(&out)
            .map(|(&(to, _), &(from, _))| (to, u64::from(from))),
    );
    let wrong = rig.wrong_rows(&expected)?;
    ensure!(
        wrong == 0,
        "{wrong} rows are wrong after a round trip: {layout:?}"
    );
    let edges = [0, layout.l2_pages - 1];
    let bytes = rig.bytes()?;
    let Some(host) = bytes
        .last()
        .filter(|_| layout.host == HostLayout::PageFirst)
    else {
        return Ok(());
    };
    let page = usize::try_from(rig.host.geometry().page_bytes())?;
    for edge in edges {
        let at = edge as usize * page;
        let kept = host[at..at + page].iter().all(|byte| *byte == 0xA5);
        ensure!(
            kept,
            "host page {edge} beside the copied ones changed: {layout:?}"
        );
    }
    Ok(())
}

fn round_trips<D: Device>(device: &D) -> Checked {
    let mut salt = 10;
    for row_bytes in ROW_SIZES {
        for (layers, uniform) in [(1, true), (5, true), (5, false)] {
            for host in [HostLayout::PageFirst, HostLayout::LayerFirst] {
                let layout = Layout {
                    page_rows: 3,
                    row_bytes,
                    layers,
                    l1_pages: 23,
                    l2_pages: 13,
                    host,
                    uniform,
                    chunk_bytes: if salt & 1 == 0 { 1 } else { 1 << 30 },
                };
                round_trip(device, layout, TransferConfig::default(), salt)?;
                salt += 1;
            }
        }
    }
    Ok(())
}

const BOTH: [Direction; 2] = [Direction::HostToDevice, Direction::DeviceToHost];

/// A table that sends all pages by one path.
fn forced(path: CopyPath, cut: LayerCut) -> TransferPaths {
    let rule = PageRule { path, cut };
    let paths = BOTH.into_iter();
    paths.fold(TransferPaths::built_in(), |paths, direction| {
        paths.forced(direction, rule)
    })
}

fn every_path<D: Device>(device: &D) -> Checked {
    let mut salt = 500;
    for path in CopyPath::ALL {
        for (layers, row_bytes) in [(5, 1152), (3, 132), (7, 584)] {
            for (uniform, host) in [
                (true, HostLayout::PageFirst),
                (false, HostLayout::PageFirst),
                (true, HostLayout::LayerFirst),
            ] {
                let layout = Layout {
                    page_rows: 16,
                    row_bytes,
                    layers,
                    l1_pages: 81,
                    l2_pages: 42,
                    host,
                    uniform,
                    chunk_bytes: if salt & 1 == 0 { 1 } else { 1 << 30 },
                };
                let page_bytes = u64::from(layers * row_bytes * 16);
                let config = TransferConfig {
                    paths: forced(path, LayerCut::Growing(200)),
                    slice_bytes: 3 * page_bytes,
                    store_group_bytes: 7 * page_bytes,
                    staging_bytes: 4 * (2 * page_bytes).next_multiple_of(256),
                    ..TransferConfig::default()
                };
                round_trip(device, layout, config, salt)?;
                salt += 1;
            }
        }
    }
    Ok(())
}

fn full_size<D: Device>(device: &D) -> Checked {
    for (salt, host, uniform) in [
        (1, HostLayout::PageFirst, true),
        (2, HostLayout::PageFirst, false),
        (3, HostLayout::LayerFirst, true),
    ] {
        let layout = Layout {
            layers: 61,
            l1_pages: 17,
            l2_pages: 10,
            host,
            uniform,
            chunk_bytes: 16 << 20,
            ..Layout::default()
        };
        round_trip(device, layout, TransferConfig::default(), salt)?;
        // The same in slices of three pages of a layer.
        let config = TransferConfig {
            slice_bytes: 250_000,
            ..TransferConfig::default()
        };
        round_trip(device, layout, config, salt + 10)?;
    }
    Ok(())
}

/// Jobs that run at the same time: they share no page.
struct Round {
    fills: Vec<(u32, u64)>,
    stores: Vec<Vec<(u32, u32)>>,
    loads: Vec<Vec<(u32, u32)>>,
}

fn round(random: &mut Random, layout: Layout) -> Round {
    let l1: Vec<u32> = random
        .order(layout.l1_pages - 1)
        .iter()
        .map(|page| page + 1)
        .collect();
    let l2 = random.order(layout.l2_pages);
    let mut free = l1.into_iter().zip(l2);
    let mut jobs = |random: &mut Random| -> Vec<Vec<(u32, u32)>> {
        let count = random.below(3);
        let take = |random: &mut Random| usize::try_from(random.below(6)).unwrap_or(0);
        (0..count)
            .map(|_| free.by_ref().take(take(random)).collect())
            .collect()
    };
    let (stores, loads) = (jobs(random), jobs(random));
    let fills = stores
        .iter()
        .flatten()
        .map(|&(page, _)| (page, random.word()))
        .collect();
    Round {
        fills,
        stores,
        loads,
    }
}

fn play<D: Device>(rig: &Rig<D>, round: &Round, op: &mut u64) -> Checked {
    rig.fill(&round.fills)?;
    let mut next = || {
        *op += 1;
        *op
    };
    for job in &round.stores {
        rig.engine
            .store(rig.store_job(next(), job, Some(rig.fence()?)))?;
    }
    for job in &round.loads {
        rig.engine
            .load(rig.load_job(next(), job, Some(rig.fence()?)))?;
    }
    let done = rig.finish()?;
    let bad = done.iter().find(|done| done.error.is_some());
    ensure!(bad.is_none(), "a job failed: {bad:?}");
    ensure!(
        done.len() == round.stores.len() + round.loads.len(),
        "{} jobs ended",
        done.len()
    );
    Ok(())
}

fn random_plans<D: Device>(device: &D) -> Checked {
    let sim = SimDevice::new(SimConfig::new(0));
    for plan in 0..24 {
        let mut random = Random::new(100 + plan);
        let layout = random_layout(&mut random)?;
        let config = TransferConfig {
            group_bytes: 1 + random.below(100_000),
            slice_bytes: 1 + random.below(200_000),
            store_group_bytes: 1 + random.below(200_000),
            staging_bytes: random.below(2_000_000) & !3,
            paths: random_paths(&mut random),
            call_pieces: 1 + usize::try_from(random.below(40))?,
            ..TransferConfig::default()
        };
        let ours = Rig::with_config(device, layout, config)?;
        let model = Rig::with_config(&sim, layout, config)?;
        let byte = |memory: usize, at: usize| ((at * 31) >> 3 ^ (memory * 77)).to_le_bytes()[0];
        ours.set_bytes(byte)?;
        model.set_bytes(byte)?;
        let mut ops = [0, 0];
        for _ in 0..6 {
            let round = round(&mut random, layout);
            play(&ours, &round, &mut ops[0])?;
            play(&model, &round, &mut ops[1])?;
        }
        compare(&ours.bytes()?, &model.bytes()?)
            .map_err(|what| Failure::Wrong(format!("plan {plan}: {what}: {layout:?}")))?;
    }
    Ok(())
}

/// The measured table, or one path for each direction.
fn random_paths(random: &mut Random) -> TransferPaths {
    let pick = |random: &mut Random| random.pick(&CopyPath::ALL).unwrap_or(CopyPath::Runs);
    let growing = [150, 200, 400, 800].map(LayerCut::Growing);
    let cut = random.pick(&growing).unwrap_or(LayerCut::Whole);
    let mut paths = TransferPaths::built_in();
    for direction in BOTH {
        if random.coin() {
            let path = pick(random);
            paths = paths.forced(direction, PageRule { path, cut });
        }
    }
    paths
}

fn compare(ours: &[Vec<u8>], model: &[Vec<u8>]) -> Result<(), String> {
    for (index, (ours, model)) in ours.iter().zip(model).enumerate() {
        if let Some(at) = first_difference(ours, model) {
            return Err(format!("memory {index} differs from byte {at} on"));
        }
    }
    Ok(())
}

fn random_layout(random: &mut Random) -> Result<Layout, Failure> {
    let pick = |value: Option<u32>| value.ok_or_else(|| Failure::Wrong("no choice".to_owned()));
    Ok(Layout {
        page_rows: pick(random.pick(&[1, 3, 16, 64]))?,
        row_bytes: pick(random.pick(&ROW_SIZES))?,
        layers: pick(random.pick(&[1, 2, 7, 12]))?,
        l1_pages: 4 + random.below_u32(30),
        l2_pages: 3 + random.below_u32(30),
        host: if random.coin() {
            HostLayout::PageFirst
        } else {
            HostLayout::LayerFirst
        },
        uniform: random.coin(),
        chunk_bytes: if random.coin() { 1 } else { 1 << 30 },
    })
}
