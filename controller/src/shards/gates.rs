// SPDX-License-Identifier: Apache-2.0
//! Gates of a request on one rank: layer l of a pool may be read once its group of every load has
//! arrived in that pool.

use std::sync::Arc;

use striata_core::{LayerId, OpId};
use striata_gpu::transfer::LoadGate;
use striata_gpu::{Device, DeviceTime};

use super::ShardGroup;
use super::pool::PoolId;
use crate::error::Error;

/// The gates that one rank passes for a request; it may go to the rank's own thread.
#[derive(Clone, Debug)]
pub struct LayerGates<D: Device> {
    rank: usize,
    sides: usize,
    gates: Vec<(PoolId, Arc<LoadGate<D>>)>,
}

impl<D: Device> LayerGates<D> {
    /// Whether there is nothing to wait for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.gates.is_empty()
    }

    /// Makes `stream` wait for `layer` of the main pool. The host waits only until the layer's copy
    /// was *submitted*, never until it has ended.
    ///
    /// # Errors
    /// A load that failed.
    pub fn wait_layer(&self, layer: LayerId, stream: &D::Stream) -> Result<(), Error> {
        self.wait_layer_of(PoolId::MAIN, layer, stream)
    }

    /// As [`LayerGates::wait_layer`], for `layer` of `pool`: each pool has layers of its own, and
    /// what stands in one says nothing of another.
    ///
    /// # Errors
    /// No such pool; a load that failed.
    pub fn wait_layer_of(
        &self,
        pool: PoolId,
        layer: LayerId,
        stream: &D::Stream,
    ) -> Result<(), Error> {
        let (rank, sides) = (self.rank, self.sides);
        if pool.index() > sides {
            return Err(Error::NoSuchPool { pool, sides });
        }
        let gates = self.gates.iter().filter(|(of, _)| *of == pool);
        for (_, gate) in gates {
            gate.wait_layer(layer, stream)
                .map_err(|source| Error::Gate { rank, pool, source })?;
        }
        Ok(())
    }

    /// When `layer` of the main pool was there, of all loads; none as long as one has not brought it.
    /// Never blocks.
    ///
    /// # Errors
    /// No such layer; a lost device.
    pub fn layer_time(&self, layer: LayerId) -> Result<Option<DeviceTime>, Error> {
        let mut latest = Some(DeviceTime::default());
        let (rank, pool) = (self.rank, PoolId::MAIN);
        for (_, gate) in self.gates.iter().filter(|(of, _)| *of == pool) {
            let time = gate.layer_time(layer);
            let time = time.map_err(|source| Error::Gate { rank, pool, source })?;
            latest = latest.zip(time).map(|(one, other)| one.max(other));
        }
        Ok(latest)
    }
}

impl<D: Device> ShardGroup<D> {
    /// The gates of `loads` on `rank`. Loads that have ended on every rank have none.
    ///
    /// # Errors
    /// No such rank; a load that was not started.
    pub fn gates(&self, rank: usize, loads: &[OpId]) -> Result<LayerGates<D>, Error> {
        self.shard(rank)?;
        if let Some(order) = self.held.iter().find(|order| loads.contains(&order.op)) {
            return Err(Error::NotStarted { op: order.op });
        }
        let gates = loads.iter().flat_map(|op| self.gates_of(*op, rank));
        Ok(LayerGates {
            rank,
            sides: self.sides.len(),
            gates: gates.map(|(pool, gate)| (pool, gate.clone())).collect(),
        })
    }

    /// The gates of a load in the pools of a rank that took it.
    pub(super) fn gates_of(
        &self,
        op: OpId,
        rank: usize,
    ) -> impl Iterator<Item = (PoolId, &Arc<LoadGate<D>>)> {
        let pools = 1 + self.sides.len();
        let gates = self.gates.get(&op).map_or(&[][..], Vec::as_slice);
        let of_rank = gates.iter().skip(rank * pools).take(pools);
        let by_pool = PoolId::all().zip(of_rank);
        by_pool.filter_map(|(pool, gate)| Some((pool, gate.as_ref()?)))
    }
}
