// SPDX-License-Identifier: Apache-2.0
//! Attention over a whole sequence, row after row, in f64: it knows no page, rank, stripe or
//! layout, so that what a striped, paged path computes can be compared with it.

/// Attention of some queries over rows that come one after the other.
#[derive(Clone, Debug)]
pub struct DenseAttention {
    scale: f64,
    dv: usize,
    queries: Vec<Running>,
}

/// One query: softmax sums relative to the largest score so far.
#[derive(Clone, Debug)]
struct Running {
    lanes: Vec<f64>,
    max: f64,
    sum: f64,
    o: Vec<f64>,
}

impl DenseAttention {
    /// Attention of `queries`, all of the lanes of a row, whose values are the first `dv` lanes of
    /// rows; scores are multiplied by `scale`.
    #[must_use]
    pub fn new(queries: impl IntoIterator<Item = Vec<f64>>, dv: usize, scale: f64) -> Self {
        let running = |lanes| Running {
            lanes,
            max: f64::NEG_INFINITY,
            sum: 0.0,
            o: vec![0.0; dv],
        };
        Self {
            scale,
            dv,
            queries: queries.into_iter().map(running).collect(),
        }
    }

    /// Shows the next row to the queries for which `sees(index)` holds.
    pub fn push(&mut self, row: &[f64], sees: impl Fn(usize) -> bool) {
        for (index, query) in self.queries.iter_mut().enumerate() {
            if sees(index) {
                let products = query.lanes.iter().zip(row).map(|(q, k)| q * k);
                query.add(self.scale * products.sum::<f64>(), row);
            }
        }
    }

    /// Outputs \[queries\]\[dv\] and natural log-sum-exps \[queries\]; (0, -inf) for a query that
    /// saw nothing.
    #[must_use]
    pub fn finish(self) -> (Vec<f64>, Vec<f64>) {
        let mut o = Vec::with_capacity(self.queries.len() * self.dv);
        let mut lse = Vec::with_capacity(self.queries.len());
        for query in self.queries {
            let empty = query.sum == 0.0;
            let sum = if empty { 1.0 } else { query.sum };
            o.extend(query.o.iter().map(|lane| lane / sum));
            lse.push(if empty {
                f64::NEG_INFINITY
            } else {
                query.max + query.sum.ln()
            });
        }
        (o, lse)
    }
}

impl Running {
    fn add(&mut self, score: f64, row: &[f64]) {
        if score > self.max {
            let factor = (self.max - score).exp();
            self.sum *= factor;
            self.o.iter_mut().for_each(|lane| *lane *= factor);
            self.max = score;
        }
        let weight = (score - self.max).exp();
        self.sum += weight;
        for (lane, value) in self.o.iter_mut().zip(row) {
            *lane += weight * value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_the_definition_in_any_order_of_scores() {
        for scores in [[0.0, 1.0, 3.0], [3.0, 1.0, 0.0], [1.0, 3.0, -900.0]] {
            let mut dense = DenseAttention::new([vec![2.0, 0.0]], 2, 0.5);
            for (score, value) in scores.iter().zip([1.0, -2.0, 5.0]) {
                dense.push(&[*score, value], |_| true);
            }
            dense.push(&[99.0, 99.0], |_| false);
            let (o, lse) = dense.finish();
            let total: f64 = scores.iter().map(|s| s.exp()).sum();
            let value = |at: usize, v: f64| scores[at].exp() * v / total;
            let want = value(0, 1.0) + value(1, -2.0) + value(2, 5.0);
            assert!((o[1] - want).abs() < 1e-12 && (lse[0] - total.ln()).abs() < 1e-12);
        }
        let (o, lse) = DenseAttention::new([vec![1.0]], 1, 1.0).finish();
        assert_eq!((o, lse), (vec![0.0], vec![f64::NEG_INFINITY]));
    }
}
