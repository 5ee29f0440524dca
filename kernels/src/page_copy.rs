// SPDX-License-Identifier: Apache-2.0
//! The contract of the kernels that benchmarks compare the engine with: pages between planes and
//! mapped host memory in one launch, and reads of memory.
//!
//! They only move bytes, so that benchmarks check them by what arrives.

use bytemuck::{Pod, Zeroable};

/// Bytes that the kernels move at a time; every address, stride and chunk is a multiple of it.
pub const UNIT: u64 = 16;

/// Bytes that the reading kernel takes at a time.
pub const READ_UNIT: u64 = 16;

/// Where the chunks of pages stand on both sides, in units of [`UNIT`] bytes.
///
/// Page `p` of layer `l` stands `l * plane + p * chunk` units behind the first plane, and
/// `p * host_page + l * host_layer` units behind the beginning of the host pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PageCopyParams {
    /// From a layer's plane to the next.
    pub plane: u64,
    /// From a host page to the next.
    pub host_page: u64,
    /// From a layer of a host page to the next.
    pub host_layer: u64,
    /// Of one page in one layer.
    pub chunk: u64,
    /// Pages of the list.
    pub pages: u32,
    /// Layers.
    pub layers: u32,
}

const _: () = assert!(size_of::<PageCopyParams>() == 40);
