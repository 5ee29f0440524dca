// SPDX-License-Identifier: Apache-2.0
//! Copies between host pools and planes.
//!
//! Pieces become plain runs or boxes (rectangles). A box that the calls cannot take, because of its
//! pitch or because its rows lie in several registrations, becomes runs.

use core::cell::RefCell;
use core::ffi::c_void;

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUextent3D_st, CUmemLocation,
    CUmemLocationType, CUmemcpy3DOperand, CUmemcpy3DOperand_st__bindgen_ty_1,
    CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_1, CUmemcpy3DOperandType, CUmemcpyAttributes,
    CUmemcpySrcAccessOrder, CUmemorytype, CUstream,
};

use super::calls::{BoxCall, CopyCalls, RunCall};
use super::device::CudaDevice;
use super::memory::CudaMemory;
use super::shared::Shared;
use crate::device::{CopyBatch, CopyForm, Direction, Piece};
use crate::error::GpuError;

/// The largest pitch that the calls for rectangles take.
pub(super) const MOST_PITCH: u64 = i32::MAX as u64;
/// Most runs of a call; above 512 the driver takes long to begin.
const MOST_RUNS: usize = 512;

/// Descriptors, reused by every copy of a thread.
#[derive(Default)]
struct Scratch {
    to: Vec<CUdeviceptr>,
    from: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    boxes: Vec<CUDA_MEMCPY3D_BATCH_OP>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Submits a batch whose pieces were checked. Only in the context, and inside
/// [`super::stream::CudaStream::submit`].
pub(super) fn submit(
    shared: &Shared,
    stream: CUstream,
    batch: &CopyBatch<'_, CudaDevice>,
) -> Result<(), GpuError> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        for piece in batch.pieces {
            if let Some(plane) = batch.planes.get(piece.plane as usize) {
                scratch.push(batch, plane, piece);
            }
        }
        let calls = match batch.form {
            CopyForm::Runs | CopyForm::Rectangles => shared.calls,
            CopyForm::EachRun | CopyForm::EachRectangle => CopyCalls::SINGLE,
        };
        scratch.submit_boxes(shared, calls.boxes, stream, batch.direction)?;
        scratch.submit_runs(shared, calls.runs, stream, batch.direction)
    })
}

/// The addresses of one piece.
#[derive(Clone, Copy)]
struct Ends {
    to: u64,
    to_pitch: u64,
    from: u64,
    from_pitch: u64,
}

impl Ends {
    fn of(batch: &CopyBatch<'_, CudaDevice>, plane: &CudaMemory, piece: &Piece) -> Self {
        let device = (plane.at(piece.device), piece.device_pitch);
        let host = (batch.host.address() as u64 + piece.host, piece.host_pitch);
        let ((to, to_pitch), (from, from_pitch)) = match batch.direction {
            Direction::HostToDevice => (device, host),
            Direction::DeviceToHost => (host, device),
        };
        Self {
            to,
            to_pitch,
            from,
            from_pitch,
        }
    }
}

impl Scratch {
    fn clear(&mut self) {
        self.to.clear();
        self.from.clear();
        self.sizes.clear();
        self.boxes.clear();
    }

    fn push(&mut self, batch: &CopyBatch<'_, CudaDevice>, plane: &CudaMemory, piece: &Piece) {
        if piece.height == 0 || piece.width == 0 {
            return;
        }
        let ends = Ends::of(batch, plane, piece);
        if !batch.form.is_of_runs() && piece.height > 1 && fits_a_box(batch, piece) {
            self.boxes.push(box_of(ends, piece));
            return;
        }
        for row in 0..u64::from(piece.height) {
            self.to.push(ends.to + row * ends.to_pitch);
            self.from.push(ends.from + row * ends.from_pitch);
            self.sizes.push(size(piece.width));
        }
    }

    fn submit_runs(
        &mut self,
        shared: &Shared,
        call: RunCall,
        stream: CUstream,
        direction: Direction,
    ) -> Result<(), GpuError> {
        let lists = self.to.chunks_mut(MOST_RUNS);
        let lists = lists.zip(self.from.chunks_mut(MOST_RUNS));
        for ((to, from), sizes) in lists.zip(self.sizes.chunks_mut(MOST_RUNS)) {
            let runs = Runs { to, from, sizes };
            match call {
                RunCall::Each => runs.submit_each(shared, stream, direction)?,
                _ => runs.submit_batch(shared, call, stream)?,
            }
        }
        Ok(())
    }

    fn submit_boxes(
        &mut self,
        shared: &Shared,
        call: BoxCall,
        stream: CUstream,
        direction: Direction,
    ) -> Result<(), GpuError> {
        let count = self.boxes.len();
        if count == 0 {
            return Ok(());
        }
        let list = self.boxes.as_mut_ptr();
        let status = match call {
            // SAFETY: (3) the list outlives the call; (6), (7), (8) hold for every box.
            BoxCall::Batch13(call) => unsafe { call(count, list, 0, stream) },
            BoxCall::Batch12(call) => {
                let mut failed = usize::MAX;
                // SAFETY: (3) list and place outlive the call; (6), (7), (8) hold for every box.
                unsafe { call(count, list, &raw mut failed, 0, stream) }
            }
            BoxCall::Each => return self.submit_each_box(shared, stream, direction),
        };
        shared.check("cuMemcpy3DBatchAsync", status)
    }

    fn submit_each_box(
        &self,
        shared: &Shared,
        stream: CUstream,
        direction: Direction,
    ) -> Result<(), GpuError> {
        self.boxes.iter().try_for_each(|op| {
            let plan = plane_copy(op, direction);
            // SAFETY: (3) the description outlives the call; (6), (7), (8) hold for every box.
            let status = unsafe { (shared.driver.cuMemcpy2DAsync_v2)(&raw const plan, stream) };
            shared.check("cuMemcpy2DAsync", status)
        })
    }
}

