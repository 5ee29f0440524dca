// SPDX-License-Identifier: Apache-2.0
//! The device seam: memory, streams, events, copies and the row kernels, in CUDA's shape.
//!
//! A stream runs its operations in order; operations of different streams are ordered only by
//! events. Every call that takes a stream returns once the operation is *submitted*.

use core::fmt;
use std::sync::Arc;

use striata_host::{HostPool, NoPin, PagePinner};
use striata_kernels::rows::{RowParams, RowSpan};

use crate::cells::CellMove;
use crate::error::GpuError;

/// A point in device time, in nanoseconds from an origin of the device's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceTime(u64);

impl DeviceTime {
    /// From nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Nanoseconds since `earlier`, 0 if it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
    /// This time and `nanos` more.
    #[must_use]
    pub const fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// L2 to L1, a load-back.
    HostToDevice,
    /// L1 to L2, a store.
    DeviceToHost,
}

/// One rectangle of a copy: `height` rows of `width` bytes with a pitch on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into the batch's planes.
    pub plane: u32,
    /// Rows of the rectangle; 1 for a plain run.
    pub height: u32,
    /// Byte offset in the plane.
    pub device: u64,
    /// Byte offset in the host pool.
    pub host: u64,
    /// Bytes of a row.
    pub width: u64,
    /// Bytes from a row to the next in the plane.
    pub device_pitch: u64,
    /// Bytes from a row to the next in the host pool.
    pub host_pitch: u64,
}

/// Which driver call serves a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyForm {
    /// Plain runs (height 1): the batched 1-D call.
    Runs,
    /// Rectangles: the batched 3-D call.
    Rectangles,
    /// Plain runs by an asynchronous copy each, as it is done without the batched call.
    EachRun,
    /// Rectangles by a 2-D copy each.
    EachRectangle,
}

impl CopyForm {
    /// Whether every piece must be a plain run.
    #[must_use]
    pub const fn is_of_runs(self) -> bool {
        matches!(self, Self::Runs | Self::EachRun)
    }
}

/// Copies that are submitted together; they are unordered among themselves.
#[derive(Debug)]
pub struct CopyBatch<'a, D: Device> {
    /// Which way.
    pub direction: Direction,
    /// Which driver call.
    pub form: CopyForm,
    /// Device memory that pieces index.
    pub planes: &'a Arc<[D::Memory]>,
    /// Host side of every piece.
    pub host: &'a Arc<HostPool>,
    /// What to copy.
    pub pieces: &'a [Piece],
}

/// A copy call that did not deliver all of its pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFailure {
    /// Copy calls of the stream between the event before and this one.
    pub call: usize,
    /// Pieces that arrived, from the first on. What lies at the others is unspecified.
    pub good_pieces: usize,
    /// Why.
    pub cause: GpuError,
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Backend name: `sim` or `cuda`.
    pub backend: &'static str,
    /// Name of the device.
    pub name: String,
    /// Whether its times are modelled, not measured.
    pub simulated_time: bool,
    /// Bytes of memory that can be allocated in all, if known.
    pub memory_bytes: Option<u64>,
}

/// Counts of what was submitted to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Copy batches.
    pub copies: u64,
    /// Pieces of those.
    pub pieces: u64,
    /// Bytes of those and of cells that kernels moved, host to device.
    pub bytes_to_device: u64,
    /// The same, device to host.
    pub bytes_to_host: u64,
    /// Kernel launches.
    pub kernels: u64,
    /// Operations that touched memory or an event of another device: peers and collectives.
    pub cross_device: u64,
}

