// SPDX-License-Identifier: Apache-2.0
//! Matrix products by cuBLAS, for benchmarks that need real ones beside copies. Nothing else uses
//! it, and a machine without it only lacks those.

use core::ffi::{c_int, c_void};
use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::driver::sys::CUstream;
use libloading::Library;

use super::device::CudaDevice;
use super::driver::{Status, table, unavailable};
use super::keep::Kept;
use super::memory::CudaMemory;
use super::stream::CudaStream;
use crate::check;
use crate::device::Device;
use crate::error::GpuError;

/// `cublasHandle_t`.
type Handle = *mut c_void;

table! {
    /// Entry points of cuBLAS, in versions 12 and 13.
    struct Cublas;
    fn cublasCreate_v2(*mut Handle);
    fn cublasDestroy_v2(Handle);
    fn cublasSetStream_v2(Handle, CUstream);
    fn cublasSetWorkspace_v2(Handle, *mut c_void, usize);
    fn cublasGemmEx(
        Handle, c_int, c_int, c_int, c_int, c_int, *const c_void, *const c_void, c_int, c_int,
        *const c_void, c_int, c_int, *const c_void, *mut c_void, c_int, c_int, c_int, c_int,
    );
}

/// Names, newest first: a library of an older version works on a newer driver.
const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
/// What it loads itself, found only if it is there already where its folder is not searched.
const COMPANIONS: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];
/// Where toolkits lie: every folder of this one whose name begins with `cuda`.
const TOOLKITS: &str = "/usr/local";

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`.
const AS_IS: c_int = 0;
const TRANSPOSED: c_int = 1;
/// `CUDA_R_16BF`.
const BF16: c_int = 14;
/// `CUBLAS_COMPUTE_32F`.
const IN_F32: c_int = 68;
/// `CUBLAS_GEMM_DEFAULT`.
const DEFAULT: c_int = -1;
/// Bytes of a bfloat16.
const BF16_BYTES: u64 = 2;
/// Workspace, as cuBLAS asks for on Hopper.
const WORKSPACE: u64 = 32 << 20;

fn cublas() -> Result<&'static Cublas, GpuError> {
    static CUBLAS: OnceLock<Result<Cublas, String>> = OnceLock::new();
    match CUBLAS.get_or_init(load) {
        Ok(cublas) => Ok(cublas),
        Err(reason) => Err(unavailable(reason.clone())),
    }
}

fn load() -> Result<Cublas, String> {
    let library = open().ok_or_else(|| {
        "the library libcublas.so was not found; install the CUDA toolkit or the package \
         nvidia-cublas and put its folder on LD_LIBRARY_PATH"
            .to_owned()
    })?;
    // Never unloaded: entry points and the library's own threads may outlive any handle.
    let library: &'static Library = Box::leak(Box::new(library));
    let find = |name: &'static [u8]| {
        // SAFETY: (1) only the address is taken; what it points to is the table's business.
        let found = unsafe { library.get::<*mut c_void>(name) };
        found.ok().map(|found| *found)
    };
    // SAFETY: (1), (2) `find` returns the C function of the name, for ever.
    let table = unsafe { Cublas::resolve(find) };
    table.map_err(|name| format!("libcublas has no {name}; version 12 or newer is needed"))
}

/// The first library that loads: by name, then by the folders of toolkits.
fn open() -> Option<Library> {
    let by_name = NAMES.iter().find_map(|name| try_open(Path::new(name)));
    by_name.or_else(|| folders().iter().find_map(|folder| open_in(folder)))
}

fn open_in(folder: &Path) -> Option<Library> {
    let here = |name: &&str| folder.join(name);
    for companion in COMPANIONS.iter().map(here) {
        if let Some(library) = try_open(&companion) {
            // It stays loaded, as what needs it does.
            core::mem::forget(library);
            break;
        }
    }
    NAMES.iter().map(here).find_map(|path| try_open(&path))
}

fn try_open(path: &Path) -> Option<Library> {
    // SAFETY: (2) loading a library runs its initialisers; this is what the user installed.
    unsafe { Library::new(path) }.ok()
}

/// Folders of libraries of all toolkits, in the order of their names, newest last.
fn folders() -> Vec<PathBuf> {
    let found = std::fs::read_dir(TOOLKITS).into_iter().flatten().flatten();
    let found = found.filter(|entry| entry.file_name().to_string_lossy().starts_with("cuda"));
    let mut folders: Vec<PathBuf> = found.map(|entry| entry.path().join("lib64")).collect();
    folders.sort();
    folders
}

/// A stream's matrix products; kernels of cuBLAS run on that stream only.
pub struct CudaBlas {
    cublas: &'static Cublas,
    raw: Handle,
    stream: CudaStream,
    workspace: CudaMemory,
}

impl fmt::Debug for CudaBlas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaBlas")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

/// `outputs` = `inputs` x `weights`^T in bfloat16, summed in f32, as a linear layer does it.
///
/// Shapes, row after row: inputs \[m\]\[k\], weights \[n\]\[k\], outputs \[m\]\[n\].
#[derive(Clone, Copy, Debug)]
pub struct LinearBf16<'a> {
    /// Rows of the inputs: tokens.
    pub m: u32,
    /// Rows of the weights.
    pub n: u32,
    /// Columns of both.
    pub k: u32,
    /// The inputs, from byte 0 on.
    pub inputs: &'a CudaMemory,
    /// The weights, from byte 0 on.
    pub weights: &'a CudaMemory,
    /// The outputs, from byte 0 on; another memory than the two others.
    pub outputs: &'a CudaMemory,
}

impl CudaDevice {
    /// Matrix products on a stream.
    ///
    /// # Errors
    /// No library; no room; a stream that is being captured; a lost device.
    pub fn blas(&self, stream: &CudaStream) -> Result<CudaBlas, GpuError> {
        let cublas = cublas()?;
        self.shared().check_same("blas", "stream", stream.owner())?;
        let workspace = self.alloc(WORKSPACE)?;
        let _scope = stream.enter("blas")?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call; the context is entered.
        let status = unsafe { (cublas.cublasCreate_v2)(&raw mut raw) };
        ok("cublasCreate", status)?;
        // From here on `Drop` gives the handle back.
        let blas = CudaBlas {
            cublas,
            raw,
            stream: stream.clone(),
            workspace,
        };
        // SAFETY: (5) handle and stream exist, and the handle holds the stream.
        let status = unsafe { (cublas.cublasSetStream_v2)(raw, stream.raw()) };
        ok("cublasSetStream", status)?;
        let place = core::ptr::with_exposed_provenance_mut(address(blas.workspace.at(0)));
        let bytes = address(WORKSPACE);
        // SAFETY: (6) the handle holds the workspace, and each product keeps it for its kernels.
        let status = unsafe { (cublas.cublasSetWorkspace_v2)(raw, place, bytes) };
        ok("cublasSetWorkspace", status)?;
        Ok(blas)
    }
}

impl CudaBlas {
    /// Submits a product behind what the stream holds.
    ///
    /// # Errors
    /// A matrix that leaves its memory or has no element, outputs in the memory of an input; a lost
    /// device.
    pub fn linear(&self, product: &LinearBf16<'_>) -> Result<(), GpuError> {
        let shared = self.stream.owner();
        let [m, n, k] = check_product(product)?;
        let memories = [product.inputs, product.weights, product.outputs];
        for memory in memories {
            shared.check_same("linear", "memory", memory.owner())?;
        }
        let _scope = self.stream.enter_launch("linear")?;
        let [inputs, weights, outputs] = memories
            .map(|memory| core::ptr::with_exposed_provenance_mut::<c_void>(address(memory.at(0))));
        let (one, zero) = (1f32, 0f32);
        let (alpha, beta) = ((&raw const one).cast(), (&raw const zero).cast());
        let kept = [
            Kept::Memory(product.inputs.clone()),
            Kept::Memory(product.weights.clone()),
            Kept::Memory(product.outputs.clone()),
            Kept::Memory(self.workspace.clone()),
        ];
        self.stream.submit(&kept, || {
            // cuBLAS counts columns first, so that it sees every matrix transposed:
            // outputs^T \[n\]\[m\] = weights \[n\]\[k\] x inputs^T \[k\]\[m\].
            // SAFETY: (3) the factors outlive the call, which reads them; (5) the handle exists and
            // this thread alone uses it, since it cannot leave its thread; (6) the stream keeps all
            // memory; (7) the three matrices lie in their memories.
            let status = unsafe {
                (self.cublas.cublasGemmEx)(
                    self.raw, TRANSPOSED, AS_IS, n, m, k, alpha, weights, BF16, k, inputs, BF16, k,
                    beta, outputs, BF16, n, IN_F32, DEFAULT,
                )
            };
            ok("cublasGemmEx", status)
        })?;
        shared.counts.kernel();
        Ok(())
    }
}

impl Drop for CudaBlas {
    fn drop(&mut self) {
        let shared = self.stream.owner();
        if let Ok(_scope) = shared.enter_for_drop() {
            // SAFETY: (5) nobody uses the handle after this.
            let status = unsafe { (self.cublas.cublasDestroy_v2)(self.raw) };
            if let Err(error) = ok("cublasDestroy", status) {
                tracing::error!(%error, "cuda");
            }
        }
    }
}

/// The sizes, once all matrices are found to lie in their memories.
fn check_product(product: &LinearBf16<'_>) -> Result<[c_int; 3], GpuError> {
    let LinearBf16 { m, n, k, .. } = *product;
    for (what, memory, rows, columns) in [
        ("linear: the inputs", product.inputs, m, k),
        ("linear: the weights", product.weights, n, k),
        ("linear: the outputs", product.outputs, m, n),
    ] {
        // Below 2^65: two factors of 32 bits, and 2.
        let bytes = (u64::from(rows) * u64::from(columns)).saturating_mul(BF16_BYTES);
        check::access(what, memory.len(), 0, bytes)?;
    }
    let refused = |reason: String| GpuError::Argument {
        call: "linear",
        reason,
    };
    if product.outputs.is_same(product.inputs) || product.outputs.is_same(product.weights) {
        return Err(refused(
            "the outputs lie in the memory of an input".to_owned(),
        ));
    }
    let size = |value: u32| {
        let size = c_int::try_from(value).ok().filter(|size| *size > 0);
        size.ok_or_else(|| refused(format!("{m} x {n} x {k}: sizes are 1 to 2^31 - 1")))
    };
    Ok([size(m)?, size(n)?, size(k)?])
}

/// An address or a size as the 64-bit machines that CUDA runs on hold it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "CUDA runs on 64-bit machines"
)]
const fn address(value: u64) -> usize {
    value as usize
}

fn ok(call: &'static str, status: Status) -> Result<(), GpuError> {
    let name = match status {
        0 => return Ok(()),
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        _ => "an unknown code",
    };
    Err(GpuError::Driver {
        call,
        code: status,
        name: name.to_owned(),
        reason: "cuBLAS refused or failed".to_owned(),
        advice: "match the version of libcublas with the driver",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the library is, it loads; elsewhere it is named, with what to do.
    #[test]
    fn a_missing_library_is_an_error_that_says_what_to_do() {
        match cublas() {
            Ok(_) => {}
            Err(GpuError::Unavailable { reason, .. }) => {
                assert!(reason.contains("libcublas") && reason.contains("LD_LIBRARY_PATH"));
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn codes_are_named() {
        assert_eq!(ok("cublasCreate", 0), Ok(()));
        let error = ok("cublasGemmEx", 15).unwrap_err().to_string();
        assert!(error.contains("cublasGemmEx") && error.contains("NOT_SUPPORTED"));
    }
}
