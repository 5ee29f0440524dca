// SPDX-License-Identifier: Apache-2.0
//! Readers of single values that have no `FromStr` of their own.

use striata::core::HostLayout;
use striata::core::config::Capacity;
use striata_replay::WritePolicy;

/// A layout of L2.
pub(super) fn host_layout(text: &str) -> Result<HostLayout, String> {
    match text {
        "page-first" => Ok(HostLayout::PageFirst),
        "layer-first" => Ok(HostLayout::LayerFirst),
        _ => Err("known are page-first, layer-first".to_owned()),
    }
}

/// A write policy; hyphens are as good as underscores.
pub(super) fn write_policy(text: &str) -> Result<WritePolicy, striata::core::ConfigError> {
    text.replace('-', "_").parse()
}

/// A number of bytes, such as `16GiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Capacity::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        Ok(_) => Err("it must be a number of bytes, such as 64MiB".to_owned()),
        Err(error) => Err(striata::core::ConfigError::to_string(&error)),
    }
}

/// A finite number from 0.
pub(super) fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("it must be a number from 0".to_owned()),
    }
}

/// A finite number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("it must be a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_and_policies_are_read() {
        assert_eq!(host_layout("page-first"), Ok(HostLayout::PageFirst));
        assert_eq!(host_layout("layer-first"), Ok(HostLayout::LayerFirst));
        assert!(host_layout("column-first").is_err());
        assert_eq!(write_policy("write-back"), Ok(WritePolicy::WriteBack));
        assert!(write_policy("never").is_err());
    }

    #[test]
    fn bytes_have_a_unit_of_bytes() {
        assert_eq!(bytes("1.5KiB"), Ok(1536));
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        for text in ["", "0", "3p", "3t", "5", "-1B", "x"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_finite_and_in_range() {
        assert_eq!(not_negative("0"), Ok(0.0));
        assert_eq!(positive("2.5"), Ok(2.5));
        for text in ["", "-1", "nan", "inf", "1e999", "x"] {
            assert!(not_negative(text).is_err(), "{text}");
            assert!(positive(text).is_err(), "{text}");
        }
        assert!(positive("0").is_err());
    }
}
