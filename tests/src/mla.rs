// SPDX-License-Identifier: Apache-2.0
//! A decode batch laid out over c ranks: dense sequences, scattered to paged planes by ownership.
#![allow(
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "fixtures: sizes are small, a panic fails the test"
)]

use striata_core::{Rank, Stripe, TokenPos};
use striata_kernels::reference::{
    ContractError, DecodeArgs, DecodeShape, MergeReport, PartialRef, decode, merge,
};
use striata_kernels::{EmptySentinel, LogBase, Lse, Real};

/// Outputs and log-sum-exps of all query rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial<B: LogBase, T: Real> {
    /// Shape: \[B\]\[s_q\]\[H\]\[dv\].
    pub o: Vec<T>,
    /// Shape: \[B\]\[s_q\]\[H\].
    pub lse: Vec<Lse<B, T>>,
}

impl<B: LogBase> Partial<B, f64> {
    /// Full of NaN, so that a row that nobody writes shows.
    #[must_use]
    pub fn poisoned(shape: DecodeShape) -> Self {
        Self {
            o: vec![f64::NAN; shape.rows() * shape.dv],
            lse: vec![Lse::new(f64::NAN); shape.rows()],
        }
    }

    /// The same in f32, as a backend would give it.
    #[must_use]
    pub fn rounded(&self) -> Partial<B, f32> {
        Partial {
            o: self.o.iter().map(|&x| f32::from_f64(x)).collect(),
            lse: self
                .lse
                .iter()
                .map(|x| Lse::new(f32::from_f64(x.get())))
                .collect(),
        }
    }
}

impl<B: LogBase, T: Real> Partial<B, T> {
    /// As the merge takes it.
    #[must_use]
    pub fn as_ref(&self) -> PartialRef<'_, B, T> {
        PartialRef {
            o: &self.o,
            lse: &self.lse,
            empty: EmptySentinel::NegativeInfinity,
        }
    }
}

/// Merges partials of `lanes` lanes into a poisoned output.
pub fn merge_all<B: LogBase, T: Real>(
    partials: &[Partial<B, T>],
    lanes: usize,
) -> (Partial<B, T>, MergeReport) {
    let rows = partials[0].lse.len();
    let nan = T::from_f64(f64::NAN);
    let mut merged = Partial {
        o: vec![nan; rows * lanes],
        lse: vec![Lse::new(nan); rows],
    };
    let refs: Vec<_> = partials.iter().map(Partial::as_ref).collect();
    let report = merge(&refs, lanes, &mut merged.o, &mut merged.lse).unwrap();
    (merged, report)
}

/// Dense sequences with their queries.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Sizes.
    pub shape: DecodeShape,
    /// Factor of the scores.
    pub scale: f64,
    /// Rows of each request. Shape of one: \[tokens\]\[lanes\].
    pub sequences: Vec<Vec<f64>>,
    /// Shape: \[B\]\[s_q\]\[H\]\[lanes\].
    pub query: Vec<f64>,
}

/// One rank's plane and what the kernel is told of it.
#[derive(Clone, Debug)]
pub struct Shard {
    /// c and P.
    pub stripe: Stripe,
    /// r.
    pub rank: Rank,
    /// Shape: \[pages\]\[P\]\[lanes\].
    pub plane: Vec<f64>,
    /// Shape: \[B\]\[width\]; -1 where a request has no page.
    pub table: Vec<i32>,
    /// Entries of a table row.
    pub table_width: usize,
    /// Shape: \[B\].
    pub local_lens: Vec<i32>,
    /// Shape: \[B\].
    pub global_lens: Vec<i32>,
}

impl Batch {
    /// Tokens of a request.
    #[must_use]
    pub fn tokens(&self, request: usize) -> usize {
        self.sequences[request].len() / self.shape.lanes()
    }

