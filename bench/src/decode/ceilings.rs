// SPDX-License-Identifier: Apache-2.0
//! What the device reads and multiplies at most, measured in the run.

use serde::Serialize;
use striata_gpu::Device;
use striata_gpu::cuda::{CudaDevice, LinearBf16};
use striata_gpu::selftest::Subject;
use striata_gpu::sim::SimDevice;

use super::DecodeBenchError;
use super::timing::{Timer, median};

/// Bytes that are read, many times what caches hold.
const READ_BYTES: u64 = 1 << 30;
/// Rows and columns of the square matrices.
const SIDE: u32 = 8192;
const TRIES: usize = 5;
const LAUNCHES: u32 = 4;

/// The ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceilings {
    /// Bytes read a second, in 10^9.
    pub read_gb_per_s: f64,
    /// Operations a second of a large product in bf16, in 10^12; none without a library for it.
    pub matrix_tflops: Option<f64>,
}

impl Ceilings {
    /// The least microseconds of a shape.
    pub(super) fn floor_us(&self, bytes: f64, operations: f64) -> f64 {
        let reading = bytes / self.read_gb_per_s / 1e3;
        let multiplying = self
            .matrix_tflops
            .map_or(0.0, |rate| operations / rate / 1e6);
        reading.max(multiplying)
    }
}

/// A device whose decode path is measured.
pub trait DecodeSubject: Subject {
    /// The ceilings; none where times are not those of a device.
    ///
    /// # Errors
    /// No room; a lost device.
    fn ceilings(&self) -> Result<Option<Ceilings>, DecodeBenchError>;
}

impl DecodeSubject for SimDevice {
    fn ceilings(&self) -> Result<Option<Ceilings>, DecodeBenchError> {
        Ok(None)
    }
}

impl DecodeSubject for CudaDevice {
    fn ceilings(&self) -> Result<Option<Ceilings>, DecodeBenchError> {
        let stream = self.stream("ceilings")?;
        let timer = Timer::new(self, &stream);
        let (memory, sink) = (self.alloc(READ_BYTES)?, self.alloc(4)?);
        let mut best_read = f64::INFINITY;
        for _ in 0..TRIES {
            let us = timer.direct(
                LAUNCHES,
                |_| Ok(self.read_through(&stream, &memory, &sink)?),
            )?;
            best_read = best_read.min(us);
        }
        drop(memory);
        #[expect(clippy::cast_precision_loss, reason = "a power of two")]
        let read_gb_per_s = READ_BYTES as f64 / best_read / 1e3;
        // The library may be missing; then only bytes count.
        let matrix_tflops = match matrix_rate(self, &stream) {
            Ok(rate) => Some(rate),
            Err(error) => {
                tracing::warn!(%error, "no matrix rate: floors count bytes alone");
                None
            }
        };
        Ok(Some(Ceilings {
            read_gb_per_s,
            matrix_tflops,
        }))
    }
}

fn matrix_rate(
    device: &CudaDevice,
    stream: &striata_gpu::cuda::CudaStream,
) -> Result<f64, DecodeBenchError> {
    let blas = device.blas(stream)?;
    let bytes = u64::from(SIDE) * u64::from(SIDE) * 2;
    let matrices = [
        device.alloc(bytes)?,
        device.alloc(bytes)?,
        device.alloc(bytes)?,
    ];
    let zeros = vec![0x3Cu8; 1 << 20];
    for matrix in &matrices[..2] {
        for at in (0..bytes).step_by(zeros.len()) {
            device.write(matrix, at, &zeros)?;
        }
    }
    let product = LinearBf16 {
        m: SIDE,
        n: SIDE,
        k: SIDE,
        inputs: &matrices[0],
        weights: &matrices[1],
        outputs: &matrices[2],
    };
    let timer = Timer::new(device, stream);
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        tries.push(timer.direct(LAUNCHES, |_| Ok(blas.linear(&product)?))?);
    }
    let side = f64::from(SIDE);
    Ok(2.0 * side * side * side / median(&tries) / 1e6)
}
