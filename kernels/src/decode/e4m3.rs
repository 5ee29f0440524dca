// SPDX-License-Identifier: Apache-2.0
//! Eight-bit floats e4m3 without infinities (OCP "8-bit Floating Point Specification", E4M3): one
//! sign bit, four of the exponent with bias 7, three of the mantissa; 448 is the largest value,
//! 0x7F and 0xFF are NaN.

/// The largest value.
pub const MAX: f32 = 448.0;
const NAN: u8 = 0x7F;
const SIGN: u8 = 0x80;
/// 2^120: what the exponent field of e4m3 is short of, read as that of an f32.
const REBIAS: f32 = f32::from_bits((127 + 120) << 23);
/// 2^-6, the smallest normal value, and how many steps of a subnormal make 1.
const SMALLEST_NORMAL: f32 = 0.015_625;
const STEPS: f32 = 512.0;

/// The value of a byte; exact.
#[must_use]
pub fn decode(byte: u8) -> f32 {
    let magnitude = byte & !SIGN;
    if magnitude == NAN {
        return f32::NAN;
    }
    let sign = u32::from(byte & SIGN) << 24;
    // The product is exact: a power of two, and the result is normal or zero.
    f32::from_bits(sign | u32::from(magnitude) << 20) * REBIAS
}

/// The nearest value, ties to even; beyond the largest it saturates, also from an infinity.
#[must_use]
pub fn encode(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { SIGN } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | NAN;
    }
    let magnitude = magnitude.min(MAX);
    let code = if magnitude < SMALLEST_NORMAL {
        subnormal(magnitude)
    } else {
        let bits = magnitude.to_bits();
        let rounded = bits + 0x7_FFFF + (bits >> 20 & 1);
        (rounded >> 20) - (120 << 3)
    };
    // Seven bits: 448 rounds to 0x7E.
    sign | code.to_le_bytes()[0]
}

/// Steps of 2^-9 in a magnitude below 2^-6; 8 of them are the smallest normal value.
fn subnormal(magnitude: f32) -> u32 {
    let steps = (magnitude * STEPS).round_ties_even();
    (0..8u8)
        .find(|step| steps < f32::from(step + 1))
        .map_or(8, u32::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value by the definition.
    fn defined(byte: u8) -> f64 {
        let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
        let exponent = i32::from(byte >> 3 & 15);
        let mantissa = f64::from(byte & 7);
        if byte & 0x7F == 0x7F {
            return f64::NAN;
        }
        if exponent == 0 {
            return sign * mantissa / 8.0 * 2f64.powi(-6);
        }
        sign * (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7)
    }

    // Seen to fail if subnormal steps are 2^-8.
    #[test]
    fn all_256_bytes_have_the_defined_value_and_come_back() {
        for byte in 0..=255u8 {
            let value = decode(byte);
            if value.is_nan() {
                assert!(defined(byte).is_nan(), "{byte:#x}");
                assert_eq!(encode(value) & 0x7F, 0x7F);
                continue;
            }
            assert_eq!(f64::from(value), defined(byte), "{byte:#x}");
            assert_eq!(value.is_sign_negative(), byte & 0x80 != 0);
            assert_eq!(encode(value), byte);
        }
    }

    // Seen to fail if the tie bit is left out of the rounding.
    #[test]
    fn between_two_values_the_nearer_is_taken_and_the_even_at_the_middle() {
        for low in 0..0x7Eu8 {
            let (a, b) = (decode(low), decode(low + 1));
            let middle = f32::midpoint(a, b);
            let even = low + (low & 1);
            assert_eq!(encode(middle), even, "{low:#x}");
            assert_eq!(encode(-middle), even | 0x80);
            assert_eq!(encode(middle.next_down()), low);
            assert_eq!(encode(middle.next_up()), low + 1);
        }
        for large in [448.0, 449.0, 1e9, f32::INFINITY] {
            assert_eq!(encode(large), 0x7E);
            assert_eq!(encode(-large), 0xFE);
        }
    }
}
