// SPDX-License-Identifier: Apache-2.0
//! What the benchmark asks of a GPU: plain copy calls, copy kernels, and three kinds of compute.

use std::sync::Arc;

use striata_core::PagePair;
use striata_gpu::cuda::{
    CudaBlas, CudaConfig, CudaDevice, CudaMemory, CudaStream, LinearBf16, PageKernel,
};
use striata_gpu::{Device, Direction, GpuError, L1Planes};
use striata_host::HostPool;

use super::subject::{Compute, Launch, Subject};

/// A driver of this version has no batched copies.
const NO_BATCHES: i32 = 12_000;
/// Bytes that are read by the compute that is bound by memory.
const READ_BYTES: u64 = 1 << 30;
/// How often; 1 GiB takes 0.23 ms of an H200.
const READS: usize = 12;
/// Rows and columns of the large product.
const LARGE: u32 = 8192;
/// How often; one takes 1.5 ms of an H200.
const LARGES: usize = 2;
/// Hidden size and inner size of the small products.
const HIDDEN: u32 = 7168;
const INNER: u32 = 2048;
/// Tokens of the batches of the small products: a decode step's.
const TOKENS: [u32; 4] = [8, 16, 32, 64];
/// How often all of them; once is some 80 us of an H200.
const CHAINS: usize = 32;
/// Chains of one graph.
const IN_GRAPH: usize = 8;
/// Weights are uniform in +-2^-6, so that a chain of products neither grows nor vanishes fast.
const SCALE: f32 = 1.0 / 64.0;

impl Subject for CudaDevice {
    fn plain(&self) -> Result<(Self, usize), GpuError> {
        let plain = Self::with_config(CudaConfig {
            index: self.index(),
            newest_version: Some(NO_BATCHES),
        })?;
        Ok((plain, usize::MAX))
    }

    fn page_kernel(
        &self,
        planes: &Arc<L1Planes<Self>>,
        host: &Arc<HostPool>,
        pairs: &[PagePair],
        direction: Direction,
        blocks: u32,
    ) -> Result<Option<Launch<Self>>, GpuError> {
        let kernel = PageKernel::new(self, planes, host, pairs, direction)?;
        Ok(Some(Box::new(move |stream| kernel.launch(stream, blocks))))
    }

    fn compute(&self, stream: &CudaStream) -> Result<Vec<Compute<Self>>, GpuError> {
        let named = |name, decode, run: Result<Launch<Self>, GpuError>| Compute {
            name,
            decode,
            run: run.map_err(|error| error.to_string()),
        };
        Ok(vec![
            named("a large GEMM", false, large(self, stream)),
            named("reads of device memory", false, reads(self)),
            named("small decode GEMMs", true, small(self, stream)),
        ])
    }
}

/// Reads of more memory than caches hold.
fn reads(device: &CudaDevice) -> Result<Launch<CudaDevice>, GpuError> {
    let memory = device.alloc(READ_BYTES)?;
    let sink = device.alloc(16)?;
    let device = device.clone();
    Ok(Box::new(move |stream| {
        (0..READS).try_for_each(|_| device.read_through(stream, &memory, &sink))
    }))
}

/// Products of square matrices that fill the device.
fn large(device: &CudaDevice, stream: &CudaStream) -> Result<Launch<CudaDevice>, GpuError> {
    let blas = device.blas(stream)?;
    let matrix = || values(device, LARGE, LARGE);
    let (inputs, weights, outputs) = (matrix()?, matrix()?, matrix()?);
    Ok(Box::new(move |_| {
        (0..LARGES).try_for_each(|_| {
            blas.linear(&LinearBf16 {
                m: LARGE,
                n: LARGE,
                k: LARGE,
                inputs: &inputs,
                weights: &weights,
                outputs: &outputs,
            })
        })
    }))
}

/// The products of one batch size: down to the inner size and up again, weights of their own.
struct Step {
    tokens: u32,
    down: CudaMemory,
    up: CudaMemory,
    hidden: CudaMemory,
    inner: CudaMemory,
    out: CudaMemory,
}

impl Step {
    fn new(device: &CudaDevice, tokens: u32) -> Result<Self, GpuError> {
        Ok(Self {
            tokens,
            down: values(device, INNER, HIDDEN)?,
            up: values(device, HIDDEN, INNER)?,
            hidden: values(device, tokens, HIDDEN)?,
            inner: values(device, tokens, INNER)?,
            out: values(device, tokens, HIDDEN)?,
        })
    }

    fn run(&self, blas: &CudaBlas) -> Result<(), GpuError> {
        blas.linear(&LinearBf16 {
            m: self.tokens,
            n: INNER,
            k: HIDDEN,
            inputs: &self.hidden,
            weights: &self.down,
            outputs: &self.inner,
        })?;
        blas.linear(&LinearBf16 {
            m: self.tokens,
            n: HIDDEN,
            k: INNER,
            inputs: &self.inner,
            weights: &self.up,
            outputs: &self.out,
        })
    }
}

/// Products of a decode step, one after the other, in a graph as engines run them: launches alone
/// would take longer than the products.
fn small(device: &CudaDevice, stream: &CudaStream) -> Result<Launch<CudaDevice>, GpuError> {
    let blas = device.blas(stream)?;
    let steps = TOKENS.map(|tokens| Step::new(device, tokens));
    let steps: Vec<Step> = steps.into_iter().collect::<Result<_, _>>()?;
    let chain = || steps.iter().try_for_each(|step| step.run(&blas));
    // What cuBLAS loads at the first call could not be captured.
    chain()?;
    let event = device.event()?;
    device.record(&event, stream)?;
    device.synchronize(&event)?;
    let graph = device.capture(stream, || (0..IN_GRAPH).try_for_each(|_| chain()))?;
    Ok(Box::new(move |stream| {
        (0..CHAINS / IN_GRAPH).try_for_each(|_| graph.launch(stream))
    }))
}

/// A matrix in bfloat16 of small values that look random.
fn values(device: &CudaDevice, rows: u32, columns: u32) -> Result<CudaMemory, GpuError> {
    const PART: usize = 1 << 20;
    let bytes = u64::from(rows) * u64::from(columns) * 2;
    let memory = device.alloc(bytes)?;
    let mut state = rows ^ columns.rotate_left(16);
    let mut word = || {
        // A linear congruential generator; its upper bits are good enough for this.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let halves: Vec<u16> = (0..PART / 2).map(|_| bf16(word())).collect();
    let part: &[u8] = bytemuck::cast_slice(&halves);
    let mut done = 0;
    while done < bytes {
        let left = usize::try_from(bytes - done).unwrap_or(PART);
        device.write(&memory, done, &part[..left.min(PART)])?;
        done += PART as u64;
    }
    Ok(memory)
}

/// A value in +-[`SCALE`] from the upper bits of a word.
fn bf16(word: u32) -> u16 {
    let value = (word >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
    let bits = (value * SCALE).to_bits() >> 16;
    u16::try_from(bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_small_and_of_both_signs() {
        let value = |word| f32::from_bits(u32::from(bf16(word)) << 16);
        assert_eq!(value(0), -SCALE);
        assert!(value(u32::MAX) > 0.99 * SCALE && value(u32::MAX) <= SCALE);
        assert_eq!(value(1 << 31), 0.0);
    }
}
