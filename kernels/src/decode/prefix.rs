// SPDX-License-Identifier: Apache-2.0
//! The prefix gather of extend: one rank's rows of a request as bf16, in token order or packed.
//!
//! In token order, position p of `start..start + tokens` becomes row p - start of the result, and a
//! call for every rank fills it. Packed, the rank's rows stand one behind the other, as a collective
//! sends them. Any start and any number of tokens, so a long prefix goes in pieces.

use bytemuck::{Pod, Zeroable};
use striata_core::{Rank, Stripe, TokenPos};

use super::row_codec::{KernelFormat, RowScale, narrow};
use super::{DecodeError, LANES, same_len};
use crate::stripe_twin::StripeWords;

/// The kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PrefixParams {
    /// The stripe.
    pub stripe: StripeWords,
    /// The rank.
    pub rank: u32,
    /// A [`KernelFormat`].
    pub format: u32,
    /// Bits of the scale of `fp8_tensor`.
    pub scale_bits: u32,
    /// Rows of a kernel page.
    pub kernel_rows: u32,
    /// Kernel pages of the plane.
    pub kernel_pages: u32,
    /// Cells of the request.
    pub width: u32,
    /// 1: the rank's rows one behind the other; 0: in token order.
    pub packed: u32,
    /// First position.
    pub start: u64,
    /// Tokens.
    pub tokens: u64,
}

const _: () = assert!(size_of::<PrefixParams>() == 56);

/// A gather in host memory: reference of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct HostPrefix<'a> {
    /// The stripe.
    pub stripe: Stripe,
    /// The rank whose rows are gathered.
    pub rank: Rank,
    /// Format of the plane.
    pub format: KernelFormat,
    /// Scale of `fp8_tensor`.
    pub scale: RowScale,
    /// Rows of a kernel page.
    pub kernel_rows: u32,
    /// Rows of one layer.
    pub plane: &'a [u8],
    /// Kernel pages of the request on this rank.
    pub cells: &'a [i32],
    /// First position.
    pub start: u64,
    /// Tokens.
    pub tokens: u64,
    /// Whether the rank's rows stand one behind the other.
    pub packed: bool,
}

impl HostPrefix<'_> {
    /// Rows that this call writes.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let tokens = i64::try_from(self.tokens).unwrap_or(i64::MAX);
        self.stripe
            .local_len_from(self.rank, TokenPos::new(self.start), tokens)
    }

    /// Rows of the result that the call needs room for.
    #[must_use]
    pub fn room(&self) -> u64 {
        if self.packed {
            self.rows()
        } else {
            self.tokens
        }
    }

    /// Writes the rows into `out`, bits of bf16; the rows of other ranks stay as they are. A row
    /// whose cell names no page of the plane becomes NaN.
    ///
    /// Shape: `out` \[room\]\[576\].
    ///
    /// # Errors
    /// An output of another length.
    pub fn run(&self, out: &mut [u16]) -> Result<(), DecodeError> {
        same_len("the rows", out.len() as u64, self.room() * LANES as u64)?;
        let first = self.stripe.local_len(self.rank, self.start.cast_signed());
        let mut lanes = vec![0f32; LANES];
        for index in 0..self.rows() {
            let local = first + index;
            self.row(local, &mut lanes)?;
            let to = if self.packed {
                index
            } else {
                let row = striata_core::Row::new(local);
                self.stripe.slot_of(self.rank, row).get() - self.start
            };
            let to = usize::try_from(to).unwrap_or(usize::MAX);
            for (bits, lane) in out[to * LANES..][..LANES].iter_mut().zip(&lanes) {
                *bits = narrow(*lane);
            }
        }
        Ok(())
    }

    fn row(&self, local: u64, lanes: &mut [f32]) -> Result<(), DecodeError> {
        let rows = u64::from(self.kernel_rows.max(1));
        let bytes = u64::from(self.format.row_bytes());
        let cell = usize::try_from(local / rows)
            .ok()
            .and_then(|at| self.cells.get(at));
        let page = cell.and_then(|&cell| u64::try_from(cell).ok());
        let at = page.and_then(|page| usize::try_from((page * rows + local % rows) * bytes).ok());
        let row = at.and_then(|at| self.plane.get(at..at + usize::try_from(bytes).ok()?));
        match row {
            Some(row) => self.format.decode(row, self.scale, lanes),
            None => {
                lanes.fill(f32::NAN);
                Ok(())
            }
        }
    }
}
