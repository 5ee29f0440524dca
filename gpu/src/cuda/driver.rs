// SPDX-License-Identifier: Apache-2.0
//! The driver's entry points, resolved once.
//!
//! cudarc supplies the types and loads the library, but its functions panic on a missing symbol and
//! return a closed Rust enum, to which a newer driver could add a value. So the table is ours: a
//! missing symbol is an error, and a status is a number.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph,
    CUgraphExec, CUmodule, CUstream,
};

use crate::error::GpuError;

/// A status of the driver; 0 is success.
pub(super) type Status = c_uint;

/// The oldest driver that has every entry of [`Driver`]: that of CUDA 12.0.
pub(super) const OLDEST_DRIVER: i32 = 12_000;

/// Makes a struct of function pointers that are looked up by their names.
macro_rules! table {
    (
        $(#[$about:meta])* struct $table:ident;
        $(fn $name:ident($($argument:ty),* $(,)?);)*
    ) => {
        $(#[$about])*
        #[allow(non_snake_case, reason = "the names of the library")]
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $crate::cuda::driver::Status,)*
        }

        impl $table {
            /// Looks every entry up; the name of the first that is missing else.
            ///
            /// # Safety
            /// `find` returns, for a name, none or the address of the C function of that name, for
            /// the life of the process.
            #[allow(non_snake_case, reason = "the names of the library")]
            pub(super) unsafe fn resolve(
                find: impl Fn(&'static [u8]) -> Option<*mut core::ffi::c_void>,
            ) -> Result<Self, &'static str> {
                $(
                    let address = find(concat!(stringify!($name), "\0").as_bytes())
                        .ok_or(stringify!($name))?;
                    // SAFETY: (1) the address is that of the C function of this name, whose
                    // signature is the one declared here.
                    let $name = unsafe {
                        core::mem::transmute::<
                            *mut core::ffi::c_void,
                            unsafe extern "C" fn($($argument),*) -> $crate::cuda::driver::Status,
                        >(address)
                    };
                )*
                Ok(Self { $($name,)* })
            }
        }
    };
}
pub(super) use table;

table! {
    /// Entry points that every driver from CUDA 12.0 on has.
    struct Driver;
    fn cuInit(c_uint);
    fn cuDriverGetVersion(*mut c_int);
    fn cuGetErrorName(Status, *mut *const c_char);
    fn cuGetErrorString(Status, *mut *const c_char);
    fn cuGetProcAddress_v2(*const c_char, *mut *mut c_void, c_int, u64, *mut c_uint);
    fn cuDeviceGetCount(*mut c_int);
    fn cuDeviceGet(*mut CUdevice, c_int);
    fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
    fn cuDeviceTotalMem_v2(*mut usize, CUdevice);
    fn cuDeviceGetAttribute(*mut c_int, c_uint, CUdevice);
    fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(CUdevice);
    fn cuCtxGetCurrent(*mut CUcontext);
    fn cuCtxSetCurrent(CUcontext);
    fn cuCtxPushCurrent_v2(CUcontext);
    fn cuCtxPopCurrent_v2(*mut CUcontext);
    fn cuThreadExchangeStreamCaptureMode(*mut c_uint);
    fn cuStreamCreate(*mut CUstream, c_uint);
    fn cuStreamDestroy_v2(CUstream);
    fn cuStreamQuery(CUstream);
    fn cuStreamSynchronize(CUstream);
    fn cuStreamWaitEvent(CUstream, CUevent, c_uint);
    fn cuStreamGetCtx(CUstream, *mut CUcontext);
    fn cuStreamIsCapturing(CUstream, *mut c_uint);
    fn cuStreamBeginCapture_v2(CUstream, c_uint);
    fn cuStreamEndCapture(CUstream, *mut CUgraph);
    fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64);
    fn cuGraphDestroy(CUgraph);
    fn cuGraphLaunch(CUgraphExec, CUstream);
    fn cuGraphExecDestroy(CUgraphExec);
    fn cuEventCreate(*mut CUevent, c_uint);
    fn cuEventDestroy_v2(CUevent);
    fn cuEventRecord(CUevent, CUstream);
    fn cuEventQuery(CUevent);
    fn cuEventSynchronize(CUevent);
    fn cuEventElapsedTime(*mut f32, CUevent, CUevent);
    fn cuMemGetInfo_v2(*mut usize, *mut usize);
    fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
    fn cuMemFree_v2(CUdeviceptr);
    fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    fn cuMemFreeHost(*mut c_void);
    fn cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
    fn cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    fn cuMemHostUnregister(*mut c_void);
    fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    fn cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream);
    fn cuPointerGetAttribute(*mut c_void, c_uint, CUdeviceptr);
    fn cuModuleLoadData(*mut CUmodule, *const c_void);
    fn cuModuleUnload(CUmodule);
    fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    fn cuFuncSetAttribute(CUfunction, c_uint, c_int);
    fn cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
        *mut *mut c_void, *mut *mut c_void,
    );
}

