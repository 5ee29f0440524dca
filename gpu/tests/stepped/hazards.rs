// SPDX-License-Identifier: Apache-2.0
//! Each kind of bug is found, with both operations named, and the corrected program is clean.

use std::sync::Arc;

use striata_gpu::sim::{SimConfig, Step};
use striata_gpu::{Device, Direction, GpuError};
use striata_host::{HostPoolConfig, PagePinner, PinError, PinRegion};

use crate::bench::{Bench, PAGE};

const SEEDS: core::ops::Range<u64> = 0..20;

fn hazard(first: &str, second: &str, range: &str) -> GpuError {
    GpuError::Hazard {
        first: first.into(),
        second: second.into(),
        range: range.into(),
    }
}

/// Runs a program in many orders. Without its fence, one of the two operations that it leaves
/// unordered is reported against the other; with it, none is.
fn found_unless_fenced(program: impl Fn(&Bench, bool), one: &str, other: &str, range: &str) {
    let mut orders = [0, 0];
    for seed in SEEDS {
        let clean = Bench::new(seed);
        program(&clean, true);
        assert_eq!(clean.scheduler.run(), Ok(Step::Idle));
        assert_eq!(clean.scheduler.bugs(), []);

        let bench = Bench::new(seed);
        program(&bench, false);
        let bug = bench.scheduler.run().unwrap_err();
        let either = [hazard(one, other, range), hazard(other, one, range)];
        let order = either.iter().position(|expected| *expected == bug);
        orders[order.unwrap_or_else(|| panic!("{bug}"))] += 1;
        assert_eq!(bench.scheduler.bugs(), core::slice::from_ref(&bug));
        // The device is lost, and names the bug.
        let cause = bug.to_string();
        assert_eq!(bench.read(7), Err(GpuError::Lost { cause }));
    }
    assert!(orders.iter().all(|seen| *seen > 0), "{orders:?}");
}

#[test]
fn a_read_of_a_range_with_a_write_pending() {
    found_unless_fenced(
        |bench, fenced| {
            let (a, b) = (bench.stream("a"), bench.stream("b"));
            bench.load(&a, 1, 1);
            if fenced {
                bench.device.wait(&b, &bench.mark(&a)).unwrap();
            }
            bench.store(&b, 1, 2);
        },
        "host-to-device copy 0 of stream a of sim0",
        "device-to-host copy 0 of stream b of sim0",
        "bytes [64, 128) of memory 0 of sim0",
    );
}

#[test]
fn a_write_of_a_range_with_a_read_unordered() {
    found_unless_fenced(
        |bench, fenced| {
            let (a, b) = (bench.stream("a"), bench.stream("b"));
            bench.load(&a, 1, 3);
            if fenced {
                bench.device.wait(&b, &bench.mark(&a)).unwrap();
            }
            bench.store(&b, 2, 3);
        },
        "host-to-device copy 0 of stream a of sim0",
        "device-to-host copy 0 of stream b of sim0",
        "bytes [192, 256) of host pool 0",
    );
}

#[test]
fn two_writes_that_are_unordered() {
    found_unless_fenced(
        |bench, fenced| {
            let (a, b) = (bench.stream("a"), bench.stream("b"));
            bench.load(&a, 1, 1);
            if fenced {
                bench.device.wait(&b, &bench.mark(&a)).unwrap();
            }
            bench.load(&b, 1, 2);
        },
        "host-to-device copy 0 of stream a of sim0",
        "host-to-device copy 0 of stream b of sim0",
        "bytes [64, 128) of memory 0 of sim0",
    );
}

#[test]
fn order_passes_through_a_third_stream_and_is_not_made_by_chance() {
    for seed in SEEDS {
        let bench = Bench::new(seed);
        let [a, b, c] = ["a", "b", "c"].map(|name| bench.stream(name));
        bench.load(&a, 1, 1);
        bench.device.wait(&b, &bench.mark(&a)).unwrap();
        bench.device.wait(&c, &bench.mark(&b)).unwrap();
        bench.store(&c, 1, 2);
        assert_eq!(bench.scheduler.run(), Ok(Step::Idle));
        // All has run, but nothing told this stream: it is a race all the same.
        let late = bench.stream("late");
        bench.store(&late, 0, 2);
        let bug = bench.scheduler.run();
        let (first, second) = (
            "device-to-host copy 1 of stream c of sim0",
            "device-to-host copy 0 of stream late of sim0",
        );
        assert_eq!(
            bug,
            Err(hazard(first, second, "bytes [128, 192) of host pool 0"))
        );
    }
}

