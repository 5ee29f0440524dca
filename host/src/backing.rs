// SPDX-License-Identifier: Apache-2.0
//! The ladder of memory pages: explicit huge pages, transparent ones, ordinary ones.

use crate::budget::{HostMemory, TransparentMode};
use crate::error::HostError;
use crate::region::{HUGE_PAGE, Region};

/// Which memory pages a pool wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugePages {
    /// The best that can be had: explicit, then transparent, then ordinary.
    #[default]
    Auto,
    /// Explicit huge pages (hugetlb) or an error.
    Explicit,
    /// Transparent huge pages or an error where the machine has them off.
    Transparent,
    /// Ordinary pages.
    Off,
}

/// Which memory pages a pool got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Explicit huge pages of 2 MiB.
    Explicit,
    /// Ordinary memory, advised to be huge; how much of it is stands in the report.
    Transparent,
    /// Ordinary pages.
    Ordinary,
}

/// Maps `len` bytes, of which `present` are used at once, on the best pages that `wanted` and the
/// machine allow. Explicit huge pages are set aside for all of it.
///
/// # Errors
/// Demanded pages that are not there; too little memory, checked before anything is mapped.
pub(crate) fn map(
    len: usize,
    present: u64,
    wanted: HugePages,
    reserve: u64,
    memory: &HostMemory,
) -> Result<(Region, Backing), HostError> {
    let needed = len as u64;
    let refused = |kind, reason: String| HostError::HugePages {
        kind,
        needed,
        free: memory.huge_free_bytes(),
        reason,
    };
    // Free explicit pages are set aside already, so neither the reserve nor the rest counts.
    let whole = needed.next_multiple_of(HUGE_PAGE as u64);
    let explicit = memory.huge_page_bytes == Some(HUGE_PAGE as u64)
        && memory.huge_free_bytes() >= whole
        && matches!(wanted, HugePages::Auto | HugePages::Explicit);
    if explicit {
        match Region::explicit(len) {
            Ok(region) => return Ok((region, Backing::Explicit)),
            Err(error) if wanted == HugePages::Explicit => {
                return Err(refused("explicit", error.to_string()));
            }
            Err(error) => tracing::info!(%error, "explicit huge pages were refused"),
        }
    } else if wanted == HugePages::Explicit {
        let reason = "reserve more with vm.nr_hugepages".to_owned();
        return Err(refused("explicit", reason));
    }
    check_budget(present, reserve, memory)?;
    let map_failed = |error: std::io::Error| HostError::Map {
        bytes: needed,
        reason: error.to_string(),
    };
    if wanted == HugePages::Off {
        let region = Region::plain(len, rustix::param::page_size()).map_err(map_failed)?;
        if let Err(error) = region.advise_huge(false) {
            tracing::debug!(%error, "transparent huge pages could not be switched off");
        }
        return Ok((region, Backing::Ordinary));
    }
    let region = Region::plain(len, HUGE_PAGE).map_err(map_failed)?;
    let advised = match memory.transparent {
        Some(TransparentMode::Never) => Err("the machine has them off".to_owned()),
        _ => region.advise_huge(true).map_err(|error| error.to_string()),
    };
    match advised {
        Ok(()) => Ok((region, Backing::Transparent)),
        Err(reason) if wanted == HugePages::Transparent => Err(refused("transparent", reason)),
        Err(reason) => {
            tracing::info!(%reason, "transparent huge pages are not used");
            Ok((region, Backing::Ordinary))
        }
    }
}

/// Checks that the machine can spare `needed` more bytes and keep `reserve`.
///
/// # Errors
/// It cannot, with the figures.
pub(crate) fn check_budget(
    needed: u64,
    reserve: u64,
    memory: &HostMemory,
) -> Result<(), HostError> {
    let Some(available) = memory.spare() else {
        return Ok(());
    };
    if needed > available.saturating_sub(reserve) {
        return Err(HostError::TooMuchMemory {
            needed,
            available,
            reserve,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(available: u64, huge_free: u64) -> HostMemory {
        HostMemory {
            available: Some(available),
            huge_pages_free: Some(huge_free),
            huge_page_bytes: Some(HUGE_PAGE as u64),
            transparent: Some(TransparentMode::Never),
            ..HostMemory::default()
        }
    }

    #[test]
    fn without_any_huge_page_the_ladder_ends_on_ordinary_pages() {
        let (region, backing) = map(8192, 8192, HugePages::Auto, 0, &machine(1 << 20, 0)).unwrap();
        assert_eq!((region.len(), backing), (8192, Backing::Ordinary));
        let (_, backing) = map(8192, 8192, HugePages::Off, 0, &machine(1 << 20, 0)).unwrap();
        assert_eq!(backing, Backing::Ordinary);
    }

    #[test]
    fn demanded_pages_that_are_not_there_are_refused_with_figures() {
        let refused = map(8192, 8192, HugePages::Explicit, 0, &machine(1 << 20, 0)).unwrap_err();
        let HostError::HugePages {
            kind, needed, free, ..
        } = refused
        else {
            panic!("{refused}");
        };
        assert_eq!((kind, needed, free), ("explicit", 8192, 0));
        let refused = map(8192, 8192, HugePages::Transparent, 0, &machine(1 << 20, 0)).unwrap_err();
        assert!(matches!(
            refused,
            HostError::HugePages {
                kind: "transparent",
                ..
            }
        ));
    }

    #[test]
    fn promised_explicit_pages_that_fail_fall_back() {
        // A figure that this machine cannot keep; where it can, explicit pages are right.
        let len = 1 << 30;
        let (_, backing) = map(
            len,
            len as u64,
            HugePages::Auto,
            0,
            &machine(1 << 40, 1 << 20),
        )
        .unwrap();
        assert_ne!(backing, Backing::Transparent);
    }

    #[test]
    fn the_reserve_is_kept() {
        let memory = machine(10_000, 0);
        assert_eq!(check_budget(6000, 4000, &memory), Ok(()));
        let refused = HostError::TooMuchMemory {
            needed: 6001,
            available: 10_000,
            reserve: 4000,
        };
        assert_eq!(check_budget(6001, 4000, &memory), Err(refused));
        assert_eq!(check_budget(u64::MAX, 0, &HostMemory::default()), Ok(()));
    }
}
