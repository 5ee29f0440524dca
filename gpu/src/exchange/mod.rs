// SPDX-License-Identifier: Apache-2.0
//! How the partial results of a layer cross the ranks of a DCP group.
//!
//! A rank writes one packed message for each destination, \[rows x o\]\[rows x f32 lse\]; an
//! exchange makes the messages of all ranks readable at their destination, where they are merged.
//! It owns the buffers, so that their addresses never change.
//!
//! | backend | what crosses |
//! |---|---|
//! | [`StreamExchange`] | nothing: a destination reads the senders' buffers behind their events |
//! | [`HostExchange`] | bytes, through host memory; slow, and independent of streams |
//!
//! The order of the calls of a layer, for all ranks together:
//! [`Exchange::open`] -> every rank writes [`Exchange::outgoing`] -> [`Exchange::cross`] -> every
//! rank reads [`Exchange::incoming`] -> [`Exchange::close`].

mod host;
mod stream;

pub use host::HostExchange;
pub use stream::StreamExchange;

use core::fmt;

use crate::decode::View;
use crate::device::Device;
use crate::error::GpuError;

/// The streams of a step, one a rank or one for all.
#[derive(Debug)]
pub enum StepStreams<'a, D: Device> {
    /// A stream for each rank.
    Each(&'a [D::Stream]),
    /// One stream for all ranks, which run one after the other: all on one device, or captured.
    One(&'a D::Stream),
}

impl<D: Device> Clone for StepStreams<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Device> Copy for StepStreams<'_, D> {}

impl<'a, D: Device> StepStreams<'a, D> {
    /// The stream of a rank.
    ///
    /// # Errors
    /// A rank without one.
    pub fn of(self, rank: usize) -> Result<&'a D::Stream, GpuError> {
        match self {
            Self::One(stream) => Ok(stream),
            Self::Each(streams) => streams.get(rank).ok_or_else(|| GpuError::Argument {
                call: "exchange",
                reason: format!("rank {rank} has no stream: {} were given", streams.len()),
            }),
        }
    }

    /// Whether one stream orders all ranks.
    #[must_use]
    pub const fn is_one(self) -> bool {
        matches!(self, Self::One(_))
    }
}

/// A way for partial results to cross the ranks of one process.
pub trait Exchange<D: Device>: fmt::Debug + Send {
    /// Its name in configurations.
    fn name(&self) -> &'static str;

    /// Orders what each rank submits next behind every read of the buffers that it will write.
    ///
    /// # Errors
    /// A lost device; a call that a captured stream refuses.
    fn open(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError>;

    /// Where a rank writes its messages, one a destination, one behind the other.
    ///
    /// # Errors
    /// No such rank.
    fn outgoing(&self, rank: usize) -> Result<View<'_, D>, GpuError>;

    /// Lets what each rank submits next read what all ranks have submitted so far.
    ///
    /// # Errors
    /// As [`Exchange::open`].
    fn cross(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError>;

    /// The messages to `destination`, in rank order.
    ///
    /// # Errors
    /// No such rank.
    fn incoming(&self, destination: usize) -> Result<Vec<View<'_, D>>, GpuError>;

    /// Says that each rank has submitted its reads.
    ///
    /// # Errors
    /// As [`Exchange::open`].
    fn close(&mut self, streams: StepStreams<'_, D>) -> Result<(), GpuError>;
}

/// An event behind what each rank's stream holds now.
fn mark_all<D: Device>(
    devices: &[D],
    streams: StepStreams<'_, D>,
) -> Result<Vec<D::Event>, GpuError> {
    let mark = |(rank, device): (usize, &D)| {
        let event = device.event()?;
        device.record(&event, streams.of(rank)?)?;
        Ok(event)
    };
    devices.iter().enumerate().map(mark).collect()
}

fn no_rank(rank: usize, ranks: usize) -> GpuError {
    GpuError::Argument {
        call: "exchange",
        reason: format!("rank {rank} is not below the {ranks} ranks of the group"),
    }
}

#[cfg(test)]
mod tests;
