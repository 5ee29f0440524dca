// SPDX-License-Identifier: Apache-2.0
//! The parts of the transfer benchmark that can be chosen.

use core::fmt;
use core::str::FromStr;

use super::error::BenchError;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Layered load-backs.
    Load,
    /// Stores.
    Store,
    /// Every path of the engine, forced.
    Paths,
    /// Both directions at once.
    Both,
    /// Planes that are an allocation a layer.
    Separate,
    /// Lists of single rows.
    Rows,
    /// A consumer that computes layer by layer behind a load.
    Consumer,
    /// CPU time of submission.
    Cpu,
    /// A small copy of somebody else during a load.
    Foreign,
    /// Compute beside loads and stores.
    Slowdown,
    /// Other ways to copy the same pages.
    Baselines,
}

impl Group {
    /// All parts, in the order in which they run.
    pub const ALL: [Self; 11] = [
        Self::Load,
        Self::Store,
        Self::Both,
        Self::Separate,
        Self::Rows,
        Self::Consumer,
        Self::Cpu,
        Self::Foreign,
        Self::Slowdown,
        Self::Paths,
        Self::Baselines,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Paths => "paths",
            Self::Both => "both",
            Self::Separate => "separate",
            Self::Rows => "rows",
            Self::Consumer => "consumer",
            Self::Cpu => "cpu",
            Self::Foreign => "foreign",
            Self::Slowdown => "slowdown",
            Self::Baselines => "baselines",
        }
    }

    /// All names, for messages.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Group {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Self, BenchError> {
        let found = Self::ALL.into_iter().find(|group| group.name() == text);
        found.ok_or_else(|| BenchError::Group {
            name: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused_with_the_list() {
        for group in Group::ALL {
            assert_eq!(group.name().parse::<Group>().unwrap(), group);
        }
        let refused = "loads".parse::<Group>().unwrap_err().to_string();
        assert!(refused.contains("loads") && refused.contains("baselines"));
    }
}
