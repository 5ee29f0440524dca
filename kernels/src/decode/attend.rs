// SPDX-License-Identifier: Apache-2.0
//! Attention of one rank over its rows of a plane: what [`crate::reference::decode`] computes, over
//! planes of every format, with outputs where the exchange wants them.

use bytemuck::{Pod, Zeroable};
use striata_core::{Rank, Stripe};

use super::row_codec::{KernelFormat, RowScale};
use super::{DecodeError, LANES, LATENT, MAX_HEADS, MAX_QUERIES, in_range, same_len};
use crate::lse::{LogBase, Lse};
use crate::reference::{ContractError, DecodeArgs, DecodeShape, decode};
use crate::stripe_twin::StripeWords;

/// Sizes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttendShape {
    /// B, the padding included.
    pub batch: u32,
    /// s_q, queries of a request.
    pub queries: u32,
    /// Query heads: those of the whole DCP group.
    pub heads: u32,
}

impl AttendShape {
    /// Checks the sizes.
    ///
    /// # Errors
    /// A size that the kernels do not take.
    pub const fn check(self) -> Result<(), DecodeError> {
        let most_batch = super::plan::MAX_BATCH as u64;
        if let Err(error) = in_range("the batch", self.batch as u64, 1, most_batch) {
            return Err(error);
        }
        if let Err(error) = in_range("s_q", self.queries as u64, 1, MAX_QUERIES as u64) {
            return Err(error);
        }
        in_range(
            "the number of heads",
            self.heads as u64,
            1,
            MAX_HEADS as u64,
        )
    }

    /// Tokens: B * s_q.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        self.batch as u64 * self.queries as u64
    }

    /// Output rows: B * s_q * heads.
    #[must_use]
    pub const fn rows(self) -> u64 {
        self.tokens() * self.heads as u64
    }
}

/// Which kernel computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttendKernel {
    /// One warp a row in f32: slow, the oracle on the device.
    Simt,
    /// Tensor cores.
    Mma,
}

/// Type of output lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum OutputKind {
    /// 16 bits.
    Bf16 = 0,
    /// 32 bits.
    F32 = 1,
}

impl OutputKind {
    /// Bytes of a row of 512 lanes.
    #[must_use]
    pub const fn row_bytes(self) -> u64 {
        match self {
            Self::Bf16 => 1024,
            Self::F32 => 2048,
        }
    }
}

/// Where the outputs go. With one destination: o \[token\]\[head\]\[512\], then lse
/// \[token\]\[head\] f32. With c destinations: c planar messages, destination d with heads
/// d * H .. (d + 1) * H, each as its own o then lse. Either way, byte for byte what the exchange
/// sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputForm {
    /// Type of o.
    pub kind: OutputKind,
    /// Messages; 1 for plain outputs.
    pub destinations: u32,
}

impl OutputForm {
    /// Bytes of one message.
    ///
    /// # Errors
    /// Heads that the destinations cannot share.
    pub const fn message_bytes(self, shape: AttendShape) -> Result<u64, DecodeError> {
        let heads = match striata_core::stripe::whole_share(shape.heads, self.destinations) {
            Some(heads) if heads > 0 => heads,
            _ => {
                return Err(DecodeError::Heads {
                    heads: shape.heads,
                    destinations: self.destinations,
                });
            }
        };
        Ok(shape.tokens() * heads as u64 * (self.kind.row_bytes() + 4))
    }

    /// From a message to the next: its bytes, rounded up so that each begins at a multiple of 16.
    ///
    /// # Errors
    /// As [`OutputForm::message_bytes`].
    pub const fn message_stride(self, shape: AttendShape) -> Result<u64, DecodeError> {
        match self.message_bytes(shape) {
            Ok(bytes) => Ok(bytes.next_multiple_of(16)),
            Err(error) => Err(error),
        }
    }

    /// Bytes of all messages.
    ///
    /// # Errors
    /// As [`OutputForm::message_bytes`].
    pub fn bytes(self, shape: AttendShape) -> Result<u64, DecodeError> {
        Ok(self.message_stride(shape)? * u64::from(self.destinations))
    }
}

/// The kernels' argument. Strides are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct AttendParams {
    /// The stripe.
    pub stripe: StripeWords,
    /// The rank.
    pub rank: u32,
    /// B.
    pub batch: u32,
    /// s_q.
    pub queries: u32,
    /// Heads.
    pub heads: u32,
    /// Rows of a kernel page.
    pub kernel_rows: u32,
    /// Cells of a place.
    pub width: u32,
    /// Kernel pages of the plane.
    pub kernel_pages: u32,
    /// Heads of a message.
    pub message_heads: u32,
    /// An [`OutputKind`].
    pub output: u32,
    /// 0: log-sum-exps are natural; 1: in base 2.
    pub base_two: u32,
    /// Bits of scale * log2(e).
    pub scale_log2_bits: u32,
    /// Bits of the scale of `fp8_tensor`.
    pub row_scale_bits: u32,
    /// Query rows of a block.
    pub block_rows: u32,
    /// From a request's queries to the next one's.
    pub query_request: u64,
    /// From a query to the next.
    pub query_token: u64,
    /// From a head to the next.
    pub query_head: u64,
    /// From a message to the next.
    pub message_stride: u64,
    /// From the start of a message to its log-sum-exps.
    pub lse_offset: u64,
}

