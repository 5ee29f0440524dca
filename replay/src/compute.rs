// SPDX-License-Identifier: Apache-2.0
//! How long a prefill computes, and when.
//!
//! A replica serves one request at a time. A request starts at its arrival, or when the one before
//! it has ended if that is later; with a time scale of 0 it arrives when it starts. A layer takes
//! `layer_us` plus the time of its floating-point operations at the sustained rate of all ranks of
//! the replica:
//!
//! ```text
//! operations = 2 * active parameters * n
//!            + 2 * layers * heads * (query-key lanes + value lanes) * (n * h + n * (n + 1) / 2)
//! ```
//!
//! for n computed tokens behind h tokens of prefix. The second line, attention, may have a rate of
//! its own. Projecting the latent rows of the prefix up again is not counted. Decoding is a number
//! of steps of equal length after each prefill, before the next request.

use crate::config::ComputeModel;
use crate::error::ConfigError;
use crate::model::ModelShape;

const NANOS_PER_MICRO: f64 = 1e3;
const NANOS_PER_SECOND: f64 = 1e9;
const FLOPS_PER_TERA: f64 = 1e12;
/// Largest value of an option of this model.
const MOST: f64 = 1e9;

/// The duration of layers.
#[derive(Clone, Copy, Debug)]
pub struct Compute {
    layer_ns: f64,
    /// Nanoseconds of a layer for a computed token, and for a pair of a query and a key.
    ns_per_token: f64,
    ns_per_pair: f64,
    decode_steps: u32,
    decode_step_ns: f64,
    time_scale: f64,
}

impl Compute {
    /// The model of `config` on a replica of `ranks` ranks.
    ///
    /// # Errors
    /// A number out of range; a rate for a model whose active parameters nobody published.
    pub fn new(config: &ComputeModel, model: &ModelShape, ranks: u32) -> Result<Self, ConfigError> {
        let from_zero = |what, value: f64| in_range(what, value, (0.0..=MOST).contains(&value));
        let layer_us = from_zero("layer time in microseconds", config.layer_us)?;
        let decode_step_us = from_zero("decode step in microseconds", config.decode_step_us)?;
        let time_scale = from_zero("time scale", config.time_scale)?;
        let layers = f64::from(model.layers);
        // Nanoseconds of a layer for one operation of the whole model.
        let ns_per_flop = |what, rate: Option<f64>| match rate {
            None => Ok::<f64, ConfigError>(0.0),
            Some(rate) => {
                let rate = in_range(what, rate, rate > 0.0 && rate <= MOST)?;
                let per_second = rate * FLOPS_PER_TERA * f64::from(ranks);
                Ok(NANOS_PER_SECOND / per_second / layers)
            }
        };
        let dense = ns_per_flop("prefill rate in TFLOP/s", config.prefill_tflops)?;
        let attention = config.attention_tflops.or(config.prefill_tflops);
        let attention = ns_per_flop("attention rate in TFLOP/s", attention)?;
        let parameters = match (config.prefill_tflops, model.active_parameters) {
            (None, _) => 0.0,
            (Some(_), Some(parameters)) => float(parameters),
            (Some(_), None) => {
                return Err(ConfigError::NoActiveParameters {
                    model: model.name.clone(),
                });
            }
        };
        let lanes = f64::from(model.query_key_lanes) + f64::from(model.value_lanes);
        Ok(Self {
            layer_ns: layer_us * NANOS_PER_MICRO,
            ns_per_token: 2.0 * parameters * dense,
            ns_per_pair: 2.0 * layers * f64::from(model.heads) * lanes * attention,
            decode_steps: config.decode_steps,
            decode_step_ns: decode_step_us * NANOS_PER_MICRO,
            time_scale,
        })
    }

