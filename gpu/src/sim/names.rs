// SPDX-License-Identifier: Apache-2.0
//! Names of operations, for traces and reports.

use core::fmt;
use std::sync::Arc;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpKind {
    /// A copy from the host to the device.
    CopyToDevice,
    /// A copy from the device to the host.
    CopyToHost,
    /// The kernel that writes rows.
    Fill,
    /// The kernel that compares rows.
    Verify,
    /// The kernel that moves cells.
    Cells,
    /// Recording an event.
    Record,
    /// Waiting for an event.
    Wait,
    /// Keeping the stream busy.
    Occupy,
    /// Moving the stream's clock.
    NotBefore,
    /// Holding the stream.
    Hold,
    /// The end of the device.
    Die,
    /// A read by the host.
    HostRead,
    /// A write by the host.
    HostWrite,
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CopyToDevice => "host-to-device copy",
            Self::CopyToHost => "device-to-host copy",
            Self::Fill => "row fill",
            Self::Verify => "row verification",
            Self::Cells => "cell move",
            Self::Record => "event record",
            Self::Wait => "event wait",
            Self::Occupy => "busy time",
            Self::NotBefore => "clock move",
            Self::Hold => "hold",
            Self::Die => "end of the device",
            Self::HostRead => "read",
            Self::HostWrite => "write",
        })
    }
}

/// One operation of a program: `row fill 3 of stream compute of sim0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpName {
    /// The stream, or the host.
    pub place: Arc<str>,
    /// Which operation of that, from 0 on.
    pub index: u64,
    /// What it does.
    pub kind: OpKind,
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.kind, self.index, self.place)
    }
}
