// SPDX-License-Identifier: Apache-2.0
//! Row lists by the transfer engine, byte for byte against a model on the host.

use std::sync::Arc;

use striata_core::{HostLayout, LayerId, OpId, Row};

use super::memory::first_difference;
use super::random::Random;
use super::rig::{Layout, Rig};
use super::{Check, Checked, Failure, ensure};
use crate::device::{Device, Direction};
use crate::transfer::{LoadRows, RowPair, StoreRows, TransferConfig, TransferPaths};

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![Check {
        name: "transfer.b41_row_lists",
        about: "rows of every size go where lists say, in the layers that are named, both ways",
        run: row_lists,
    }]
}

/// Both tiers and a copy of their bytes.
struct Model<'a, D: Device> {
    rig: &'a Rig<D>,
    /// Each memory of the planes, then the host pool.
    bytes: Vec<Vec<u8>>,
}

impl<D: Device> Model<'_, D> {
    /// Where a row stands in a layer: memory and byte of the plane, byte of the host pool.
    fn place(&self, pair: RowPair, layer: u32) -> Result<(usize, usize, usize), Failure> {
        let layout = self.rig.layout;
        let (row_bytes, page_rows) = (u64::from(layout.row_bytes), u64::from(layout.page_rows));
        let span = self.rig.planes.spans()[layer as usize];
        let on_plane = span.offset + pair.l1.get() * row_bytes;
        let (page, row) = (pair.l2.get() / page_rows, pair.l2.get() % page_rows);
        let strides = self.rig.host.strides();
        let on_host = strides.offset(u32::try_from(page)?, LayerId::new(layer)) + row * row_bytes;
        let on_plane = usize::try_from(on_plane)?;
        Ok((span.memory as usize, on_plane, usize::try_from(on_host)?))
    }

    /// Moves rows in the copy.
    fn play(&mut self, direction: Direction, rows: &[RowPair], layers: [u32; 2]) -> Checked {
        let row_bytes = self.rig.layout.row_bytes as usize;
        let last = self.bytes.len() - 1;
        for layer in layers[0]..layers[1] {
            for &pair in rows {
                let (memory, plane, host) = self.place(pair, layer)?;
                let (from, to) = match direction {
                    Direction::HostToDevice => ((last, host), (memory, plane)),
                    Direction::DeviceToHost => ((memory, plane), (last, host)),
                };
                let row = self.bytes[from.0][from.1..from.1 + row_bytes].to_vec();
                self.bytes[to.0][to.1..to.1 + row_bytes].copy_from_slice(&row);
            }
        }
        Ok(())
    }

    fn compare(&self, what: &str) -> Checked {
        for (index, (ours, model)) in self.rig.bytes()?.iter().zip(&self.bytes).enumerate() {
            let at = first_difference(ours, model);
            let layout = self.rig.layout;
            ensure!(
                at.is_none(),
                "{what}: memory {index} differs from byte {at:?} on: {layout:?}"
            );
        }
        Ok(())
    }
}

fn list(random: &mut Random, layout: Layout, count: usize) -> Arc<[RowPair]> {
    let l1 = random.order((layout.l1_pages - 1) * layout.page_rows);
    let l2 = random.order(layout.l2_pages * layout.page_rows);
    let pair = |(l1, l2): (u32, u32)| RowPair {
        l1: Row::new(u64::from(l1 + layout.page_rows)),
        l2: Row::new(u64::from(l2)),
    };
    l1.into_iter().zip(l2).take(count).map(pair).collect()
}

fn row_lists<D: Device>(device: &D) -> Checked {
    if !device.maps_host() {
        let why = "kernels of this device do not reach host memory";
        return Err(Failure::Skipped(why.to_owned()));
    }
    let mut random = Random::new(900);
    for row_bytes in [4, 12, 132, 576, 584, 592, 656, 1152] {
        for (uniform, host, count) in [
            (true, HostLayout::PageFirst, 700),
            (false, HostLayout::PageFirst, 33),
            (true, HostLayout::LayerFirst, 1),
        ] {
            let layout = Layout {
                page_rows: 16,
                row_bytes,
                layers: 6,
                l1_pages: 60,
                l2_pages: 50,
                host,
                uniform,
                chunk_bytes: if random.coin() { 1 } else { 1 << 30 },
            };
            // Also in slices, and through a small ring.
            let staged = random.coin();
            let config = TransferConfig {
                slice_bytes: if random.coin() { 50_000 } else { 1 << 40 },
                staging_bytes: 1 << 20,
                paths: TransferPaths::built_in().forced_rows(staged),
                ..TransferConfig::default()
            };
            let rig = Rig::with_config(device, layout, config)?;
            if staged {
                rig.engine.reserve_staging(Direction::HostToDevice)?;
                rig.engine.reserve_staging(Direction::DeviceToHost)?;
            }
            rig.set_bytes(|memory, at| ((at * 37) >> 3 ^ (memory * 91)).to_le_bytes()[0])?;
            let bytes = rig.bytes()?;
            let mut model = Model { rig: &rig, bytes };
            for layers in [[0, 6], [2, 5]] {
                both_ways(&mut model, &mut random, count, layers)?;
            }
        }
    }
    Ok(())
}

fn both_ways<D: Device>(
    model: &mut Model<'_, D>,
    random: &mut Random,
    count: usize,
    layers: [u32; 2],
) -> Checked {
    let (rig, range) = (model.rig, layers[0]..layers[1]);
    let rows = list(random, rig.layout, count);
    rig.engine.store_rows(StoreRows {
        op: OpId::new(1),
        rows: rows.clone(),
        layers: range.clone(),
        after: Some(rig.fence()?),
        urgent: false,
    })?;
    rig.finish()?;
    model.play(Direction::DeviceToHost, &rows, layers)?;
    model.compare("a store of rows")?;
    let rows = list(random, rig.layout, count);
    let gate = rig.engine.load_rows(LoadRows {
        op: OpId::new(2),
        rows: rows.clone(),
        layers: range,
        after: Some(rig.fence()?),
    })?;
    gate.synchronize()?;
    let done = rig.finish()?;
    let good: usize = done.iter().map(|done| done.good_pages).sum();
    ensure!(
        good == rows.len(),
        "{good} of {} rows were loaded",
        rows.len()
    );
    model.play(Direction::HostToDevice, &rows, layers)?;
    model.compare("a load of rows")
}
