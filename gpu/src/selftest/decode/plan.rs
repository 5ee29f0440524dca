// SPDX-License-Identifier: Apache-2.0
//! Plans: from pages and from slots, over steps, refused places, padding.

use striata_core::{Rank, Stripe};
use striata_kernels::decode::{
    AttendShape, MmaSize, PlanPlace, PlanShape, PlanSource, PlanStatus, Schedule,
};

use super::super::random::Random;
use super::super::{Check, Checked, Failure, ensure};
use super::scene::{compare_plan, stage_and_build, within};
use crate::decode::{DecodeDevice, Plan};

const PAGES: u32 = 600;

pub(super) fn checks<D: DecodeDevice>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "decode.h44_plans",
            about: "plans of random batches over steps, from pages and slots, over poisoned buffers",
            run: random_plans,
        },
        Check {
            name: "decode.plan_refusals",
            about: "a place that is refused is padding, and says why",
            run: refusals,
        },
        Check {
            name: "decode.schedules",
            about: "work of large, ragged and empty batches is divided as by the reference",
            run: schedules,
        },
    ]
}

fn shape<D: DecodeDevice>(
    device: &D,
    stripe: Stripe,
    rank: Rank,
    kernel_rows: u32,
    batch: u32,
    source: PlanSource,
) -> PlanShape {
    let attend = AttendShape {
        batch,
        queries: 4,
        heads: 16,
    };
    let widened = u32::try_from(stripe.widened_page()).unwrap_or(u32::MAX);
    PlanShape {
        stripe,
        rank,
        kernel_rows,
        pages: PAGES,
        width: 8 * (stripe.page_rows() / kernel_rows),
        attend,
        schedule: Schedule::new(attend, device.multiprocessors(), MmaSize::Large),
        source,
        source_width: if source == PlanSource::Pages {
            8
        } else {
            8 * widened
        },
        source_rows: batch + 3,
    }
}

/// Fills the source of a request with as many pages as hold its tokens.
fn fill(shape: &PlanShape, random: &mut Random, row: u32, len: i32, source: &mut [i32]) {
    let width = shape.source_width as usize;
    let row = &mut source[row as usize * width..][..width];
    let widened = usize::try_from(shape.stripe.widened_page()).unwrap_or(usize::MAX);
    let tokens = u64::try_from(len).unwrap_or(0);
    for index in 0..usize::try_from(shape.stripe.pages_for(tokens)).unwrap_or(0) {
        let page = i32::try_from(1 + random.below(u64::from(PAGES) - 1)).unwrap_or(1);
        match shape.source {
            PlanSource::Pages => row[index] = page,
            PlanSource::Slots => {
                let first = page.saturating_mul(i32::try_from(widened).unwrap_or(i32::MAX));
                for (offset, slot) in row[index * widened..][..widened].iter_mut().enumerate() {
                    *slot = first.saturating_add(i32::try_from(offset).unwrap_or(0));
                }
            }
        }
    }
}

fn random_plans<D: DecodeDevice>(device: &D) -> Checked {
    let mut random = Random::new(50);
    let stream = device.stream("plans")?;
    for (index, dcp) in [1, 2, 3, 4, 8].into_iter().enumerate() {
        for source in [PlanSource::Pages, PlanSource::Slots] {
            let (page_rows, kernel_rows) = [(16, 16), (64, 16), (32, 32), (64, 64), (16, 8)][index];
            let stripe = Stripe::new(dcp, page_rows)?;
            let rank = Rank::new(random.below_u32(dcp));
            let shape = shape(device, stripe, rank, kernel_rows, 37, source);
            let plan = Plan::new(device, shape)?;
            device.write(
                &plan.memory,
                0,
                &vec![0xFF; usize::try_from(plan.layout.bytes)?],
            )?;
            let mut host = shape.host_plan();
            let entries = shape.source_width as usize * shape.source_rows as usize;
            let mut entries = vec![i32::MIN; entries];
            let mut places = vec![PlanPlace::default(); 37];
            let widened = i32::try_from(stripe.widened_page())?;
            for step in 0..4 {
                for (at, place) in places.iter_mut().enumerate() {
                    let grow = random.below(3);
                    let kept = u32::try_from(place.global_len / widened)?;
                    if grow < 2 && place.global_len > 0 && place.global_len + 4 < 8 * widened {
                        // The same request, longer: only the page being filled and new ones count.
                        let more = i32::try_from(1 + random.below(4))?;
                        extend(&shape, &mut random, place, more, &mut entries);
                        place.kept_pages = kept;
                    } else if at % 5 == step {
                        *place = PlanPlace::default();
                    } else {
                        let len = i32::try_from(1 + random.below(u64::try_from(8 * widened)? - 1))?;
                        *place = PlanPlace {
                            global_len: len,
                            source_row: u32::try_from(at)? + random.below_u32(2) * 2,
                            kept_pages: 0,
                            new_tokens: u32::try_from(random.below(5))?.min(len.unsigned_abs()),
                        };
                        place.source_row = u32::try_from(at)?;
                        fill(&shape, &mut random, place.source_row, len, &mut entries);
                    }
                }
                stage_and_build(device, &stream, &plan, &places, &entries)?;
                shape.build(&places, &entries, &mut host)?;
                let place = format!("c {dcp} {rank:?} {source:?} step {step}");
                ensure!(
                    host.status.iter().all(|word| *word == 0),
                    "{place}: a bad place"
                );
                compare_plan(device, &plan, &host).map_err(|error| within(&place, error))?;
            }
        }
    }
    Ok(())
}

