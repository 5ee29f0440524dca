// SPDX-License-Identifier: Apache-2.0
//! Makes the memory of a pool present before it is used, in parallel, on the wanted NUMA node.
//!
//! Threads take steps of some huge pages in order, so that the memory fills from the front and
//! registration can follow close behind.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use crate::budget::HostMemory;
use crate::error::HostError;
use crate::frontier::Frontier;
use crate::region::{HUGE_PAGE, Region};

/// More threads than this were measured to be slower: they fight for the kernel's locks.
const MAX_AUTO_THREADS: usize = 4;
/// Bytes of a step, in whole huge pages: some milliseconds of a thread.
const STEP: usize = 16 * HUGE_PAGE;

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
    /// When the last step ended.
    pub(crate) ended: Instant,
}

impl Prefaulted {
    /// What a prefault that was not asked for did.
    pub(crate) fn skipped() -> Self {
        Self {
            way: PrefaultWay::Skipped,
            threads: 0,
            placement: NumaPlacement::Any,
            ended: Instant::now(),
        }
    }
}

/// Who makes memory present.
#[derive(Clone, Debug)]
pub(crate) struct Prefault {
    threads: usize,
    /// The wanted node, where there are several.
    node: Option<u32>,
    /// Its processors.
    cpus: Option<Vec<u32>>,
}

impl Prefault {
    /// `threads` threads (0: as many as pay, never more than cores) on the processors of `node`.
    pub(crate) fn new(threads: usize, node: Option<u32>, memory: &HostMemory) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let several = memory.numa_nodes.as_ref().is_some_and(|n| n.len() > 1);
        let node = node.filter(|_| several);
        Self {
            threads: match threads {
                0 => cores.min(MAX_AUTO_THREADS),
                asked => asked.min(cores),
            },
            node,
            cpus: node.and_then(cpus_of),
        }
    }

    /// Makes `span` of `region` present. Meanwhile `behind` runs on the calling thread and may wait
    /// for the bytes from the front; if it fails, the rest is left alone.
    ///
    /// # Errors
    /// The machine has no memory left, or the kernel refuses; what `behind` says.
    pub(crate) fn run(
        &self,
        region: &Region,
        span: Range<usize>,
        behind: impl FnOnce(&Progress<'_>) -> Result<(), HostError>,
    ) -> Result<Prefaulted, HostError> {
        let steps = Steps { span };
        let frontier = Frontier::new(steps.count());
        let progress = Progress {
            steps: &steps,
            frontier: &frontier,
        };
        let threads = self.threads.min(steps.count()).max(1);
        let (done, workers) = thread::scope(|scope| {
            let work = || self.work(region, progress);
            let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let workers: Vec<_> = (0..threads).filter_map(start).collect();
            // A machine that starts no thread: the caller makes all present, then looks at it.
            let own = workers.is_empty().then(work);
            let done = behind(&progress).and_then(|()| progress.wait(steps.span.end));
            frontier.stop();
            let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
            // One that panicked has failed its step.
            (
                done,
                own.into_iter().chain(ended.flatten()).collect::<Vec<_>>(),
            )
        });
        done?;
        let mut prefaulted = Prefaulted {
            way: PrefaultWay::Populate,
            threads: workers.len(),
            placement: self
                .node
                .map_or(NumaPlacement::Any, NumaPlacement::FirstTouch),
            ended: workers
                .iter()
                .map(|worker| worker.ended)
                .max()
                .unwrap_or_else(Instant::now),
        };
        if workers.iter().any(|worker| worker.touched) {
            prefaulted.way = PrefaultWay::Touch;
        }
        if let (Some(node), true) = (self.node, workers.iter().any(|worker| !worker.moved)) {
            prefaulted.placement = NumaPlacement::Refused(node);
        }
        Ok(prefaulted)
    }

    /// Takes steps until there is none.
    fn work(&self, region: &Region, progress: Progress<'_>) -> Worker {
        let mut worker = Worker {
            moved: self.cpus.as_deref().is_some_and(move_to),
            touched: false,
            ended: Instant::now(),
        };
        while let Some(number) = progress.frontier.take() {
            let mut step = Taken {
                progress,
                number,
                result: None,
            };
            let populated = populate(region, progress.steps.range(number));
            worker.touched |= matches!(populated, Ok(PrefaultWay::Touch));
            step.result = Some(populated.map(|_| ()).map_err(|error| error.to_string()));
        }
        worker.ended = Instant::now();
        worker
    }
}

/// What became of one thread.
struct Worker {
    /// Whether it ran on the wanted processors.
    moved: bool,
    /// Whether it had to touch pages one by one.
    touched: bool,
    ended: Instant,
}

