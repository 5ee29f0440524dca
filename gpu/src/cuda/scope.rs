// SPDX-License-Identifier: Apache-2.0
//! A thread's entry into a device's context.
//!
//! While an engine captures a graph in global mode, any thread in the default capture mode that
//! allocates, polls an event or registers memory fails and ruins the capture. So every call runs in
//! the relaxed mode and puts back what the thread had.

use std::marker::PhantomData;

use super::driver::Status;
use super::shared::Shared;
use super::status::SUCCESS;
use crate::error::GpuError;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: u32 = 2;

/// The calling thread is in the context, until this is dropped.
pub(super) struct Scope<'a> {
    shared: &'a Shared,
    /// The context was pushed and must be popped.
    pushed: bool,
    /// The capture mode to put back.
    mode: u32,
    /// What it changes is the thread's own.
    _this_thread: PhantomData<*const ()>,
}

impl Shared {
    /// Enters the context of a device that works.
    pub(super) fn enter(&self) -> Result<Scope<'_>, GpuError> {
        self.check_alive()?;
        self.enter_for_drop()
    }

    /// Enters the context, even of a lost device: there handles are still to be given back.
    pub(super) fn enter_for_drop(&self) -> Result<Scope<'_>, GpuError> {
        let mut current = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (self.driver.cuCtxGetCurrent)(&raw mut current) };
        self.check("cuCtxGetCurrent", status)?;
        let pushed = current != self.context;
        if pushed {
            // SAFETY: (5) the context is retained.
            let status = unsafe { (self.driver.cuCtxPushCurrent_v2)(self.context) };
            self.check("cuCtxPushCurrent", status)?;
        }
        let mut scope = Scope {
            shared: self,
            pushed,
            mode: RELAXED,
            _this_thread: PhantomData,
        };
        let status = scope.exchange();
        self.check("cuThreadExchangeStreamCaptureMode", status)?;
        Ok(scope)
    }

    /// Enters the context for the rest of the thread's life.
    pub(super) fn enter_for_ever(&self) -> Result<(), GpuError> {
        self.check_alive()?;
        // SAFETY: (5) the context is retained as long as this lives; our threads hold it.
        let status = unsafe { (self.driver.cuCtxSetCurrent)(self.context) };
        self.check("cuCtxSetCurrent", status)?;
        let mut mode = RELAXED;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (self.driver.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", status)
    }
}

impl Scope<'_> {
    /// Swaps the thread's capture mode with the one kept here.
    fn exchange(&mut self) -> Status {
        let driver = self.shared.driver;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (driver.cuThreadExchangeStreamCaptureMode)(&raw mut self.mode) };
        if status != SUCCESS {
            self.mode = RELAXED;
        }
        status
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if self.mode != RELAXED {
            let status = self.exchange();
            self.shared
                .note("cuThreadExchangeStreamCaptureMode", status);
        }
        if self.pushed {
            let mut popped = core::ptr::null_mut();
            // SAFETY: (3) the place outlives the call.
            let status = unsafe { (self.shared.driver.cuCtxPopCurrent_v2)(&raw mut popped) };
            self.shared.note("cuCtxPopCurrent", status);
        }
    }
}
