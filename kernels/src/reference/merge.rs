// SPDX-License-Identifier: Apache-2.0
//! The merge of partials: lse = logsumexp_r lse_r, o = sum_r exp(lse_r - lse) * o_r.

use super::{ContractError, check_len};
use crate::lse::{EmptySentinel, LogBase, Lse, Verdict};
use crate::real::Real;

/// The partial of one rank. Shapes: `o` \[rows\]\[lanes\], `lse` \[rows\].
#[derive(Clone, Copy, Debug)]
pub struct PartialRef<'a, B: LogBase, T: Real> {
    /// Locally normalised outputs.
    pub o: &'a [T],
    /// Their log-sum-exps.
    pub lse: &'a [Lse<B, T>],
    /// What the rank's backend writes for a row that saw no key.
    pub empty: EmptySentinel,
}

/// A log-sum-exp that is not a number or an infinity that nobody declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LseFault {
    /// Index of the partial: the DCP rank it came from.
    pub rank: usize,
    /// Row; [`super::DecodeShape::place`] names its request and head.
    pub row: usize,
}

/// What a merge met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Faulty log-sum-exps; any of them fails the step.
    pub faults: u64,
    /// The first one, by row and then by rank.
    pub first: Option<LseFault>,
}

impl MergeReport {
    fn count(&mut self, fault: LseFault) {
        self.faults += 1;
        self.first.get_or_insert(fault);
    }
}

/// Merges the partials of all ranks, in rank order; in f32 as the kernels do, in f64 as an oracle.
///
/// - All empty, or no partials: (0, [`Lse::EMPTY`]).
/// - One partial with weight: its bits, unchanged.
/// - A partial of weight 0 is not read, so what it holds cannot spoil the sum.
/// - A faulty log-sum-exp is counted and its partial left out.
///
/// Shapes: `o` \[rows\]\[lanes\], `lse` \[rows\].
///
/// # Errors
/// Lengths that do not fit; nothing is written then.
pub fn merge<B: LogBase, T: Real>(
    partials: &[PartialRef<'_, B, T>],
    lanes: usize,
    o: &mut [T],
    lse: &mut [Lse<B, T>],
) -> Result<MergeReport, ContractError> {
    let rows = lse.len();
    check_len("merged o", o.len(), rows.saturating_mul(lanes))?;
    for partial in partials {
        check_len("partial o", partial.o.len(), o.len())?;
        check_len("partial lse", partial.lse.len(), rows)?;
    }
    let mut report = MergeReport::default();
    let mut shares = Vec::with_capacity(partials.len());
    for (row, merged) in lse.iter_mut().enumerate() {
        let span = row * lanes..(row + 1) * lanes;
        shares.clear();
        for (rank, partial) in partials.iter().enumerate() {
            match partial.lse[row].verdict(partial.empty) {
                Verdict::Keys(value) => shares.push((value, &partial.o[span.clone()])),
                Verdict::Empty => {}
                Verdict::Fault => report.count(LseFault { rank, row }),
            }
        }
        *merged = merge_row(&shares, &mut o[span]);
    }
    Ok(report)
}

/// Merges the (finite log-sum-exp, output) of one row.
fn merge_row<B: LogBase, T: Real>(shares: &[(T, &[T])], out: &mut [T]) -> Lse<B, T> {
    out.fill(T::ZERO);
    let largest = shares.iter().map(|&(value, _)| value);
    let Some(max) = largest.reduce(|a, b| if b > a { b } else { a }) else {
        return Lse::EMPTY;
    };
    let weights = shares.iter().map(|&(value, o)| (B::exp(value - max), o));
    let weighty = || weights.clone().filter(|&(weight, _)| weight > T::ZERO);
    // A lone partial keeps its bits: a sum would turn -0.0 into 0.0.
    if weighty().count() == 1 {
        weighty().for_each(|(_, o)| out.copy_from_slice(o));
        return Lse::new(max);
    }
    let sum = weighty().fold(T::ZERO, |sum, (weight, _)| sum + weight);
    for (weight, o) in weighty() {
        for (lane, &value) in out.iter_mut().zip(o) {
            *lane = *lane + weight * value;
        }
    }
    for lane in out {
        *lane = *lane / sum;
    }
    Lse::new(max + B::log(sum))
}
