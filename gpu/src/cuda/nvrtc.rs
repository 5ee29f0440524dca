// SPDX-License-Identifier: Apache-2.0
//! The run-time compiler.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcProgram};
use striata_kernels::source::{HEADERS, Source};

use super::driver::{Status, table, unavailable};
use crate::error::GpuError;

table! {
    /// Entry points of the compiler, in every version from 12.0 on.
    struct Nvrtc;
    fn nvrtcVersion(*mut c_int, *mut c_int);
    fn nvrtcGetNumSupportedArchs(*mut c_int);
    fn nvrtcGetSupportedArchs(*mut c_int);
    fn nvrtcCreateProgram(
        *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char,
        *const *const c_char,
    );
    fn nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char);
    fn nvrtcDestroyProgram(*mut nvrtcProgram);
    fn nvrtcGetProgramLogSize(nvrtcProgram, *mut usize);
    fn nvrtcGetProgramLog(nvrtcProgram, *mut c_char);
    fn nvrtcGetCUBINSize(nvrtcProgram, *mut usize);
    fn nvrtcGetCUBIN(nvrtcProgram, *mut c_char);
}

/// Options of every compilation but the architecture.
pub(super) const OPTIONS: [&str; 3] = ["--std=c++17", "-lineinfo", "--ptxas-options=-v"];

/// The compiler, or why it cannot be used.
pub(super) fn nvrtc() -> Result<&'static Nvrtc, GpuError> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    match NVRTC.get_or_init(load) {
        Ok(nvrtc) => Ok(nvrtc),
        Err(reason) => Err(unavailable(reason.clone())),
    }
}

fn load() -> Result<Nvrtc, String> {
    // SAFETY: (2) loading a library runs its initialisers; this is the compiler the user installed.
    if !unsafe { sys::is_culib_present() } {
        return Err(
            "the compiler library libnvrtc.so was not found; install the CUDA toolkit or the \
             package nvidia-cuda-nvrtc and put its folder on LD_LIBRARY_PATH"
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
    let table = unsafe { Nvrtc::resolve(find) };
    table.map_err(|name| format!("libnvrtc has no {name}; version 12.0 or newer is needed"))
}

/// What a compilation gave.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) cubin: Vec<u8>,
    pub(super) log: String,
}

/// A program; dropping it frees it.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
    /// The library reads them until it has compiled.
    _texts: Texts,
}

/// Name and text of a source and of its headers.
struct Texts {
    source: (CString, CString),
    headers: Vec<(CString, CString)>,
    header_names: Vec<*const c_char>,
    header_texts: Vec<*const c_char>,
}

impl Texts {
    fn new(source: &Source) -> Result<Self, String> {
        let headers = HEADERS
            .iter()
            .map(|header| Ok((text(header.name)?, text(header.text)?)));
        let headers: Vec<(CString, CString)> = headers.collect::<Result<_, String>>()?;
        Ok(Self {
            source: (text(source.name)?, text(source.text)?),
            header_names: headers.iter().map(|(name, _)| name.as_ptr()).collect(),
            header_texts: headers.iter().map(|(_, text)| text.as_ptr()).collect(),
            headers,
        })
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: (5) nobody uses the program after this.
        let status = unsafe { (self.nvrtc.nvrtcDestroyProgram)(&raw mut self.raw) };
        if status != 0 {
            tracing::error!(status, "nvrtcDestroyProgram");
        }
    }
}

