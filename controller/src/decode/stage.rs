// SPDX-License-Identifier: Apache-2.0
//! The host's side of a plan: what stands on every place of the batch, and what the next step must
//! stage. It is the same on all ranks of a group.
//!
//! A request that grows keeps its place, so its table cells stay too: only pages that are new to the
//! place are staged, and only their cells are written. Cells of a page are known to be complete
//! once the page was full, on whichever rank.

use core::sync::atomic::{AtomicU32, Ordering};

use striata_core::{L1Page, PoolGeometry};
use striata_kernels::decode::PlanPlace;

use super::config::{DcpMlaConfig, TableSource};
use super::error::DecodeError;

/// Words of a staged place.
pub(super) const PLACE_WORDS: usize = size_of::<PlanPlace>() / size_of::<u32>();

/// Where a request's rows stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPages<'a> {
    /// On these widened pages.
    Pages(&'a [L1Page]),
    /// Where this row of the engine's map says.
    SlotRow(u32),
}

/// One request of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRequest<'a> {
    /// Its pages.
    pub pages: RequestPages<'a>,
    /// Tokens, those of this step included.
    pub tokens: u64,
    /// Tokens of this step: the last ones. Their rows are written, and their queries are the last
    /// of the request's s_q; earlier ones are computed too, at the positions before.
    pub new_tokens: u32,
}

/// What the step before left on a place.
#[derive(Clone, Debug, Default)]
struct Placed {
    pages: Vec<L1Page>,
    /// Pages of these whose cells are complete.
    full: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Stage {
    pool: PoolGeometry,
    source: TableSource,
    queries: u32,
    max_tokens: u64,
    source_width: usize,
    placed: Vec<Placed>,
    next: Vec<PlanPlace>,
    /// Of the step that is checked: pages of each place that stay as they are.
    kept: Vec<usize>,
}

impl Stage {
    pub(super) fn new(config: &DcpMlaConfig) -> Self {
        let places = config.attend_shape().batch as usize;
        let pages = config.stripe().pages_for(config.max_tokens);
        Self {
            pool: config.pool,
            source: config.source,
            queries: config.queries,
            max_tokens: config.max_tokens,
            source_width: usize::try_from(pages).unwrap_or(usize::MAX),
            placed: vec![Placed::default(); places],
            next: vec![PlanPlace::default(); places],
            kept: vec![0; places],
        }
    }

    /// Words of staging memory.
    pub(super) fn words(&self) -> usize {
        let source = match self.source {
            TableSource::Pages => self.placed.len().saturating_mul(self.source_width),
            TableSource::Slots { .. } => 0,
        };
        (self.placed.len() * PLACE_WORDS).saturating_add(source)
    }

    /// Forgets what places hold, so that the next step stages everything.
    pub(super) fn forget(&mut self) {
        for placed in &mut self.placed {
            placed.pages.clear();
            placed.full = 0;
        }
    }

