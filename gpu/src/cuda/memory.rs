// SPDX-License-Identifier: Apache-2.0
//! Memory of a CUDA device, ours or an engine's own.

use core::fmt;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;

use super::shared::Shared;
use super::status::OUT_OF_MEMORY;
use crate::check;
use crate::error::GpuError;

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE` and its value for device memory.
const MEMORY_TYPE: u32 = 2;
const DEVICE_MEMORY: u32 = 2;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: u32 = 9;

/// An allocation on a CUDA device; clones share it, the last one frees it, unless it was adopted.
#[derive(Clone)]
pub struct CudaMemory(Arc<Allocation>);

struct Allocation {
    shared: Arc<Shared>,
    address: CUdeviceptr,
    bytes: u64,
    adopted: bool,
    /// The owner of adopted memory, where that is ours too.
    _lender: Option<CudaMemory>,
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory")
            .field("device", &self.0.shared.ordinal)
            .field("bytes", &self.0.bytes)
            .field("adopted", &self.0.adopted)
            .finish_non_exhaustive()
    }
}

impl CudaMemory {
    pub(super) fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Self, GpuError> {
        check::check_words("alloc: the size", bytes)?;
        let _scope = shared.enter()?;
        let mut address = 0;
        if bytes > 0 {
            let size = usize::try_from(bytes).unwrap_or(usize::MAX);
            // SAFETY: (3) the place outlives the call.
            let status = unsafe { (shared.driver.cuMemAlloc_v2)(&raw mut address, size) };
            if status == OUT_OF_MEMORY {
                return Err(GpuError::OutOfMemory {
                    device: shared.name().to_owned(),
                    bytes,
                    reason: room(shared),
                });
            }
            shared.check("cuMemAlloc", status)?;
        }
        Ok(Self(Arc::new(Allocation {
            shared: Arc::clone(shared),
            address,
            bytes,
            adopted: false,
            _lender: None,
        })))
    }

    /// Takes memory that somebody else owns.
    pub(super) fn adopt(
        shared: &Arc<Shared>,
        address: u64,
        bytes: u64,
        lender: Option<Self>,
    ) -> Result<Self, GpuError> {
        check::check_words("adopt: the address", address)?;
        check::check_words("adopt: the size", bytes)?;
        let _scope = shared.enter()?;
        if bytes > 0 {
            let end = address.checked_add(bytes - 1);
            let end = end.ok_or_else(|| refused(address, bytes, "it wraps around".to_owned()))?;
            for place in [address, end] {
                check_place(shared, address, bytes, place)?;
            }
        }
        Ok(Self(Arc::new(Allocation {
            shared: Arc::clone(shared),
            address,
            bytes,
            adopted: true,
            _lender: lender,
        })))
    }

    /// This memory from byte `offset` on as an engine would lend it: adopted, and checked as such.
    pub(crate) fn lend(&self, offset: u64) -> Result<Self, GpuError> {
        check::access("lend", self.len(), offset, 0)?;
        let (address, bytes) = (self.at(offset), self.len() - offset);
        Self::adopt(&self.0.shared, address, bytes, Some(self.clone()))
    }

    /// The address of byte `offset`, which the caller has checked.
    pub(super) fn at(&self, offset: u64) -> CUdeviceptr {
        self.0.address + offset
    }

    pub(super) fn len(&self) -> u64 {
        self.0.bytes
    }

    pub(super) fn owner(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.adopted || self.address == 0 {
            return;
        }
        if let Ok(_scope) = self.shared.enter_for_drop() {
            // SAFETY: (5) the allocation is this value's; (6) streams kept it for their work.
            let status = unsafe { (self.shared.driver.cuMemFree_v2)(self.address) };
            self.shared.note("cuMemFree", status);
        }
    }
}

/// Bytes that are free, and all.
pub(super) fn free_and_total(shared: &Shared) -> Result<(u64, u64), GpuError> {
    let (mut free, mut total) = (0usize, 0usize);
    // SAFETY: (3) the places outlive the call.
    let status = unsafe { (shared.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
    shared.check("cuMemGetInfo", status)?;
    Ok((free as u64, total as u64))
}

/// How much memory is free, in words.
fn room(shared: &Shared) -> String {
    match free_and_total(shared) {
        Ok((free, total)) => format!("{free} of {total} bytes are free"),
        Err(error) => error.to_string(),
    }
}

fn refused(address: u64, bytes: u64, why: String) -> GpuError {
    GpuError::Argument {
        call: "adopt",
        reason: format!("{bytes} bytes at {address:#x}: {why}"),
    }
}

/// Checks that one byte of adopted memory lies on the device.
fn check_place(shared: &Shared, address: u64, bytes: u64, place: u64) -> Result<(), GpuError> {
    let attribute = |which| -> Result<u32, GpuError> {
        let mut value = 0u32;
        // SAFETY: (3) both attributes are 32-bit words and the place outlives the call.
        let status =
            unsafe { (shared.driver.cuPointerGetAttribute)((&raw mut value).cast(), which, place) };
        shared.check("cuPointerGetAttribute", status)?;
        Ok(value)
    };
    let kind = attribute(MEMORY_TYPE)?;
    if kind != DEVICE_MEMORY {
        let why = format!("byte {place:#x} is not device memory (type {kind})");
        return Err(refused(address, bytes, why));
    }
    let ordinal = attribute(DEVICE_ORDINAL)?;
    if i32::try_from(ordinal) != Ok(shared.ordinal) {
        let ours = shared.ordinal;
        let why = format!("byte {place:#x} lies on device {ordinal}, not {ours}");
        return Err(refused(address, bytes, why));
    }
    Ok(())
}
