// SPDX-License-Identifier: Apache-2.0
//! When it is worth to ask whether the oldest unit in flight has ended.
//!
//! A thread that asks too early wakes up for nothing; one that asks late is no harm as long as
//! another unit runs meanwhile. So it sleeps as long as the unit takes on the fastest link, and a
//! little more. Where a unit had ended at the first look after that, the next one is taken to have
//! begun when the model says, not when it was seen: else the thread would be later with every unit.

use std::time::{Duration, Instant};

/// Bytes in a nanosecond over the fastest link that was measured.
const LINK_BYTES_PER_NS: u64 = 55;
/// Of how many parts of its time a unit is given one more.
const MORE: u32 = 20;

/// What is known of the oldest unit of a window.
#[derive(Debug)]
pub(super) struct Pace {
    /// When it began, nearly.
    since: Instant,
    /// It was asked for after its time and had not ended.
    late: bool,
}

/// The least time of a unit.
const fn time_of(bytes: u64) -> Duration {
    Duration::from_nanos(bytes / LINK_BYTES_PER_NS)
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            late: false,
        }
    }

    /// A unit begins and none was before it.
    pub(super) const fn begin(&mut self, now: Instant) {
        self.since = now;
        self.late = false;
    }

    /// How long the oldest unit, of `bytes` bytes, will go on; none if its time is over.
    pub(super) fn patience(&self, bytes: u64, now: Instant) -> Option<Duration> {
        let time = time_of(bytes);
        let time = time + time / MORE;
        time.checked_sub(now.saturating_duration_since(self.since))
    }

    /// The oldest unit, of `bytes` bytes, was asked for and had not ended.
    pub(super) fn looked(&mut self, bytes: u64, now: Instant) {
        self.late |= now.saturating_duration_since(self.since) >= time_of(bytes);
    }

    /// Units of `bytes` bytes were found to have ended.
    pub(super) fn ended(&mut self, bytes: u64, now: Instant) {
        self.since = if self.late {
            now
        } else {
            now.min(self.since + time_of(bytes))
        };
        self.late = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 55_000 * 340;

    /// A link of the model's speed times 100 / `percent`, and a thread that wakes up 60 us late:
    /// how late each unit is seen to have ended.
    fn lags(percent: u64) -> Vec<Duration> {
        let mut pace = Pace::new();
        let start = pace.since;
        let time = time_of(UNIT) * u32::try_from(percent).unwrap() / 100;
        let mut now = start;
        let wake = Duration::from_micros(60);
        (1..=200u32)
            .map(|unit| {
                let end = start + time * unit;
                loop {
                    let sleep = pace.patience(UNIT, now);
                    now += sleep.unwrap_or(Duration::from_micros(20)) + wake;
                    if now >= end {
                        break;
                    }
                    pace.looked(UNIT, now);
                }
                pace.ended(UNIT, now);
                now - end
            })
            .collect()
    }

    #[test]
    fn the_thread_is_never_later_by_every_unit() {
        for percent in [100, 101, 103, 110, 250] {
            let most = lags(percent).into_iter().max().unwrap();
            // A look just before the end costs 20 us and a wake-up; 5 % of 340 us and a wake-up
            // later is the next. A thread that were later by every unit would be ms late.
            assert!(most <= Duration::from_micros(157), "{percent}: {most:?}");
        }
    }

    #[test]
    fn a_look_before_the_time_of_a_unit_says_nothing() {
        let mut pace = Pace::new();
        let start = pace.since;
        pace.looked(UNIT, start + time_of(UNIT) / 2);
        assert!(!pace.late);
        let seen = start + time_of(UNIT) * 2;
        pace.ended(UNIT, seen);
        assert_eq!(pace.since, start + time_of(UNIT));
        pace.looked(UNIT, seen);
        pace.ended(UNIT, seen);
        assert_eq!(pace.since, seen);
        assert_eq!(pace.patience(0, seen), Some(Duration::ZERO));
    }
}
