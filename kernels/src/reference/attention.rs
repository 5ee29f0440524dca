// SPDX-License-Identifier: Apache-2.0
//! Absorbed MLA decode over one rank's rows.
//!
//! Local row k of rank r is the k-th position that r owns, so what query t sees, positions below
//! G - (s_q - 1 - t), is a prefix of the rank's rows: one right border a query, no test a row.
//! Rows behind the border are not read, whatever they hold, nor are table entries behind its page.

use striata_core::{Rank, Stripe};

use super::{ContractError, DecodeShape, check_len};
use crate::lse::{E, LogBase, Lse};
use crate::real::Real;

/// Arguments of [`decode`]; `T` is the type of rows and queries.
#[derive(Clone, Copy, Debug)]
pub struct DecodeArgs<'a, T> {
    /// Sizes.
    pub shape: DecodeShape,
    /// c, the rank's stripe; its page rows are those of the pages that `table` names.
    pub stripe: Stripe,
    /// r.
    pub rank: Rank,
    /// Factor of the scores before the softmax.
    pub scale: f64,
    /// Queries, rotary part last. Shape: \[B\]\[s_q\]\[H\]\[dv + drope\].
    pub query: &'a [T],
    /// The rank's rows of one layer. Shape: \[pages\]\[P\]\[dv + drope\].
    pub plane: &'a [T],
    /// Page of every P rows of a request. Shape: \[B\]\[width\].
    pub table: &'a [i32],
    /// Entries of a table row.
    pub table_width: usize,
    /// Rows that this rank owns of each request. Shape: \[B\].
    pub local_lens: &'a [i32],
    /// Tokens of each request, the queries included; 0 for padding. Shape: \[B\].
    pub global_lens: &'a [i32],
}

impl<T: Real> DecodeArgs<'_, T> {
    fn check(&self) -> Result<(), ContractError> {
        let shape = self.shape;
        self.stripe.check_rank(self.rank)?;
        let query = shape.rows().saturating_mul(shape.lanes());
        check_len("query", self.query.len(), query)?;
        let table = shape.batch.saturating_mul(self.table_width);
        check_len("table", self.table.len(), table)?;
        check_len("local_lens", self.local_lens.len(), shape.batch)?;
        check_len("global_lens", self.global_lens.len(), shape.batch)?;
        let lens = self.local_lens.iter().zip(self.global_lens);
        for (request, (&given, &global)) in lens.enumerate() {
            let owned = self.stripe.local_len(self.rank, i64::from(global));
            if i64::from(given) != owned.cast_signed() {
                let rank = self.rank.get();
                return Err(ContractError::LocalLength {
                    request,
                    rank,
                    given,
                    owned,
                    global,
                });
            }
        }
        Ok(())
    }

    fn visible(&self, request: usize, query: usize) -> u64 {
        // Saturating keeps an absurd query count on the safe side: it sees nothing.
        let queries = u32::try_from(self.shape.queries).unwrap_or(u32::MAX);
        let query = u32::try_from(query).unwrap_or(u32::MAX);
        let global = i64::from(self.global_lens[request]);
        self.stripe.visible_rows(self.rank, global, queries, query)
    }

    /// The visible rows of a query, in order.
    fn rows(&self, request: usize, visible: u64) -> Result<Vec<&[T]>, ContractError> {
        let lanes = self.shape.lanes();
        let page_rows = self.stripe.page_rows() as usize;
        let pages = self.plane.len() / (page_rows * lanes).max(1);
        let width = self.table_width;
        let too_narrow = |visible: u64| ContractError::TableWidth {
            request,
            pages: visible.div_ceil(page_rows as u64),
            width,
        };
        let visible_rows = usize::try_from(visible).map_err(|_| too_narrow(visible))?;
        let needed = visible_rows.div_ceil(page_rows);
        if needed > width {
            return Err(too_narrow(visible));
        }
        let mut rows = Vec::with_capacity(visible_rows);
        let entries = &self.table[request * width..][..needed];
        for (index, &entry) in entries.iter().enumerate() {
            let page = usize::try_from(entry).ok().filter(|&page| page < pages);
            let page = page.ok_or(ContractError::Page {
                request,
                index,
                entry,
                pages,
            })?;
            let here = page_rows.min(visible_rows - rows.len());
            let first = page * page_rows;
            rows.extend((first..first + here).map(|row| &self.plane[row * lanes..][..lanes]));
        }
        Ok(rows)
    }
}

/// Writes the rank's locally normalised output and its log-sum-exp for every query row.
///
/// A row without a visible key gets output 0 and [`Lse::EMPTY`]. Computes in f64 and converts the
/// base once, at the end.
///
/// Shapes: `o` \[B\]\[s_q\]\[H\]\[dv\], `lse` \[B\]\[s_q\]\[H\].
///
/// # Errors
/// Lengths that do not fit the shape, a local length that is not the rank's share of the global
/// one, a table without a page for a visible row. The outputs are unspecified then.
pub fn decode<B: LogBase, T: Real>(
    args: &DecodeArgs<'_, T>,
    o: &mut [f64],
    lse: &mut [Lse<B, f64>],
) -> Result<(), ContractError> {
    let shape = args.shape;
    args.check()?;
    check_len("o", o.len(), shape.rows().saturating_mul(shape.dv))?;
    check_len("lse", lse.len(), shape.rows())?;
    if shape.rows() == 0 {
        return Ok(());
    }
    let mut scores = Vec::new();
    for request in 0..shape.batch {
        for query in 0..shape.queries {
            let rows = args.rows(request, args.visible(request, query))?;
            for head in 0..shape.heads {
                let row = (request * shape.queries + query) * shape.heads + head;
                let q = &args.query[row * shape.lanes()..][..shape.lanes()];
                let out = &mut o[row * shape.dv..][..shape.dv];
                lse[row] = attend(q, &rows, args.scale, &mut scores, out).convert();
            }
        }
    }
    Ok(())
}

/// Softmax attention of one query over `rows`; the value of a row is its first `out.len()` lanes.
fn attend<T: Real>(
    query: &[T],
    rows: &[&[T]],
    scale: f64,
    scores: &mut Vec<f64>,
    out: &mut [f64],
) -> Lse<E, f64> {
    out.fill(0.0);
    if rows.is_empty() {
        return Lse::EMPTY;
    }
    scores.clear();
    scores.extend(rows.iter().map(|row| scale * dot(query, row)));
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for (score, row) in scores.iter().zip(rows) {
        let weight = (score - max).exp();
        sum += weight;
        for (lane, &value) in out.iter_mut().zip(*row) {
            *lane += weight * value.into();
        }
    }
    out.iter_mut().for_each(|lane| *lane /= sum);
    Lse::new(max + sum.ln())
}

fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| x.into() * y.into()).sum()
}