/// Gives a request more tokens, and a page where they need one.
fn extend(
    shape: &PlanShape,
    random: &mut Random,
    place: &mut PlanPlace,
    more: i32,
    entries: &mut [i32],
) {
    let tokens = |len: i32| u64::try_from(len).unwrap_or(0);
    let before = shape.stripe.pages_for(tokens(place.global_len));
    place.global_len += more;
    place.new_tokens = more.unsigned_abs();
    let after = shape.stripe.pages_for(tokens(place.global_len));
    if after > before {
        let width = shape.source_width as usize;
        let row = place.source_row as usize * width;
        let saved = entries[row..row + width].to_vec();
        fill(shape, random, place.source_row, place.global_len, entries);
        let entries_each = match shape.source {
            PlanSource::Pages => 1,
            PlanSource::Slots => shape.stripe.widened_page(),
        };
        let kept = usize::try_from(before * entries_each).unwrap_or(0);
        entries[row..row + kept].copy_from_slice(&saved[..kept]);
    }
}

fn refusals<D: DecodeDevice>(device: &D) -> Checked {
    let stream = device.stream("plans")?;
    let stripe = Stripe::new(2, 16)?;
    for source in [PlanSource::Pages, PlanSource::Slots] {
        let shape = shape(device, stripe, Rank::new(1), 16, 8, source);
        let plan = Plan::new(device, shape)?;
        let mut host = shape.host_plan();
        let entries = shape.source_width as usize * shape.source_rows as usize;
        let mut entries = vec![-1; entries];
        let width = shape.source_width as usize;
        let good = PlanPlace {
            global_len: 33,
            source_row: 0,
            kept_pages: 0,
            new_tokens: 1,
        };
        let mut random = Random::new(51);
        fill(&shape, &mut random, 0, 40, &mut entries);
        fill(&shape, &mut random, 3, 40, &mut entries);
        // The sink, a page outside the plane, and for slots one inside a page.
        entries[3 * width] = 0;
        fill(&shape, &mut random, 4, 40, &mut entries);
        let second = if source == PlanSource::Pages { 1 } else { 32 };
        entries[4 * width + second] = if source == PlanSource::Pages { 600 } else { 33 };
        let places = [
            good,
            PlanPlace {
                global_len: 8 * 32 + 1,
                ..good
            },
            PlanPlace {
                source_row: 11,
                ..good
            },
            PlanPlace {
                source_row: 3,
                ..good
            },
            PlanPlace {
                source_row: 4,
                global_len: 40,
                ..good
            },
            PlanPlace {
                new_tokens: 5,
                ..good
            },
            PlanPlace {
                new_tokens: 1,
                global_len: 0,
                ..good
            },
            PlanPlace {
                global_len: -3,
                new_tokens: 0,
                ..good
            },
        ];
        let inside = if source == PlanSource::Pages {
            PlanStatus::Page
        } else {
            PlanStatus::NotPageStart
        };
        // 257 tokens on rank 1 of 2 are 128 rows, which fit; the width is met, the source is not.
        let want = [
            PlanStatus::Good,
            PlanStatus::Good,
            PlanStatus::NoSlot,
            PlanStatus::Page,
            inside,
            PlanStatus::NewTokens,
            PlanStatus::NewTokens,
            PlanStatus::Good,
        ];
        fill(&shape, &mut random, 0, 8 * 32, &mut entries);
        stage_and_build(device, &stream, &plan, &places, &entries)?;
        shape.build(&places, &entries, &mut host)?;
        let found: Vec<_> = host
            .status
            .iter()
            .map(|word| PlanStatus::of(*word))
            .collect();
        let right = found
            .iter()
            .zip(&want)
            .all(|(found, want)| *found == Some(*want));
        ensure!(right, "{source:?}: {found:?} instead of {want:?}");
        compare_plan(device, &plan, &host)
            .map_err(|error| within(&format!("{source:?}"), error))?;
    }
    Ok(())
}

fn schedules<D: DecodeDevice>(device: &D) -> Checked {
    let stream = device.stream("plans")?;
    let mut random = Random::new(52);
    let stripe = Stripe::new(1, 128)?;
    for (batch, longest) in [(1, 900), (7, 128), (256, 1000), (300, 1), (4096, 700)] {
        let shape = PlanShape {
            source: PlanSource::Pages,
            ..shape(device, stripe, Rank::new(0), 128, batch, PlanSource::Pages)
        };
        let plan = Plan::new(device, shape).map_err(Failure::from)?;
        let mut host = shape.host_plan();
        let entries = vec![7; shape.source_width as usize * shape.source_rows as usize];
        let mut places = Vec::new();
        for row in 0..batch {
            let empty = random.below(3) == 0;
            let len = if empty { 0 } else { 1 + random.below(longest) };
            places.push(PlanPlace {
                global_len: i32::try_from(len)?,
                source_row: row,
                ..PlanPlace::default()
            });
        }
        stage_and_build(device, &stream, &plan, &places, &entries)?;
        shape.build(&places, &entries, &mut host)?;
        compare_plan(device, &plan, &host)
            .map_err(|error| within(&format!("batch {batch}"), error))?;
    }
    Ok(())
}