impl Nvrtc {
    /// Major and minor version.
    pub(super) fn version(&self) -> (i32, i32) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: (3) the places outlive the call.
        let status = unsafe { (self.nvrtcVersion)(&raw mut major, &raw mut minor) };
        if status == 0 { (major, minor) } else { (0, 0) }
    }

    /// Whether it compiles for `architecture`, such as `sm_90a`.
    fn knows(&self, architecture: &str) -> bool {
        let mut count = 0;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (self.nvrtcGetNumSupportedArchs)(&raw mut count) };
        let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
        if status != 0 || list.is_empty() {
            return true;
        }
        // SAFETY: (3) the list has room for as many as were just announced.
        let status = unsafe { (self.nvrtcGetSupportedArchs)(list.as_mut_ptr()) };
        let number = |c: char| !c.is_ascii_digit();
        let wanted = architecture.trim_matches(number).parse::<c_int>();
        status != 0 || wanted.is_ok_and(|wanted| list.contains(&wanted))
    }

    /// Compiles a source for an architecture.
    pub(super) fn compile(
        &self,
        source: &Source,
        architecture: &str,
    ) -> Result<Compiled, GpuError> {
        let failed = |reason: String| GpuError::Kernel {
            source_file: source.name,
            architecture: architecture.to_owned(),
            reason,
        };
        if !self.knows(architecture) {
            let (major, minor) = self.version();
            return Err(failed(format!(
                "libnvrtc {major}.{minor} does not know it; install one that fits the driver"
            )));
        }
        let program = self.program(source).map_err(&failed)?;
        let target = format!("--gpu-architecture={architecture}");
        let options = OPTIONS.into_iter().chain([target.as_str()]);
        let options: Vec<CString> = options
            .map(text)
            .collect::<Result<_, _>>()
            .map_err(&failed)?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: (3) options outlive the call; (5) the program exists.
        let status = unsafe { (self.nvrtcCompileProgram)(program.raw, count, pointers.as_ptr()) };
        let log = program.log();
        if status != 0 {
            return Err(failed(format!(
                "the compiler failed ({status}): {}",
                log.trim()
            )));
        }
        let cubin = program.cubin().map_err(|status| {
            failed(format!(
                "the compiler gave no binary ({status}): {}",
                log.trim()
            ))
        })?;
        Ok(Compiled { cubin, log })
    }

    fn program(&self, source: &Source) -> Result<Program<'_>, String> {
        let texts = Texts::new(source)?;
        let (name, body) = (&texts.source.0, &texts.source.1);
        let count = c_int::try_from(texts.headers.len()).unwrap_or(0);
        let mut raw = core::ptr::null_mut();
        // SAFETY: (3) all texts and lists outlive the program, which holds them.
        let status = unsafe {
            (self.nvrtcCreateProgram)(
                &raw mut raw,
                body.as_ptr(),
                name.as_ptr(),
                count,
                texts.header_texts.as_ptr(),
                texts.header_names.as_ptr(),
            )
        };
        if status != 0 {
            return Err(format!("nvrtcCreateProgram failed ({status})"));
        }
        Ok(Program {
            nvrtc: self,
            raw,
            _texts: texts,
        })
    }
}

impl Program<'_> {
    fn log(&self) -> String {
        let (size, fill) = (
            self.nvrtc.nvrtcGetProgramLogSize,
            self.nvrtc.nvrtcGetProgramLog,
        );
        let bytes = self.bytes(size, fill).unwrap_or_default();
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        text.to_string_lossy().into_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, Status> {
        self.bytes(self.nvrtc.nvrtcGetCUBINSize, self.nvrtc.nvrtcGetCUBIN)
    }

    fn bytes(
        &self,
        size: unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status,
        fill: unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, Status> {
        let mut len = 0;
        // SAFETY: (3) the place outlives the call; (5) the program exists.
        let status = unsafe { size(self.raw, &raw mut len) };
        if status != 0 {
            return Err(status);
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: (3) as many bytes as were just announced; (5) the program exists.
        let status = unsafe { fill(self.raw, bytes.as_mut_ptr().cast()) };
        if status != 0 {
            return Err(status);
        }
        Ok(bytes)
    }
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|error| error.to_string())
}

/// What the compiler said of one source.
#[derive(Clone, Debug)]
pub struct CompileReport {
    /// Bytes of the binary.
    pub bytes: usize,
    /// Registers that its kernels spill, as lines of the log; empty if they spill none.
    pub spills: Vec<String>,
    /// Everything the compiler said.
    pub log: String,
}

/// Compiles a source without a device, for checks of the sources.
///
/// # Errors
/// No compiler; a source that does not compile.
pub fn compile_report(source: &Source, architecture: &str) -> Result<CompileReport, GpuError> {
    let compiled = nvrtc()?.compile(source, architecture)?;
    Ok(CompileReport {
        bytes: compiled.cubin.len(),
        spills: spills(&compiled.log),
        log: compiled.log,
    })
}

/// Lines of a log that tell of spilled registers or of a stack.
fn spills(log: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains("bytes spill"));
    let lines = lines.filter(|line| {
        let counts = line
            .split("bytes")
            .filter_map(|part| part.split_whitespace().last());
        counts
            .filter_map(|count| count.parse::<u64>().ok())
            .any(|count| count > 0)
    });
    lines.map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_are_found_in_the_compilers_words() {
        let clean = "ptxas . 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        let spilled = "ptxas . 0 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads";
        let stack = "ptxas . 16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        assert!(spills(clean).is_empty());
        assert_eq!(
            spills(&format!("{clean}\n{spilled}\n{stack}")),
            [spilled, stack]
        );
    }
}
