// SPDX-License-Identifier: Apache-2.0
//! Series of one job, repeated, and the comparison of bytes after each.

use std::sync::Arc;

use striata_gpu::transfer::TransferEngine;
use striata_gpu::{Direction, L1Planes};

use super::error::BenchError;
use super::lists::Pairs;
use super::run::Bench;
use super::subject::Subject;
use super::timing::{time_load, time_store};
use crate::samples::Samples;

/// Jobs before the first that is measured.
pub(super) const WARM: usize = 2;

/// What jobs are measured on.
pub(super) struct Place<D: Subject> {
    pub(super) engine: Arc<TransferEngine<D>>,
    pub(super) planes: Arc<L1Planes<D>>,
    /// Measurements of each series.
    pub(super) reps: usize,
}

/// The measurements of a load.
pub(super) struct LoadSeries {
    /// GB/s until the last layer was ready.
    pub(super) rate: Samples,
    /// Microseconds until the first one was.
    pub(super) first_us: Samples,
}

impl<D: Subject> Bench<'_, D> {
    /// The engine with its own settings.
    pub(super) fn place(&self) -> Place<D> {
        Place {
            engine: self.engine.clone(),
            planes: self.tiers.planes.clone(),
            reps: self.options.reps,
        }
    }

    /// Measures a load. `rest` is called before each.
    pub(super) fn load_series(
        &mut self,
        place: &Place<D>,
        pairs: &Pairs,
        name: &str,
        rest: impl Fn(),
    ) -> Result<LoadSeries, BenchError> {
        let bytes = self.tiers.bytes(pairs.len());
        let (mut rate, mut first_us) = (Samples::new(), Samples::new());
        self.checked_load(&place.planes, pairs, name, |bench| {
            for rep in 0..place.reps + WARM {
                rest();
                let op = bench.op();
                let marks = &bench.tiers.marks;
                let time = time_load(&bench.device, marks, &place.engine, (op, pairs))?;
                if rep >= WARM {
                    rate.push(bytes as f64 / time.all as f64);
                    first_us.push(time.first as f64 / 1e3);
                }
            }
            Ok(())
        })?;
        Ok(LoadSeries { rate, first_us })
    }

    /// Measures a store; GB/s.
    pub(super) fn store_series(
        &mut self,
        place: &Place<D>,
        pairs: &Pairs,
        name: &str,
    ) -> Result<Samples, BenchError> {
        let bytes = self.tiers.bytes(pairs.len());
        let mut rate = Samples::new();
        self.checked_store(&place.planes, pairs, name, |bench| {
            for rep in 0..place.reps + WARM {
                let op = bench.op();
                let marks = &bench.tiers.marks;
                let nanos = time_store(&bench.device, marks, &place.engine, (op, pairs))?;
                if rep >= WARM {
                    rate.push(bytes as f64 / nanos as f64);
                }
            }
            Ok(())
        })?;
        Ok(rate)
    }

    /// Runs `loads`, which load `pairs` by any means, over pages that held something else, and
    /// compares what they hold then.
    pub(super) fn checked_load(
        &mut self,
        planes: &L1Planes<D>,
        pairs: &Pairs,
        name: &str,
        loads: impl FnOnce(&mut Self) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        self.tiers.refill(planes, pairs)?;
        loads(self)?;
        let found = self.tiers.wrong_rows(planes, pairs)?;
        self.checked(name, found);
        Ok(())
    }

    /// Runs `stores`, which store `pairs` by any means, over host pages that held something else,
    /// loads them back over something else again, and compares.
    pub(super) fn checked_store(
        &mut self,
        planes: &Arc<L1Planes<D>>,
        pairs: &Pairs,
        name: &str,
        stores: impl FnOnce(&mut Self) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let contents = self.tiers.refill(planes, pairs)?;
        stores(self)?;
        self.tiers.stored(pairs, &contents);
        let own = self.tiers.planes.clone();
        self.tiers.refill(&own, pairs)?;
        let op = self.op();
        self.engine.copy_pages(Direction::HostToDevice, op, pairs)?;
        let found = self.tiers.wrong_rows(&own, pairs)?;
        self.checked(name, found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use striata_gpu::sim::{SimConfig, SimDevice};

    use super::*;
    use crate::transfer::options::{Shape, TransferOptions};

    fn options() -> TransferOptions {
        let shape = Shape {
            layers: 2,
            page_rows: 4,
            row_bytes: 64,
        };
        TransferOptions {
            shape,
            pages: vec![3],
            reps: 1,
            ceiling_bytes: 1024,
            ..TransferOptions::simulated()
        }
    }

    // Seen to fail if `checked_load` does not write over its targets first.
    #[test]
    fn copies_that_move_nothing_are_found() {
        let options = options();
        let device = SimDevice::new(SimConfig::new(0));
        let mut bench = Bench::new(&device, &options).unwrap();
        let (planes, room) = (bench.tiers.planes.clone(), bench.tiers.room());
        let pairs = bench.lists.scattered(3, room);
        let place = bench.place();
        bench.load_series(&place, &pairs, "load", || {}).unwrap();
        bench.store_series(&place, &pairs, "store").unwrap();
        assert_eq!((bench.checks.series, bench.checks.wrong_rows), (2, 0));
        // 3 pages of 4 rows in 2 layers.
        assert_eq!(bench.checks.rows, 2 * 24);
        bench
            .checked_load(&planes, &pairs, "no load", |_| Ok(()))
            .unwrap();
        assert_eq!(bench.checks.wrong_rows, 24);
        bench
            .checked_store(&planes, &pairs, "no store", |_| Ok(()))
            .unwrap();
        assert_eq!(bench.checks.wrong_rows, 48);
        assert_eq!(bench.checks.wrong, ["no load", "no store"]);
    }
}
