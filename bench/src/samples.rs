// SPDX-License-Identifier: Apache-2.0
//! Repeated measurements of one figure.

/// Measurements of one figure, in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// No measurement yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// Adds a measurement; one that is not finite is dropped.
    pub fn push(&mut self, value: f64) {
        if value.is_finite() {
            self.values.push(value);
        }
    }

    /// How many measurements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The largest; none of none.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.quantile(1.0)
    }

    /// The middle one, or the mean of the two in the middle.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(f64::midpoint(lower, upper))
    }

    /// The value at rank ceil(q n) of n, q in 0..=1: the usual p99 for q = 0.99.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let sorted = self.sorted();
        let count = sorted.len();
        // Below 2^52 measurements this is exact.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the count"
        )]
        let rank = (q.clamp(0.0, 1.0) * count as f64).ceil() as usize;
        sorted.get(rank.clamp(1, count.max(1)) - 1).copied()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::new();
        values.iter().for_each(|&value| samples.push(value));
        samples
    }

    #[test]
    fn order_statistics_of_small_sets() {
        let none = samples(&[]);
        assert_eq!(
            (none.median(), none.best(), none.quantile(0.5)),
            (None, None, None)
        );
        let four = samples(&[4.0, 1.0, f64::NAN, 3.0, 2.0]);
        assert_eq!(
            (four.len(), four.median(), four.best()),
            (4, Some(2.5), Some(4.0))
        );
        let hundred = samples(&(1..=100).map(f64::from).collect::<Vec<_>>());
        assert_eq!(hundred.quantile(0.99), Some(99.0));
        assert_eq!(
            (hundred.quantile(0.0), hundred.quantile(1.0)),
            (Some(1.0), Some(100.0))
        );
    }
}
