// SPDX-License-Identifier: Apache-2.0
//! The packed message of the exchange: partial outputs and the f32 bits of their log-sum-exps, as
//! bytes, little-endian.
//!
//! A message goes to one destination rank and carries its heads: for each token of the batch, the
//! H heads that the destination keeps. It is moved as bytes because a log-sum-exp seen as lanes of
//! a narrower float may be a NaN or an infinity, and arithmetic or a conversion could change it.

use core::ops::Range;

use crate::lse::{LogBase, Lse};

/// Bytes of an output row of MLA: 512 lanes of bf16.
pub const MLA_ROW_BYTES: usize = 1024;
const LSE_BYTES: usize = size_of::<f32>();

/// Where outputs and log-sum-exps stand in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PackOrder {
    /// All output rows, then all log-sum-exps. What the exchange sends.
    Planar,
    /// A log-sum-exp behind each output row: 514 lanes of 16 bits for MLA. A codec only.
    RowByRow,
}

/// The form of a packed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedForm {
    /// Where the parts stand.
    pub order: PackOrder,
    /// Bytes of an output row, whatever its type.
    pub row_bytes: usize,
}

/// Why a message cannot be packed or unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A buffer has the wrong size.
    #[error("{what} has {actual} elements, {rows} rows ask for {expected}")]
    Length {
        /// Which buffer.
        what: &'static str,
        /// Rows of the message.
        rows: usize,
        /// Elements that they ask for.
        expected: usize,
        /// Elements given.
        actual: usize,
    },
    /// A row to pack is not there.
    #[error("row {row} is not among the {rows} rows of the partial")]
    Row {
        /// The row.
        row: usize,
        /// Rows of the partial.
        rows: usize,
    },
}

impl PackedForm {
    /// What the exchange sends for MLA with bf16 outputs.
    pub const MLA: Self = Self {
        order: PackOrder::Planar,
        row_bytes: MLA_ROW_BYTES,
    };
    /// The 514-lane rows of other engines, of the same size.
    pub const MLA_514_LANES: Self = Self {
        order: PackOrder::RowByRow,
        row_bytes: MLA_ROW_BYTES,
    };

    /// Bytes of a message of `rows` rows. Saturates.
    #[must_use]
    pub const fn message_bytes(self, rows: usize) -> usize {
        rows.saturating_mul(self.row_bytes.saturating_add(LSE_BYTES))
    }

    /// Where output and log-sum-exp of row `row` of `rows` stand.
    const fn place(self, row: usize, rows: usize) -> (Range<usize>, Range<usize>) {
        let (o, lse) = match self.order {
            PackOrder::Planar => (
                row * self.row_bytes,
                rows * self.row_bytes + row * LSE_BYTES,
            ),
            PackOrder::RowByRow => {
                let o = row * (self.row_bytes + LSE_BYTES);
                (o, o + self.row_bytes)
            }
        };
        (o..o + self.row_bytes, lse..lse + LSE_BYTES)
    }

    /// Packs the rows that `rows` names, in that order.
    ///
    /// Shapes: `o` \[partial rows\]\[row bytes\], `lse` \[partial rows\].
    ///
    /// # Errors
    /// Buffers of other sizes than the rows ask for, a row that the partial lacks; the message is
    /// unspecified then.
    pub fn pack<B: LogBase>(
        self,
        rows: impl ExactSizeIterator<Item = usize>,
        o: &[u8],
        lse: &[Lse<B>],
        message: &mut [u8],
    ) -> Result<(), PackError> {
        let count = rows.len();
        let bytes = lse.len().saturating_mul(self.row_bytes);
        check_len("o", lse.len(), o.len(), bytes)?;
        check_len("message", count, message.len(), self.message_bytes(count))?;
        for (at, row) in rows.enumerate().take(count) {
            let value = lse.get(row).ok_or(PackError::Row {
                row,
                rows: lse.len(),
            })?;
            let (o_at, lse_at) = self.place(at, count);
            message[o_at].copy_from_slice(&o[row * self.row_bytes..][..self.row_bytes]);
            message[lse_at].copy_from_slice(&value.get().to_bits().to_le_bytes());
        }
        Ok(())
    }

    /// Unpacks a whole message; as many rows as `lse` has.
    ///
    /// Shapes: `o` \[rows\]\[row bytes\], `lse` \[rows\].
    ///
    /// # Errors
    /// Buffers of other sizes than the rows ask for; nothing is written then.
    pub fn unpack<B: LogBase>(
        self,
        message: &[u8],
        o: &mut [u8],
        lse: &mut [Lse<B>],
    ) -> Result<(), PackError> {
        let rows = lse.len();
        check_len("o", rows, o.len(), rows.saturating_mul(self.row_bytes))?;
        check_len("message", rows, message.len(), self.message_bytes(rows))?;
        for (row, value) in lse.iter_mut().enumerate() {
            let (o_at, lse_at) = self.place(row, rows);
            o[row * self.row_bytes..][..self.row_bytes].copy_from_slice(&message[o_at]);
            let mut bits = [0; LSE_BYTES];
            bits.copy_from_slice(&message[lse_at]);
            *value = Lse::new(f32::from_bits(u32::from_le_bytes(bits)));
        }
        Ok(())
    }
}

const fn check_len(
    what: &'static str,
    rows: usize,
    actual: usize,
    expected: usize,
) -> Result<(), PackError> {
    if actual == expected {
        Ok(())
    } else {
        Err(PackError::Length {
            what,
            rows,
            expected,
            actual,
        })
    }
}

/// The rows of a partial that rank `destination` keeps: of each of `tokens` tokens the `heads`
/// heads from `destination * heads` on, where a token has `group_heads` rows.
///
/// Numbers too large saturate and name a row that no partial has.
///
/// Worked example, 2 tokens, H = 2, H * c = 4, destination 1: rows 2, 3, 6, 7.
pub fn destination_rows(
    tokens: usize,
    heads: usize,
    group_heads: usize,
    destination: usize,
) -> impl ExactSizeIterator<Item = usize> + Clone {
    let first = destination.saturating_mul(heads);
    (0..tokens.saturating_mul(heads)).map(move |at| {
        let token = (at / heads).saturating_mul(group_heads);
        token.saturating_add(first).saturating_add(at % heads)
    })
}
