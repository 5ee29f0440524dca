// SPDX-License-Identifier: Apache-2.0
//! Which driver calls serve copies: the batch calls in the form of CUDA 13.0, else of 12.8, else a
//! call a piece.

use core::ffi::{c_uint, c_ulonglong, c_void};
use core::mem::transmute;

use cudarc::driver::sys::{CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUmemcpyAttributes, CUstream};

use super::driver::{Driver, Status};

/// `cuMemcpyBatchAsync` of CUDA 12.8, which reports the entry that failed.
type Runs12 = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    *mut usize,
    CUstream,
) -> Status;
/// The same of CUDA 13.0.
type Runs13 = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    CUstream,
) -> Status;
/// `cuMemcpy3DBatchAsync` of CUDA 12.8.
type Boxes12 = unsafe extern "C" fn(
    usize,
    *mut CUDA_MEMCPY3D_BATCH_OP,
    *mut usize,
    c_ulonglong,
    CUstream,
) -> Status;
/// The same of CUDA 13.0.
type Boxes13 =
    unsafe extern "C" fn(usize, *mut CUDA_MEMCPY3D_BATCH_OP, c_ulonglong, CUstream) -> Status;

/// How plain runs are copied.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunCall {
    Batch13(Runs13),
    Batch12(Runs12),
    Each,
}

/// How rectangles are copied.
#[derive(Clone, Copy, Debug)]
pub(super) enum BoxCall {
    Batch13(Boxes13),
    Batch12(Boxes12),
    Each,
}

/// The calls of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyCalls {
    pub(super) runs: RunCall,
    pub(super) boxes: BoxCall,
}

const V13: c_uint = 13_000;
const V12: c_uint = 12_080;

impl CopyCalls {
    /// A call a piece.
    pub(super) const SINGLE: Self = Self {
        runs: RunCall::Each,
        boxes: BoxCall::Each,
    };

    /// The newest forms that the driver has and that are not newer than `newest`.
    pub(super) fn resolve(driver: &Driver, newest: Option<i32>) -> Self {
        let supported = driver.version().unwrap_or(0);
        let limit = newest.unwrap_or(supported).min(supported);
        let find = |name, version: c_uint| -> Option<*mut c_void> {
            let version = i32::try_from(version).ok()?;
            (version <= limit).then(|| driver.optional(name, version))?
        };
        let runs = c"cuMemcpyBatchAsync";
        let boxes = c"cuMemcpy3DBatchAsync";
        Self {
            runs: if let Some(address) = find(runs, V13) {
                // SAFETY: (1) the entry of this version has this signature.
                RunCall::Batch13(unsafe { transmute::<*mut c_void, Runs13>(address) })
            } else if let Some(address) = find(runs, V12) {
                // SAFETY: (1) the entry of this version has this signature.
                RunCall::Batch12(unsafe { transmute::<*mut c_void, Runs12>(address) })
            } else {
                RunCall::Each
            },
            boxes: if let Some(address) = find(boxes, V13) {
                // SAFETY: (1) the entry of this version has this signature.
                BoxCall::Batch13(unsafe { transmute::<*mut c_void, Boxes13>(address) })
            } else if let Some(address) = find(boxes, V12) {
                // SAFETY: (1) the entry of this version has this signature.
                BoxCall::Batch12(unsafe { transmute::<*mut c_void, Boxes12>(address) })
            } else {
                BoxCall::Each
            },
        }
    }

    /// Whether both forms are served by batch calls.
    pub(super) const fn in_batches(&self) -> bool {
        !matches!(self.runs, RunCall::Each) && !matches!(self.boxes, BoxCall::Each)
    }

    /// What serves plain runs, in words.
    pub(super) const fn runs_by(&self) -> &'static str {
        match self.runs {
            RunCall::Batch13(_) => "cuMemcpyBatchAsync (13.0)",
            RunCall::Batch12(_) => "cuMemcpyBatchAsync (12.8)",
            RunCall::Each => "a copy a run",
        }
    }

    /// What serves rectangles, in words.
    pub(super) const fn boxes_by(&self) -> &'static str {
        match self.boxes {
            BoxCall::Batch13(_) => "cuMemcpy3DBatchAsync (13.0)",
            BoxCall::Batch12(_) => "cuMemcpy3DBatchAsync (12.8)",
            BoxCall::Each => "a 2-D copy a rectangle",
        }
    }
}
