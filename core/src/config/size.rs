// SPDX-License-Identifier: Apache-2.0
//! Capacities as users write them: `64GiB`, `64GB`, `5120000t`, `10000p`, `0`.

use core::fmt;
use core::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ConfigError;
use crate::stripe::Stripe;

/// How much a tier holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capacity {
    /// Bytes of each rank.
    Bytes(u64),
    /// Tokens of the widened space.
    Tokens(u64),
    /// Widened pages.
    Pages(u64),
}

/// Units of bytes, longest suffix first where one ends another.
const BYTE_UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl Capacity {
    /// No capacity: the tier is off.
    pub const ZERO: Self = Self::Bytes(0);

    /// Whether the tier is off.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        matches!(self, Self::Bytes(0) | Self::Tokens(0) | Self::Pages(0))
    }

    /// Widened pages that can be used if a page takes `page_bytes` bytes of a rank and `reserved`
    /// pages (the sink of L1) come out of the bytes.
    ///
    /// Everything rounds down to whole pages; tokens and pages are beside the reserve.
    #[must_use]
    pub const fn usable_pages(self, stripe: Stripe, page_bytes: u64, reserved: u64) -> u64 {
        match self {
            Self::Pages(pages) => pages,
            Self::Tokens(tokens) => stripe.whole_pages(tokens),
            Self::Bytes(bytes) => match bytes.checked_div(page_bytes) {
                Some(pages) => pages.saturating_sub(reserved),
                None => 0,
            },
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(0) => f.write_str("0"),
            Self::Tokens(tokens) => write!(f, "{tokens}t"),
            Self::Pages(pages) => write!(f, "{pages}p"),
            Self::Bytes(bytes) => {
                let binary = BYTE_UNITS[..4].iter().rev();
                let whole = binary.into_iter().find(|unit| bytes.is_multiple_of(unit.1));
                let (name, unit) = whole.copied().unwrap_or(("B", 1));
                write!(f, "{}{name}", bytes / unit)
            }
        }
    }
}

impl FromStr for Capacity {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let refuse = |reason| ConfigError::Size {
            text: text.to_owned(),
            reason,
        };
        if text == "0" {
            return Ok(Self::ZERO);
        }
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let Some(end) = end else {
            return Err(refuse(if text.is_empty() {
                "it is empty"
            } else {
                "it has no unit"
            }));
        };
        let (number, suffix) = text.split_at(end);
        let unit = BYTE_UNITS.iter().find(|(name, _)| *name == suffix);
        let capacity = match (suffix, unit) {
            ("t", _) => Self::Tokens(scaled(number, 1).map_err(refuse)?),
            ("p", _) => Self::Pages(scaled(number, 1).map_err(refuse)?),
            (_, Some(&(_, unit))) => Self::Bytes(scaled(number, unit).map_err(refuse)?),
            _ => return Err(refuse("its unit is unknown")),
        };
        if capacity.is_zero() {
            return Err(refuse("it is zero: a tier is turned off by a plain 0"));
        }
        Ok(capacity)
    }
}

/// `number` units, for a decimal number of things that come whole.
fn scaled(number: &str, unit: u64) -> Result<u64, &'static str> {
    const TOO_LARGE: &str = "it is more than 64 bits can count";
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(fraction) || number.ends_with('.') {
        return Err("its number is malformed");
    }
    let whole: u64 = whole.parse().map_err(|_| TOO_LARGE)?;
    let mut total = whole.checked_mul(unit).ok_or(TOO_LARGE)?;
    if !fraction.is_empty() {
        if unit == 1 {
            return Err("its number must be whole");
        }
        if fraction.len() > 6 {
            return Err("its number has more than 6 decimals");
        }
        let scale = (0..fraction.len()).fold(1u128, |scale, _| scale * 10);
        let part: u128 = fraction.parse().map_err(|_| TOO_LARGE)?;
        let part = part * u128::from(unit) / scale;
        let part = u64::try_from(part).map_err(|_| TOO_LARGE)?;
        total = total.checked_add(part).ok_or(TOO_LARGE)?;
    }
    Ok(total)
}

impl Serialize for Capacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrZero;

        impl Visitor<'_> for TextOrZero {
            type Value = Capacity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a capacity such as \"64GiB\", \"5120000t\", \"10000p\" or 0")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Capacity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Capacity, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Capacity, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(TextOrZero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_read_and_written_back() {
        for (text, value, written) in [
            ("64GiB", Capacity::Bytes(64 << 30), "64GiB"),
            ("64GB", Capacity::Bytes(64_000_000_000), "62500000KiB"),
            ("1.5GiB", Capacity::Bytes(3 << 29), "1536MiB"),
            ("0.1kB", Capacity::Bytes(100), "100B"),
            ("5120000t", Capacity::Tokens(5_120_000), "5120000t"),
            ("10000p", Capacity::Pages(10_000), "10000p"),
            ("0", Capacity::ZERO, "0"),
        ] {
            let read: Capacity = text.parse().unwrap();
            assert_eq!((read, read.to_string().as_str()), (value, written));
            assert_eq!(written.parse(), Ok(value));
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_text() {
        for (text, reason) in [
            ("", "is empty"),
            ("12", "has no unit"),
            ("-1GiB", "unit is unknown"),
            ("GiB", "malformed"),
            ("1..2GiB", "malformed"),
            ("1.GiB", "malformed"),
            (".5GiB", "malformed"),
            ("0GiB", "is zero"),
            ("0t", "is zero"),
            ("0.0000001GiB", "more than 6 decimals"),
            ("1.5p", "must be whole"),
            ("64gib", "unit is unknown"),
            ("64 GiB", "unit is unknown"),
            ("99999999999999999999t", "more than 64 bits"),
            ("17179869184GiB", "more than 64 bits"),
            ("5\u{1d7d8}t", "unit is unknown"),
        ] {
            let error = text.parse::<Capacity>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
        assert!(serde_json::from_str::<Capacity>("7").is_err());
        assert!(serde_json::from_str::<Capacity>("-1").is_err());
        assert_eq!(
            serde_json::from_str::<Capacity>("0").unwrap(),
            Capacity::ZERO
        );
    }

    #[test]
    fn pages_of_a_capacity() {
        let stripe = Stripe::new(4, 64).unwrap();
        let pages = |capacity: Capacity, reserved| capacity.usable_pages(stripe, 100, reserved);
        assert_eq!(pages(Capacity::Bytes(1099), 1), 9);
        assert_eq!(pages(Capacity::Bytes(99), 1), 0);
        assert_eq!(pages(Capacity::Tokens(257), 1), 1);
        assert_eq!(pages(Capacity::Tokens(255), 1), 0);
        assert_eq!(pages(Capacity::Pages(5), 1), 5);
        assert_eq!(Capacity::Bytes(9).usable_pages(stripe, 0, 0), 0);
    }
}
