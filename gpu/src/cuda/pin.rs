// SPDX-License-Identifier: Apache-2.0
//! Page-locking of host pools for a CUDA device, and the driver's own page-locked memory.

use core::ffi::c_void;
use std::sync::Arc;

use striata_host::{PagePinner, PinError, PinRegion};

use super::shared::Shared;
use crate::error::GpuError;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`: for every context, and for kernels.
const FLAGS: u32 = 1 | 2;

/// Registers host memory with the driver.
#[derive(Debug)]
pub(super) struct CudaPinner(pub(super) Arc<Shared>);

impl PagePinner for CudaPinner {
    fn locks_pages(&self) -> bool {
        true
    }

    fn register(&self, region: PinRegion) -> Result<(), PinError> {
        let shared = &self.0;
        let _scope = shared.enter().map_err(|error| refusal(&error))?;
        let at = pointer(region);
        // SAFETY: (3) the driver checks that the range is mapped; the pool keeps it mapped until
        // `unregister`, as `PinRegion` says.
        let status = unsafe { (shared.driver.cuMemHostRegister_v2)(at, region.bytes, FLAGS) };
        let registered = shared.check("cuMemHostRegister", status);
        registered.map_err(|error| refusal(&error))
    }

    fn unregister(&self, region: PinRegion) -> Result<(), PinError> {
        let shared = &self.0;
        // Also on a lost device: the pages are to be unlocked.
        let scope = shared.enter_for_drop();
        let _scope = scope.map_err(|error| refusal(&error))?;
        // SAFETY: (6) streams kept the pool until their copies ended; the driver refuses what it
        // has not registered.
        let status = unsafe { (shared.driver.cuMemHostUnregister)(pointer(region)) };
        let released = shared.check("cuMemHostUnregister", status);
        released.map_err(|error| refusal(&error))
    }
}

/// Host memory that the driver allocated and page-locked by itself (`cuMemHostAlloc`, which is
/// `cudaHostAlloc`). Nobody reads or writes it here: it is what pinning is measured against.
#[derive(Debug)]
pub struct HostAllocation {
    shared: Arc<Shared>,
    address: *mut c_void,
    bytes: usize,
}

impl HostAllocation {
    pub(super) fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Self, GpuError> {
        let _scope = shared.enter()?;
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut address = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (shared.driver.cuMemHostAlloc)(&raw mut address, size, FLAGS) };
        shared.check("cuMemHostAlloc", status)?;
        Ok(Self {
            shared: Arc::clone(shared),
            address,
            bytes: size,
        })
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for HostAllocation {
    fn drop(&mut self) {
        if let Ok(_scope) = self.shared.enter_for_drop() {
            // SAFETY: (5) the allocation is this value's and is given back once; (6) no work was
            // ever submitted on it.
            let status = unsafe { (self.shared.driver.cuMemFreeHost)(self.address) };
            self.shared.note("cuMemFreeHost", status);
        }
    }
}

fn pointer(region: PinRegion) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(region.address)
}

fn refusal(error: &GpuError) -> PinError {
    let code = match error {
        GpuError::Driver { code, .. } => i32::try_from(*code).unwrap_or(i32::MAX),
        _ => -1,
    };
    PinError {
        code,
        reason: error.to_string(),
    }
}
