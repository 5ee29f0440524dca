// SPDX-License-Identifier: Apache-2.0
//! Gates of a request on one rank: layer l may be read once its group of every load has arrived.

use std::sync::Arc;

use striata_core::{LayerId, OpId};
use striata_gpu::transfer::LoadGate;
use striata_gpu::{Device, DeviceTime};

use super::ShardGroup;
use crate::error::Error;

/// The gates that one rank passes for a request; it may go to the rank's own thread.
#[derive(Clone, Debug)]
pub struct LayerGates<D: Device> {
    rank: usize,
    gates: Vec<Arc<LoadGate<D>>>,
}

impl<D: Device> LayerGates<D> {
    /// Whether there is nothing to wait for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.gates.is_empty()
    }

    /// Makes `stream` wait for `layer`. The host waits only until the layer's copy was
    /// *submitted*, never until it has ended.
    ///
    /// # Errors
    /// A load that failed.
    pub fn wait_layer(&self, layer: LayerId, stream: &D::Stream) -> Result<(), Error> {
        for gate in &self.gates {
            gate.wait_layer(layer, stream)
                .map_err(|source| Error::Gate {
                    rank: self.rank,
                    source,
                })?;
        }
        Ok(())
    }

    /// When `layer` was there, of all loads; none as long as one has not brought it. Never blocks.
    ///
    /// # Errors
    /// No such layer; a lost device.
    pub fn layer_time(&self, layer: LayerId) -> Result<Option<DeviceTime>, Error> {
        let mut latest = Some(DeviceTime::default());
        for gate in &self.gates {
            let time = gate.layer_time(layer).map_err(|source| Error::Gate {
                rank: self.rank,
                source,
            })?;
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
        let gates = loads
            .iter()
            .filter_map(|op| self.gates.get(op))
            .filter_map(|gates| gates.get(rank).cloned().flatten())
            .collect();
        Ok(LayerGates { rank, gates })
    }
}