const _: () = assert!(size_of::<AttendParams>() == 104);

/// The second argument of the tensor-core kernels: device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WorkWords {
    /// Queries.
    pub query: u64,
    /// The plane.
    pub plane: u64,
    /// The table.
    pub cells: u64,
    /// Local lengths.
    pub local_lens: u64,
    /// Global lengths.
    pub global_lens: u64,
    /// Starts of parts.
    pub starts: u64,
    /// Cuts of requests.
    pub cuts: u64,
    /// Messages.
    pub output: u64,
    /// Outputs of pieces. Shape: \[piece\]\[block\]\[block rows\]\[512\] f32.
    pub pieces: u64,
    /// Their log-sum-exps in base 2. Shape: \[piece\]\[block\]\[block rows\] f32.
    pub piece_lses: u64,
    /// A [`super::MergeTally`] for log-sum-exps that are no numbers; 0 if a merge counts them.
    pub tally: u64,
    /// A [`KernelFormat`].
    pub format: u32,
    /// 0.
    pub unused: u32,
}

const _: () = assert!(size_of::<WorkWords>() == 96);

/// The call in host memory: reference of the kernels for every format.
#[derive(Clone, Copy, Debug)]
pub struct HostAttend<'a> {
    /// Sizes.
    pub shape: AttendShape,
    /// The stripe, whose page rows are P.
    pub stripe: Stripe,
    /// The rank.
    pub rank: Rank,
    /// Rows of a kernel page.
    pub kernel_rows: u32,
    /// Format of the plane.
    pub format: KernelFormat,
    /// Scale of `fp8_tensor`.
    pub row_scale: RowScale,
    /// Factor of the scores.
    pub scale: f64,
    /// Bits of bf16. Shape: \[B\]\[s_q\]\[heads\]\[576\].
    pub query: &'a [u16],
    /// Rows of one layer.
    pub plane: &'a [u8],
    /// Kernel pages. Shape: \[B\]\[width\].
    pub cells: &'a [i32],
    /// Cells of a place.
    pub width: usize,
    /// Shape: \[B\].
    pub local_lens: &'a [i32],
    /// Shape: \[B\].
    pub global_lens: &'a [i32],
}

impl HostAttend<'_> {
    /// Output and log-sum-exp of every row, in f64.
    ///
    /// Shapes: `o` \[B\]\[s_q\]\[heads\]\[512\], `lse` \[B\]\[s_q\]\[heads\].
    ///
    /// # Errors
    /// As [`decode`]; a stripe whose interleave does not divide the kernel page.
    pub fn run<B: LogBase>(
        &self,
        o: &mut [f64],
        lse: &mut [Lse<B, f64>],
    ) -> Result<(), ContractError> {
        let bytes = self.format.row_bytes() as usize;
        let mut plane = vec![0f32; self.plane.len() / bytes * LANES];
        let rows = self.plane.chunks_exact(bytes);
        for (row, lanes) in rows.zip(plane.chunks_exact_mut(LANES)) {
            self.format.decode(row, self.row_scale, lanes)?;
        }
        let query: Vec<f32> = self
            .query
            .iter()
            .map(|&bits| super::row_codec::widen(bits))
            .collect();
        let (dcp, interleave) = (self.stripe.dcp(), self.stripe.interleave());
        let stripe = Stripe::with_interleave(dcp, self.kernel_rows, interleave)?;
        let args = DecodeArgs {
            shape: DecodeShape {
                batch: self.shape.batch as usize,
                queries: self.shape.queries as usize,
                heads: self.shape.heads as usize,
                dv: LATENT,
                drope: LANES - LATENT,
            },
            stripe,
            rank: self.rank,
            scale: self.scale,
            query: &query,
            plane: &plane,
            table: self.cells,
            table_width: self.width,
            local_lens: self.local_lens,
            global_lens: self.global_lens,
        };
        decode(&args, o, lse)
    }
}

/// Splits the bytes of one message into outputs and log-sum-exps.
///
/// # Errors
/// Bytes of another length than `rows` rows ask for.
pub fn split_message(
    kind: OutputKind,
    rows: u64,
    message: &[u8],
) -> Result<(&[u8], &[u8]), DecodeError> {
    let bytes = rows * (kind.row_bytes() + 4);
    same_len("the message", message.len() as u64, bytes)?;
    let at = usize::try_from(rows * kind.row_bytes()).unwrap_or(usize::MAX);
    Ok(message.split_at(at.min(message.len())))
}