    /// Nanoseconds of one layer for `computed` tokens behind `prefix` tokens.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "no factor is negative, and `as` saturates"
    )]
    pub fn layer_nanos(&self, computed: u64, prefix: u64) -> u64 {
        let (n, h) = (float(computed), float(prefix));
        let pairs = n * h + n * (n + 1.0) / 2.0;
        (self.layer_ns + n * self.ns_per_token + pairs * self.ns_per_pair).round() as u64
    }

    /// Nanoseconds of each decode step between two requests.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and `as` saturates"
    )]
    pub fn decode_steps(&self) -> impl Iterator<Item = u64> + use<> {
        let nanos = self.decode_step_ns.round() as u64;
        (0..self.decode_steps).map(move |_| nanos)
    }

    /// Nanoseconds after the replay's start at which a request of `arrival` seconds arrives; none
    /// if it arrives when the one before it has ended.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "neither factor is negative, and `as` saturates"
    )]
    pub fn arrival_nanos(&self, arrival: f64) -> Option<u64> {
        (self.time_scale > 0.0).then_some((arrival * self.time_scale * NANOS_PER_SECOND) as u64)
    }
}

fn in_range(what: &'static str, value: f64, good: bool) -> Result<f64, ConfigError> {
    good.then_some(value)
        .ok_or_else(|| ConfigError::OutOfRange {
            what,
            value: value.to_string(),
            range: "a number from 0 (a rate above 0) to 10^9",
        })
}

/// Exact below 2^53, and more precise than any model of time above.
#[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
pub(crate) const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ModelShape {
        ModelShape {
            name: "m".into(),
            layers: 10,
            row_bytes: 1152,
            heads: 2,
            query_key_lanes: 3,
            value_lanes: 2,
            active_parameters: Some(1_000_000),
        }
    }

    fn compute(layer_us: f64, prefill_tflops: Option<f64>) -> Compute {
        let config = ComputeModel {
            layer_us,
            prefill_tflops,
            time_scale: 2.0,
            ..ComputeModel::default()
        };
        Compute::new(&config, &model(), 4).unwrap()
    }

    #[test]
    fn a_layer_takes_its_fixed_time_and_its_share_of_the_operations() {
        assert_eq!(compute(1.5, None).layer_nanos(1000, 1000), 1500);
        // 100 tokens: 2e8 of parameters, 2 * 10 * 2 * 5 * (100 * 50 + 5050) = 2_010_000 of
        // attention; 4 ranks of 1e-3 TFLOP/s: 202_010_000 / 4e9 s over 10 layers.
        let nanos = compute(1.0, Some(1e-3)).layer_nanos(100, 50);
        assert_eq!(nanos, 1000 + 5_050_250);
    }

    #[test]
    fn attention_has_a_rate_of_its_own_and_decode_steps_are_equal() {
        let config = ComputeModel {
            prefill_tflops: Some(1e-3),
            attention_tflops: Some(2e-3),
            decode_steps: 2,
            decode_step_us: 7.5,
            ..ComputeModel::default()
        };
        let compute = Compute::new(&config, &model(), 4).unwrap();
        // As above, with attention twice as fast: (2e8 / 4e9 + 2_010_000 / 8e9) s over 10 layers.
        assert_eq!(compute.layer_nanos(100, 50), 5_000_000 + 25_125);
        assert_eq!(compute.decode_steps().collect::<Vec<_>>(), [7500, 7500]);
    }

    #[test]
    fn arrivals_scale_and_a_scale_of_zero_waits_for_nothing() {
        assert_eq!(compute(0.0, None).arrival_nanos(1.5), Some(3_000_000_000));
        let still = Compute::new(&ComputeModel::default(), &model(), 1).unwrap();
        assert_eq!(still.arrival_nanos(1.5), None);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let refuse = |layer_us, prefill_tflops, time_scale| {
            let config = ComputeModel {
                layer_us,
                prefill_tflops,
                time_scale,
                ..ComputeModel::default()
            };
            Compute::new(&config, &model(), 1).unwrap_err();
        };
        refuse(-1.0, None, 0.0);
        refuse(f64::NAN, None, 0.0);
        refuse(0.0, Some(0.0), 0.0);
        refuse(0.0, None, f64::INFINITY);
        let unknown = ModelShape {
            active_parameters: None,
            ..model()
        };
        let config = ComputeModel {
            prefill_tflops: Some(1.0),
            ..ComputeModel::default()
        };
        assert!(Compute::new(&config, &unknown, 1).is_err());
    }
}
