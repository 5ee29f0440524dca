// SPDX-License-Identifier: Apache-2.0
//! The state of every page on either tier, and the table of legal moves.
//!
//! | tier | from | to | when |
//! |---|---|---|---|
//! | L1 | free | reserved | a lease gets it for rows to be computed |
//! | L1 | free | loading | it becomes the target of a load-back |
//! | L1 | reserved | resident | insert gives it to the prefix index |
//! | L1 | reserved | free | the lease is released: rows never inserted, or a duplicate |
//! | L1 | loading | resident | the load is acknowledged |
//! | L1 | loading | failed | the load did not bring this page, or one of pages above it failed |
//! | L1 | failed | free | the last lease on the failed load is released |
//! | L1 | resident | free | eviction |
//! | L2 | free | storing | a store writes it |
//! | L2 | storing | resident | the store is acknowledged |
//! | L2 | storing | free | the store did not bring this page |
//! | L2 | resident | free | eviction |
//!
//! A page that is read by a copy is pinned in the prefix index as well, which keeps it from moving
//! to free before the acknowledgement.

use striata_core::{PageId, Tier};

use crate::error::Error;

/// Where a page of a tier stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PageState {
    /// In the allocator.
    #[default]
    Free,
    /// Owned by a lease; its rows are being computed.
    Reserved,
    /// Target of a load-back that is not acknowledged.
    Loading,
    /// Target of a store that is not acknowledged.
    Storing,
    /// Readable, owned by the prefix index.
    Resident,
    /// Target of a load-back that failed; kept from reuse until its leases are gone.
    Failed,
}

impl PageState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Free,
        Self::Reserved,
        Self::Loading,
        Self::Storing,
        Self::Resident,
        Self::Failed,
    ];

    /// Whether the table has this move on the tier `T`.
    #[must_use]
    pub fn may_become<T: Tier>(self, next: Self) -> bool {
        use PageState::{Failed, Free, Loading, Reserved, Resident, Storing};
        matches!(
            (T::NAME, self, next),
            ("L1", Free, Reserved | Loading)
                | ("L1", Reserved, Resident | Free)
                | ("L1", Loading, Resident | Failed)
                | ("L1", Failed, Free)
                | ("L2", Free, Storing)
                | ("L2", Storing, Resident | Free)
                | (_, Resident, Free)
        )
    }
}

/// The states of all pages of a tier.
#[derive(Debug)]
pub(crate) struct Residency<T> {
    states: Vec<PageState>,
    counts: [u32; 6],
    tier: std::marker::PhantomData<T>,
}

impl<T: Tier> Residency<T> {
    /// A tier of `pages` free pages.
    pub(crate) fn new(pages: u32) -> Self {
        let mut counts = [0; 6];
        counts[PageState::Free as usize] = pages;
        Self {
            states: vec![PageState::Free; pages as usize],
            counts,
            tier: std::marker::PhantomData,
        }
    }

    /// Adds the pages up to `pages`, all of them free. A lower number does nothing.
    pub(crate) fn grow(&mut self, pages: u32) {
        let (before, pages) = (self.states.len(), pages as usize);
        if pages > before {
            self.states.resize(pages, PageState::Free);
            let more = u32::try_from(pages - before).unwrap_or(u32::MAX);
            self.counts[PageState::Free as usize] += more;
        }
    }

    /// Where `page` stands.
    pub(crate) fn state(&self, page: PageId<T>) -> PageState {
        self.states.get(page.index()).copied().unwrap_or_default()
    }

    /// How many pages stand in `state`.
    pub(crate) fn count(&self, state: PageState) -> u32 {
        self.counts[state as usize]
    }

    /// Moves a page on, if the table has the move.
    pub(crate) fn step(&mut self, page: PageId<T>, next: PageState) -> Result<(), Error> {
        let illegal = |from| Error::IllegalMove {
            tier: T::NAME,
            page: page.get(),
            from,
            to: next,
        };
        let state = self
            .states
            .get_mut(page.index())
            .ok_or_else(|| illegal(PageState::default()))?;
        if !state.may_become::<T>(next) {
            return Err(illegal(*state));
        }
        self.counts[*state as usize] -= 1;
        self.counts[next as usize] += 1;
        *state = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_core::{L1, L2};

    /// The moves that the code has, in words, in the order of the states.
    fn moves<T: Tier>() -> Vec<[String; 3]> {
        let word = |state: PageState| format!("{state:?}").to_lowercase();
        PageState::ALL
            .iter()
            .flat_map(|&a| PageState::ALL.map(move |b| (a, b)))
            .filter(|(a, b)| a.may_become::<T>(*b))
            .map(|(a, b)| [T::NAME.to_owned(), word(a), word(b)])
            .collect()
    }

    /// The moves of the table of that head in `text`.
    fn table(text: &str) -> Vec<[String; 3]> {
        let rows = text
            .lines()
            .map(|line| line.trim_start_matches("//!").trim());
        let rows = rows.skip_while(|line| *line != "| tier | from | to | when |");
        let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        let moves = cells.map(|cells| {
            assert!(cells.len() > 4 && !cells[4].is_empty(), "{cells:?}");
            [1, 2, 3].map(|at: usize| cells[at].to_owned())
        });
        moves.collect()
    }

    /// The table of ARCHITECTURE.md and that of this file say what the code does: no move less, none
    /// more, none twice.
    ///
    /// Seen to fail if either table lacks one of its rows or has another one.
    #[test]
    fn the_legal_moves_are_those_of_the_table() {
        let mut moves = [moves::<L1>(), moves::<L2>()].concat();
        moves.sort();
        assert_eq!(moves.len(), 12);
        let root = env!("CARGO_MANIFEST_DIR");
        for file in ["../ARCHITECTURE.md", "src/residency.rs"] {
            let text = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
            let mut table = table(&text);
            table.sort();
            assert_eq!(moves, table, "{file}");
        }
    }

    #[test]
    fn an_illegal_move_changes_nothing_and_names_the_page() {
        let mut tier = Residency::<L2>::new(3);
        let page = PageId::new(2);
        let error = tier.step(page, PageState::Resident).unwrap_err();
        assert!(error.to_string().contains("L2 page 2"), "{error}");
        assert_eq!(tier.state(page), PageState::Free);
        assert_eq!(tier.count(PageState::Free), 3);
        assert!(tier.step(PageId::new(3), PageState::Storing).is_err());
    }
}
