// SPDX-License-Identifier: Apache-2.0
//! What the replay checks: rows that differ, a planted fault, operations that fail.

use std::collections::BTreeSet;

use striata_gpu::Direction;

use super::engine::FailedOp;
use super::random_faults::FaultSource;
use crate::config::{Fault, ReplayConfig};
use crate::report::{FaultReport, MismatchedRow, ParanoidReport, RandomFaultsReport, ReplayReport};

/// Differing rows that the report lists; all are counted.
const KEPT_ROWS: usize = 1000;
/// Messages of failures that the report lists; all are counted.
const KEPT_MESSAGES: usize = 10;

/// A row by what it should hold: the same on every page and tier that ever held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId {
    pub(crate) replica: u32,
    pub(crate) rank: u32,
    pub(crate) layer: u32,
    /// Content of its page.
    pub(crate) content: u128,
    pub(crate) row: u32,
}

/// A fault and what it changed.
#[derive(Debug)]
struct Planted {
    fault: Fault,
    corrupted: BTreeSet<RowId>,
}

/// Findings of a replay.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    differing: BTreeSet<RowId>,
    rows: Vec<MismatchedRow>,
    /// Differing rows for which a device's log had no room.
    unnamed: u64,
    errors: u64,
    messages: Vec<String>,
    planted: Option<Planted>,
    random: Option<RandomFaultsReport>,
    paranoid: Option<ParanoidReport>,
    /// Pages that were loaded back so far.
    loaded_pages: u64,
}

impl Checks {
    pub(crate) fn new(config: &ReplayConfig) -> Self {
        Self {
            random: config.faults.map(|faults| RandomFaultsReport {
                seed: faults.seed,
                rate: faults.rate,
                ..RandomFaultsReport::default()
            }),
            paranoid: config.paranoid.then(ParanoidReport::default),
            ..Self::with_fault(config.fault)
        }
    }

    fn with_fault(fault: Option<Fault>) -> Self {
        Self {
            planted: fault.map(|fault| Planted {
                fault,
                corrupted: BTreeSet::new(),
            }),
            ..Self::default()
        }
    }

    /// Notes a differing row; one that an earlier request has seen is not counted again.
    pub(crate) fn differs(&mut self, id: RowId, row: MismatchedRow) {
        if self.differing.insert(id) && self.rows.len() < KEPT_ROWS {
            self.rows.push(row);
        }
    }

    /// Notes differing rows that nobody could name.
    pub(crate) const fn differ_unnamed(&mut self, rows: u64) {
        self.unnamed += rows;
    }

    /// Notes a failure that the replay survives.
    pub(crate) fn failed(&mut self, message: String) {
        self.errors += 1;
        if self.messages.len() < KEPT_MESSAGES {
            self.messages.push(message);
        }
    }

    /// Notes an operation that did not bring every page: a failure unless it names a random fault.
    pub(crate) fn op_failed(&mut self, failed: &FailedOp, source: Option<&FaultSource>) {
        let cause = failed.cause.as_deref().unwrap_or("no cause");
        let random = self.random.as_mut();
        let random = random.filter(|_| source.is_some_and(|source| source.explains(cause)));
        match (random, failed.direction) {
            (Some(random), Direction::HostToDevice) => random.failed_loads += 1,
            (Some(random), Direction::DeviceToHost) => random.failed_stores += 1,
            (None, _) => self.failed(cause.to_owned()),
        }
    }

    /// Notes a request that is served again.
    pub(crate) fn recomputes(&mut self) {
        if let Some(random) = &mut self.random {
            random.recomputed_requests += 1;
        }
    }

    /// Whether the engine's invariants are wanted.
    pub(crate) const fn is_paranoid(&self) -> bool {
        self.paranoid.is_some()
    }

