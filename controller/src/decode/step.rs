// SPDX-License-Identifier: Apache-2.0
//! What is known of the step that runs, and the staging memory that steps take turns with.

use striata_gpu::Device;
use striata_gpu::decode::DecodeDevice;

use super::error::DecodeError;
use crate::shards::LayerGates;

/// Steps whose staging memory may be read by the device at the same time.
const STAGINGS: usize = 3;

/// How a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Layer by layer; requests may have fewer new tokens than the step has queries.
    Eager,
    /// As a graph that was captured: every request has as many new tokens as the step has queries,
    /// and no load is in flight.
    Captured,
}

/// Staging memory of every rank, and until when the device reads it.
#[derive(Debug)]
struct Staging<D: DecodeDevice> {
    ranks: Vec<D::Staging>,
    readers: Vec<D::Event>,
}

/// Staging memories that steps use one after the other.
#[derive(Debug)]
pub(super) struct Stagings<D: DecodeDevice> {
    ring: Vec<Staging<D>>,
    at: usize,
}

impl<D: DecodeDevice> Stagings<D> {
    pub(super) fn new(devices: &[D], words: usize) -> Result<Self, DecodeError> {
        let staging = || -> Result<_, DecodeError> {
            let ranks = devices.iter().map(|device| device.staging(words));
            Ok(Staging {
                ranks: ranks.collect::<Result<_, _>>()?,
                readers: Vec::new(),
            })
        };
        Ok(Self {
            ring: (0..STAGINGS).map(|_| staging()).collect::<Result<_, _>>()?,
            at: 0,
        })
    }

    /// Goes on to the next memory, once the device has read what it held.
    pub(super) fn next(&mut self, devices: &[D]) -> Result<(), DecodeError> {
        self.at = (self.at + 1) % self.ring.len();
        let readers = core::mem::take(&mut self.ring[self.at].readers);
        for (device, event) in devices.iter().zip(&readers) {
            if !device.is_complete(event)? {
                device.synchronize(event)?;
            }
        }
        Ok(())
    }

    /// The memory of this step, rank by rank.
    pub(super) fn current(&self) -> &[D::Staging] {
        &self.ring[self.at].ranks
    }

    /// Says behind which events the device has read the memory of this step.
    pub(super) fn read_until(&mut self, readers: Vec<D::Event>) {
        self.ring[self.at].readers = readers;
    }
}

/// A step between its begin and its end.
#[derive(Debug)]
pub(super) struct Running<D: Device> {
    /// Requests of the step.
    pub(super) requests: usize,
    /// Rank by rank, the gates of the requests.
    pub(super) gates: Vec<Vec<LayerGates<D>>>,
}

/// A step that has ended and is not confirmed.
#[derive(Debug)]
pub(super) struct Ended<D: Device> {
    pub(super) requests: usize,
    /// Behind everything of the step, rank by rank.
    pub(super) events: Vec<D::Event>,
}
