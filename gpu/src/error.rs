// SPDX-License-Identifier: Apache-2.0
//! Errors of devices.

/// Why a device call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// Memory could not be had.
    #[error("device {device} cannot allocate {bytes} bytes: {reason}")]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        bytes: u64,
        /// What the platform said.
        reason: String,
    },
    /// A range leaves its memory.
    #[error("{what}: bytes [{start}, {end}) leave the {len} bytes of the memory")]
    OutOfRange {
        /// Which side of which call.
        what: &'static str,
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// Bytes of the memory.
        len: u64,
    },
    /// An offset or a size is not a multiple of 4 bytes.
    #[error("{what}: {value} is not a multiple of 4 bytes")]
    Misaligned {
        /// Which value of which call.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// A piece names a plane that the batch does not have.
    #[error("copy: plane {plane} is outside the {planes} planes of the batch")]
    NoPlane {
        /// Index of the plane.
        plane: u32,
        /// Planes of the batch.
        planes: usize,
    },
    /// Rows of a rectangle that overlap.
    #[error("{what}: a pitch of {pitch} bytes is shorter than the {width} bytes of a row")]
    Pitch {
        /// Which side of which call.
        what: &'static str,
        /// Bytes from row to row.
        pitch: u64,
        /// Bytes of a row.
        width: u64,
    },
    /// A rectangle in a batch of plain runs.
    #[error("copy: a piece of {height} rows is not a plain run; submit it as rectangles")]
    NotARun {
        /// Rows of the piece.
        height: u32,
    },
    /// A row of a copy that lies in two registrations of host memory.
    #[error(
        "copy: host bytes [{start}, {end}) cross the registration edge at {edge}: split them there"
    )]
    SplitRegistration {
        /// First byte.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// First byte of the next registration.
        edge: u64,
    },
    /// An event was recorded a second time.
    #[error("record: the event is recorded already; make a new one")]
    EventRecordedTwice,
    /// An event was waited for that nobody recorded.
    #[error("{what}: the event was never recorded")]
    EventNotRecorded {
        /// The call.
        what: &'static str,
    },
    /// A driver call was refused.
    #[error("{call} failed with {name} ({code}): {reason}; {advice}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's code.
        code: u32,
        /// The code's name.
        name: String,
        /// The code in words.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// A kernel could not be compiled or loaded.
    #[error("kernels of {source_file} for {architecture}: {reason}")]
    Kernel {
        /// The source.
        source_file: &'static str,
        /// What it was compiled for.
        architecture: String,
        /// Why.
        reason: String,
    },
    /// A call that a graph cannot hold, on a stream that is being captured.
    #[error("{call}: the stream is being captured; make this call before or after the capture")]
    Capturing {
        /// The call.
        call: &'static str,
    },
    /// A copy from or to host memory that is not page-locked for the device.
    #[error(
        "copy: the host pool is not page-locked; make it with the pinner of the device it is for"
    )]
    NotPinned,
    /// An object of another device.
    #[error("{call}: the {what} belongs to device {theirs}, the call is for device {ours}")]
    OtherDevice {
        /// The call.
        call: &'static str,
        /// What it is.
        what: &'static str,
        /// The device of the call.
        ours: i32,
        /// The device that it belongs to.
        theirs: i32,
    },
    /// An argument that a kernel cannot take.
    #[error("{call}: {reason}")]
    Argument {
        /// The call.
        call: &'static str,
        /// What is wrong, with the values.
        reason: String,
    },
    /// The device has stopped working; nothing submitted later ran.
    #[error("the device is lost: {cause}")]
    Lost {
        /// The first cause.
        cause: String,
    },
    /// Two operations touch the same bytes, one of them writes, and nothing orders them.
    #[error("{second} touches {range} and nothing orders it behind {first}")]
    Hazard {
        /// The operation that was seen first.
        first: Box<str>,
        /// The operation that was seen second; it did not run.
        second: Box<str>,
        /// Which bytes of what.
        range: Box<str>,
    },
    /// A call that can never return.
    #[error("{what} would wait for ever: {blocked}")]
    Deadlock {
        /// The call.
        what: String,
        /// What every stream waits for.
        blocked: String,
    },
    /// Host memory that no device has registered.
    #[error("{operation}: the {bytes} bytes of the host pool are not registered")]
    NotRegistered {
        /// The operation.
        operation: String,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// A copy that did not deliver everything.
    #[error("{operation} delivered {good} of {pieces} pieces")]
    CopyFailed {
        /// The operation.
        operation: String,
        /// Pieces that arrived.
        good: usize,
        /// Pieces of the copy.
        pieces: usize,
    },
    /// A call that a fault plan refuses; nothing was submitted.
    #[error("{operation} was refused by plan")]
    Refused {
        /// The operation.
        operation: String,
    },
    /// The backend is not there.
    #[error("device {device} is not available: {reason}")]
    Unavailable {
        /// The backend's name.
        device: &'static str,
        /// Why.
        reason: String,
    },
    /// A thread could not be started.
    #[error("a thread for {what} could not be started: {reason}")]
    Thread {
        /// What it was for.
        what: String,
        /// What the platform said.
        reason: String,
    },
}