/// The driver, or why it cannot be used.
///
/// # Errors
/// No library, an entry that is missing, a driver that does not start or is too old.
pub(super) fn driver() -> Result<&'static Driver, GpuError> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    match DRIVER.get_or_init(load) {
        Ok(driver) => Ok(driver),
        Err(reason) => Err(unavailable(reason.clone())),
    }
}

/// An error that says that CUDA cannot be used, and why.
pub(super) fn unavailable(reason: String) -> GpuError {
    GpuError::Unavailable {
        device: "cuda",
        reason,
    }
}

fn load() -> Result<Driver, String> {
    // SAFETY: (2) loading a library runs its initialisers; this is the driver the user installed.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "the driver library libcuda.so.1 was not found; install the NVIDIA driver, in a \
                    container start it with GPU support"
                .to_owned(),
        );
    }
    // SAFETY: (2) as above; it was found, so this does not panic.
    let library = unsafe { sys::culib() };
    let find = |name| {
        // SAFETY: (1) only the address is taken; what it points to is the table's business.
        let found = unsafe { library.get::<*mut c_void>(name) };
        found.ok().map(|found| *found)
    };
    // SAFETY: (1), (2) `find` returns the C function of the name, for ever.
    let table = unsafe { Driver::resolve(find) };
    let driver = table.map_err(|name| {
        format!("libcuda.so.1 has no {name}; a driver of CUDA 12.0 (525.60) or newer is needed")
    })?;
    // SAFETY: (1) no argument but a flag word of 0.
    let status = unsafe { (driver.cuInit)(0) };
    if status != 0 {
        let (name, reason) = driver.words(status);
        return Err(format!("cuInit failed with {name} ({status}): {reason}"));
    }
    let version = driver.version().unwrap_or(0);
    if version < OLDEST_DRIVER {
        return Err(format!(
            "the driver supports CUDA {} and 12.0 is needed; install driver 525.60 or newer",
            dotted(version)
        ));
    }
    Ok(driver)
}

/// `12.8` for 12080.
pub(super) fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl Driver {
    /// The newest CUDA version that the driver supports, as 1000 * major + 10 * minor.
    pub(super) fn version(&self) -> Option<i32> {
        let mut version = 0;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (self.cuDriverGetVersion)(&raw mut version) };
        (status == 0).then_some(version)
    }

    /// How many devices there are.
    pub(super) fn device_count(&self) -> i32 {
        let mut count = 0;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (self.cuDeviceGetCount)(&raw mut count) };
        if status == 0 { count } else { 0 }
    }

    /// Name and meaning of a status.
    pub(super) fn words(&self, status: Status) -> (String, String) {
        let text = |ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text: *const c_char = core::ptr::null();
            // SAFETY: (3) the place outlives the call.
            let asked = unsafe { ask(status, &raw mut text) };
            if asked != 0 || text.is_null() {
                return None;
            }
            // SAFETY: (4) the driver returned a constant text of its own.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| "an unknown code".to_owned());
        let words = text(self.cuGetErrorString).unwrap_or_else(|| "no description".to_owned());
        (name, words)
    }

    /// The entry `name` in the form of CUDA `version`, if the driver has it.
    pub(super) fn optional(&self, name: &CStr, version: i32) -> Option<*mut c_void> {
        let mut address = core::ptr::null_mut();
        let mut found = 0;
        // SAFETY: (3) name and places outlive the call.
        let status = unsafe {
            (self.cuGetProcAddress_v2)(name.as_ptr(), &raw mut address, version, 0, &raw mut found)
        };
        (status == 0 && found == 0 && !address.is_null()).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_with_a_dot() {
        assert_eq!(dotted(12_080), "12.8");
        assert_eq!(dotted(13_000), "13.0");
    }
}