#[test]
fn pieces_of_one_batch_that_write_the_same_bytes() {
    let bench = Bench::new(0);
    let stream = bench.stream("a");
    bench
        .copy(&stream, Direction::HostToDevice, &[(1, 1), (2, 2), (1, 3)])
        .unwrap();
    let name = "host-to-device copy 0 of stream a of sim0";
    let range = "bytes [64, 128) of memory 0 of sim0";
    assert_eq!(bench.scheduler.step(), Err(hazard(name, name, range)));
}

#[test]
fn the_host_reads_what_is_still_to_be_written() {
    let load = "host-to-device copy 0 of stream a of sim0";
    let range = "bytes [64, 128) of memory 0 of sim0";
    let queued = Bench::new(0);
    queued.load(&queued.stream("a"), 1, 1);
    assert!(queued.read(2).is_ok());
    assert_eq!(
        queued.read(1),
        Err(hazard(load, "read 1 of the host", range))
    );

    // It ran, but the host does not know.
    let ran = Bench::new(0);
    ran.load(&ran.stream("a"), 1, 1);
    assert_eq!(ran.scheduler.run(), Ok(Step::Idle));
    assert_eq!(ran.read(1), Err(hazard(load, "read 0 of the host", range)));

    let synchronized = Bench::new(0);
    let stream = synchronized.stream("a");
    synchronized.load(&stream, 1, 1);
    let event = synchronized.mark(&stream);
    synchronized.device.synchronize(&event).unwrap();
    assert!(synchronized.read(1).is_ok());
    assert_eq!(synchronized.scheduler.bugs(), []);
}

#[test]
fn the_host_writes_what_is_still_read() {
    let bench = Bench::new(0);
    let stream = bench.stream("a");
    // Before the submission the host is ordered by it.
    bench.write(1, 5).unwrap();
    bench.store(&stream, 1, 1);
    let event = bench.mark(&stream);
    while bench.scheduler.step() != Ok(Step::Idle) {}
    // An answer of no orders nothing; an answer of yes does.
    assert!(bench.device.is_complete(&event).unwrap());
    bench.write(1, 6).unwrap();
    bench.store(&stream, 1, 2);
    let bug = bench.write(1, 7).unwrap_err();
    let (first, second) = (
        "device-to-host copy 2 of stream a of sim0",
        "write 2 of the host",
    );
    assert_eq!(
        bug,
        hazard(first, second, "bytes [64, 128) of memory 0 of sim0")
    );
}

#[test]
fn the_host_says_what_it_does_to_a_pool() {
    let bench = Bench::new(0);
    let stream = bench.stream("a");
    bench.scheduler.host_writes(&bench.host, 0..PAGE).unwrap();
    bench.load(&stream, 1, 0);
    bench.scheduler.host_reads(&bench.host, 0..PAGE).unwrap();
    let bug = bench.scheduler.host_writes(&bench.host, PAGE - 4..PAGE);
    let (first, second) = (
        "host-to-device copy 0 of stream a of sim0",
        "write 2 of the host",
    );
    assert_eq!(
        bug,
        Err(hazard(first, second, "bytes [60, 64) of host pool 0"))
    );
}

#[test]
fn waiting_for_an_event_that_nobody_recorded() {
    let bench = Bench::new(0);
    let stream = bench.stream("a");
    let event = bench.device.event().unwrap();
    let bug = GpuError::EventNotRecorded { what: "wait" };
    assert_eq!(bench.device.wait(&stream, &event), Err(bug.clone()));
    assert_eq!(bench.scheduler.bugs(), [bug]);
    assert_eq!(bench.scheduler.run(), Ok(Step::Idle));
}

#[derive(Debug)]
struct Pins;

impl PagePinner for Pins {
    fn locks_pages(&self) -> bool {
        true
    }
    fn register(&self, _: PinRegion) -> Result<(), PinError> {
        Ok(())
    }
    fn unregister(&self, _: PinRegion) -> Result<(), PinError> {
        Ok(())
    }
}

#[test]
fn a_copy_from_memory_that_is_not_registered() {
    let strict = |config| SimConfig {
        require_registered: true,
        ..config
    };
    let mut bench = Bench::with(0, strict);
    let stream = bench.stream("a");
    let bug = GpuError::NotRegistered {
        operation: "host-to-device copy 0 of stream a of sim0".to_owned(),
        bytes: 8 * PAGE,
    };
    let refused = bench.copy(&stream, Direction::HostToDevice, &[(0, 0)]);
    assert_eq!(refused, Err(bug.clone()));
    assert_eq!(bench.scheduler.bugs(), [bug]);
    let config = HostPoolConfig {
        reserve_bytes: 0,
        pinner: Arc::new(Pins),
        ..HostPoolConfig::new(bench.host.geometry(), 8)
    };
    bench.host = Arc::new(striata_host::HostPool::new(&config).unwrap());
    bench.load(&stream, 0, 0);
    assert_eq!(bench.scheduler.run(), Ok(Step::Idle));
}
