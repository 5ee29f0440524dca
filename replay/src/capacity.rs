// SPDX-License-Identifier: Apache-2.0
//! Sizes of tiers, in bytes, tokens or widened pages.

use core::fmt;
use core::str::FromStr;

use serde::Serialize;
use striata_core::{PageGeometry, Stripe};

use crate::error::ConfigError;

/// How large a tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capacity {
    /// Bytes on each rank.
    Bytes(u64),
    /// Tokens of a DCP group.
    Tokens(u64),
    /// Widened pages.
    Pages(u64),
}

/// How large L2 is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCapacity {
    /// There is no L2.
    Off,
    /// A size of its own.
    Fixed(Capacity),
    /// Times the pages of L1.
    TimesL1(f64),
}

const UNITS: [(&str, u64); 9] = [
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

/// Most pages that a tier may have; one id stays free for the sink.
const MAX_PAGES: u64 = u32::MAX as u64 - 1;

impl Capacity {
    /// Widened pages of this capacity; the sink of L1 is not among them.
    ///
    /// # Errors
    /// Less than one page, more pages than ids.
    pub fn pages(
        self,
        tier: &'static str,
        stripe: Stripe,
        page: PageGeometry,
    ) -> Result<u32, ConfigError> {
        let pages = match self {
            Self::Bytes(bytes) => bytes / page.page_bytes(),
            Self::Tokens(tokens) => stripe.whole_pages(tokens),
            Self::Pages(pages) => pages,
        };
        let capacity = self.to_string();
        if pages == 0 {
            return Err(ConfigError::NoPage {
                tier,
                capacity,
                page_tokens: stripe.widened_page(),
                page_bytes: page.page_bytes(),
            });
        }
        if pages > MAX_PAGES {
            let max = MAX_PAGES;
            return Err(ConfigError::TooManyPages {
                tier,
                capacity,
                pages,
                max,
            });
        }
        Ok(u32::try_from(pages).unwrap_or(u32::MAX))
    }
}

impl HostCapacity {
    /// Widened pages of L2 beside an L1 of `l1_pages`; 0 if it is off.
    ///
    /// # Errors
    /// As [`Capacity::pages`].
    pub fn pages(
        self,
        l1_pages: u32,
        stripe: Stripe,
        page: PageGeometry,
    ) -> Result<u32, ConfigError> {
        match self {
            Self::Off => Ok(0),
            Self::Fixed(capacity) => capacity.pages("L2", stripe, page),
            Self::TimesL1(ratio) => {
                let pages = f64::from(l1_pages) * ratio;
                if !(pages.is_finite() && pages >= 0.0) {
                    return Err(ConfigError::OutOfRange {
                        what: "L2 ratio",
                        value: ratio.to_string(),
                        range: "a number from 0",
                    });
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "checked to be finite and not negative; `as` saturates above"
                )]
                Capacity::Pages(pages as u64).pages("L2", stripe, page)
            }
        }
    }
}

impl FromStr for Capacity {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let refuse = |reason| ConfigError::Capacity {
            text: text.to_owned(),
            reason,
        };
        let text = text.trim();
        if let Some(number) = text.strip_suffix('t') {
            return whole(number).map(Self::Tokens).map_err(refuse);
        }
        if let Some(number) = text.strip_suffix('p') {
            return whole(number).map(Self::Pages).map_err(refuse);
        }
        let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
        let (number, factor) = match unit {
            Some((unit, factor)) => (&text[..text.len() - unit.len()], *factor),
            None => return Err(refuse("no unit")),
        };
        bytes(number.trim_end(), factor)
            .map(Self::Bytes)
            .map_err(refuse)
    }
}

impl FromStr for HostCapacity {
    type Err = ConfigError;

    /// `0` is off; a capacity of zero in any unit too.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text.trim() == "0" {
            return Ok(Self::Off);
        }
        Ok(match text.parse()? {
            Capacity::Bytes(0) | Capacity::Tokens(0) | Capacity::Pages(0) => Self::Off,
            capacity => Self::Fixed(capacity),
        })
    }
}

fn whole(number: &str) -> Result<u64, &'static str> {
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err("not a whole number");
    }
    number.parse().map_err(|_| "larger than 64 bits")
}

/// A decimal number times `factor`, exactly.
fn bytes(number: &str, factor: u64) -> Result<u64, &'static str> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let fraction = fraction.trim_end_matches('0');
    let scale = 10u64
        .checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX))
        .ok_or("too many digits after the point")?;
    let part = if fraction.is_empty() {
        0
    } else {
        whole(fraction)?
    };
    let total = u128::from(whole(integer)?) * u128::from(factor)
        + u128::from(part) * u128::from(factor) / u128::from(scale);
    u64::try_from(total).map_err(|_| "larger than 64 bits")
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(tokens) => write!(f, "{tokens}t"),
            Self::Pages(pages) => write!(f, "{pages}p"),
            Self::Bytes(bytes) => {
                let (unit, factor) = UNITS[..4]
                    .iter()
                    .rev()
                    .find(|(_, factor)| *bytes > 0 && bytes.is_multiple_of(*factor))
                    .unwrap_or(&("B", 1));
                write!(f, "{}{unit}", bytes / factor)
            }
        }
    }
}

impl fmt::Display for HostCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Fixed(capacity) => capacity.fmt(f),
            Self::TimesL1(ratio) => write!(f, "{ratio} x L1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_read_in_bytes_tokens_and_pages() {
        let read = |text: &str| text.parse::<Capacity>().unwrap();
        assert_eq!(read("64GiB"), Capacity::Bytes(64 << 30));
        assert_eq!(read("1.5 MiB"), Capacity::Bytes(3 << 19));
        assert_eq!(read("2GB"), Capacity::Bytes(2_000_000_000));
        assert_eq!(read("17B"), Capacity::Bytes(17));
        assert_eq!(read("5120000t"), Capacity::Tokens(5_120_000));
        assert_eq!(read("10000p"), Capacity::Pages(10_000));
        assert_eq!("0".parse(), Ok(HostCapacity::Off));
        assert_eq!("0GiB".parse(), Ok(HostCapacity::Off));
        for text in ["64GiB", "17B", "3MiB", "5t", "6p"] {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in [
            "",
            "GiB",
            "-1p",
            "1.5p",
            "99999999999TiB",
            "12",
            "1e9B",
            "1..2GB",
            "+1t",
            "é",
        ] {
            let error = text.parse::<Capacity>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("{text:?}")) && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn bytes_are_divided_by_the_page_of_one_rank() {
        let stripe = Stripe::new(8, 64).unwrap();
        let page = PageGeometry::new(64, 1152, 61).unwrap();
        let pages = |c: Capacity| c.pages("L1", stripe, page);
        assert_eq!(pages(Capacity::Bytes(page.page_bytes() * 3 - 1)), Ok(2));
        assert_eq!(pages(Capacity::Tokens(1535)), Ok(2));
        assert!(pages(Capacity::Bytes(page.page_bytes() - 1)).is_err());
        assert!(pages(Capacity::Pages(u64::MAX)).is_err());
        assert_eq!(HostCapacity::TimesL1(2.5).pages(3, stripe, page), Ok(7));
        assert!(
            HostCapacity::TimesL1(f64::NAN)
                .pages(3, stripe, page)
                .is_err()
        );
    }
}
