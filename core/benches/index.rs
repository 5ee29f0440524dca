// SPDX-License-Identifier: Apache-2.0
//! Nanoseconds a page of the prefix index, keys given, on one core:
//! `cargo bench -p striata-core --bench index`.
//!
//! Throughput is in pages: criterion's `Melem/s` are million pages a second.
#![allow(
    missing_docs,
    reason = "criterion's macros make public items without docs"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use striata_core::alloc::PageAllocator;
use striata_core::evict::policy_by_name;
use striata_core::prefix::{
    Evicted, InsertOptions, KeyChain, Namespace, PageKey, PathLock, PrefixIndex, RootId,
};
use striata_core::{L1, L1Page, Stripe};

const ROOT: RootId = RootId::new(1);
const POOL: u32 = 100_001;

struct Bench {
    index: PrefixIndex,
    pool: PageAllocator<L1>,
    out: Evicted,
    pages: Vec<L1Page>,
}

/// Keys of a request: `shared` pages of prefix `family`, then pages of its own.
fn keys(family: u64, request: u64, shared: u64, total: u64) -> Vec<PageKey> {
    let key = |owner: u64, at: u64| {
        let mixed = (u128::from(owner) << 64 | u128::from(at)) + 1;
        PageKey::new(mixed.wrapping_mul(0xda94_2042_e4dd_58b5_9e37_79b9_7f4a_7c15))
    };
    (0..total)
        .map(|at| key(if at < shared { family } else { request }, at))
        .collect()
}

impl Bench {
    fn new() -> Self {
        Self {
            index: PrefixIndex::new(policy_by_name("lru").expect("it is there"), POOL, 0),
            pool: PageAllocator::new(POOL, 1),
            out: Evicted::default(),
            pages: Vec::new(),
        }
    }

    /// A request from match to insert; the caller releases.
    fn run(&mut self, keys: &[PageKey]) -> PathLock {
        let mut lock = self.index.acquire_prefix(ROOT, keys);
        self.pages.clear();
        let held = self.index.l1_pages_of(&lock, &mut self.pages).unwrap_or(0);
        let needed = keys.len() - held;
        let short = needed.saturating_sub(self.pool.free_pages());
        self.out.clear();
        self.index.evict_l1(short, &mut self.out);
        self.pool
            .free(&self.out.l1)
            .expect("evicted pages are free");
        self.pool
            .alloc(needed, &mut self.pages)
            .expect("there is room");
        self.index
            .insert(
                &mut lock,
                keys,
                &self.pages,
                InsertOptions::default(),
                &mut Vec::new(),
            )
            .expect("the path is inserted");
        lock
    }

    fn release(&mut self, lock: PathLock) {
        self.index.release(lock).expect("the lock is of this index");
    }

    /// An index full of requests of 100 pages, of which 60 are shared by tens.
    fn full() -> (Self, Vec<Vec<PageKey>>) {
        let mut bench = Self::new();
        let requests: Vec<_> = (0..2000)
            .map(|n| keys(n / 10, 1_000_000 + n, 60, 100))
            .collect();
        for request in &requests {
            let lock = bench.run(request);
            bench.release(lock);
        }
        (bench, requests)
    }
}

fn resident(c: &mut Criterion) {
    let mut group = c.benchmark_group("match_resident");
    group.throughput(Throughput::Elements(1000));
    let path = keys(1, 2, 0, 1000);
    let mut bench = Bench::new();
    let lock = bench.run(&path);
    group.bench_function("1000 pages, one node", |b| {
        b.iter(|| black_box(bench.index.match_prefix(ROOT, black_box(&path))));
    });
    for cut in (10..1000).step_by(10) {
        let upper = bench.index.acquire_prefix(ROOT, &path[..cut]);
        bench.release(upper);
    }
    group.bench_function("1000 pages, 100 nodes", |b| {
        b.iter(|| black_box(bench.index.match_prefix(ROOT, black_box(&path))));
    });
    bench.release(lock);
}

fn match_and_release(c: &mut Criterion) {
    let mut group = c.benchmark_group("match_release_evictable");
    group.throughput(Throughput::Elements(100));
    let (mut bench, requests) = Bench::full();
    let mut next = 0;
    group.bench_function("100 pages of 100,000 held", |b| {
        b.iter(|| {
            next = (next + 7) % requests.len();
            let found = bench.index.match_prefix(ROOT, &requests[next]);
            let lock = bench.index.acquire(&found).expect("just matched");
            bench.release(lock);
        });
    });
}

fn whole_cycle(c: &mut Criterion) {
    let mut group = c.benchmark_group("cycle");
    group.throughput(Throughput::Elements(100));
    let (mut bench, _) = Bench::full();
    let mut next = 10_000u64;
    group.bench_function("match, evict 40, insert 40, release, of 100 pages", |b| {
        b.iter_batched(
            || {
                next += 1;
                keys(next / 10, 1_000_000 + next, 60, 100)
            },
            |request| {
                let lock = bench.run(&request);
                bench.release(lock);
                request
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("match, evict 100, insert 100, release", |b| {
        b.iter_batched(
            || {
                next += 1;
                keys(next, 1_000_000 + next, 0, 100)
            },
            |request| {
                let lock = bench.run(&request);
                bench.release(lock);
                request
            },
            BatchSize::SmallInput,
        );
    });
}

fn page_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("keys");
    let tokens: Vec<u32> = (0..65_536).collect();
    group.throughput(Throughput::Elements(tokens.len() as u64));
    let stripe = Stripe::new(8, 64).expect("a stripe");
    let mut out = Vec::new();
    group.bench_function("65,536 tokens", |b| {
        b.iter(|| {
            out.clear();
            KeyChain::new(Namespace::from_digest(1), stripe).extend(&tokens, &mut out);
            black_box(out.len())
        });
    });
}

criterion_group!(benches, resident, match_and_release, whole_cycle, page_keys);
criterion_main!(benches);
