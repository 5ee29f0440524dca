// SPDX-License-Identifier: Apache-2.0
//! Which requests of a trace are measured.
//!
//! A trace is spread over replicas as a router with session affinity does, and the requests of the
//! first replica are taken, in order: some are left out, some fill the tiers, the next are measured.

use striata_replay::trace::{Bundled, Request, TraceReader};
use striata_replay::{Capacity, TraceSource};

use super::error::OffloadError;

/// A trace, its part that is measured, and the tiers that it is measured with.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSlice {
    /// Where the requests come from.
    pub source: TraceSource,
    /// Replicas that the trace is spread over by session.
    pub replicas: u64,
    /// Requests of the replica that are left out.
    pub skip: u64,
    /// Requests that fill the tiers then.
    pub fill: u64,
    /// Requests that are measured then, or as many as there are.
    pub requests: u64,
    /// Capacity of L1.
    pub l1: Capacity,
    /// Capacity of L2.
    pub l2: Capacity,
}

impl TraceSlice {
    /// A slice of a trace with its defaults for DCP size `dcp`. Those of the two traces of the
    /// benchmark are chosen for c = 8 and c = 1 so that most hit tokens come from L2, that L2 holds the
    /// working set of the replica, and that prefills take about ten seconds a system with the default
    /// model on one rank of eight.
    #[must_use]
    pub fn of(source: TraceSource, dcp: u32) -> Self {
        let (replicas, skip, fill, requests, l1, l2) = match (&source, dcp) {
            (TraceSource::Bundled(Bundled::AgenticCcU256), 1) => (56, 200, 60, 40, 2200, 6000),
            (TraceSource::Bundled(Bundled::AgenticCcU256), _) => (16, 700, 100, 40, 600, 2600),
            (TraceSource::Bundled(Bundled::MooncakeConversation), 1) => (24, 50, 60, 48, 500, 5000),
            (TraceSource::Bundled(Bundled::MooncakeConversation), _) => {
                (12, 500, 200, 48, 200, 2600)
            }
            _ => (1, 0, 200, 40, 600, 2600),
        };
        Self {
            source,
            replicas,
            skip,
            fill,
            requests,
            l1: Capacity::Pages(l1),
            l2: Capacity::Pages(l2),
        }
    }

    /// Reads the slice. Requests that need more than `usable_pages` pages of `page_tokens` tokens
    /// are left out: no system could hold them.
    pub(super) fn read(
        &self,
        usable_pages: u64,
        page_tokens: u64,
    ) -> Result<Requests, OffloadError> {
        let replicas = self.replicas.max(1);
        let mut read = Requests::default();
        let mut skipped = 0;
        for request in TraceReader::open(&self.source)? {
            let request = request?;
            if request.affinity() % replicas != 0 {
                continue;
            }
            if skipped < self.skip {
                skipped += 1;
                continue;
            }
            if request.input_tokens == 0
                || request.input_tokens.div_ceil(page_tokens) > usable_pages
            {
                read.left_out += 1;
            } else if (read.fill.len() as u64) < self.fill {
                read.fill.push(request);
            } else if (read.measured.len() as u64) < self.requests {
                read.measured.push(request);
            } else {
                break;
            }
        }
        if read.measured.is_empty() {
            return Err(OffloadError::TooShort {
                trace: self.source.to_string(),
                found: read.fill.len() as u64,
                replicas,
                skip: self.skip,
                wanted: self.fill,
            });
        }
        Ok(read)
    }
}

/// The requests of a slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub(super) fill: Vec<Request>,
    pub(super) measured: Vec<Request>,
    /// Requests among them that are larger than L1.
    pub(super) left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_takes_whole_sessions_in_order_and_leaves_out_what_does_not_fit() {
        let slice = TraceSlice {
            skip: 20,
            fill: 10,
            requests: 15,
            ..TraceSlice::of(TraceSource::Bundled(Bundled::AgenticCcU256), 8)
        };
        let all = slice.read(u64::MAX, 512).unwrap();
        assert_eq!(
            (all.fill.len(), all.measured.len(), all.left_out),
            (10, 15, 0)
        );
        let both = || all.fill.iter().chain(&all.measured);
        assert!(both().all(|request| request.affinity() % 16 == 0));
        let indices: Vec<u64> = both().map(|request| request.index).collect();
        assert!(indices.is_sorted() && indices.windows(2).all(|pair| pair[0] < pair[1]));
        let largest = both().map(|r| r.input_tokens.div_ceil(512)).max().unwrap();
        let fitting = slice.read(largest - 1, 512).unwrap();
        assert!(fitting.left_out > 0 && fitting.measured.len() == 15);
        let fits = |r: &Request| r.input_tokens.div_ceil(512) < largest;
        assert!(fitting.fill.iter().chain(&fitting.measured).all(fits));
    }

    #[test]
    fn a_trace_without_a_request_to_measure_is_refused() {
        let slice = TraceSlice {
            skip: 1 << 40,
            ..TraceSlice::of(TraceSource::Bundled(Bundled::MooncakeConversation), 8)
        };
        let error = slice.read(u64::MAX, 512).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("12 replicas"),
            "{error}"
        );
    }
}