/// Runs of one call; the lists are equally long and not empty.
struct Runs<'a> {
    to: &'a mut [CUdeviceptr],
    from: &'a mut [CUdeviceptr],
    sizes: &'a mut [usize],
}

impl Runs<'_> {
    fn submit_batch(
        self,
        shared: &Shared,
        call: RunCall,
        stream: CUstream,
    ) -> Result<(), GpuError> {
        let (to, from) = (self.to.as_mut_ptr(), self.from.as_mut_ptr());
        let (sizes, count) = (self.sizes.as_mut_ptr(), self.sizes.len());
        // One set of attributes, from the first run on.
        let mut attributes = CUmemcpyAttributes {
            srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: NO_HINT,
            dstLocHint: NO_HINT,
            flags: 0,
        };
        let mut first = 0usize;
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        let status = match call {
            RunCall::Batch13(call) => {
                // SAFETY: (3) the lists outlive the call; (6), (7), (8) hold for every run.
                unsafe { call(to, from, sizes, count, attributes, first, 1, stream) }
            }
            RunCall::Batch12(call) => {
                let mut failed = usize::MAX;
                let failed = &raw mut failed;
                // SAFETY: (3) the lists outlive the call; (6), (7), (8) hold for every run.
                unsafe { call(to, from, sizes, count, attributes, first, 1, failed, stream) }
            }
            RunCall::Each => return Ok(()),
        };
        shared.check("cuMemcpyBatchAsync", status)
    }

    fn submit_each(
        self,
        shared: &Shared,
        stream: CUstream,
        direction: Direction,
    ) -> Result<(), GpuError> {
        let driver = shared.driver;
        let runs = self.to.iter().zip(self.from.iter()).zip(self.sizes.iter());
        for ((&to, &from), &bytes) in runs {
            match direction {
                Direction::HostToDevice => {
                    let from = host_pointer(from).cast_const();
                    // SAFETY: (6), (7), (8) hold for every run.
                    let status = unsafe { (driver.cuMemcpyHtoDAsync_v2)(to, from, bytes, stream) };
                    shared.check("cuMemcpyHtoDAsync", status)?;
                }
                Direction::DeviceToHost => {
                    let to = host_pointer(to);
                    // SAFETY: (6), (7), (8) hold for every run.
                    let status = unsafe { (driver.cuMemcpyDtoHAsync_v2)(to, from, bytes, stream) };
                    shared.check("cuMemcpyDtoHAsync", status)?;
                }
            }
        }
        Ok(())
    }
}

const NO_HINT: CUmemLocation = CUmemLocation {
    type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
    id: 0,
};

/// Whether the calls for rectangles take a piece: its pitches are small enough, and all its rows
/// lie in one registration.
fn fits_a_box(batch: &CopyBatch<'_, CudaDevice>, piece: &Piece) -> bool {
    let extent = (u64::from(piece.height) - 1) * piece.host_pitch + piece.width;
    piece.device_pitch <= MOST_PITCH
        && piece.host_pitch <= MOST_PITCH
        && batch.host.check_copy(piece.host, extent).is_ok()
}

fn box_of(ends: Ends, piece: &Piece) -> CUDA_MEMCPY3D_BATCH_OP {
    let height = piece.height as usize;
    let operand = |ptr, pitch| CUmemcpy3DOperand {
        type_: CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER,
        op: CUmemcpy3DOperand_st__bindgen_ty_1 {
            ptr: CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_1 {
                ptr,
                rowLength: size(pitch),
                layerHeight: height,
                locHint: NO_HINT,
            },
        },
    };
    CUDA_MEMCPY3D_BATCH_OP {
        src: operand(ends.from, ends.from_pitch),
        dst: operand(ends.to, ends.to_pitch),
        extent: CUextent3D_st {
            width: size(piece.width),
            height,
            depth: 1,
        },
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        flags: 0,
    }
}

/// The 2-D copy of a box.
fn plane_copy(op: &CUDA_MEMCPY3D_BATCH_OP, direction: Direction) -> CUDA_MEMCPY2D {
    // SAFETY: (7) `box_of` made both operands pointers.
    let from = unsafe { op.src.op.ptr };
    // SAFETY: (7) `box_of` made both operands pointers.
    let to = unsafe { op.dst.op.ptr };
    let (device, host) = (
        CUmemorytype::CU_MEMORYTYPE_DEVICE,
        CUmemorytype::CU_MEMORYTYPE_HOST,
    );
    let (from_type, to_type) = match direction {
        Direction::HostToDevice => (host, device),
        Direction::DeviceToHost => (device, host),
    };
    // Of the two addresses of a side only the one of its type is looked at.
    CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: from_type,
        srcHost: host_pointer(from.ptr).cast_const(),
        srcDevice: from.ptr,
        srcArray: core::ptr::null_mut(),
        srcPitch: from.rowLength,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: to_type,
        dstHost: host_pointer(to.ptr),
        dstDevice: to.ptr,
        dstArray: core::ptr::null_mut(),
        dstPitch: to.rowLength,
        WidthInBytes: op.extent.width,
        Height: op.extent.height,
    }
}

fn host_pointer(address: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(size(address))
}

/// A size of memory that exists, which `usize` holds on the 64-bit machines that CUDA runs on.
#[expect(
    clippy::cast_possible_truncation,
    reason = "CUDA runs on 64-bit machines"
)]
const fn size(bytes: u64) -> usize {
    const { assert!(usize::BITS >= u64::BITS, "CUDA needs a 64-bit machine") }
    bytes as usize
}
