// SPDX-License-Identifier: Apache-2.0
//! Enums whose variants have names on the command line and in reports.

/// Declares an enum with `ALL`, `name`, `Display`, `FromStr` and serde under the given names.
macro_rules! named {
    (
        $(#[$doc:meta])*
        pub enum $name:ident($what:literal) {
            $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }

        impl core::str::FromStr for $name {
            type Err = $crate::error::ConfigError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.name() == text)
                    .ok_or_else(|| $crate::error::ConfigError::UnknownName {
                        what: $what,
                        name: text.to_owned(),
                        known: Self::ALL.iter().map(|v| v.name()).collect::<Vec<_>>().join(", "),
                    })
            }
        }
    };
}

pub(crate) use named;
