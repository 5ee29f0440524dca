// SPDX-License-Identifier: Apache-2.0
//! Ranks of one process that read each other's buffers, ordered by events of their streams.
//!
//! Two buffers take turns, so that a rank writes its messages of one layer while a slower one still
//! reads those of the layer before. On one stream nothing needs an event, and the layer can be
//! captured.

use super::{Exchange, StepStreams, mark_all, no_rank};
use crate::decode::View;
use crate::device::Device;
use crate::error::GpuError;

/// See the module.
#[derive(Debug)]
pub struct StreamExchange<D: Device> {
    devices: Vec<D>,
    /// A rank's two buffers of c messages.
    buffers: Vec<[D::Memory; 2]>,
    message_bytes: u64,
    /// Which of the two is written in this layer.
    turn: usize,
    /// Behind the last reads of each of the two, a rank.
    readers: [Vec<D::Event>; 2],
}

impl<D: Device> StreamExchange<D> {
    /// An exchange of messages of `message_bytes` bytes between `devices`, one a rank; they may
    /// be the same device.
    ///
    /// # Errors
    /// No room; a lost device.
    pub fn new(devices: Vec<D>, message_bytes: u64) -> Result<Self, GpuError> {
        let bytes = message_bytes.saturating_mul(devices.len() as u64);
        let buffers = devices
            .iter()
            .map(|device| Ok([device.alloc(bytes)?, device.alloc(bytes)?]))
            .collect::<Result<_, GpuError>>()?;
        Ok(Self {
            devices,
            buffers,
            message_bytes,
            turn: 0,
            readers: [Vec::new(), Vec::new()],
        })
    }

    fn buffer(&self, rank: usize) -> Result<&D::Memory, GpuError> {
        let pair = self.buffers.get(rank);
        let buffer = pair.and_then(|pair| pair.get(self.turn));
        buffer.ok_or_else(|| no_rank(rank, self.buffers.len()))
    }

    /// Lets every rank wait for what the others have recorded.
    fn wait_others(
        &self,
        streams: StepStreams<'_, D>,
        events: &[D::Event],
    ) -> Result<(), GpuError> {
        for (rank, device) in self.devices.iter().enumerate() {
            for (other, event) in events.iter().enumerate() {
                if other != rank {
                    device.wait(streams.of(rank)?, event)?;
                }
            }
        }
        Ok(())
    }
}

impl<D: Device> Exchange<D> for StreamExchange<D> {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn open(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError> {
        self.turn = 1 - self.turn;
        if streams.is_one() {
            return Ok(());
        }
        let readers = core::mem::take(&mut self.readers[self.turn]);
        self.wait_others(streams, &readers)
    }

    fn outgoing(&self, rank: usize) -> Result<View<'_, D>, GpuError> {
        self.buffer(rank).map(View::all)
    }

    fn cross(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError> {
        if streams.is_one() {
            return Ok(());
        }
        let written = mark_all(&self.devices, streams)?;
        self.wait_others(streams, &written)
    }

    fn incoming(&self, destination: usize) -> Result<Vec<View<'_, D>>, GpuError> {
        let ranks = self.buffers.len();
        if destination >= ranks {
            return Err(no_rank(destination, ranks));
        }
        let at = destination as u64 * self.message_bytes;
        (0..ranks)
            .map(|rank| Ok(self.outgoing(rank)?.plus(at)))
            .collect()
    }

    fn close(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError> {
        if streams.is_one() {
            return Ok(());
        }
        self.readers[self.turn] = mark_all(&self.devices, streams)?;
        Ok(())
    }
}
