// SPDX-License-Identifier: Apache-2.0
//! The decode path of a device: its kernels behind one trait, in the order in which a layer uses
//! them. Contracts and references: [`striata_kernels::decode`].
//!
//! | call | once a | what |
//! |---|---|---|
//! | [`DecodeDevice::build_plan`] | step | lengths, table, destinations and work list of the batch |
//! | [`DecodeDevice::write_rows`] | layer | new rows, by the plan or by slots |
//! | [`DecodeDevice::attend`] | layer | partial outputs of one rank |
//! | [`DecodeDevice::merge`] | layer | the partials of all ranks into one |
//! | [`DecodeDevice::pack`], [`DecodeDevice::unpack`] | - | partials of another backend as messages, and back |
//! | [`DecodeDevice::gather_prefix`] | layer of an extend | rows of a prefix as bf16 |
//!
//! Every call submits and returns, allocates nothing, waits for nothing, and may be captured in a
//! graph of ours. What it names must live until it ran; the device sees to that.

mod jobs;
mod values;

pub(crate) use jobs::refused;
pub use jobs::{
    Attend, BuildPlan, GatherPrefix, Merge, Pack, Plan, Rows, Unpack, View, WriteRows, WriteTo,
};

pub use values::{FillValues, ValueDevice};

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use striata_kernels::decode::MmaSize;

use crate::device::Device;
use crate::error::GpuError;

/// A device that runs the decode path.
pub trait DecodeDevice: Device {
    /// Host memory that the host writes and kernels read in place; clones share it.
    type Staging: Clone + fmt::Debug + Send + Sync + 'static;

    /// Multiprocessors, among which [`striata_kernels::decode::Schedule`] divides work.
    fn multiprocessors(&self) -> u32;

    /// The largest kernels of [`striata_kernels::decode::AttendKernel::Mma`] that run here, smaller
    /// ones run too; none if it has no tensor cores or too little shared memory.
    fn mma_size(&self) -> Option<MmaSize>;

    /// Whether [`striata_kernels::decode::AttendKernel::Mma`] can run here.
    fn has_mma(&self) -> bool {
        self.mma_size().is_some()
    }

    /// Staging memory of `words` words, zeroed.
    ///
    /// # Errors
    /// No room; a lost device.
    fn staging(&self, words: usize) -> Result<Self::Staging, GpuError>;

    /// The words of staging memory. Kernels that were submitted may read them until they ran: the
    /// caller keeps what it writes apart from those by events or by more than one staging.
    fn staged<'a>(&self, staging: &'a Self::Staging) -> &'a [AtomicU32];

    /// Builds the plan of a step.
    ///
    /// # Errors
    /// Sizes that the contract refuses, buffers that are too small; a lost device.
    fn build_plan(&self, stream: &Self::Stream, job: &BuildPlan<'_, Self>) -> Result<(), GpuError>;

    /// Writes new rows.
    ///
    /// # Errors
    /// Buffers that are too small; a lost device.
    fn write_rows(&self, stream: &Self::Stream, job: &WriteRows<'_, Self>) -> Result<(), GpuError>;

    /// Computes the partial outputs of one rank.
    ///
    /// # Errors
    /// Sizes that the contract refuses, buffers that are too small, a kernel that the device does
    /// not have; a lost device.
    fn attend(&self, stream: &Self::Stream, job: &Attend<'_, Self>) -> Result<(), GpuError>;

    /// Merges messages.
    ///
    /// # Errors
    /// Too many messages, buffers that are too small; a lost device.
    fn merge(&self, stream: &Self::Stream, job: &Merge<'_, Self>) -> Result<(), GpuError>;

    /// Packs plain outputs into messages, one a destination.
    ///
    /// # Errors
    /// Heads that the destinations cannot share, buffers that are too small; a lost device.
    fn pack(&self, stream: &Self::Stream, job: &Pack<'_, Self>) -> Result<(), GpuError>;

    /// Unpacks messages, one a destination, into plain outputs.
    ///
    /// # Errors
    /// As [`DecodeDevice::pack`].
    fn unpack(&self, stream: &Self::Stream, job: &Unpack<'_, Self>) -> Result<(), GpuError>;

    /// Gathers one rank's rows of a prefix as bf16.
    ///
    /// # Errors
    /// Buffers that are too small; a lost device.
    fn gather_prefix(
        &self,
        stream: &Self::Stream,
        job: &GatherPrefix<'_, Self>,
    ) -> Result<(), GpuError>;
}

/// Words that host and device share, for devices on host memory.
pub type HostStaging = Arc<[AtomicU32]>;
