// SPDX-License-Identifier: Apache-2.0
//! What the calls of [`super::DecodeDevice`] are given.

use striata_core::{Rank, Stripe};
use striata_kernels::decode::{
    AttendKernel, AttendShape, DecodeError, KernelFormat, MergeTally, OutputForm, OutputKind,
    PlanLayout, PlanShape, RowScale,
};
use striata_kernels::{Base, EmptySentinel};

use super::DecodeDevice;
use crate::device::Device;
use crate::error::GpuError;

/// Device memory from a byte on.
#[derive(Debug)]
pub struct View<'a, D: Device> {
    /// The memory.
    pub memory: &'a D::Memory,
    /// The byte, a multiple of 16.
    pub offset: u64,
}

// Derived copies would ask the device to be one.
macro_rules! plain_copy {
    ($($job:ident),*) => {$(
        impl<D: Device> Clone for $job<'_, D> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<D: Device> Copy for $job<'_, D> {}
    )*};
}
plain_copy!(
    View,
    Rows,
    WriteTo,
    WriteRows,
    Attend,
    Merge,
    Pack,
    GatherPrefix
);

impl<'a, D: Device> View<'a, D> {
    /// All of a memory.
    #[must_use]
    pub const fn all(memory: &'a D::Memory) -> Self {
        Self { memory, offset: 0 }
    }

    /// The same memory `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self {
            memory: self.memory,
            offset: self.offset + bytes,
        }
    }
}

/// A layer's plane.
#[derive(Debug)]
pub struct Rows<'a, D: Device> {
    /// Its first row, that of the sink page.
    pub at: View<'a, D>,
    /// How a row is stored.
    pub format: KernelFormat,
    /// Scale of `fp8_tensor`; ignored elsewhere.
    pub scale: RowScale,
    /// Rows of the plane.
    pub rows: u64,
}

/// The buffers of a plan, at fixed addresses; what a captured step reads.
#[derive(Debug)]
pub struct Plan<D: Device> {
    /// Its sizes.
    pub shape: PlanShape,
    /// Where its parts stand in the memory.
    pub layout: PlanLayout,
    /// The memory.
    pub memory: D::Memory,
}

impl<D: Device> Clone for Plan<D> {
    fn clone(&self) -> Self {
        Self {
            shape: self.shape,
            layout: self.layout,
            memory: self.memory.clone(),
        }
    }
}

impl<D: Device> Plan<D> {
    /// Allocates a plan; its content is unspecified until it is built.
    ///
    /// # Errors
    /// Sizes that the contract refuses; no room; a lost device.
    pub fn new(device: &D, shape: PlanShape) -> Result<Self, GpuError> {
        shape.check().map_err(|error| refused("plan", &error))?;
        let layout = shape.layout();
        let memory = device.alloc(layout.bytes)?;
        Ok(Self {
            shape,
            layout,
            memory,
        })
    }
}

/// The error of a call that the contract refuses.
pub(crate) fn refused(call: &'static str, error: &DecodeError) -> GpuError {
    GpuError::Argument {
        call,
        reason: error.to_string(),
    }
}

/// [`super::DecodeDevice::build_plan`].
#[derive(Debug)]
pub struct BuildPlan<'a, D: DecodeDevice> {
    /// The plan, in a graph's reach; what the step before left in it matters to kept pages.
    pub plan: &'a Plan<D>,
    /// Staging that begins with the places: \[B\] of `PlanPlace`, as words.
    pub staging: &'a D::Staging,
    /// The source on the device: \[source rows\]\[source width\] i32, such as an engine's map of
    /// slots. `None`: it stands in the staging, behind the places.
    pub source: Option<View<'a, D>>,
}

/// Where new tokens go.
#[derive(Debug)]
pub enum WriteTo<'a, D: Device> {
    /// The rows of a plan, for all its B * s_q tokens.
    Plan(&'a Plan<D>),
    /// Widened slots, \[T\] i64, through the owner filter.
    Slots {
        /// The slots.
        slots: View<'a, D>,
        /// The stripe of the slots.
        stripe: Stripe,
        /// The rank whose rows are written.
        rank: Rank,
    },
    /// Rows one behind the other from this one on, such as in a workspace.
    Run {
        /// The first row.
        first_row: u64,
    },
}