    /// Puts `requests` on the first places, the rest is padding, and writes what a plan needs of
    /// it into every staging memory.
    ///
    /// # Errors
    /// A request that cannot stand on its place; nothing has changed then.
    pub(super) fn step(
        &mut self,
        requests: &[StepRequest<'_>],
        uniform: bool,
        stagings: &[&[AtomicU32]],
    ) -> Result<(), DecodeError> {
        if requests.len() > self.placed.len() {
            return Err(DecodeError::Range {
                what: "the number of requests",
                value: requests.len() as u64,
                range: format!("at most {}", self.placed.len()),
            });
        }
        for (place, request) in requests.iter().enumerate() {
            let checked = self.check(place, request, uniform);
            self.kept[place] = checked.map_err(|reason| DecodeError::Request { place, reason })?;
        }
        for place in 0..self.placed.len() {
            match requests.get(place) {
                Some(request) => self.put(place, request, stagings),
                None => self.pad(place),
            }
        }
        let words: &[u32] = bytemuck::cast_slice(&self.next);
        for staging in stagings {
            for (to, word) in staging.iter().zip(words) {
                to.store(*word, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Pages of a place that stay as they are.
    fn kept(&self, place: usize, pages: &[L1Page]) -> usize {
        let placed = &self.placed[place];
        let full = placed.full.min(pages.len());
        if are_same(&placed.pages[..full], &pages[..full]) {
            return full;
        }
        let same = placed.pages[..full].iter().zip(pages);
        same.take_while(|(ours, theirs)| ours == theirs).count()
    }

    /// Checks a request, and says how many pages of its place stay as they are.
    fn check(
        &self,
        place: usize,
        request: &StepRequest<'_>,
        uniform: bool,
    ) -> Result<usize, String> {
        let StepRequest {
            tokens, new_tokens, ..
        } = *request;
        if tokens > self.max_tokens {
            return Err(format!("{tokens} tokens are more than {}", self.max_tokens));
        }
        if new_tokens > self.queries || u64::from(new_tokens) > tokens {
            return Err(format!(
                "{new_tokens} new tokens are more than the {} queries of a step or the {tokens} \
                 tokens of the request",
                self.queries
            ));
        }
        if uniform && new_tokens != self.queries {
            return Err(format!(
                "{new_tokens} new tokens where every request of the captured step has {}: run the \
                 step eagerly",
                self.queries
            ));
        }
        match (request.pages, self.source) {
            (RequestPages::Pages(pages), TableSource::Pages) => {
                self.check_pages(place, pages, tokens)
            }
            (RequestPages::SlotRow(row), TableSource::Slots { rows, .. }) => {
                if row < rows {
                    return Ok(0);
                }
                Err(format!("row {row} is outside the {rows} rows of the map"))
            }
            (RequestPages::Pages(_), TableSource::Slots { .. }) => {
                Err("it has a page list, and the plan reads a map of slots".to_owned())
            }
            (RequestPages::SlotRow(_), TableSource::Pages) => {
                Err("it has a row of a map, and the plan reads page lists".to_owned())
            }
        }
    }

    fn check_pages(&self, place: usize, pages: &[L1Page], tokens: u64) -> Result<usize, String> {
        let needed = self.pool.stripe().pages_for(tokens);
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        if needed > pages.len() {
            return Err(format!(
                "{tokens} tokens need {needed} pages, it has {}",
                pages.len()
            ));
        }
        let pages = &pages[..needed];
        let kept = self.kept(place, pages);
        let new = &pages[kept..];
        match new.iter().find(|page| !self.pool.is_usable_page(**page)) {
            Some(page) => Err(format!(
                "page {page} is the sink or outside the {} pages of the pool",
                self.pool.pages()
            )),
            None => Ok(kept),
        }
    }

    /// Puts a checked request on its place.
    fn put(&mut self, place: usize, request: &StepRequest<'_>, stagings: &[&[AtomicU32]]) {
        let stripe = self.pool.stripe();
        let mut next = PlanPlace {
            // At most `max_tokens`, which is an i32.
            global_len: i32::try_from(request.tokens).unwrap_or(i32::MAX),
            source_row: u32::try_from(place).unwrap_or(u32::MAX),
            kept_pages: 0,
            new_tokens: request.new_tokens,
        };
        match request.pages {
            RequestPages::SlotRow(row) => next.source_row = row,
            RequestPages::Pages(pages) => {
                let needed = usize::try_from(stripe.pages_for(request.tokens)).unwrap_or(0);
                let pages = &pages[..needed.min(pages.len())];
                let kept = self.kept[place];
                next.kept_pages = u32::try_from(kept).unwrap_or(0);
                let at = self.next.len() * PLACE_WORDS + place * self.source_width;
                for staging in stagings {
                    let row = staging.get(at + kept..).unwrap_or_default();
                    for (to, page) in row.iter().zip(&pages[kept..]) {
                        to.store(page.get(), Ordering::Relaxed);
                    }
                }
                let full = stripe.whole_pages(request.tokens);
                let placed = &mut self.placed[place];
                placed.pages.truncate(kept);
                placed.pages.extend_from_slice(&pages[kept..]);
                placed.full = usize::try_from(full).unwrap_or(0);
            }
        }
        self.next[place] = next;
    }

    fn pad(&mut self, place: usize) {
        self.next[place] = PlanPlace::default();
        self.placed[place].pages.clear();
        self.placed[place].full = 0;
    }
}

/// Whether two lists of as many pages are the same: by runs without a branch inside, since the
/// lists of a batch are hundreds of kilobytes that are the same as a rule.
fn are_same(ours: &[L1Page], theirs: &[L1Page]) -> bool {
    const RUN: usize = 64;
    let mut runs = ours.chunks(RUN).zip(theirs.chunks(RUN));
    runs.all(|(ours, theirs)| {
        let pairs = ours.iter().zip(theirs);
        pairs.fold(0, |all, (a, b)| all | (a.get() ^ b.get())) == 0
    })
}

#[cfg(test)]
mod tests;