    /// Notes what a check of the invariants found after `request`.
    pub(crate) fn checked(&mut self, request: u64, found: Result<(), String>) {
        let Some(paranoid) = &mut self.paranoid else {
            return;
        };
        paranoid.invariant_checks += 1;
        if let Err(broken) = found {
            paranoid.broken_invariants += 1;
            self.failed(format!("after request {request}: {broken}"));
        }
    }

    /// Notes pages that did not come back in the end.
    pub(crate) fn lost(&mut self, replica: u32, pages: u64) {
        if let Some(paranoid) = self.paranoid.as_mut().filter(|_| pages > 0) {
            paranoid.lost_pages += pages;
            self.failed(format!("replica {replica} has lost {pages} pages"));
        }
    }

    /// Counts `pages` pages that are about to be loaded back; returns the index among them of the
    /// one to corrupt.
    pub(crate) fn loads(&mut self, pages: usize) -> Option<usize> {
        let before = self.loaded_pages;
        self.loaded_pages += pages as u64;
        let Fault::CorruptPage(wanted) = self.planted.as_ref()?.fault;
        let at = usize::try_from(wanted.checked_sub(before + 1)?).ok()?;
        (at < pages).then_some(at)
    }

    /// Notes a row that the fault has changed.
    pub(crate) fn corrupted(&mut self, id: RowId) {
        if let Some(planted) = &mut self.planted {
            planted.corrupted.insert(id);
        }
    }

    /// Writes the findings into the report.
    pub(crate) fn finish(self, report: &mut ReplayReport) {
        let reported_rows = self.differing.len() as u64;
        report.mismatches = reported_rows + self.unnamed;
        report.mismatched_rows = self.rows;
        report.errors = self.errors;
        report.error_messages = self.messages;
        report.faults = self.random;
        report.paranoid = self.paranoid;
        let Some(Planted { fault, corrupted }) = self.planted else {
            return;
        };
        if corrupted.is_empty() {
            report.notices.push(format!(
                "fault {fault} did not occur: {} pages were loaded back",
                self.loaded_pages
            ));
        }
        report.fault = Some(FaultReport {
            fault: fault.to_string(),
            loaded_pages: self.loaded_pages,
            corrupted_rows: corrupted.len() as u64,
            reported_rows: report.mismatches,
            exact: self.unnamed == 0 && corrupted == self.differing,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(row: u32) -> RowId {
        RowId {
            replica: 0,
            rank: 1,
            layer: 2,
            content: 3,
            row,
        }
    }

    fn row(row: u32) -> MismatchedRow {
        MismatchedRow {
            request: 9,
            replica: 0,
            rank: 1,
            layer: 2,
            page: 4,
            row,
            position: 0,
        }
    }

    #[test]
    fn the_nth_loaded_page_is_found_once() {
        let mut checks = Checks::with_fault(Some(Fault::CorruptPage(5)));
        assert_eq!(checks.loads(3), None);
        assert_eq!(checks.loads(0), None);
        assert_eq!(checks.loads(2), Some(1));
        assert_eq!(checks.loads(9), None);
        assert_eq!(Checks::with_fault(None).loads(9), None);
    }

    #[test]
    fn a_fault_is_exact_only_if_its_rows_and_no_others_differ() {
        let report = |corrupted: &[u32], differing: &[u32]| {
            let mut checks = Checks::with_fault(Some(Fault::CorruptPage(1)));
            corrupted.iter().for_each(|&n| checks.corrupted(id(n)));
            differing
                .iter()
                .for_each(|&n| checks.differs(id(n), row(n)));
            let mut report = ReplayReport::default();
            checks.finish(&mut report);
            report
        };
        let exact = report(&[1, 2], &[2, 1, 2]);
        assert_eq!((exact.mismatches, exact.mismatched_rows.len()), (2, 2));
        assert!(exact.fault.unwrap().exact && exact.notices.is_empty());
        assert!(!report(&[1, 2], &[1]).fault.unwrap().exact);
        assert!(!report(&[1], &[1, 2]).fault.unwrap().exact);
        assert_eq!(report(&[], &[]).notices.len(), 1);
    }
}
