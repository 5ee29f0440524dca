// SPDX-License-Identifier: Apache-2.0
//! The CPU references against the oracle's vectors.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use std::fs;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use striata_core::{Rank, Stripe};
use striata_kernels::reference::DecodeShape;
use striata_kernels::{E, LogBase, Lse, Two};
use striata_tests::mla::{Batch, assert_close, merge_all};

#[derive(Deserialize)]
struct Cases<T> {
    cases: Vec<T>,
}

fn load<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = format!("{}/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str::<Cases<T>>(&text).unwrap().cases
}

/// A number, or `"-inf"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Named(String),
}

fn numbers(list: &[Number]) -> Vec<f64> {
    let value = |number: &Number| match number {
        Number::Finite(x) => *x,
        Number::Named(name) => name.parse().unwrap(),
    };
    list.iter().map(value).collect()
}

#[derive(Deserialize)]
struct MlaCase {
    dcp: u32,
    heads: usize,
    dv: usize,
    drope: usize,
    length: usize,
    scale: f64,
    rows: Vec<Vec<f64>>,
    q: Vec<Vec<f64>>,
    partials: Vec<MlaPartial>,
    o: Vec<Vec<f64>>,
    lse_e: Vec<f64>,
}

#[derive(Deserialize)]
struct MlaPartial {
    o: Vec<Vec<f64>>,
    lse_e: Vec<Number>,
    lse_2: Vec<Number>,
}

impl MlaCase {
    fn batch(&self) -> Batch {
        assert_eq!(self.rows.len(), self.length);
        Batch {
            shape: DecodeShape {
                batch: 1,
                queries: 1,
                heads: self.heads,
                dv: self.dv,
                drope: self.drope,
            },
            scale: self.scale,
            sequences: vec![self.rows.concat()],
            query: self.q.concat(),
        }
    }
}

fn values<B: LogBase>(lse: &[Lse<B, f64>]) -> Vec<f64> {
    lse.iter().map(|x| x.get()).collect()
}

#[test]
fn mla_decode_partials_and_merge() {
    const TOLERANCE: f64 = 1e-6;
    for case in load::<MlaCase>("mla_decode.json") {
        let batch = case.batch();
        for page_rows in [1, 2, 64] {
            let stripe = Stripe::new(case.dcp, page_rows).unwrap();
            let natural = batch.partials::<E>(stripe);
            let binary = batch.partials::<Two>(stripe);
            assert_eq!(natural.len(), case.partials.len());
            for ((e, two), want) in natural.iter().zip(&binary).zip(&case.partials) {
                assert_close(&e.o, &want.o.concat(), TOLERANCE);
                assert_eq!(e.o, two.o);
                assert_close(&values(&e.lse), &numbers(&want.lse_e), TOLERANCE);
                assert_close(&values(&two.lse), &numbers(&want.lse_2), TOLERANCE);
            }
            let (merged, report) = merge_all(&natural, case.dv);
            assert_eq!(report.faults, 0);
            assert_close(&merged.o, &case.o.concat(), TOLERANCE);
            assert_close(&values(&merged.lse), &case.lse_e, TOLERANCE);
            let (merged, _) = merge_all(&binary, case.dv);
            assert_close(&merged.o, &case.o.concat(), TOLERANCE);
            let lse: Vec<_> = merged.lse.iter().map(|x| x.convert::<E>()).collect();
            assert_close(&values(&lse), &case.lse_e, TOLERANCE);
        }
    }
}

#[derive(Deserialize)]
struct MaskCase {
    dcp: u32,
    global_length: i64,
    queries: u32,
    visible_local_rows: Vec<Vec<u64>>,
}

#[test]
fn verify_mask_visible_rows() {
    for case in load::<MaskCase>("verify_mask.json") {
        let stripe = Stripe::new(case.dcp, 64).unwrap();
        assert_eq!(case.visible_local_rows.len(), case.dcp as usize);
        for (rank, want) in (0..).map(Rank::new).zip(&case.visible_local_rows) {
            let got: Vec<u64> = (0..case.queries)
                .map(|query| stripe.visible_rows(rank, case.global_length, case.queries, query))
                .collect();
            assert_eq!(&got, want, "c={} G={}", case.dcp, case.global_length);
        }
    }
}

/// With all rows equal, the log-sum-exp of a row counts the rows that attention read.
#[test]
fn verify_mask_is_what_attention_reads() {
    for case in load::<MaskCase>("verify_mask.json") {
        let shape = DecodeShape {
            batch: 1,
            queries: case.queries as usize,
            heads: 1,
            dv: 1,
            drope: 0,
        };
        let batch = Batch {
            shape,
            scale: 1.0,
            sequences: vec![vec![0.0; case.global_length.unsigned_abs() as usize]],
            query: vec![0.0; shape.rows()],
        };
        let stripe = Stripe::new(case.dcp, 4).unwrap();
        let partials = batch.partials::<E>(stripe);
        for (partial, want) in partials.iter().zip(&case.visible_local_rows) {
            let read: Vec<f64> = partial.lse.iter().map(|x| x.get().exp()).collect();
            let want: Vec<f64> = want.iter().map(|&n| n as f64).collect();
            assert_close(&read, &want, 1e-12);
        }
    }
}