    /// Scatters the sequences to the plane of `rank`: pages in descending order of id, every row
    /// that no token stands in and a page that no table names filled with `filler`.
    #[must_use]
    pub fn shard(&self, stripe: Stripe, rank: Rank, filler: f64) -> Shard {
        let lanes = self.shape.lanes();
        let page_rows = stripe.page_rows() as usize;
        let needed: Vec<usize> = (0..self.shape.batch)
            .map(|request| stripe.pages_for(self.tokens(request) as u64) as usize)
            .collect();
        let width = needed.iter().copied().max().unwrap_or(0) + 1;
        let mut next = needed.iter().sum::<usize>() + 1;
        let mut plane = vec![filler; next * page_rows * lanes];
        let mut table = vec![-1; self.shape.batch * width];
        let mut local_lens = Vec::new();
        for (request, &pages) in needed.iter().enumerate() {
            let entries = &mut table[request * width..][..pages];
            for entry in entries.iter_mut() {
                next -= 1;
                *entry = i32::try_from(next).unwrap();
            }
            let mut local = 0;
            for position in 0..self.tokens(request) {
                if stripe.owner_of_position(TokenPos::new(position as u64)) == rank {
                    let page = usize::try_from(entries[local / page_rows]).unwrap();
                    let row = page * page_rows + local % page_rows;
                    let from = &self.sequences[request][position * lanes..][..lanes];
                    plane[row * lanes..][..lanes].copy_from_slice(from);
                    local += 1;
                }
            }
            local_lens.push(i32::try_from(local).unwrap());
        }
        let global_lens = (0..self.shape.batch)
            .map(|request| i32::try_from(self.tokens(request)).unwrap())
            .collect();
        Shard {
            stripe,
            rank,
            plane,
            table,
            table_width: width,
            local_lens,
            global_lens,
        }
    }

    /// The partial of one shard.
    pub fn attend<B: LogBase>(&self, shard: &Shard) -> Result<Partial<B, f64>, ContractError> {
        let mut partial = Partial::poisoned(self.shape);
        let args = DecodeArgs {
            shape: self.shape,
            stripe: shard.stripe,
            rank: shard.rank,
            scale: self.scale,
            query: &self.query,
            plane: &shard.plane,
            table: &shard.table,
            table_width: shard.table_width,
            local_lens: &shard.local_lens,
            global_lens: &shard.global_lens,
        };
        decode(&args, &mut partial.o, &mut partial.lse)?;
        Ok(partial)
    }

    /// The partials of all ranks, unowned rows full of NaN.
    #[must_use]
    pub fn partials<B: LogBase>(&self, stripe: Stripe) -> Vec<Partial<B, f64>> {
        let shards = stripe.ranks().map(|r| self.shard(stripe, r, f64::NAN));
        shards.map(|shard| self.attend(&shard).unwrap()).collect()
    }

    /// Attention over the whole sequences, written without pages, stripes or shared code.
    #[must_use]
    pub fn dense(&self) -> (Vec<f64>, Vec<f64>) {
        let (mut o, mut lse) = (Vec::new(), Vec::new());
        let lanes = self.shape.lanes();
        for (row, q) in self.query.chunks(lanes).enumerate() {
            let (request, query, _) = self.shape.place(row).unwrap();
            let seen = (self.tokens(request) + query + 1).saturating_sub(self.shape.queries);
            let rows: Vec<&[f64]> = self.sequences[request].chunks(lanes).take(seen).collect();
            let score =
                |row: &&[f64]| self.scale * q.iter().zip(*row).map(|(a, b)| a * b).sum::<f64>();
            let top = rows.iter().map(score).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = rows.iter().map(|row| (score(row) - top).exp()).sum();
            lse.push(if rows.is_empty() {
                top
            } else {
                top + total.ln()
            });
            o.extend((0..self.shape.dv).map(|lane| {
                let weighted = rows
                    .iter()
                    .map(|row| (score(row) - top).exp() / total * row[lane]);
                weighted.sum::<f64>()
            }));
        }
        (o, lse)
    }
}

/// A reproducible stream of values in [-2, 2).
pub fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as u32) / f64::from(1 << 22) - 2.0
    }
}

/// A batch of random values with these sequence lengths.
#[must_use]
pub fn random_batch(seed: u64, lengths: &[usize], queries: usize, heads: usize) -> Batch {
    let shape = DecodeShape {
        batch: lengths.len(),
        queries,
        heads,
        dv: 6,
        drope: 3,
    };
    let mut next = noise(seed);
    let mut values = |n: usize| -> Vec<f64> { (0..n).map(|_| next()).collect() };
    Batch {
        shape,
        scale: 0.4,
        query: values(shape.rows() * shape.lanes()),
        sequences: lengths.iter().map(|&n| values(n * shape.lanes())).collect(),
    }
}

/// Asserts that values agree within `tolerance`, relative to the larger of 1 and the value.
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (at, (&g, &w)) in got.iter().zip(want).enumerate() {
        let close = g == w || (g - w).abs() <= tolerance * w.abs().max(1.0);
        assert!(close, "element {at}: got {g}, want {w}");
    }
}
