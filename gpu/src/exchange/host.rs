// SPDX-License-Identifier: Apache-2.0
//! Messages that cross through host memory: the caller waits for every rank, reads all messages and
//! writes each to its destination. It rests on nothing but reads and writes of the host, so what a
//! faster exchange brings can be compared with it. It cannot be captured.

use super::{Exchange, StepStreams, mark_all, no_rank};
use crate::decode::View;
use crate::device::Device;
use crate::error::GpuError;

/// See the module.
#[derive(Debug)]
pub struct HostExchange<D: Device> {
    devices: Vec<D>,
    /// What each rank sends: c messages by destination.
    sent: Vec<D::Memory>,
    /// What each rank receives: c messages by sender.
    received: Vec<D::Memory>,
    message_bytes: u64,
    /// Behind the last reads, a rank.
    readers: Vec<D::Event>,
    /// One rank's messages on the host.
    bytes: Vec<u8>,
}

impl<D: Device> HostExchange<D> {
    /// An exchange of messages of `message_bytes` bytes between `devices`, one a rank.
    ///
    /// # Errors
    /// No room; a lost device.
    pub fn new(devices: Vec<D>, message_bytes: u64) -> Result<Self, GpuError> {
        let bytes = message_bytes.saturating_mul(devices.len() as u64);
        let all = || -> Result<Vec<_>, GpuError> {
            devices.iter().map(|device| device.alloc(bytes)).collect()
        };
        let room = usize::try_from(bytes).map_err(|_| GpuError::Argument {
            call: "exchange",
            reason: format!("{bytes} bytes of messages are more than the host can hold"),
        })?;
        Ok(Self {
            sent: all()?,
            received: all()?,
            devices,
            message_bytes,
            readers: Vec::new(),
            bytes: vec![0; room],
        })
    }

    fn wait(&self, events: &[D::Event]) -> Result<(), GpuError> {
        for (device, event) in self.devices.iter().zip(events) {
            device.synchronize(event)?;
        }
        Ok(())
    }
}

impl<D: Device> Exchange<D> for HostExchange<D> {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn open(&mut self, _: StepStreams<'_, D>) -> Result<(), GpuError> {
        // `cross` has read what was sent before.
        Ok(())
    }

    fn outgoing(&self, rank: usize) -> Result<View<'_, D>, GpuError> {
        let sent = self.sent.get(rank).map(View::all);
        sent.ok_or_else(|| no_rank(rank, self.sent.len()))
    }

    fn cross(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError> {
        let written = mark_all(&self.devices, streams)?;
        self.wait(&written)?;
        let readers = core::mem::take(&mut self.readers);
        self.wait(&readers)?;
        let message = usize::try_from(self.message_bytes).unwrap_or(usize::MAX);
        for (rank, (device, sent)) in self.devices.iter().zip(&self.sent).enumerate() {
            device.read(sent, 0, &mut self.bytes)?;
            let messages = self.bytes.chunks_exact(message.max(1));
            let at = rank as u64 * self.message_bytes;
            for ((device, received), bytes) in self.devices.iter().zip(&self.received).zip(messages)
            {
                device.write(received, at, bytes)?;
            }
        }
        Ok(())
    }

    fn incoming(&self, destination: usize) -> Result<Vec<View<'_, D>>, GpuError> {
        let received = self.received.get(destination);
        let received = received.ok_or_else(|| no_rank(destination, self.received.len()))?;
        let messages = 0..self.devices.len() as u64;
        Ok(messages
            .map(|rank| View::all(received).plus(rank * self.message_bytes))
            .collect())
    }

    fn close(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError> {
        self.readers = mark_all(&self.devices, streams)?;
        Ok(())
    }
}
