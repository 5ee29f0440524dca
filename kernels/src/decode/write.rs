// SPDX-License-Identifier: Apache-2.0
//! New rows into a plane: decode by the plan's rows, extend by slots, a workspace by a run of rows.
//!
//! The owner filter is the stripe's. A row of page 0, the sink, is never written: padded tokens
//! have slots there. A row outside the plane is not written and counted in the fault word.

use bytemuck::{Pod, Zeroable};
use striata_core::{Rank, Slot, Stripe};

use super::row_codec::{KernelFormat, RowScale};
use super::{DecodeError, LATENT, ROPE, same_len};
use crate::stripe_twin::StripeWords;

/// Where token t goes, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DestinationKind {
    /// Rows of this rank, i32, -1 for none: the plan's.
    Rows = 0,
    /// Widened slots, i64: this rank writes those that it owns.
    Slots = 1,
    /// Row `first_row + t`.
    Run = 2,
}

/// Where the tokens go, in host memory.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'a> {
    /// Rows of this rank, or -1.
    Rows(&'a [i32]),
    /// Widened slots.
    Slots(&'a [i64]),
    /// Rows one behind the other.
    Run {
        /// The first.
        first_row: u64,
    },
}

/// The kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WriteParams {
    /// The stripe.
    pub stripe: StripeWords,
    /// The rank.
    pub rank: u32,
    /// Tokens.
    pub tokens: u32,
    /// A [`KernelFormat`].
    pub format: u32,
    /// A [`DestinationKind`].
    pub destination: u32,
    /// Bits of the scale of `fp8_tensor`.
    pub scale_bits: u32,
    /// Rows of the plane.
    pub rows: u64,
    /// The first row of a run.
    pub first_row: u64,
    /// Bytes from a token's latent lanes to the next token's.
    pub latent_stride: u64,
    /// The same of rotary lanes.
    pub rope_stride: u64,
}

const _: () = assert!(size_of::<WriteParams>() == 64);

/// Which rows a call writes, and how.
#[derive(Clone, Copy, Debug)]
pub struct WriteShape {
    /// The stripe.
    pub stripe: Stripe,
    /// The rank.
    pub rank: Rank,
    /// Format of the plane.
    pub format: KernelFormat,
    /// Scale of `fp8_tensor`.
    pub scale: RowScale,
}

impl WriteShape {
    /// The row of token `token`; none if it is not written here. `Err` for a row that the plane
    /// of `rows` rows lacks.
    fn row(&self, to: &Destination<'_>, token: usize, rows: u64) -> Result<Option<u64>, ()> {
        let row = match to {
            Destination::Rows(list) => u64::try_from(list[token]).ok(),
            Destination::Slots(list) => u64::try_from(list[token]).ok().and_then(|slot| {
                let row = self.stripe.localize(self.rank, Slot::new(slot))?;
                Some(row.get())
            }),
            Destination::Run { first_row } => {
                let row = first_row.saturating_add(token as u64);
                return if row < rows { Ok(Some(row)) } else { Err(()) };
            }
        };
        match row {
            Some(row) if row < u64::from(self.stripe.page_rows()) => Ok(None),
            Some(row) if row >= rows => Err(()),
            row => Ok(row),
        }
    }

    /// Writes tokens into `plane`, whose rows begin at its first byte; returns how many rows lay
    /// outside it. Without rotary lanes those of the row become 0.
    ///
    /// Shapes: `latent` \[T\]\[512\], `rope` \[T\]\[64\], bits of bf16.
    ///
    /// # Errors
    /// Slices of other lengths than T tokens ask for; nothing is written then.
    pub fn write(
        &self,
        to: &Destination<'_>,
        latent: &[u16],
        rope: Option<&[u16]>,
        plane: &mut [u8],
    ) -> Result<u64, DecodeError> {
        let tokens = latent.len() / LATENT;
        same_len("latent", latent.len() as u64, (tokens * LATENT) as u64)?;
        if let Some(rope) = rope {
            same_len("rope", rope.len() as u64, (tokens * ROPE) as u64)?;
        }
        let listed = match to {
            Destination::Rows(list) => list.len(),
            Destination::Slots(list) => list.len(),
            Destination::Run { .. } => tokens,
        };
        same_len("destinations", listed as u64, tokens as u64)?;
        let bytes = self.format.row_bytes() as usize;
        let rows = (plane.len() / bytes) as u64;
        let mut outside = 0;
        for (token, latent) in latent.chunks_exact(LATENT).enumerate() {
            let Ok(row) = self.row(to, token, rows) else {
                outside += 1;
                continue;
            };
            let Some(row) = row.and_then(|row| usize::try_from(row).ok()) else {
                continue;
            };
            let zeros = [0; ROPE];
            let rope = rope.map_or(&zeros[..], |rope| &rope[token * ROPE..][..ROPE]);
            let row = &mut plane[row * bytes..][..bytes];
            self.format.encode(latent, rope, self.scale, row)?;
        }
        Ok(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Seen to fail if the sink is written, and if the owner filter is left out.
    #[test]
    fn only_the_owner_writes_and_never_the_sink() {
        let stripe = Stripe::new(2, 4).unwrap();
        let format = KernelFormat::Bf16;
        let slots = [8i64, 9, 3, 15, -1, 100];
        let latent: Vec<u16> = (0..slots.len() * LATENT)
            .map(|at| u16::try_from(at / LATENT).unwrap() + 1)
            .collect();
        for rank in stripe.ranks() {
            let shape = WriteShape {
                stripe,
                rank,
                format,
                scale: RowScale::default(),
            };
            let mut plane = vec![0xEE; 12 * 1152];
            let to = Destination::Slots(&slots);
            let outside = shape.write(&to, &latent, None, &mut plane).unwrap();
            assert_eq!(
                outside,
                u64::from(rank.get() == 0),
                "slot 100 is row 50 of rank 0"
            );
            let written: Vec<(usize, u8)> = (0..12)
                .filter(|row| plane[row * 1152] != 0xEE)
                .map(|row| (row, plane[row * 1152]))
                .collect();
            let expected = if rank.get() == 0 {
                vec![(4, 1)]
            } else {
                vec![(4, 2), (7, 4)]
            };
            assert_eq!(written, expected);
            assert_eq!(plane[4 * 1152 + 1024..5 * 1152], [0; 128]);
        }
    }

    // Seen to fail if a run begins at row 0, and if the sink is written.
    #[test]
    fn plan_rows_and_runs_name_rows_directly() {
        let stripe = Stripe::new(1, 4).unwrap();
        let shape = WriteShape {
            stripe,
            rank: Rank::new(0),
            format: KernelFormat::Fp8Row,
            scale: RowScale::default(),
        };
        let latent = vec![0x3F80; 3 * LATENT];
        let rope = vec![0x4000; 3 * ROPE];
        let mut plane = vec![0xEE; 8 * 592];
        let rows = Destination::Rows(&[-1, 6, 2]);
        assert_eq!(shape.write(&rows, &latent, Some(&rope), &mut plane), Ok(0));
        let touched = |plane: &[u8]| -> Vec<usize> {
            (0..8)
                .filter(|row| plane[row * 592..][..592] != [0xEE; 592])
                .collect()
        };
        assert_eq!(touched(&plane), [6]);
        let run = Destination::Run { first_row: 6 };
        assert_eq!(shape.write(&run, &latent, Some(&rope), &mut plane), Ok(1));
        assert_eq!(touched(&plane), [6, 7]);
    }
}
