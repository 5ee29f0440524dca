// SPDX-License-Identifier: Apache-2.0
//! Rows of computed tokens: made on the device from seeds, written through the owner filter.

use core::ops::Range;

use striata::core::{LayerId, RowFormat};
use striata::{Error, Shard};
use striata_core::{L1Page, TokenPos};
use striata_gpu::GpuError;
use striata_gpu::decode::{DecodeDevice, FillValues, Rows, ValueDevice, View, WriteRows, WriteTo};
use striata_kernels::decode::{KernelFormat, LATENT, RowScale};
use striata_kernels::values::RowSeed;

use super::row_seed;
use crate::driver::plan::Plan;

/// Tokens that are made at once.
const CHUNK: usize = 2048;
const WORD: u64 = 8;
pub(super) const ROW_BYTES: u64 = RowFormat::Bf16.row_bytes() as u64;
pub(super) const ROW_WORDS: u32 = RowFormat::Bf16.row_bytes() / 4;

/// Makes and writes rows on one rank.
#[derive(Debug)]
pub(super) struct RowMaker<D: DecodeDevice> {
    device: D,
    /// Rows of a chunk.
    dense: D::Memory,
    faults: D::Memory,
    /// Seeds and slots of the request's tokens.
    request: Option<(D::Memory, D::Memory)>,
    tokens: usize,
}

impl<D: DecodeDevice + ValueDevice> RowMaker<D> {
    pub(super) fn new(device: &D) -> Result<Self, GpuError> {
        let faults = device.alloc(4)?;
        device.write(&faults, 0, &[0; 4])?;
        Ok(Self {
            device: device.clone(),
            dense: device.alloc(CHUNK as u64 * ROW_BYTES)?,
            faults,
            request: None,
            tokens: 0,
        })
    }

    /// Takes the tokens at `positions` of a request that stands on `pages`.
    pub(super) fn take(
        &mut self,
        plan: &Plan,
        pages: &[L1Page],
        positions: Range<usize>,
        tokens: &[u32],
    ) -> Result<(), Error> {
        self.tokens = positions.len();
        self.request = None;
        if positions.is_empty() {
            return Ok(());
        }
        let mut seeds: Vec<RowSeed> = Vec::with_capacity(positions.len());
        let mut slots: Vec<i64> = Vec::with_capacity(positions.len());
        for position in positions {
            let at = position as u64;
            seeds.push(row_seed(plan, at, tokens[position]));
            let slot = plan.stripe.slot_at(pages, TokenPos::new(at));
            let slot = slot.and_then(|slot| i64::try_from(slot.get()).ok());
            slots.push(slot.unwrap_or(-1));
        }
        let upload = |bytes: &[u8]| -> Result<D::Memory, GpuError> {
            let memory = self.device.alloc(bytes.len() as u64)?;
            self.device.write(&memory, 0, bytes)?;
            Ok(memory)
        };
        let seeds = upload(bytemuck::cast_slice(&seeds))?;
        self.request = Some((seeds, upload(bytemuck::cast_slice(&slots))?));
        Ok(())
    }

    /// Writes the request's rows of a layer.
    pub(super) fn write(
        &self,
        layer: LayerId,
        to: &Shard<D>,
        stream: &D::Stream,
    ) -> Result<(), Error> {
        let Some((seeds, slots)) = &self.request else {
            return Ok(());
        };
        let planes = to.planes();
        let Some((memory, offset)) = planes.plane(layer) else {
            return Ok(());
        };
        let pool = planes.geometry();
        let dense = View::all(&self.dense);
        for first in (0..self.tokens).step_by(CHUNK) {
            let rows = CHUNK.min(self.tokens - first);
            let at = first as u64 * WORD;
            let fill = FillValues {
                dense,
                seeds: View::all(seeds).plus(at),
                rows: rows as u64,
                row_words: ROW_WORDS,
                layer: layer.get(),
            };
            self.device.fill_values(stream, &fill)?;
            let write = WriteRows {
                rows: Rows {
                    at: View { memory, offset },
                    format: KernelFormat::Bf16,
                    scale: RowScale::default(),
                    rows: pool.rows(),
                },
                to: WriteTo::Slots {
                    slots: View::all(slots).plus(at),
                    stripe: pool.stripe(),
                    rank: to.dcp_rank(),
                },
                tokens: u32::try_from(rows).unwrap_or(u32::MAX),
                latent: dense,
                latent_stride: ROW_BYTES,
                rope: Some(dense.plus(LATENT as u64 * 2)),
                rope_stride: ROW_BYTES,
                faults: View::all(&self.faults),
            };
            self.device.write_rows(stream, &write)?;
        }
        Ok(())
    }
}
