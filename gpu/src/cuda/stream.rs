// SPDX-License-Identifier: Apache-2.0
//! Streams of CUDA devices, ours or an engine's own.

use core::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream};
use striata_core::sync::{AtomicBool, Mutex, Ordering};

use super::keep::{Keep, Kept};
use super::scope::Scope;
use super::shared::Shared;
use super::status::SUCCESS;
use crate::error::GpuError;

/// `CU_EVENT_DISABLE_TIMING`.
pub(super) const UNTIMED: u32 = 2;
/// The largest handles that stand for implicit streams: NULL, legacy, per thread.
const IMPLICIT: usize = 2;

/// An ordered queue of operations; clones share it.
///
/// Dropping the last clone blocks until what was submitted through it has ended.
#[derive(Clone, Debug)]
pub struct CudaStream(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    raw: CUstream,
    name: String,
    /// Behind everything that we submitted to an adopted stream; its owner may use the stream on,
    /// or capture it, when we let go of it.
    mark: Option<CUevent>,
    /// We are capturing it ourselves.
    capturing: AtomicBool,
    keep: Mutex<Keep>,
    /// The owner of an adopted stream, where that is ours too.
    _lender: Option<CudaStream>,
}

// SAFETY: (5) handles may be used from any thread; everything else is Send.
unsafe impl Send for Inner {}
// SAFETY: (5) handles may be used from any thread at once; everything else is Sync.
unsafe impl Sync for Inner {}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("device", &self.shared.ordinal)
            .field("name", &self.name)
            .field("adopted", &self.mark.is_some())
            .finish_non_exhaustive()
    }
}

impl CudaStream {
    pub(super) fn new(shared: &Arc<Shared>, name: &str) -> Result<Self, GpuError> {
        let raw = shared.make_stream()?;
        Ok(Self::with(shared, raw, name, None, None))
    }

    /// This stream as an engine would lend it: adopted, and checked as such.
    pub(crate) fn lend(&self) -> Result<Self, GpuError> {
        let (shared, raw) = (&self.0.shared, self.0.raw);
        // SAFETY: (6) the result holds this stream.
        unsafe { Self::adopt(shared, raw, &self.0.name, Some(self.clone())) }
    }

