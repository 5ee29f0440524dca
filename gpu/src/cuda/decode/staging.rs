// SPDX-License-Identifier: Apache-2.0
//! Host memory that kernels read in place.

use core::ffi::c_void;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use cudarc::driver::sys::CUdeviceptr;

use crate::cuda::shared::Shared;
use crate::error::GpuError;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const FLAGS: u32 = 1 | 2;

/// Page-locked words that host and device share; clones share them, the last one frees them.
#[derive(Clone)]
pub struct CudaStaging(Arc<Allocation>);

struct Allocation {
    shared: Arc<Shared>,
    /// None for no words.
    at: Option<NonNull<AtomicU32>>,
    words: usize,
    address: CUdeviceptr,
}

// SAFETY: (8) the words are atomics; the pointer is this value's own.
unsafe impl Send for Allocation {}
// SAFETY: (8) the words are atomics, and nothing else changes.
unsafe impl Sync for Allocation {}

impl fmt::Debug for CudaStaging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaStaging")
            .field("device", &self.0.shared.ordinal)
            .field("words", &self.0.words)
            .finish_non_exhaustive()
    }
}

impl CudaStaging {
    pub(super) fn new(shared: &Arc<Shared>, words: usize) -> Result<Self, GpuError> {
        let mut made = Allocation {
            shared: Arc::clone(shared),
            at: None,
            words: 0,
            address: 0,
        };
        let bytes = words.checked_mul(size_of::<AtomicU32>());
        let bytes = bytes.ok_or_else(|| GpuError::OutOfMemory {
            device: shared.name().to_owned(),
            bytes: u64::MAX,
            reason: format!("{words} words of staging are more than memory"),
        })?;
        if bytes == 0 {
            return Ok(Self(Arc::new(made)));
        }
        let _scope = shared.enter()?;
        let mut raw: *mut c_void = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (shared.driver.cuMemHostAlloc)(&raw mut raw, bytes, FLAGS) };
        shared.check("cuMemHostAlloc", status)?;
        // From here on `Drop` frees it.
        made.at = NonNull::new(raw.cast());
        // SAFETY: (3) as many bytes were just allocated, and nobody else has the pointer.
        unsafe { core::ptr::write_bytes(raw.cast::<u8>(), 0, bytes) };
        made.words = words;
        // SAFETY: (3) the place outlives the call.
        let status =
            unsafe { (shared.driver.cuMemHostGetDevicePointer_v2)(&raw mut made.address, raw, 0) };
        shared.check("cuMemHostGetDevicePointer", status)?;
        Ok(Self(Arc::new(made)))
    }

    pub(super) fn words(&self) -> &[AtomicU32] {
        let Some(at) = self.0.at else {
            return &[];
        };
        // SAFETY: (8) the words were allocated and zeroed, are aligned to a page, and live as long
        // as this; host and device touch them as atomics only.
        unsafe { core::slice::from_raw_parts(at.as_ptr(), self.0.words) }
    }

    /// Where kernels find the words.
    pub(super) fn address(&self) -> u64 {
        self.0.address
    }

    pub(super) fn owner(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(in crate::cuda) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let Some(at) = self.at else {
            return;
        };
        if let Ok(_scope) = self.shared.enter_for_drop() {
            // SAFETY: (5) the allocation is this value's; (6) streams kept it for their work.
            let status = unsafe { (self.shared.driver.cuMemFreeHost)(at.as_ptr().cast()) };
            self.shared.note("cuMemFreeHost", status);
        }
    }
}
