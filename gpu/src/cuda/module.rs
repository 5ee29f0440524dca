// SPDX-License-Identifier: Apache-2.0
//! Kernels of a device, compiled or taken from the cache when the first of a source is needed.

use core::fmt;
use std::ffi::CString;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUfunction, CUmodule};
use striata_kernels::source::{Kernel, SOURCES, Source};

use super::cache::{self, Cache, Toolchain};
use super::nvrtc::nvrtc;
use super::shared::Shared;
use crate::error::GpuError;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED_BYTES: u32 = 8;

/// The modules of one device.
pub(super) struct Modules {
    architecture: String,
    modules: [OnceLock<Result<Module, GpuError>>; SOURCES.len()],
}

/// A loaded source.
struct Module {
    raw: CUmodule,
    functions: Vec<(Kernel, CUfunction)>,
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loaded = self.modules.iter().filter(|module| module.get().is_some());
        f.debug_struct("Modules")
            .field("architecture", &self.architecture)
            .field("loaded", &loaded.count())
            .finish_non_exhaustive()
    }
}

impl Modules {
    pub(super) fn new(architecture: String) -> Self {
        Self {
            architecture,
            modules: [const { OnceLock::new() }; SOURCES.len()],
        }
    }

    /// The function of a kernel. Only in the context.
    pub(super) fn function(&self, shared: &Shared, kernel: Kernel) -> Result<CUfunction, GpuError> {
        let index = kernel.source();
        let module = self.modules[index].get_or_init(|| self.load(shared, &SOURCES[index]));
        let module = module.as_ref().map_err(Clone::clone)?;
        let found = module.functions.iter().find(|(held, _)| *held == kernel);
        found.map(|(_, function)| *function).ok_or_else(|| {
            let reason = format!("it has no {}", kernel.entry());
            self.failed(&SOURCES[index], reason)
        })
    }

    /// Gives all modules back, at the end of the device. Only in the context.
    pub(super) fn unload(&self, shared: &Shared) {
        for module in &self.modules {
            if let Some(Ok(module)) = module.get() {
                // SAFETY: (5) nobody uses the functions after this.
                let status = unsafe { (shared.driver.cuModuleUnload)(module.raw) };
                shared.note("cuModuleUnload", status);
            }
        }
    }

    fn failed(&self, source: &Source, reason: String) -> GpuError {
        GpuError::Kernel {
            source_file: source.name,
            architecture: self.architecture.clone(),
            reason,
        }
    }

    fn load(&self, shared: &Shared, source: &Source) -> Result<Module, GpuError> {
        let cubin = self.binary(shared, source)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: (3) the binary outlives the call, which copies it; it is an ELF image whose
        // length stands in it, compiled by us or read whole from the user's own cache.
        let status =
            unsafe { (shared.driver.cuModuleLoadData)(&raw mut raw, cubin.as_ptr().cast()) };
        shared.check("cuModuleLoadData", status)?;
        let mut module = Module {
            raw,
            functions: Vec::new(),
        };
        for kernel in source.kernels {
            match function_of(shared, raw, *kernel) {
                Ok(function) => module.functions.push((*kernel, function)),
                Err(error) => {
                    // SAFETY: (5) nobody uses the module after this.
                    let status = unsafe { (shared.driver.cuModuleUnload)(raw) };
                    shared.note("cuModuleUnload", status);
                    return Err(self.failed(source, error.to_string()));
                }
            }
        }
        Ok(module)
    }

    /// The binary of a source, from the cache or compiled.
    fn binary(&self, shared: &Shared, source: &Source) -> Result<Vec<u8>, GpuError> {
        let nvrtc = nvrtc()?;
        let key = cache::key(
            source,
            Toolchain {
                architecture: &self.architecture,
                nvrtc: nvrtc.version(),
                driver: shared.driver.version().unwrap_or(0),
            },
        );
        let cache = Cache::of_user();
        if let Some(cubin) = cache.as_ref().and_then(|cache| cache.read(&key)) {
            return Ok(cubin);
        }
        let compiled = nvrtc.compile(source, &self.architecture)?;
        cache::dump(source, &key, &compiled);
        if let Some(cache) = cache {
            cache.write(&key, &compiled.cubin);
        }
        Ok(compiled.cubin)
    }
}

fn function_of(shared: &Shared, module: CUmodule, kernel: Kernel) -> Result<CUfunction, GpuError> {
    let name = CString::new(kernel.entry()).unwrap_or_default();
    let mut function = core::ptr::null_mut();
    // SAFETY: (3) name and place outlive the call; (5) the module is loaded.
    let status =
        unsafe { (shared.driver.cuModuleGetFunction)(&raw mut function, module, name.as_ptr()) };
    shared.check("cuModuleGetFunction", status)?;
    let room = kernel.shared_bytes();
    // A kernel for which the device is too small loads all the same; its launch is refused.
    if room > 0 && room <= shared.shared_memory {
        let bytes = i32::try_from(room).unwrap_or(i32::MAX);
        // SAFETY: (5) the function is loaded.
        let status =
            unsafe { (shared.driver.cuFuncSetAttribute)(function, DYNAMIC_SHARED_BYTES, bytes) };
        shared.check("cuFuncSetAttribute", status)?;
    }
    Ok(function)
}
