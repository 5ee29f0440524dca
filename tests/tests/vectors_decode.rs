// SPDX-License-Identifier: Apache-2.0
//! The oracle's vectors through plan, row writer, attention, exchange and merge of devices.
#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of test cases are small"
)]

use std::fs;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use striata::core::Stripe;
use striata::decode::{DcpMlaConfig, StepKind};
use striata::kernels::decode::row_codec::{narrow, widen};
use striata::kernels::decode::{LANES, LATENT};
use striata_tests::decode::{Rig, RigSpec};

/// Relative error of f32 sums beside the oracle's numbers.
const TOLERANCE: f64 = 5e-6;

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

impl Number {
    fn get(&self) -> f64 {
        match self {
            Self::Finite(x) => *x,
            Self::Named(name) => name.parse().unwrap(),
        }
    }
}

#[derive(Deserialize)]
struct MlaCase {
    dcp: u32,
    heads: usize,
    dv: usize,
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
}

impl MlaCase {
    /// A row or query of few lanes among the lanes of the kernels; every value is a bf16.
    fn widen(&self, lanes: &[f64]) -> Vec<u16> {
        let mut all = vec![0; LANES];
        let exact = |&value: &f64| {
            let bits = narrow(value as f32);
            assert_eq!(f64::from(widen(bits)), value);
            bits
        };
        for (at, value) in lanes.iter().enumerate() {
            let to = if at < self.dv {
                at
            } else {
                LATENT + at - self.dv
            };
            all[to] = exact(value);
        }
        all
    }

    fn rig(&self) -> Rig {
        let stripe = Stripe::new(self.dcp, 2).unwrap();
        let spec = RigSpec {
            heads: self.heads as u32,
            ..RigSpec::new(stripe, &[self.length])
        };
        let config = DcpMlaConfig {
            scale: self.scale as f32,
            ..spec.config()
        };
        let mut rig = Rig::with_config(spec, config, 1);
        rig.rows = vec![self.rows.iter().flat_map(|row| self.widen(row)).collect()];
        for (head, lanes) in rig.query.chunks_exact_mut(LANES).enumerate() {
            lanes.copy_from_slice(&self.widen(&self.q[head % self.heads]));
        }
        rig.fill();
        rig
    }
}

fn close(got: f32, want: f64) {
    let got = f64::from(got);
    let near = got == want || (got - want).abs() <= TOLERANCE * want.abs().max(1.0);
    assert!(near, "{got} instead of {want}");
}

/// Compares the rows of `o`, whose lanes past the case's are 0.
fn compare(case: &MlaCase, got: &striata_tests::decode::Results, o: &[Vec<f64>], lse: &[f64]) {
    let heads = case.heads * case.dcp as usize;
    for head in 0..heads {
        let row = &got.o[head * LATENT..][..LATENT];
        let want = &o[head % case.heads];
        want.iter()
            .zip(row)
            .for_each(|(want, got)| close(*got, *want));
        assert!(row[case.dv..].iter().all(|&lane| lane == 0.0));
        close(got.lse[head], lse[head % case.heads]);
    }
}

#[test]
fn mla_decode_through_devices() {
    let cases = load::<MlaCase>("mla_decode.json");
    assert!(cases.len() >= 5);
    for case in cases {
        let mut rig = case.rig();
        let merged = rig.step(StepKind::Eager).unwrap();
        compare(&case, &merged, &case.o, &case.lse_e);
        for (rank, partial) in case.partials.iter().enumerate() {
            let lse: Vec<f64> = partial.lse_e.iter().map(Number::get).collect();
            compare(&case, &rig.partials(rank), &partial.o, &lse);
        }
    }
}

#[derive(Deserialize)]
struct MaskCase {
    dcp: u32,
    global_length: usize,
    queries: u32,
    visible_local_rows: Vec<Vec<u32>>,
}

/// With all rows equal, a log-sum-exp counts the rows that attention read.
#[test]
fn verify_mask_through_devices() {
    for case in load::<MaskCase>("verify_mask.json") {
        let spec = RigSpec {
            queries: case.queries,
            heads: 1,
            ..RigSpec::new(Stripe::new(case.dcp, 4).unwrap(), &[case.global_length])
        };
        let mut rig = Rig::new(spec, 2);
        rig.rows.iter_mut().flatten().for_each(|lane| *lane = 0);
        rig.fill();
        rig.step(StepKind::Eager).unwrap();
        for (rank, want) in case.visible_local_rows.iter().enumerate() {
            let got = rig.partials(rank);
            for (query, &want) in want.iter().enumerate() {
                let read = got.lse[query * case.dcp as usize].exp();
                close(read, f64::from(want));
            }
        }
    }
}
