// SPDX-License-Identifier: Apache-2.0
//! Fingerprint kernels against their reference, bit for bit.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use striata_kernels::rows::{self, PageSeed, RowParams, RowSpan};

use super::random::Random;
use super::rig::{finish, log, read_records};
use super::{Check, Checked, Failure, ensure};
use crate::device::Device;

/// Rows of a span, with gaps between spans.
const SPACING: u32 = 24;

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![
        Check {
            name: "rows.fill",
            about: "rows are filled as by the reference, and nothing beside them",
            run: fill,
        },
        Check {
            name: "rows.verify",
            about: "exactly the changed rows are reported, and a full log counts on",
            run: verify,
        },
    ]
}

/// A plane on the device and the same words on the host.
struct Plane<D: Device> {
    memory: D::Memory,
    base: u64,
    model: Vec<AtomicU32>,
    params: RowParams,
    spans: Arc<[RowSpan]>,
}

impl<D: Device> Plane<D> {
    fn new(
        device: &D,
        random: &mut Random,
        params: RowParams,
        count: u32,
    ) -> Result<Self, Failure> {
        let spans = (0..count).map(|index| RowSpan {
            seed: PageSeed::new(random.word(), u128::from(random.word()), random.word()),
            first_row: u64::from(index * SPACING) + random.below(3),
            rows: random.below_u32(SPACING - 3),
            skip: random.below_u32(70),
        });
        let spans: Arc<[RowSpan]> = spans.collect();
        let words = (count * SPACING) as usize * params.row_words as usize;
        let base = 4 * random.below(9);
        let head = usize::try_from(base / 4)?;
        let memory = device.alloc(base + 4 * words as u64)?;
        let mut bytes = vec![0u8; 4 * (head + words)];
        random.fill(&mut bytes);
        device.write(&memory, 0, &bytes)?;
        let model = bytes
            .chunks_exact(4)
            .map(bytemuck::pod_read_unaligned::<u32>);
        Ok(Self {
            memory,
            base,
            model: model.map(AtomicU32::new).collect(),
            params,
            spans,
        })
    }

    fn rows(&self) -> &[AtomicU32] {
        let head = usize::try_from(self.base / 4).unwrap_or(0);
        &self.model[head..]
    }

    fn fill(&self, device: &D, stream: &D::Stream) -> Checked {
        let inside = rows::fill(self.rows(), &self.params, &self.spans);
        ensure!(inside, "the reference left its plane");
        device.fill_rows(stream, &self.memory, self.base, self.params, &self.spans)?;
        finish(device, stream)
    }

    fn compare(&self, device: &D) -> Checked {
        let mut words = vec![0u32; self.model.len()];
        device.read(&self.memory, 0, bytemuck::cast_slice_mut(&mut words))?;
        let expected = self.model.iter().map(|word| word.load(Ordering::Relaxed));
        let at = expected
            .zip(&words)
            .position(|(expected, found)| expected != *found);
        let (params, base) = (self.params, self.base);
        ensure!(
            at.is_none(),
            "word {at:?} of a plane from byte {base} differs: {params:?}"
        );
        Ok(())
    }
}

/// Row sizes, strides, and more spans than one launch takes.
fn shapes() -> impl Iterator<Item = (RowParams, u32)> {
    let words = [1, 3, 144, 146, 164, 288, 292];
    words.into_iter().flat_map(|row_words| {
        [(1, 1), (7, 3), (2, 400)].map(|(stride, count)| {
            let params = RowParams {
                row_words,
                layer: 60,
                rank: 7,
                stride,
            };
            (params, count)
        })
    })
}

fn fill<D: Device>(device: &D) -> Checked {
    let mut random = Random::new(5);
    let stream = device.stream("rows")?;
    for (params, count) in shapes() {
        let plane = Plane::new(device, &mut random, params, count)?;
        plane.fill(device, &stream)?;
        plane.compare(device)?;
    }
    Ok(())
}

fn verify<D: Device>(device: &D) -> Checked {
    const ROOM: usize = 64;
    let mut random = Random::new(6);
    let stream = device.stream("rows")?;
    for (params, count) in shapes() {
        let plane = Plane::new(device, &mut random, params, count)?;
        plane.fill(device, &stream)?;
        for changes in [0, 1, 20, 2000] {
            for _ in 0..changes {
                let at = usize::try_from(random.below(plane.model.len() as u64))?;
                let bit = 1u32 << random.below_u32(32);
                let word = plane.model[at].fetch_xor(bit, Ordering::Relaxed) ^ bit;
                device.write(&plane.memory, 4 * at as u64, &word.to_ne_bytes())?;
            }
            let log = log(device, ROOM)?;
            let Plane {
                memory,
                base,
                spans,
                ..
            } = &plane;
            device.verify_rows(&stream, memory, *base, params, spans, &log)?;
            finish(device, &stream)?;
            let (counted, found) = read_records(device, &log, ROOM)?;
            let mut expected = Vec::new();
            rows::verify(plane.rows(), &params, &plane.spans, |row| {
                expected.push(row)
            });
            expected.sort_unstable();
            let total = expected.len();
            ensure!(
                counted as usize == total,
                "{counted} of {total} wrong rows: {params:?}"
            );
            let kept = total.min(ROOM);
            ensure!(found.len() == kept, "{} of {kept} records", found.len());
            let strange = found
                .iter()
                .find(|row| expected.binary_search(row).is_err());
            ensure!(strange.is_none(), "a right row was reported: {strange:?}");
            ensure!(
                total > ROOM || found == expected,
                "records differ: {params:?}"
            );
        }
    }
    Ok(())
}
