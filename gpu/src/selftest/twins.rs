// SPDX-License-Identifier: Apache-2.0
//! Kernels of the CUDA backend against their references.

use striata_core::table::{StaleCells, TableError, TableLayout};
use striata_core::{L1Page, Rank, Slot, Stripe, TokenPos};
use striata_kernels::row_list;
use striata_kernels::rows::{PageSeed, RowParams, RowSpan, fingerprint};
use striata_kernels::stripe_twin::{StripeCase, reference};
use striata_kernels::table::PlaceStatus;

use super::large::PAGES;
use super::memory::{ROW_SIZES, first_difference};
use super::random::Random;
use super::rig::finish;
use super::{Check, Checked, Failure, ensure};
use crate::cuda::{CudaDevice, RowMove, TableBuild, TableSource};
use crate::device::Device;
use crate::error::GpuError;

const UNTOUCHED: i32 = 77;

pub(super) fn checks() -> Vec<Check<CudaDevice>> {
    vec![
        Check {
            name: "kernels.load",
            about: "every kernel compiles for this device and loads",
            run: |device| Ok(device.load_kernels()?),
        },
        Check {
            name: "kernels.stripe_twin",
            about: "every function of the stripe, on a grid of sizes and 64-bit values",
            run: stripe_twin,
        },
        Check {
            name: "kernels.b41_row_lists",
            about: "rows of any size are gathered and scattered by list, bytes beside them kept",
            run: row_lists,
        },
        Check {
            name: "kernels.b40_row_lists",
            about: "row lists beyond 4 and 8 GB",
            run: large_row_lists,
        },
        Check {
            name: "kernels.b10_page_tables",
            about: "page tables from pages and from slots, and every refusal",
            run: page_tables,
        },
    ]
}

fn cases(stripe: Stripe, random: &mut Random) -> Vec<StripeCase> {
    let w = stripe.widened_page();
    let near = |at: u64| [at.saturating_sub(1), at, at + 1];
    let edges = [0, w, 3 * w, 1 << 31, 1 << 32, 1 << 33];
    let mut indices: Vec<u64> = edges.into_iter().flat_map(near).collect();
    indices.extend((0..8).map(|_| random.below(1 << 33)));
    let ranks = [0, stripe.dcp() / 2, stripe.dcp() - 1];
    let case = |rank, index: u64| {
        let query = index.to_le_bytes()[0] % 8;
        let negative = index % 5 == 4;
        let length = index.cast_signed();
        StripeCase {
            stripe: stripe.into(),
            rank,
            index,
            length: if negative { -length } else { length },
            queries: 8,
            query: u32::from(query),
        }
    };
    let all = ranks
        .into_iter()
        .flat_map(|rank| indices.iter().map(move |&i| case(rank, i)));
    all.collect()
}

fn stripe_twin(device: &CudaDevice) -> Checked {
    let mut random = Random::new(20);
    let stream = device.stream("stripe")?;
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for dcp in [1, 2, 3, 4, 5, 7, 8, 16, 33, 1024] {
        for (rows, interleave) in [
            (1, 1),
            (4, 1),
            (64, 1),
            (64, 2),
            (64, 64),
            (96, 3),
            (65_536, 16),
        ] {
            let stripe = Stripe::with_interleave(dcp, rows, interleave)?;
            let cases = cases(stripe, &mut random);
            expected.extend(cases.iter().map(|case| reference(stripe, case)));
            asked.extend(cases);
        }
    }
    let answers = device.stripe_answers(&stream, &asked)?;
    let all = asked.iter().zip(&expected).zip(&answers);
    for ((case, expected), answer) in all {
        ensure!(
            expected == answer,
            "{case:?}: {answer:?} instead of {expected:?}"
        );
    }
    Ok(())
}

