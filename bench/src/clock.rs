// SPDX-License-Identifier: Apache-2.0
//! The clock of a thread's own CPU time.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread in nanoseconds.
pub(crate) fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanos).unwrap_or(0)
}
