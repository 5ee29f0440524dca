// SPDX-License-Identifier: Apache-2.0
//! The log-sum-exp of a partial, with its base in the type.
//!
//! A wrong base gives plausible, wrong output. So a base-2 value is another type than a natural
//! one, the two never meet in an expression, and [`Lse::convert`] is the only place that turns one
//! into the other.

use core::fmt;
use core::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::real::Real;

/// The base of a log-sum-exp, as a value: what a backend declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Base {
    /// Natural logarithms.
    #[default]
    E,
    /// Logarithms in base 2.
    Two,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::E {}
    impl Sealed for super::Two {}
}

/// The base of a log-sum-exp, as a type.
pub trait LogBase: sealed::Sealed + Copy + fmt::Debug + Send + Sync + 'static {
    /// The same as a value.
    const BASE: Base;
    /// The natural logarithm of the base.
    const LN: f64;

    /// The base to the power `x`.
    #[must_use]
    fn exp<T: Real>(x: T) -> T;
    /// The logarithm of `x` in this base.
    #[must_use]
    fn log<T: Real>(x: T) -> T;
}

/// Natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum E {}
/// Logarithms in base 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Two {}

impl LogBase for E {
    const BASE: Base = Base::E;
    const LN: f64 = 1.0;

    fn exp<T: Real>(x: T) -> T {
        x.exp()
    }
    fn log<T: Real>(x: T) -> T {
        x.ln()
    }
}

impl LogBase for Two {
    const BASE: Base = Base::Two;
    const LN: f64 = core::f64::consts::LN_2;

    fn exp<T: Real>(x: T) -> T {
        x.exp2()
    }
    fn log<T: Real>(x: T) -> T {
        x.log2()
    }
}

/// What a backend writes where a query row saw no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptySentinel {
    /// Minus infinity, as ours do. Plus infinity is a fault then.
    #[default]
    NegativeInfinity,
    /// Plus infinity; minus infinity still means empty too.
    PositiveInfinity,
}

/// What a log-sum-exp says of its partial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict<T> {
    /// Keys were seen; the value is finite.
    Keys(T),
    /// No key was seen.
    Empty,
    /// Not a number, or an infinity that nobody declared.
    Fault,
}

/// The log-sum-exp of the scores that one query row saw, in base `B`.
///
/// Minus infinity says that it saw no key.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Lse<B, T = f32> {
    value: T,
    base: PhantomData<B>,
}

impl<B: LogBase, T: Real> Lse<B, T> {
    /// Of a row that saw no key.
    pub const EMPTY: Self = Self::new(T::NEG_INFINITY);

    /// Tags a value that is in base `B` already.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self {
            value,
            base: PhantomData,
        }
    }

    /// The plain number, in base `B`.
    #[must_use]
    pub const fn get(self) -> T {
        self.value
    }

    /// The same log-sum-exp in base `C`. Infinities and NaN stay what they are, and so does every
    /// bit if the bases are equal.
    #[must_use]
    pub fn convert<C: LogBase>(self) -> Lse<C, T> {
        if B::BASE == C::BASE {
            return Lse::new(self.value);
        }
        Lse::new(T::from_f64(self.value.into() * B::LN / C::LN))
    }

    /// What it says, under a backend's declared sentinel.
    #[must_use]
    pub fn verdict(self, empty: EmptySentinel) -> Verdict<T> {
        let value = self.value;
        if value == T::NEG_INFINITY {
            return Verdict::Empty;
        }
        if value == T::INFINITY && empty == EmptySentinel::PositiveInfinity {
            return Verdict::Empty;
        }
        if value == T::INFINITY || value.is_nan() {
            return Verdict::Fault;
        }
        Verdict::Keys(value)
    }
}

impl<B: LogBase> Lse<B, f32> {
    /// Widens a log-sum-exp that a backend gave as the bits of a bf16; exact.
    #[must_use]
    pub const fn from_bf16_bits(bits: u16) -> Self {
        Self::new(f32::from_bits((bits as u32) << 16))
    }
}

impl<B: LogBase, T: Real> fmt::Debug for Lse<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (base {:?})", self.value, B::BASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_is_exact_at_the_ends_and_close_between() {
        for value in [f32::NEG_INFINITY, f32::INFINITY, 0.0] {
            assert_eq!(Lse::<E>::new(value).convert::<Two>().get(), value);
        }
        assert!(Lse::<E>::new(f32::NAN).convert::<Two>().get().is_nan());
        assert_eq!(Lse::<Two, f64>::new(3.0).convert::<E>().get(), 8f64.ln());
        let natural = Lse::<E>::new(-0.0);
        assert_eq!(natural.convert::<E>().get().to_bits(), (-0f32).to_bits());
    }

    #[test]
    fn only_a_declared_sentinel_is_empty() {
        use EmptySentinel::{NegativeInfinity, PositiveInfinity};
        let verdict = |value: f32, empty| Lse::<E>::new(value).verdict(empty);
        for empty in [NegativeInfinity, PositiveInfinity] {
            assert_eq!(verdict(f32::NEG_INFINITY, empty), Verdict::Empty);
            assert_eq!(verdict(f32::NAN, empty), Verdict::Fault);
            assert_eq!(verdict(-1e30, empty), Verdict::Keys(-1e30));
        }
        assert_eq!(verdict(f32::INFINITY, PositiveInfinity), Verdict::Empty);
        assert_eq!(verdict(f32::INFINITY, NegativeInfinity), Verdict::Fault);
    }
}
