// SPDX-License-Identifier: Apache-2.0
//! Makes the memory of a pool present before it is used, in parallel, on the wanted NUMA node.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread;

use crate::budget::HostMemory;
use crate::error::HostError;
use crate::region::{HUGE_PAGE, Region};

/// More threads than this were measured to be slower: they fight for the kernel's locks.
const MAX_AUTO_THREADS: usize = 8;

/// How the memory was made present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefaultWay {
    /// By one kernel call a span.
    Populate,
    /// By a write to each page: the kernel has no such call.
    Touch,
    /// Not at all, as asked.
    Skipped,
}

/// Where the memory of a pool lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumaPlacement {
    /// No node was asked for, or the machine has one only.
    Any,
    /// On this node: the prefault threads ran on its processors, and first touch decides.
    FirstTouch(u32),
    /// A node was asked for, and the prefault threads could not be moved there.
    Refused(u32),
}

/// What a prefault did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefaulted {
    pub(crate) way: PrefaultWay,
    pub(crate) threads: usize,
    pub(crate) placement: NumaPlacement,
}

/// Makes all of `region` present with `threads` threads (0: as many as pay), on `node`.
///
/// # Errors
/// The machine has no memory left, or the kernel refuses.
pub(crate) fn run(
    region: &Region,
    threads: usize,
    node: Option<u32>,
    memory: &HostMemory,
) -> Result<Prefaulted, HostError> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let several = memory.numa_nodes.as_ref().is_some_and(|n| n.len() > 1);
    let node = node.filter(|_| several);
    let cpus = node.and_then(cpus_of);
    let threads = match threads {
        0 => cores.min(MAX_AUTO_THREADS),
        asked => asked.min(cores),
    };
    let spans = spans(region.len(), threads);
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = spans
            .iter()
            .map(|span| {
                let work = || populate(region, span.clone(), cpus.as_deref());
                thread::Builder::new().spawn_scoped(scope, work)
            })
            .collect();
        let joined = |worker: std::io::Result<thread::ScopedJoinHandle<'_, _>>| match worker {
            Ok(worker) => worker.join(),
            Err(error) => Ok(Err(error)),
        };
        workers.into_iter().map(joined).collect()
    });
    let mut done = Prefaulted {
        way: PrefaultWay::Populate,
        threads: spans.len(),
        placement: node.map_or(NumaPlacement::Any, NumaPlacement::FirstTouch),
    };
    for (span, result) in spans.iter().zip(results) {
        let failed = |reason: String| HostError::Prefault {
            start: span.start as u64,
            end: span.end as u64,
            reason,
        };
        let (way, moved) = result
            .map_err(|_| failed("a prefault thread panicked".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        if way == PrefaultWay::Touch {
            done.way = way;
        }
        if let (false, Some(node)) = (moved, node) {
            done.placement = NumaPlacement::Refused(node);
        }
    }
    Ok(done)
}

/// Cuts `len` bytes into at most `threads` spans whose edges are on huge pages.
fn spans(len: usize, threads: usize) -> Vec<Range<usize>> {
    let share = len.div_ceil(threads.max(1)).max(1);
    let each = share.next_multiple_of(HUGE_PAGE);
    (0..len)
        .step_by(each)
        .map(|start| start..start.saturating_add(each).min(len))
        .collect()
}

/// Makes one span present; also says whether the thread runs on the wanted processors.
fn populate(
    region: &Region,
    span: Range<usize>,
    cpus: Option<&[u32]>,
) -> std::io::Result<(PrefaultWay, bool)> {
    let moved = cpus.is_some_and(move_to);
    match region.populate(span.clone()) {
        Ok(()) => Ok((PrefaultWay::Populate, moved)),
        // An older kernel does not know the call, another platform does not have it.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Unsupported
            ) =>
        {
            touch(region, span);
            Ok((PrefaultWay::Touch, moved))
        }
        Err(error) => Err(error),
    }
}

/// Writes to one word of each memory page and changes nothing.
fn touch(region: &Region, span: Range<usize>) {
    let step = rustix::param::page_size() / size_of::<u32>();
    let words = &region.words()[span.start / size_of::<u32>()..span.end / size_of::<u32>()];
    for word in words.iter().step_by(step.max(1)) {
        word.fetch_or(0, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
fn cpus_of(node: u32) -> Option<Vec<u32>> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    crate::budget::parse_list(&std::fs::read_to_string(path).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn cpus_of(_node: u32) -> Option<Vec<u32>> {
    None
}

/// Moves the calling thread to `cpus`.
#[cfg(target_os = "linux")]
fn move_to(cpus: &[u32]) -> bool {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for cpu in cpus.iter().map(|cpu| *cpu as usize) {
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
    }
    sched_setaffinity(None, &set).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn move_to(_cpus: &[u32]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_every_byte_once() {
        for (len, threads) in [(1, 4), (5 << 20, 2), (7 << 20, 3), (4 << 20, 0), (0, 2)] {
            let spans = spans(len, threads);
            assert!(spans.len() <= threads.max(1));
            assert_eq!(spans.iter().map(Range::len).sum::<usize>(), len);
            assert!(spans.windows(2).all(|p| p[0].end == p[1].start));
        }
    }

    #[test]
    fn touching_keeps_the_content() {
        let mut region = Region::plain(3 * 4096, 4096).unwrap();
        region.words_mut().fill(0xABCD);
        touch(&region, 0..3 * 4096);
        assert!(region.words_mut().iter().all(|w| *w == 0xABCD));
    }

    #[test]
    fn threads_never_outnumber_cores() {
        let region = Region::plain(16 << 20, HUGE_PAGE).unwrap();
        let done = run(&region, 1000, Some(0), &HostMemory::default()).unwrap();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        assert!(done.threads <= cores);
        assert_eq!(done.placement, NumaPlacement::Any);
    }
}
