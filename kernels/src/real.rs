// SPDX-License-Identifier: Apache-2.0
//! The two float types that the references compute in.

use core::fmt::Debug;
use core::ops::{Add, Div, Mul, Sub};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32`, as the kernels compute, or `f64`, as their oracle does.
pub trait Real:
    sealed::Sealed
    + Copy
    + Debug
    + Default
    + PartialEq
    + PartialOrd
    + Into<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// Infinity.
    const INFINITY: Self;

    /// The nearest value of this type.
    #[must_use]
    fn from_f64(value: f64) -> Self;
    /// Whether it is not a number.
    #[must_use]
    fn is_nan(self) -> bool;
    /// e to this power.
    #[must_use]
    fn exp(self) -> Self;
    /// 2 to this power.
    #[must_use]
    fn exp2(self) -> Self;
    /// The natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// The logarithm in base 2.
    #[must_use]
    fn log2(self) -> Self;
}

macro_rules! real {
    ($float:ident, $from_f64:expr) => {
        impl Real for $float {
            const ZERO: Self = 0.0;
            const NEG_INFINITY: Self = $float::NEG_INFINITY;
            const INFINITY: Self = $float::INFINITY;

            fn from_f64(value: f64) -> Self {
                $from_f64(value)
            }
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn exp(self) -> Self {
                self.exp()
            }
            fn exp2(self) -> Self {
                self.exp2()
            }
            fn ln(self) -> Self {
                self.ln()
            }
            fn log2(self) -> Self {
                self.log2()
            }
        }
    };
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to the narrower type is what is asked for"
)]
fn round(value: f64) -> f32 {
    value as f32
}

real!(f32, round);
real!(f64, core::convert::identity);