fn row_lists(device: &CudaDevice) -> Checked {
    const ROWS: u32 = 500;
    let mut random = Random::new(21);
    let stream = device.stream("lists")?;
    for row_bytes in ROW_SIZES {
        // Bases of 16, 8 and 4 bytes make kernels of every unit.
        for (base, offset, count) in [
            (0, 0, 0),
            (16, 32, 1),
            (8, 16, 7),
            (4, 4, 300),
            (0, 64, 500),
        ] {
            let len = u64::from(ROWS) * u64::from(row_bytes);
            let mut plane_model = vec![0u8; usize::try_from(base + len + 16)?];
            let mut dense_model = vec![0u8; usize::try_from(offset + len + 16)?];
            random.fill(&mut plane_model);
            random.fill(&mut dense_model);
            let plane = device.alloc(plane_model.len() as u64)?;
            let dense = device.alloc(dense_model.len() as u64)?;
            device.write(&plane, 0, &plane_model)?;
            device.write(&dense, 0, &dense_model)?;
            let rows: Vec<u64> = random
                .order(ROWS)
                .into_iter()
                .take(count)
                .map(u64::from)
                .collect();
            let list = device.row_list(&rows)?;
            let rows_moved = RowMove {
                plane: &plane,
                base,
                row_bytes,
                list: &list,
                dense: &dense,
                offset,
            };
            let (head, at) = (usize::try_from(base)?, usize::try_from(offset)?);
            let bytes = row_bytes as usize;
            let compare = |what: &str, plane_model: &[u8], dense_model: &[u8]| -> Checked {
                finish(device, &stream)?;
                for (memory, model) in [(&plane, plane_model), (&dense, dense_model)] {
                    let mut found = vec![0; model.len()];
                    device.read(memory, 0, &mut found)?;
                    let differs = first_difference(&found, model);
                    ensure!(
                        differs.is_none(),
                        "{what} of {count} rows of {row_bytes} B at {base}"
                    );
                }
                Ok(())
            };
            device.gather_rows(&stream, &rows_moved)?;
            let inside =
                row_list::gather(&plane_model[head..], bytes, &rows, &mut dense_model[at..]);
            ensure!(inside, "the reference left its buffers");
            compare("gather", &plane_model, &dense_model)?;
            random.fill(&mut dense_model);
            device.write(&dense, 0, &dense_model)?;
            device.scatter_rows(&stream, &rows_moved)?;
            let inside =
                row_list::scatter(&mut plane_model[head..], bytes, &rows, &dense_model[at..]);
            ensure!(inside, "the reference left its buffers");
            compare("scatter", &plane_model, &dense_model)?;
        }
    }
    refused_lists(device)
}

fn refused_lists(device: &CudaDevice) -> Checked {
    let stream = device.stream("lists")?;
    let (plane, dense) = (device.alloc(160)?, device.alloc(160)?);
    let twice = device.row_list(&[1, 1])?;
    let outside = device.row_list(&[10])?;
    let good = device.row_list(&[9, 0])?;
    let rows = |list| RowMove {
        plane: &plane,
        base: 0,
        row_bytes: 16,
        list,
        dense: &dense,
        offset: 0,
    };
    ensure!(
        device.gather_rows(&stream, &rows(&outside)).is_err(),
        "a row outside the plane"
    );
    ensure!(
        device.scatter_rows(&stream, &rows(&twice)).is_err(),
        "a row scattered twice"
    );
    let overlap = RowMove {
        dense: &plane,
        ..rows(&good)
    };
    ensure!(
        device.gather_rows(&stream, &overlap).is_err(),
        "sides that overlap"
    );
    let odd = RowMove {
        row_bytes: 6,
        ..rows(&good)
    };
    ensure!(
        device.gather_rows(&stream, &odd).is_err(),
        "rows of 6 bytes"
    );
    Ok(device.gather_rows(&stream, &rows(&good))?)
}

fn large_row_lists(device: &CudaDevice) -> Checked {
    const ROW_WORDS: u32 = 288;
    let row_bytes = 4 * ROW_WORDS;
    let rows = 64 * (u64::from(PAGES[3]) + 1);
    let plane = match device.alloc(rows * u64::from(row_bytes)) {
        Err(error @ GpuError::OutOfMemory { .. }) => {
            return Err(Failure::Skipped(error.to_string()));
        }
        other => other?,
    };
    let stream = device.stream("lists")?;
    let wanted: Vec<u64> = PAGES
        .iter()
        .map(|&page| 64 * u64::from(page) + 63)
        .collect();
    let (params, seed) = (
        RowParams {
            row_words: ROW_WORDS,
            layer: 3,
            rank: 1,
            stride: 1,
        },
        PageSeed::new(9, 9, 9),
    );
    let spans = wanted.iter().zip(0..).map(|(&first_row, skip)| RowSpan {
        seed,
        first_row,
        rows: 1,
        skip,
    });
    device.fill_rows(&stream, &plane, 0, params, &spans.collect())?;
    let dense = device.alloc(wanted.len() as u64 * u64::from(row_bytes))?;
    let list = device.row_list(&wanted)?;
    let rows_moved = RowMove {
        plane: &plane,
        base: 0,
        row_bytes,
        list: &list,
        dense: &dense,
        offset: 0,
    };
    device.gather_rows(&stream, &rows_moved)?;
    finish(device, &stream)?;
    let mut words = vec![0u32; wanted.len() * ROW_WORDS as usize];
    device.read(&dense, 0, bytemuck::cast_slice_mut(&mut words))?;
    for (row, words) in (0..).zip(words.chunks(ROW_WORDS as usize)) {
        let right = (0..)
            .zip(words)
            .all(|(at, word)| *word == fingerprint(seed, &params, row, at));
        ensure!(right, "row {} was not gathered", wanted[row as usize]);
    }
    Ok(())
}

/// A request, its source in both forms.
struct Request {
    pages: Vec<u64>,
    slots: Vec<u64>,
    length: i64,
}