/// A step in the hands of a thread; who waits is told of its end also if the thread panics.
struct Taken<'a> {
    progress: Progress<'a>,
    number: usize,
    result: Option<Result<(), String>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let panicked = || Err("a prefault thread panicked".to_owned());
        let result = self.result.take().unwrap_or_else(panicked);
        let range = self.progress.steps.range(self.number);
        let failed = |reason| HostError::Prefault {
            start: range.start as u64,
            end: range.end as u64,
            reason,
        };
        self.progress
            .frontier
            .end(self.number, result.map_err(failed));
    }
}

/// How far a prefault has come.
#[derive(Clone, Copy)]
pub(crate) struct Progress<'a> {
    steps: &'a Steps,
    frontier: &'a Frontier<HostError>,
}

impl Progress<'_> {
    /// Blocks until all bytes before byte `end` of the region are present.
    ///
    /// # Errors
    /// The prefault failed.
    pub(crate) fn wait(&self, end: usize) -> Result<(), HostError> {
        if self.frontier.wait(self.steps.before(end))? {
            return Ok(());
        }
        Err(HostError::Prefault {
            start: self.steps.span.start as u64,
            end: end as u64,
            reason: "it was given up".to_owned(),
        })
    }
}

/// A span in steps whose edges are on huge pages.
struct Steps {
    span: Range<usize>,
}

impl Steps {
    /// How many hold the bytes of the span before byte `end`.
    const fn before(&self, end: usize) -> usize {
        if end <= self.span.start {
            return 0;
        }
        (end - 1) / STEP + 1 - self.span.start / STEP
    }

    const fn count(&self) -> usize {
        self.before(self.span.end)
    }

    fn range(&self, number: usize) -> Range<usize> {
        let start = (self.span.start / STEP + number).saturating_mul(STEP);
        let end = start.saturating_add(STEP);
        start.max(self.span.start)..end.min(self.span.end)
    }
}

/// Makes one span present.
fn populate(region: &Region, span: Range<usize>) -> std::io::Result<PrefaultWay> {
    match region.populate(span.clone()) {
        Ok(()) => Ok(PrefaultWay::Populate),
        // An older kernel does not know the call, another platform does not have it.
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Unsupported
            ) =>
        {
            touch(region, span);
            Ok(PrefaultWay::Touch)
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

    fn threads(threads: usize) -> Prefault {
        Prefault::new(threads, Some(0), &HostMemory::default())
    }

    #[test]
    fn steps_cover_every_byte_once_and_meet_on_huge_pages() {
        for span in [0..0, 0..1, 0..STEP, 5..2 * STEP + 1, STEP - 1..STEP + 1] {
            let steps = Steps { span: span.clone() };
            let ranges: Vec<_> = (0..steps.count()).map(|step| steps.range(step)).collect();
            assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), span.len());
            assert!(ranges.windows(2).all(|p| p[0].end == p[1].start));
            assert!(ranges.windows(2).all(|p| p[0].end % HUGE_PAGE == 0));
            for end in span.clone().step_by(STEP / 3) {
                let present: usize = ranges[..steps.before(end)].iter().map(Range::len).sum();
                assert!(span.start + present >= end);
            }
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
        let done = threads(1000).run(&region, 0..16 << 20, |_| Ok(())).unwrap();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        assert!(done.threads <= cores);
        assert_eq!(done.placement, NumaPlacement::Any);
    }

    #[test]
    fn who_follows_behind_waits_for_the_bytes_and_can_give_up() {
        let region = Region::plain(3 * STEP, HUGE_PAGE).unwrap();
        let mut waited = 0;
        let done = threads(2).run(&region, HUGE_PAGE..3 * STEP, |progress| {
            for end in [HUGE_PAGE, STEP, 2 * STEP + 4] {
                progress.wait(end)?;
                waited += 1;
            }
            Ok(())
        });
        assert!(done.is_ok() && waited == 3);
        let refused = HostError::Page { page: 1, pages: 1 };
        let given_up = threads(1).run(&region, 0..3 * STEP, |_| Err(refused.clone()));
        assert_eq!(given_up, Err(refused));
    }

    #[test]
    fn memory_that_is_not_there_is_named() {
        let region = Region::plain(HUGE_PAGE, HUGE_PAGE).unwrap();
        // Past the mapping: the kernel refuses, and nobody waits for ever.
        let outside = 8 * STEP..9 * STEP;
        let refused = threads(2).run(&region, outside.clone(), |progress| progress.wait(9 * STEP));
        let Err(HostError::Prefault { start, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(start, outside.start as u64);
    }
}
