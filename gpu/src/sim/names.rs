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
    /// Building the plan of a decode step.
    PlanBuild,
    /// Writing new rows.
    RowWrite,
    /// Attention of a rank.
    Attention,
    /// Merging messages.
    Merge,
    /// Packing outputs into messages.
    Pack,
    /// Unpacking messages.
    Unpack,
    /// Gathering rows of a prefix.
    PrefixGather,
    /// The kernel that writes rows of values.
    ValueFill,
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

impl OpKind {
    /// Whether a kernel does it.
    pub(crate) const fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::Fill
                | Self::Verify
                | Self::Cells
                | Self::Occupy
                | Self::PlanBuild
                | Self::RowWrite
                | Self::Attention
                | Self::Merge
                | Self::Pack
                | Self::Unpack
                | Self::PrefixGather
                | Self::ValueFill
        )
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CopyToDevice => "host-to-device copy",
            Self::CopyToHost => "device-to-host copy",
            Self::Fill => "row fill",
            Self::Verify => "row verification",
            Self::PlanBuild => "plan build",
            Self::RowWrite => "row write",
            Self::Attention => "attention",
            Self::Merge => "merge",
            Self::Pack => "pack",
            Self::Unpack => "unpack",
            Self::PrefixGather => "prefix gather",
            Self::ValueFill => "value fill",
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