fn request(stripe: Stripe, random: &mut Random) -> Result<Request, Failure> {
    let count = random.below_u32(6);
    let pages: Vec<u64> = (0..count).map(|_| 1 + random.below(5000)).collect();
    let w = stripe.widened_page();
    let ids = ids(&pages)?;
    let slots = (0..w * u64::from(count)).filter_map(|p| stripe.slot_at(&ids, TokenPos::new(p)));
    let slots = slots.map(Slot::get).collect();
    // Sometimes longer than its pages, sometimes negative.
    let length = random.below(w * (u64::from(count) + 1) + 2).cast_signed() - 1;
    Ok(Request {
        pages,
        slots,
        length,
    })
}

fn ids(pages: &[u64]) -> Result<Vec<L1Page>, Failure> {
    pages
        .iter()
        .map(|&page| Ok(L1Page::new(u32::try_from(page)?)))
        .collect()
}

const fn status_of(error: &TableError) -> Option<PlaceStatus> {
    match error {
        TableError::Width { .. } => Some(PlaceStatus::TooWide),
        TableError::NoSlot { .. } => Some(PlaceStatus::NoSlot),
        TableError::NotPageStart { .. } => Some(PlaceStatus::NotPageStart),
        TableError::PageNumber { .. } => Some(PlaceStatus::PageNumber),
        _ => None,
    }
}

fn page_tables(device: &CudaDevice) -> Checked {
    let mut random = Random::new(22);
    for (dcp, rows, interleave, kernel_rows) in [
        (1, 64, 1, 64),
        (4, 128, 1, 64),
        (8, 64, 1, 64),
        (3, 12, 4, 2),
        (2, 6, 2, 3),
    ] {
        let stripe = Stripe::with_interleave(dcp, rows, interleave)?;
        for (clear, source) in [
            (true, TableSource::Pages),
            (false, TableSource::Pages),
            (true, TableSource::Slots),
            (false, TableSource::Slots),
        ] {
            let requests = (0..40).map(|_| request(stripe, &mut random));
            let mut requests: Vec<Request> = requests.collect::<Result<_, _>>()?;
            requests.push(Request {
                pages: vec![u64::from(u32::MAX)],
                slots: vec![1],
                length: i64::from(rows),
            });
            let rank = Rank::new(random.below_u32(dcp));
            let build = TableBuild {
                stripe,
                kernel_rows,
                rank,
                width: 9,
                clear,
                source,
                requests: &[],
            };
            compare_tables(device, build, &requests)?;
        }
    }
    Ok(())
}

fn compare_tables(device: &CudaDevice, build: TableBuild<'_>, requests: &[Request]) -> Checked {
    let stream = device.stream("tables")?;
    let layout = TableLayout::with_kernel_page(build.stripe, build.kernel_rows)?;
    let width = build.width as usize;
    let stale = if build.clear {
        StaleCells::Clear
    } else {
        StaleCells::Keep
    };
    let mut expected = vec![UNTOUCHED; width * requests.len()];
    let mut outcomes = Vec::new();
    for (row, request) in expected.chunks_mut(width).zip(requests) {
        let Request {
            pages,
            slots,
            length,
        } = request;
        let written = match build.source {
            TableSource::Pages => layout.write_pages(build.rank, &ids(pages)?, *length, stale, row),
            TableSource::Slots => {
                let slots: Vec<Slot> = slots.iter().map(|&slot| Slot::new(slot)).collect();
                layout.write_slots(build.rank, &slots, *length, stale, row)
            }
        };
        outcomes.push(match written {
            Ok(_) => {
                let len = build.stripe.local_len(build.rank, *length);
                (len, Some(PlaceStatus::Good))
            }
            Err(error) => (0, status_of(&error)),
        });
    }
    let sources = requests.iter().map(|request| match build.source {
        TableSource::Pages => (request.pages.clone(), request.length),
        TableSource::Slots => (request.slots.clone(), request.length),
    });
    let sources: Vec<_> = sources.collect();
    let cells = device.alloc(4 * expected.len() as u64)?;
    device.write(
        &cells,
        0,
        bytemuck::cast_slice(&vec![UNTOUCHED; expected.len()]),
    )?;
    let build = TableBuild {
        requests: &sources,
        ..build
    };
    let places = device.build_tables(&stream, &build, &cells)?;
    for (index, (found, expected)) in places.iter().zip(&outcomes).enumerate() {
        let same = found.0 == expected.0 && Some(found.1) == expected.1;
        ensure!(
            same,
            "place {index}: {found:?} instead of {expected:?}: {:?}",
            build.stripe
        );
    }
    let mut found = vec![0i32; expected.len()];
    device.read(&cells, 0, bytemuck::cast_slice_mut(&mut found))?;
    let at = found.iter().zip(&expected).position(|(a, b)| a != b);
    ensure!(
        at.is_none(),
        "cell {at:?} of width {width} differs: {:?}",
        build.stripe
    );
    Ok(())
}
