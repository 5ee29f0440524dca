// SPDX-License-Identifier: Apache-2.0
//! Rows whose values anyone can work out, for checks of attention: see
//! [`striata_kernels::values`].

use super::View;
use crate::device::Device;
use crate::error::GpuError;

/// [`ValueDevice::fill_values`].
#[derive(Clone, Copy, Debug)]
pub struct FillValues<'a, D: Device> {
    /// Where the rows go. Shape: \[rows\]\[row words\] u32, two bf16 lanes a word.
    pub dense: View<'a, D>,
    /// A `RowSeed` a row. Shape: \[rows\] u64.
    pub seeds: View<'a, D>,
    /// Rows.
    pub rows: u64,
    /// Words of a row.
    pub row_words: u32,
    /// The layer whose rows they are.
    pub layer: u32,
}

/// A device that makes such rows itself.
pub trait ValueDevice: Device {
    /// Writes the rows of the seeds. Submits and returns; may be captured.
    ///
    /// # Errors
    /// Buffers that are too small; a lost device.
    fn fill_values(
        &self,
        stream: &Self::Stream,
        job: &FillValues<'_, Self>,
    ) -> Result<(), GpuError>;
}