/// [`super::DecodeDevice::write_rows`].
#[derive(Debug)]
pub struct WriteRows<'a, D: Device> {
    /// The plane.
    pub rows: Rows<'a, D>,
    /// Where the tokens go.
    pub to: WriteTo<'a, D>,
    /// T. For a plan B * s_q.
    pub tokens: u32,
    /// bf16. Shape: \[T\]\[512\], with a stride.
    pub latent: View<'a, D>,
    /// Bytes from a token to the next; a multiple of 16.
    pub latent_stride: u64,
    /// bf16. Shape: \[T\]\[64\], with a stride. `None`: the lanes become 0.
    pub rope: Option<View<'a, D>>,
    /// Bytes from a token to the next; a multiple of 16.
    pub rope_stride: u64,
    /// A word that counts rows outside the plane; any fails the step.
    pub faults: View<'a, D>,
}

/// [`super::DecodeDevice::attend`].
#[derive(Debug)]
pub struct Attend<'a, D: Device> {
    /// Which kernel.
    pub kernel: AttendKernel,
    /// The plan: stripe, rank, sizes, lengths, table and work list.
    pub plan: &'a Plan<D>,
    /// The plane.
    pub rows: Rows<'a, D>,
    /// bf16. Shape: \[B\]\[s_q\]\[heads\]\[576\], rotary lanes last, with strides.
    pub query: View<'a, D>,
    /// Bytes from a request, from a query and from a head to the next; multiples of 16.
    pub query_strides: [u64; 3],
    /// Factor of the scores before the softmax.
    pub scale: f32,
    /// Base of the log-sum-exps that are written.
    pub base: Base,
    /// Form of the outputs.
    pub form: OutputForm,
    /// Where they go: messages at [`OutputForm::message_stride`].
    pub output: View<'a, D>,
    /// [`striata_kernels::decode::Schedule::workspace_bytes`] of it; only the tensor-core kernel
    /// uses it. Calls that may overlap need one each.
    pub workspace: View<'a, D>,
    /// A [`MergeTally`] in which rows whose log-sum-exp is no number are counted, as those of
    /// partial 0, where the outputs are final: with one rank nobody merges. `None` elsewhere.
    pub tally: Option<View<'a, D>>,
}

/// [`super::DecodeDevice::merge`].
#[derive(Debug)]
pub struct Merge<'a, D: Device> {
    /// The messages, in rank order.
    pub messages: &'a [View<'a, D>],
    /// Rows of each: tokens x heads of this destination.
    pub rows: u32,
    /// Type of outputs in the messages.
    pub input: OutputKind,
    /// Type of merged rows.
    pub output: OutputKind,
    /// Base of the log-sum-exps, in and out.
    pub base: Base,
    /// What an empty partial's log-sum-exp is.
    pub empty: EmptySentinel,
    /// Merged rows, then their log-sum-exps.
    pub merged: View<'a, D>,
    /// A [`MergeTally`]: what was counted is added.
    pub tally: View<'a, D>,
}

impl<D: Device> Merge<'_, D> {
    /// Bytes of a tally.
    pub const TALLY_BYTES: u64 = size_of::<MergeTally>() as u64;
}

/// [`super::DecodeDevice::pack`].
#[derive(Debug)]
pub struct Pack<'a, D: Device> {
    /// Tokens and heads.
    pub shape: AttendShape,
    /// Form of the messages.
    pub form: OutputForm,
    /// Shape: \[token\]\[head\]\[512\].
    pub o: View<'a, D>,
    /// f32. Shape: \[token\]\[head\].
    pub lse: View<'a, D>,
    /// The messages, at [`OutputForm::message_stride`].
    pub messages: View<'a, D>,
}

/// [`super::DecodeDevice::unpack`]: as [`Pack`], the other way.
pub type Unpack<'a, D> = Pack<'a, D>;

/// [`super::DecodeDevice::gather_prefix`]; see [`striata_kernels::decode::prefix`].
#[derive(Debug)]
pub struct GatherPrefix<'a, D: Device> {
    /// The stripe.
    pub stripe: Stripe,
    /// The rank whose rows are gathered.
    pub rank: Rank,
    /// Its plane.
    pub rows: Rows<'a, D>,
    /// Rows of a kernel page.
    pub kernel_rows: u32,
    /// Kernel pages of the request on the rank. Shape: \[width\] i32.
    pub cells: View<'a, D>,
    /// Cells.
    pub width: u32,
    /// First position.
    pub start: u64,
    /// Tokens.
    pub tokens: u64,
    /// Whether the rank's rows stand one behind the other, as a collective sends them.
    pub packed: bool,
    /// bf16 rows of 576 lanes: `tokens` of them, or as many as the rank owns.
    pub out: View<'a, D>,
}
