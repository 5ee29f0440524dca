// SPDX-License-Identifier: Apache-2.0
//! Requests whose lengths stand at the edges of pages, up to 33,000 tokens, on simulated devices:
//! a request that grows over each edge token by token against attention over the whole context in
//! f64. One pass over the context gives what every length must give.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use std::collections::BTreeMap;

use striata::core::Stripe;
use striata::decode::StepKind;
use striata::kernels::decode::{LANES, LATENT};
use striata::kernels::reference::DenseAttention;
use striata_tests::decode::{Results, Rig, RigSpec, assert_rows_close, numbers};

/// P, and about the most tokens of a request.
const PAGE_ROWS: u32 = 64;
const MOST: usize = 33_000;
/// Relative error of results in f32, and of log-sum-exps.
const F32: f64 = 1e-5;

/// Outputs and log-sum-exps of all queries over the first tokens, by how many those are.
type Prefixes = BTreeMap<usize, (Vec<f64>, Vec<f64>)>;

/// Attention of every query of request 0 over each of these numbers of its first tokens.
fn prefixes(rig: &Rig, whole: &[u16], counts: &[usize]) -> Prefixes {
    let shape = rig.config.attend_shape();
    let rows = (shape.queries * shape.heads) as usize;
    let query = rig.query[..rows * LANES].chunks_exact(LANES).map(numbers);
    let mut dense = DenseAttention::new(query, LATENT, f64::from(rig.config.scale));
    let mut found = Prefixes::new();
    for (position, row) in whole.chunks_exact(LANES).enumerate() {
        if counts.contains(&position) {
            found.insert(position, dense.clone().finish());
        }
        dense.push(&numbers(row), |_| true);
    }
    found.insert(whole.len() / LANES, dense.finish());
    found
}

/// Lets request 0 have the first `tokens` tokens, of which a step writes the last.
fn grow(rig: &mut Rig, whole: &[u16], tokens: usize) {
    let had = rig.tokens(0);
    rig.rows[0] = whole[..tokens * LANES].to_vec();
    let old = tokens - rig.new_tokens(0) as usize;
    (had..old).for_each(|position| rig.put_row(0, position));
}

/// The queries of request 0 in the results of a batch.
fn first_request(results: &Results, rows: usize) -> Results {
    Results {
        o: results.o[..rows * LATENT].to_vec(),
        lse: results.lse[..rows].to_vec(),
    }
}

fn check(dcp: u32, queries: u32) {
    let stripe = Stripe::new(dcp, PAGE_ROWS).unwrap();
    let widened = stripe.widened_page() as usize;
    let pages = [1, 9, MOST / widened];
    let lengths: Vec<usize> = pages
        .iter()
        .flat_map(|&pages| [pages * widened - 1, pages * widened, pages * widened + 1])
        .collect();
    // Beside it, one without tokens and a short one.
    let spec = RigSpec {
        heads: 1,
        queries,
        ..RigSpec::new(stripe, &[lengths[8], 0, 70])
    };
    let mut rig = Rig::new(spec, u64::from(dcp));
    let whole = rig.rows[0].clone();
    let per_query = rig.config.attend_shape().heads as usize;
    let behind = |length: usize, query: usize| length + query + 1 - queries as usize;
    let counts: Vec<usize> = lengths
        .iter()
        .flat_map(|&length| (0..queries as usize).map(move |query| behind(length, query)))
        .collect();
    let want = prefixes(&rig, &whole, &counts);
    // Nothing but NaN where a step has not been yet.
    rig.rows[0].clear();
    rig.fill();
    for &length in &lengths {
        grow(&mut rig, &whole, length);
        rig.poison_results();
        let got = rig
            .step(StepKind::Eager)
            .unwrap_or_else(|error| panic!("c = {dcp}, {length} tokens: {error}"));
        let (mut o, mut lse) = (Vec::new(), Vec::new());
        for query in 0..queries as usize {
            let (all_o, all_lse) = &want[&behind(length, query)];
            let rows = query * per_query..(query + 1) * per_query;
            o.extend(&all_o[rows.start * LATENT..rows.end * LATENT]);
            lse.extend(&all_lse[rows]);
        }
        let got = first_request(&got, queries as usize * per_query);
        assert_rows_close(&got, &(o, lse), F32);
    }
}

#[test]
fn page_edges_up_to_33k_on_one_rank() {
    check(1, 2);
}

#[test]
fn page_edges_up_to_33k_on_two_ranks() {
    check(2, 1);
}

#[test]
fn page_edges_up_to_33k_on_three_ranks() {
    check(3, 2);
}

#[test]
fn page_edges_up_to_33k_on_four_ranks() {
    check(4, 1);
}

#[test]
fn page_edges_up_to_33k_on_eight_ranks() {
    check(8, 1);
}