    /// Takes a stream that somebody else owns.
    ///
    /// # Safety
    /// `raw` is a stream that exists until the last clone of the result was dropped.
    pub(super) unsafe fn adopt(
        shared: &Arc<Shared>,
        raw: CUstream,
        name: &str,
        lender: Option<Self>,
    ) -> Result<Self, GpuError> {
        let refused = |reason: &str| GpuError::Argument {
            call: "adopt_stream",
            reason: reason.to_owned(),
        };
        if raw.addr() <= IMPLICIT {
            return Err(refused(
                "an implicit stream (NULL, legacy or per thread) cannot be adopted: pass a stream \
                 of its own",
            ));
        }
        let _scope = shared.enter()?;
        let mut context = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call; (6) the stream exists.
        let status = unsafe { (shared.driver.cuStreamGetCtx)(raw, &raw mut context) };
        shared.check("cuStreamGetCtx", status)?;
        if context != shared.context {
            return Err(refused("the stream belongs to another context"));
        }
        let mut mark = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (shared.driver.cuEventCreate)(&raw mut mark, UNTIMED) };
        shared.check("cuEventCreate", status)?;
        Ok(Self::with(shared, raw, name, Some(mark), lender))
    }

    fn with(
        shared: &Arc<Shared>,
        raw: CUstream,
        name: &str,
        mark: Option<CUevent>,
        lender: Option<Self>,
    ) -> Self {
        Self(Arc::new(Inner {
            shared: Arc::clone(shared),
            raw,
            name: name.to_owned(),
            mark,
            capturing: AtomicBool::new(false),
            keep: Mutex::new(Keep::default()),
            _lender: lender,
        }))
    }

    pub(super) fn raw(&self) -> CUstream {
        self.0.raw
    }

    pub(super) fn owner(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Begins a call that a graph cannot hold: enters the context and refuses a stream that is
    /// being captured.
    pub(super) fn enter(&self, call: &'static str) -> Result<Scope<'_>, GpuError> {
        let scope = self.0.shared.enter()?;
        if self.0.is_capturing()? {
            return Err(GpuError::Capturing { call });
        }
        Ok(scope)
    }

    /// Begins a kernel launch: our own captures may hold it, since the graph then keeps what the
    /// kernel touches; an engine's captures may not.
    pub(super) fn enter_launch(&self, call: &'static str) -> Result<Scope<'_>, GpuError> {
        if self.0.capturing.load(Ordering::Acquire) {
            return self.0.shared.enter();
        }
        self.enter(call)
    }

    /// Submits work by `call` and keeps the owners of the memory that it touches. Submissions of
    /// several threads follow each other, so that none is taken for ended before it began.
    pub(super) fn submit(
        &self,
        owners: &[Kept],
        call: impl FnOnce() -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let mut keep = self.0.keep.lock();
        for owner in owners {
            keep.add(owner, || self.0.is_idle());
        }
        let submitted = call();
        // A call that failed may have submitted a part.
        let marked = self.mark();
        drop(keep);
        submitted.and(marked)
    }

    fn mark(&self) -> Result<(), GpuError> {
        let Some(mark) = self.0.mark else {
            return Ok(());
        };
        let shared = &self.0.shared;
        // SAFETY: (5) the event is this stream's own; (6) the stream exists.
        let status = unsafe { (shared.driver.cuEventRecord)(mark, self.0.raw) };
        shared.check("cuEventRecord", status)
    }

    /// Begins a capture of our own; returns what was kept so far.
    pub(super) fn begin_capture(&self) -> Result<Keep, GpuError> {
        if self.0.mark.is_some() || self.0.capturing.swap(true, Ordering::AcqRel) {
            return Err(GpuError::Capturing { call: "capture" });
        }
        Ok(core::mem::take(&mut *self.0.keep.lock()))
    }

    /// Ends a capture of our own; returns what the captured work touches.
    pub(super) fn end_capture(&self, before: Keep) -> Keep {
        let kept = core::mem::replace(&mut *self.0.keep.lock(), before);
        self.0.capturing.store(false, Ordering::Release);
        kept
    }

    /// Blocks until everything that was submitted has ended.
    pub(super) fn synchronize(&self) -> Result<(), GpuError> {
        let shared = &self.0.shared;
        let _scope = self.enter("synchronize")?;
        // SAFETY: (5), (6) the stream exists.
        let status = unsafe { (shared.driver.cuStreamSynchronize)(self.0.raw) };
        shared.check("cuStreamSynchronize", status)
    }
}

impl Inner {
    fn is_capturing(&self) -> Result<bool, GpuError> {
        if self.mark.is_none() {
            return Ok(self.capturing.load(Ordering::Acquire));
        }
        let mut state = 0;
        // SAFETY: (3) the place outlives the call; (6) the stream exists.
        let status = unsafe { (self.shared.driver.cuStreamIsCapturing)(self.raw, &raw mut state) };
        self.shared.check("cuStreamIsCapturing", status)?;
        Ok(state != 0)
    }

    /// Whether everything that was submitted has ended. Only in the context.
    fn is_idle(&self) -> bool {
        if self.capturing.load(Ordering::Acquire) {
            return false;
        }
        let driver = self.shared.driver;
        let status = match self.mark {
            // SAFETY: (5) the event is this stream's own.
            Some(mark) => unsafe { (driver.cuEventQuery)(mark) },
            // SAFETY: (5) the stream exists.
            None => unsafe { (driver.cuStreamQuery)(self.raw) },
        };
        status == SUCCESS
    }

    /// Waits for what we submitted and gives the handle back. Only in the context.
    fn close(&self) -> bool {
        let (shared, driver) = (&self.shared, self.shared.driver);
        if let Some(mark) = self.mark {
            // SAFETY: (5) the event is this stream's own.
            let status = unsafe { (driver.cuEventSynchronize)(mark) };
            let ended = shared.note("cuEventSynchronize", status);
            // SAFETY: (5) nobody uses the event after this.
            let status = unsafe { (driver.cuEventDestroy_v2)(mark) };
            shared.note("cuEventDestroy", status);
            return ended;
        }
        // SAFETY: (5) the stream exists.
        let status = unsafe { (driver.cuStreamSynchronize)(self.raw) };
        let ended = shared.note("cuStreamSynchronize", status);
        // SAFETY: (5) nobody uses the stream after this.
        let status = unsafe { (driver.cuStreamDestroy_v2)(self.raw) };
        shared.note("cuStreamDestroy", status);
        ended
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ended = match self.shared.enter_for_drop() {
            Ok(_scope) => self.close(),
            Err(_) => false,
        };
        let keep = core::mem::take(&mut *self.keep.lock());
        // After a fault the device runs nothing any more; else the work may still go on.
        if !ended && !keep.is_empty() && self.shared.check_alive().is_ok() {
            tracing::error!(
                stream = self.name,
                "work was not seen to end; its memory is leaked"
            );
            core::mem::forget(keep);
        }
    }
}
