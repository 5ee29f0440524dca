// SPDX-License-Identifier: Apache-2.0
//! CUDA devices, loaded at run time: no toolkit to build, no driver to run what does not use it.
//!
//! | file | room |
//! |---|---|
//! | `driver`, `status` | the driver's entry points; its codes |
//! | `shared` | one device: context, counters, the first fault; [`CudaConfig`] |
//! | `scope` | a thread's entry into the context, harmless to captures of other threads |
//! | `device` | [`CudaDevice`]: the `Device` trait |
//! | `stream`, `event`, `clock`, `memory` | what its names say; `keep`: what a stream keeps alive |
//! | `copy`, `calls` | copies; which driver calls serve them |
//! | `pin` | page-locking for host pools; the driver's own page-locked memory |
//! | `nvrtc`, `cache`, `module` | compiling at run time, the cache of binaries, loading |
//! | `decode` | the decode path: `DecodeDevice` |
//! | `launch`, `lists` | one safe function a kernel; row lists, tables, stripes |
//! | `cells`, `upload` | kernels that move cells; the lists that they read |
//! | `values` | rows of values that follow from seeds |
//! | `graph` | captured work |
//! | `cublas`, `baseline` | matrix products and kernels that benchmarks run beside the engine |
//!
//! The context is the device's primary one, shared with whoever else uses it in the process. Every
//! call enters it and leaves the thread's own context as it was.
//!
//! # Obligations
//!
//! Each `unsafe` block names those that it rests on.
//!
//! 1. An entry point is called through the signature that the library documents for the version it
//!    was looked up for.
//! 2. A library is loaded once, by cudarc, and never unloaded.
//! 3. Every pointer argument of a call points to a value that outlives the call, unless 6 says
//!    otherwise; the library writes no more than the documented type or the length given.
//! 4. Texts that a library returns are constants of its own, ended by a zero byte.
//! 5. A handle (context, stream, event, module, function, graph) is used only by its owner, between
//!    the successful call that made it and the one call in `Drop` that ends it; owners hold the
//!    device, whose context outlives them. Handles may be used from any thread, as the driver
//!    documents.
//! 6. Memory that submitted work touches lives until the work has ended: the stream keeps the owners
//!    (`Keep`) until it is found idle or is dropped, which waits for it; a graph keeps its own;
//!    lists (`Uploads`) are used again once an event behind their kernel has completed.
//!    Adopted memory and streams live as long as the caller of the `unsafe` adoption promised.
//! 7. Submitted work stays inside its memory: `check` and the launch wrappers bound every range
//!    before submission, and kernels obey their contracts.
//! 8. Words of host pools and of staging are atomics, and the device is one more thread that touches them; order is
//!    the caller's, as the `Device` trait says. Memory of the device is never a Rust reference.
//! 9. Arguments of a launch are the kernel's parameters in number, order, size and alignment; the
//!    driver copies them before the call returns.

mod baseline;
mod cache;
mod calls;
mod cells;
mod clock;
mod copy;
mod cublas;
mod decode;
mod device;
mod driver;
mod event;
mod graph;
mod keep;
mod launch;
mod lists;
mod memory;
mod module;
mod nvrtc;
mod pin;
mod scope;
mod shared;
mod status;
mod stream;
mod survey;
mod upload;
mod values;

pub use baseline::PageKernel;
pub use cublas::{CudaBlas, LinearBf16};
pub use decode::CudaStaging;
pub use device::CudaDevice;
pub use event::CudaEvent;
pub use graph::CudaGraph;
pub use lists::{RowList, RowMove, TableBuild, TableSource};
pub use memory::CudaMemory;
pub use nvrtc::{CompileReport, compile_report};
pub use pin::HostAllocation;
pub use shared::CudaConfig;
pub use stream::CudaStream;
pub use survey::{Library, Survey, survey};
