// SPDX-License-Identifier: Apache-2.0
//! What the handles of one CUDA device share.

use core::fmt;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUcontext, CUdevice, CUevent, CUstream};
use striata_core::sync::Mutex;
use striata_kernels::decode::MmaSize;

use super::calls::CopyCalls;
use super::clock::Clock;
use super::driver::{Driver, Status, driver, unavailable};
use super::module::Modules;
use super::status::{SUCCESS, is_fatal, refusal};
use super::upload::Uploads;
use crate::counts::Counts;
use crate::error::GpuError;

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the NULL stream.
pub(super) const NON_BLOCKING: u32 = 1;
const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
const COMPUTE_CAPABILITY_MINOR: u32 = 76;
const MULTIPROCESSOR_COUNT: u32 = 16;
const CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: u32 = 91;
/// Events that are kept to be used again.
const SPARE_EVENTS: usize = 4096;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`.
const SHARED_MEMORY: u32 = 97;

/// Which device, and how it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaConfig {
    /// Index among the visible devices.
    pub index: u32,
    /// Uses no optional entry point newer than this CUDA version (12080 for 12.8): for tests of
    /// older drivers' paths.
    pub newest_version: Option<i32>,
}

/// One device.
pub(super) struct Shared {
    pub(super) driver: &'static Driver,
    pub(super) ordinal: i32,
    device: CUdevice,
    pub(super) context: CUcontext,
    name: String,
    architecture: String,
    pub(super) multiprocessors: u32,
    /// Most bytes of shared memory that a block may ask for.
    pub(super) shared_memory: u32,
    /// The largest tensor-core kernels that run here.
    pub(super) mma_size: Option<MmaSize>,
    pub(super) total_bytes: u64,
    /// Kernels reach registered host memory at its host address.
    pub(super) maps_host: bool,
    pub(super) calls: CopyCalls,
    pub(super) uploads: Uploads,
    /// Timed events that nobody uses: to make one takes longer than to record it.
    spare_events: Mutex<Vec<CUevent>>,
    pub(super) counts: Counts,
    pub(super) modules: Modules,
    /// For reads and writes by the host, and anchors of the clock.
    pub(super) io: CUstream,
    pub(super) clock: Clock,
    lost: OnceLock<String>,
}

// SAFETY: (5) handles may be used from any thread; everything else is Send.
unsafe impl Send for Shared {}
// SAFETY: (5) handles may be used from any thread at once; everything else is Sync.
unsafe impl Sync for Shared {}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("ordinal", &self.ordinal)
            .field("name", &self.name)
            .field("architecture", &self.architecture)
            .finish_non_exhaustive()
    }
}

/// Facts of a device that need no context.
struct Facts {
    device: CUdevice,
    name: String,
    architecture: String,
    multiprocessors: u32,
    shared_memory: u32,
    mma_size: Option<MmaSize>,
    total_bytes: u64,
    maps_host: bool,
}

impl Shared {
    pub(super) fn new(config: CudaConfig) -> Result<Arc<Self>, GpuError> {
        let driver = driver()?;
        let count = driver.device_count();
        let ordinal = i32::try_from(config.index).unwrap_or(i32::MAX);
        if ordinal >= count {
            return Err(unavailable(format!(
                "device {ordinal} was asked for and {count} are visible; check nvidia-smi and \
                 CUDA_VISIBLE_DEVICES"
            )));
        }
        let Facts {
            device,
            name,
            architecture,
            multiprocessors,
            shared_memory,
            mma_size,
            total_bytes,
            maps_host,
        } = facts(driver, ordinal)?;
        let mut context = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        ok(driver, "cuDevicePrimaryCtxRetain", status)?;
        let calls = CopyCalls::resolve(driver, config.newest_version);
        let mut shared = Self {
            driver,
            ordinal,
            device,
            context,
            modules: Modules::new(architecture.clone()),
            name,
            architecture,
            multiprocessors,
            shared_memory,
            mma_size,
            total_bytes,
            maps_host,
            calls,
            uploads: Uploads::default(),
            spare_events: Mutex::new(Vec::new()),
            counts: Counts::default(),
            io: core::ptr::null_mut(),
            clock: Clock::default(),
            lost: OnceLock::new(),
        };
        // From here on `Drop` releases what was made.
        shared.io = shared.make_stream()?;
        let shared = Arc::new(shared);
        shared.clock.start(&shared)?;
        tracing::debug!(device = ?shared, calls = ?shared.calls, "cuda device");
        Ok(shared)
    }

    /// A stream of this device that is not ordered with the NULL stream.
    pub(super) fn make_stream(&self) -> Result<CUstream, GpuError> {
        let _scope = self.enter()?;
        let mut stream = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (self.driver.cuStreamCreate)(&raw mut stream, NON_BLOCKING) };
        self.check("cuStreamCreate", status)?;
        Ok(stream)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Turns a status into a result; a fault ends the device.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), GpuError> {
        if status == SUCCESS {
            return Ok(());
        }
        let refusal = refusal(self.driver, call, status);
        if is_fatal(status) {
            self.lose(refusal.to_string());
            return self.check_alive();
        }
        Err(refusal)
    }

    /// As [`Self::check`] where nothing can be done about a failure but to say so.
    pub(super) fn note(&self, call: &'static str, status: Status) -> bool {
        // A lost device has said so already, and everything fails on it.
        let known = self.lost.get().is_some();
        match self.check(call, status) {
            Ok(()) => true,
            Err(_) if known => false,
            Err(error) => {
                tracing::error!(%error, "cuda");
                false
            }
        }
    }

    fn lose(&self, cause: String) {
        if self.lost.set(cause).is_ok() {
            tracing::error!(device = self.name, cause = self.lost.get(), "device lost");
        }
    }

    pub(super) fn check_alive(&self) -> Result<(), GpuError> {
        match self.lost.get() {
            None => Ok(()),
            Some(cause) => Err(GpuError::Lost {
                cause: cause.clone(),
            }),
        }
    }

    /// Refuses what belongs to another device.
    pub(super) fn check_same(
        &self,
        call: &'static str,
        what: &'static str,
        other: &Self,
    ) -> Result<(), GpuError> {
        if self.ordinal == other.ordinal {
            return Ok(());
        }
        Err(GpuError::OtherDevice {
            call,
            what,
            ours: self.ordinal,
            theirs: other.ordinal,
        })
    }

    /// An event that was used before, if there is one.
    pub(super) fn spare_event(&self) -> Option<CUevent> {
        self.spare_events.lock().pop()
    }

    /// Keeps an event that nobody uses any more; gives it back if there are enough.
    pub(super) fn keep_event(&self, event: CUevent) -> Option<CUevent> {
        let mut spare = self.spare_events.lock();
        if spare.len() >= SPARE_EVENTS {
            return Some(event);
        }
        spare.push(event);
        None
    }

    /// Waits until the private stream is idle.
    pub(super) fn finish_io(&self) -> Result<(), GpuError> {
        // SAFETY: (5) the stream lives as long as this.
        let status = unsafe { (self.driver.cuStreamSynchronize)(self.io) };
        self.check("cuStreamSynchronize", status)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Ok(_scope) = self.enter_for_drop() {
            self.clock.stop(self);
            self.uploads.free(self);
            for event in self.spare_events.lock().drain(..) {
                // SAFETY: (5) nobody else holds a spare event.
                let status = unsafe { (self.driver.cuEventDestroy_v2)(event) };
                self.note("cuEventDestroy", status);
            }
            self.modules.unload(self);
            if !self.io.is_null() {
                // SAFETY: (5) nobody else holds the stream any more.
                let status = unsafe { (self.driver.cuStreamDestroy_v2)(self.io) };
                self.note("cuStreamDestroy", status);
            }
        }
        // SAFETY: (5) it was retained once, and every handle in it is gone.
        let status = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
        self.note("cuDevicePrimaryCtxRelease", status);
    }
}

/// Turns a status into a result where there is no device yet.
fn ok(driver: &Driver, call: &'static str, status: Status) -> Result<(), GpuError> {
    if status == SUCCESS {
        return Ok(());
    }
    Err(refusal(driver, call, status))
}

fn facts(driver: &'static Driver, ordinal: i32) -> Result<Facts, GpuError> {
    let mut device: CUdevice = 0;
    // SAFETY: (3) the place outlives the call.
    let status = unsafe { (driver.cuDeviceGet)(&raw mut device, ordinal) };
    ok(driver, "cuDeviceGet", status)?;
    let mut text = [0u8; 128];
    // SAFETY: (3) 127 bytes at most are written.
    let status = unsafe { (driver.cuDeviceGetName)(text.as_mut_ptr().cast(), 127, device) };
    ok(driver, "cuDeviceGetName", status)?;
    let mut bytes = 0usize;
    // SAFETY: (3) the place outlives the call.
    let status = unsafe { (driver.cuDeviceTotalMem_v2)(&raw mut bytes, device) };
    ok(driver, "cuDeviceTotalMem", status)?;
    let attribute = |which| -> Result<u32, GpuError> {
        let mut value = 0;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, which, device) };
        ok(driver, "cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let major = attribute(COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(COMPUTE_CAPABILITY_MINOR)?;
    let shared_memory = attribute(SHARED_MEMORY)?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok(Facts {
        device,
        name: String::from_utf8_lossy(&text[..end]).into_owned(),
        architecture: architecture(major, minor),
        multiprocessors: attribute(MULTIPROCESSOR_COUNT)?.max(1),
        shared_memory,
        mma_size: mma_size(major, shared_memory),
        total_bytes: bytes as u64,
        maps_host: attribute(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? != 0,
    })
}

/// What kernels are compiled for: with the features of exactly this architecture where it has some.
fn architecture(major: u32, minor: u32) -> String {
    let exact = if matches!((major, minor), (9 | 10, 0)) {
        "a"
    } else {
        ""
    };
    format!("sm_{major}{minor}{exact}")
}

/// The largest tensor-core kernels of a device: bf16 products and copies that run by themselves
/// came with compute capability 8.0, and the rest is a question of room.
fn mma_size(major: u32, shared_memory: u32) -> Option<MmaSize> {
    if major < 8 {
        return None;
    }
    MmaSize::largest_in(shared_memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Seen to fail if the compute capability is not looked at.
    #[test]
    fn tensor_core_kernels_ask_for_a_generation_and_for_room() {
        assert_eq!(mma_size(7, 96 << 10), None);
        assert_eq!(mma_size(8, 163 << 10), Some(MmaSize::Medium));
        assert_eq!(mma_size(12, 99 << 10), Some(MmaSize::Small));
        assert_eq!(mma_size(9, 227 << 10), Some(MmaSize::Large));
    }

    #[test]
    fn architectures_are_named_as_the_compiler_names_them() {
        assert_eq!(architecture(8, 0), "sm_80");
        assert_eq!(architecture(8, 9), "sm_89");
        assert_eq!(architecture(9, 0), "sm_90a");
        assert_eq!(architecture(10, 0), "sm_100a");
        assert_eq!(architecture(12, 0), "sm_120");
    }
}
