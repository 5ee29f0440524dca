// SPDX-License-Identifier: Apache-2.0
//! The size of the host tier as users write it.

use core::fmt;
use core::str::FromStr;

use striata_core::config::{Capacity, L2Size};

use crate::error::ConfigError;

/// How large L2 is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostCapacity {
    /// There is no L2.
    Off,
    /// A size of its own.
    Fixed(Capacity),
    /// Times the usable pages of L1.
    TimesL1(f64),
}

impl HostCapacity {
    /// The same as a setting of the engine.
    #[must_use]
    pub const fn size(self) -> L2Size {
        match self {
            Self::Off => L2Size::Off,
            Self::Fixed(capacity) => L2Size::Capacity(capacity),
            Self::TimesL1(ratio) => L2Size::Ratio(ratio),
        }
    }
}

impl FromStr for HostCapacity {
    type Err = ConfigError;

    /// `0` is off, all else a capacity.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let capacity: Capacity = text.parse()?;
        Ok(if capacity.is_zero() {
            Self::Off
        } else {
            Self::Fixed(capacity)
        })
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
    fn a_plain_zero_is_off() {
        assert_eq!("0".parse(), Ok(HostCapacity::Off));
        let fixed = HostCapacity::Fixed(Capacity::Pages(7));
        assert_eq!("7p".parse(), Ok(fixed));
        assert_eq!(fixed.to_string(), "7p");
        assert!("7".parse::<HostCapacity>().is_err());
    }
}