/// One GPU, or what stands in for it. Cheap to clone; clones are the same device.
pub trait Device: Clone + fmt::Debug + Send + Sync + 'static {
    /// An allocation; clones share it, the last one frees it.
    type Memory: Clone + fmt::Debug + Send + Sync + 'static;
    /// An ordered queue of operations; clones share it.
    type Stream: Clone + fmt::Debug + Send + Sync + 'static;
    /// A point in a stream; clones share it.
    type Event: Clone + fmt::Debug + Send + Sync + 'static;

    /// Prepares the calling thread, one of our own, for calls from it for the rest of its life.
    /// Every such thread calls it first, so that its work cannot disturb an engine's capture.
    ///
    /// # Errors
    /// A lost device.
    fn enter_thread(&self) -> Result<(), GpuError> {
        Ok(())
    }

    /// Who page-locks host memory for the copies of this device.
    fn pinner(&self) -> Arc<dyn PagePinner> {
        Arc::new(NoPin)
    }

    /// What the device is.
    fn describe(&self) -> DeviceDescription;

    /// What was submitted so far.
    fn stats(&self) -> DeviceStats;

    /// Allocates `bytes` bytes, a multiple of 4. The content is unspecified.
    ///
    /// # Errors
    /// No room, or a size that is not a multiple of 4.
    fn alloc(&self, bytes: u64) -> Result<Self::Memory, GpuError>;

    /// The largest pitch of a rectangle: planes further apart cannot be copied as rectangles.
    fn most_pitch(&self) -> u64 {
        u64::MAX
    }

    /// Makes a stream; `name` is for diagnostics.
    ///
    /// # Errors
    /// The platform has no more.
    fn stream(&self, name: &str) -> Result<Self::Stream, GpuError>;

    /// Makes an event that is not recorded.
    ///
    /// # Errors
    /// The platform has no more.
    fn event(&self) -> Result<Self::Event, GpuError>;

    /// Records `event` behind what `stream` holds now. An event is recorded once.
    ///
    /// # Errors
    /// An event that is recorded already; a lost device.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<(), GpuError>;

    /// Makes `stream` wait for `event`, which must be recorded already.
    ///
    /// # Errors
    /// An event that nobody recorded; a lost device.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), GpuError>;

    /// Whether everything before the recorded `event` has ended.
    ///
    /// # Errors
    /// An event that nobody recorded; a lost device.
    fn is_complete(&self, event: &Self::Event) -> Result<bool, GpuError>;

    /// Blocks the caller until everything before `event` has ended; returns when that was.
    ///
    /// # Errors
    /// An event that nobody recorded; a lost device.
    fn synchronize(&self, event: &Self::Event) -> Result<DeviceTime, GpuError>;

    /// When everything before the recorded `event` had ended; `None` while it has not.
    ///
    /// # Errors
    /// An event that nobody recorded; a lost device.
    fn event_time(&self, event: &Self::Event) -> Result<Option<DeviceTime>, GpuError> {
        if self.is_complete(event)? {
            return self.synchronize(event).map(Some);
        }
        Ok(None)
    }

    /// The copy calls that failed between the event recorded before `event` on its stream, or the
    /// start of the stream, and `event`. Empty as long as `event` has not completed, and on devices
    /// that cannot attribute a fault: such a device is lost instead.
    ///
    /// # Errors
    /// An event that nobody recorded; a lost device.
    fn copy_failures(&self, event: &Self::Event) -> Result<Vec<CopyFailure>, GpuError> {
        self.is_complete(event).map(|_| Vec::new())
    }

    /// Copies between pinned host memory and planes.
    ///
    /// # Errors
    /// A piece outside its memory or not in multiples of 4 bytes, a row in two registrations of
    /// the host pool, rows that overlap, a rectangle in a batch of runs (nothing is copied then);
    /// a lost device.
    fn copy(&self, stream: &Self::Stream, batch: &CopyBatch<'_, Self>) -> Result<(), GpuError>;

    /// Whether kernels reach pinned host memory ([`crate::cells::FarSide::Host`]).
    fn maps_host(&self) -> bool {
        true
    }

    /// Moves cells between planes and a far side by a kernel.
    ///
    /// # Errors
    /// A cell outside its memory or not in multiples of 4 bytes; host memory that kernels do not
    /// reach; a lost device.
    fn move_cells(&self, stream: &Self::Stream, work: &CellMove<'_, Self>) -> Result<(), GpuError>;

    /// Writes the fingerprints of `spans` into rows that begin at byte `base` of `plane`.
    ///
    /// # Errors
    /// A span outside the memory; a lost device.
    fn fill_rows(
        &self,
        stream: &Self::Stream,
        plane: &Self::Memory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(), GpuError>;

    /// Compares rows with their fingerprints and appends what differs to `log`, whose content is
    /// a `VerifyLog`.
    ///
    /// # Errors
    /// A span outside the memory; a lost device.
    fn verify_rows(
        &self,
        stream: &Self::Stream,
        plane: &Self::Memory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
        log: &Self::Memory,
    ) -> Result<(), GpuError>;

    /// Keeps the stream busy for `nanos`: a compute model, or a kernel held for a test.
    ///
    /// # Errors
    /// A lost device.
    fn occupy(&self, stream: &Self::Stream, nanos: u64) -> Result<(), GpuError>;

    /// Nothing that is submitted to `stream` after this begins before `time`. Devices with real
    /// time do nothing here.
    ///
    /// # Errors
    /// A lost device.
    fn not_before(&self, stream: &Self::Stream, time: DeviceTime) -> Result<(), GpuError>;

    /// The host's clock in device time.
    fn now(&self) -> DeviceTime;

    /// Moves the host's clock on to `time`: at once where time is simulated, by sleeping
    /// elsewhere. An earlier time does nothing.
    fn advance_to(&self, time: DeviceTime);

    /// Writes host bytes into `memory` and returns when they are there.
    ///
    /// # Errors
    /// A range outside the memory or not in multiples of 4 bytes; a lost device.
    fn write(&self, memory: &Self::Memory, offset: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// Reads bytes of `memory` as they are now; order against streams is the caller's.
    ///
    /// # Errors
    /// A range outside the memory or not in multiples of 4 bytes; a lost device.
    fn read(&self, memory: &Self::Memory, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Bytes of an allocation.
    fn memory_len(&self, memory: &Self::Memory) -> u64;
}
