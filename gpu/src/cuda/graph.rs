// SPDX-License-Identifier: Apache-2.0
//! Captured work: kernels of a stream that are launched again as one.

use core::fmt;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use super::device::CudaDevice;
use super::keep::{Keep, Kept};
use super::shared::Shared;
use super::status::SUCCESS;
use super::stream::CudaStream;
use crate::error::GpuError;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, the default of frameworks: no thread may do what is unsafe
/// beside a capture, unless it says that it knows.
const GLOBAL: u32 = 0;

/// Kernels that were captured; clones share them. They keep the memory that they touch.
#[derive(Clone)]
pub struct CudaGraph(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    raw: CUgraphExec,
    _keep: Keep,
}

// SAFETY: (5) handles may be used from any thread; everything else is Send.
unsafe impl Send for Inner {}
// SAFETY: (5) a graph is launched through streams, which order launches; the rest is Sync.
unsafe impl Sync for Inner {}

impl fmt::Debug for CudaGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaGraph")
            .field("device", &self.0.shared.ordinal)
            .finish_non_exhaustive()
    }
}

impl CudaDevice {
    /// Captures the kernels that `body` launches on `stream`, in global mode. Calls that a graph
    /// cannot hold are refused meanwhile.
    ///
    /// # Errors
    /// What `body` returns; a capture that was ruined by what another thread did; a lost device.
    pub fn capture(
        &self,
        stream: &CudaStream,
        body: impl FnOnce() -> Result<(), GpuError>,
    ) -> Result<CudaGraph, GpuError> {
        let shared = stream.owner();
        let before = stream.begin_capture()?;
        let mut open = Open {
            stream,
            before: Some(before),
            begun: false,
        };
        let result = open.begin().and_then(|()| body());
        let (graph, keep) = open.end();
        let graph = graph?;
        let made = result.and_then(|()| instantiate(shared, graph));
        // SAFETY: (5) nobody uses the graph after this; what was made of it stands on its own.
        let status = unsafe { (shared.driver.cuGraphDestroy)(graph) };
        shared.note("cuGraphDestroy", status);
        Ok(CudaGraph(Arc::new(Inner {
            shared: Arc::clone(shared),
            raw: made?,
            _keep: keep,
        })))
    }

    /// Allocates and frees as a library does that knows nothing of captures, in the thread's own
    /// capture mode: what a capture in global mode must not survive. For the self-test.
    pub(crate) fn allocate_carelessly(&self) -> Result<(), GpuError> {
        let shared = self.shared();
        let driver = shared.driver;
        // SAFETY: (5) the context is retained.
        let status = unsafe { (driver.cuCtxSetCurrent)(shared.context) };
        shared.check("cuCtxSetCurrent", status)?;
        let mut address = 0;
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (driver.cuMemAlloc_v2)(&raw mut address, 4096) };
        shared.check("cuMemAlloc", status)?;
        // SAFETY: (5) it was just allocated.
        let status = unsafe { (driver.cuMemFree_v2)(address) };
        shared.check("cuMemFree", status)
    }
}

impl CudaGraph {
    /// Launches the kernels behind what `stream` holds.
    ///
    /// # Errors
    /// A stream of another device, or one that is being captured; a lost device.
    pub fn launch(&self, stream: &CudaStream) -> Result<(), GpuError> {
        let shared = &self.0.shared;
        shared.check_same("graph launch", "stream", stream.owner())?;
        let _scope = stream.enter("graph launch")?;
        stream.submit(&[Kept::Graph(self.clone())], || {
            // SAFETY: (5) graph and stream exist; (6) the stream keeps the graph.
            let status = unsafe { (shared.driver.cuGraphLaunch)(self.0.raw, stream.raw()) };
            shared.check("cuGraphLaunch", status)
        })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(_scope) = self.shared.enter_for_drop() {
            // SAFETY: (5) nobody uses the graph after this.
            let status = unsafe { (self.shared.driver.cuGraphExecDestroy)(self.raw) };
            self.shared.note("cuGraphExecDestroy", status);
        }
    }
}

/// A capture that ends whatever happens.
struct Open<'a> {
    stream: &'a CudaStream,
    before: Option<Keep>,
    begun: bool,
}

impl Open<'_> {
    fn begin(&mut self) -> Result<(), GpuError> {
        let shared = self.stream.owner();
        let _scope = shared.enter()?;
        // SAFETY: (5) the stream exists.
        let status = unsafe { (shared.driver.cuStreamBeginCapture_v2)(self.stream.raw(), GLOBAL) };
        shared.check("cuStreamBeginCapture", status)?;
        self.begun = true;
        Ok(())
    }

    /// Ends the capture: the graph, and what it touches.
    fn end(&mut self) -> (Result<CUgraph, GpuError>, Keep) {
        let graph = self.end_driver();
        let keep = self
            .stream
            .end_capture(self.before.take().unwrap_or_default());
        (graph, keep)
    }

    fn end_driver(&mut self) -> Result<CUgraph, GpuError> {
        let shared = self.stream.owner();
        let mut graph = core::ptr::null_mut();
        let refused = GpuError::Capturing { call: "capture" };
        if !core::mem::take(&mut self.begun) {
            return Err(refused);
        }
        let _scope = shared.enter_for_drop()?;
        // SAFETY: (3) the place outlives the call; (5) the stream exists.
        let status =
            unsafe { (shared.driver.cuStreamEndCapture)(self.stream.raw(), &raw mut graph) };
        shared.check("cuStreamEndCapture", status)?;
        if graph.is_null() {
            Err(refused)
        } else {
            Ok(graph)
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.before.is_none() {
            return;
        }
        // `body` panicked.
        if let (Ok(graph), _) = self.end() {
            let shared = self.stream.owner();
            // SAFETY: (5) nobody uses the graph after this.
            let status = unsafe { (shared.driver.cuGraphDestroy)(graph) };
            shared.note("cuGraphDestroy", status);
        }
    }
}

fn instantiate(shared: &Shared, graph: CUgraph) -> Result<CUgraphExec, GpuError> {
    let _scope = shared.enter()?;
    let mut made = core::ptr::null_mut();
    // SAFETY: (3) the place outlives the call; (5) the graph exists.
    let status = unsafe { (shared.driver.cuGraphInstantiateWithFlags)(&raw mut made, graph, 0) };
    shared.check("cuGraphInstantiate", status)?;
    debug_assert_eq!(status, SUCCESS);
    Ok(made)
}
