// SPDX-License-Identifier: Apache-2.0
//! What attention must give, from tokens alone, in f64.

use striata_core::LayerId;
use striata_kernels::decode::{LANES, LATENT};
use striata_kernels::reference::DenseAttention;
use striata_kernels::values::RowSeed;

use super::{QUERIES, SCALE, query_seed, row_seed};
use crate::driver::plan::Plan;

/// Outputs \[queries\]\[heads\]\[512\] and natural log-sum-exps \[queries\]\[heads\] of `heads` in
/// `layer`, for a request of these tokens.
pub(super) fn attention(
    plan: &Plan,
    request: u64,
    layer: LayerId,
    heads: &[u32],
    tokens: &[u32],
) -> (Vec<f64>, Vec<f64>) {
    let layer = layer.get();
    let queries = (0..QUERIES).flat_map(|query| {
        let lanes = move |&head: &u32| lanes(query_seed(request, query, head), layer);
        heads.iter().map(lanes).collect::<Vec<_>>()
    });
    let mut dense = DenseAttention::new(queries, LATENT, f64::from(SCALE));
    let behind = QUERIES as usize;
    for (position, &token) in tokens.iter().enumerate() {
        let row = lanes(row_seed(plan, position as u64, token), layer);
        dense.push(&row, |row| {
            position + behind <= tokens.len() + row / heads.len()
        });
    }
    dense.finish()
}

fn lanes(seed: RowSeed, layer: u32) -> Vec<f64> {
    let lanes = u32::try_from(LANES).unwrap_or(0);
    (0..lanes)
        .map(|lane| f64::from(seed.value(layer, lane)))
        .collect()
}
