// SPDX-License-Identifier: Apache-2.0
//! Each fault at each operation of a short program, in both modes.

use std::sync::Arc;

use striata_core::PageGeometry;
use striata_gpu::sim::{
    Fault, FaultPlan, OpClass, SimConfig, SimDevice, SimMemory, SimMode, SimScheduler,
};
use striata_gpu::{
    CopyBatch, CopyFailure, CopyForm, Device, DeviceTime, Direction, GpuError, Piece,
};
use striata_host::HostPool;

use crate::bench::{PAGE, host_pool, piece};

/// Operations that the program queues.
const OPERATIONS: u64 = 8;
/// Those of them that are copies.
const COPIES: [u64; 2] = [0, 4];

struct Program {
    device: SimDevice,
    planes: Arc<[SimMemory]>,
    host: Arc<HostPool>,
}

/// What a good run of the program says.
#[derive(Debug, PartialEq)]
struct Report {
    time: DeviceTime,
    failures: Vec<CopyFailure>,
    /// The first word of host pages 2 and 3.
    words: [u32; 2],
}

impl Program {
    fn new(mode: SimMode, plan: FaultPlan) -> Self {
        let device = SimDevice::new(SimConfig {
            mode,
            faults: plan,
            ..SimConfig::new(0)
        });
        let planes = Arc::from([device.alloc(8 * PAGE).unwrap()]);
        let host = host_pool(PageGeometry::new(4, 16, 1).unwrap(), 8);
        let program = Self {
            device,
            planes,
            host,
        };
        program.set(0, 10);
        program.set(1, 11);
        program
    }

    fn word(&self, page: usize) -> &core::sync::atomic::AtomicU32 {
        &self.host.words()[page * PAGE as usize / 4]
    }

    fn set(&self, page: usize, value: u32) {
        self.word(page)
            .store(value, core::sync::atomic::Ordering::Relaxed);
    }

    fn get(&self, page: usize) -> u32 {
        self.word(page).load(core::sync::atomic::Ordering::Relaxed)
    }

    fn batch<'a>(&'a self, direction: Direction, pieces: &'a [Piece]) -> CopyBatch<'a, SimDevice> {
        CopyBatch {
            direction,
            form: CopyForm::Runs,
            planes: &self.planes,
            host: &self.host,
            pieces,
        }
    }

    /// Brings two pages, passes them to another stream, takes them back elsewhere.
    fn run(&self) -> Result<Report, GpuError> {
        let device = &self.device;
        let (up, down) = (device.stream("up")?, device.stream("down")?);
        let (there, back) = (device.event()?, device.event()?);
        let pieces = [piece(0, 0), piece(1, 1)];
        device.copy(&up, &self.batch(Direction::HostToDevice, &pieces))?;
        device.occupy(&up, 1000)?;
        device.record(&there, &up)?;
        device.wait(&down, &there)?;
        let pieces = [piece(0, 2), piece(1, 3)];
        device.copy(&down, &self.batch(Direction::DeviceToHost, &pieces))?;
        device.not_before(&down, DeviceTime::from_nanos(1))?;
        device.occupy(&down, 1)?;
        device.record(&back, &down)?;
        device.release_faults();
        let time = device.synchronize(&back)?;
        let mut failures = device.copy_failures(&there)?;
        failures.extend(device.copy_failures(&back)?);
        Ok(Report {
            time,
            failures,
            words: [self.get(2), self.get(3)],
        })
    }
}

fn modes() -> [SimMode; 2] {
    [SimMode::Threaded, SimMode::Stepped(SimScheduler::new(3))]
}

fn at(nth: u64, fault: Fault) -> FaultPlan {
    FaultPlan::new().with(OpClass::Any, nth, fault)
}

#[test]
fn the_program_is_good_without_a_fault() {
    let [threaded, stepped] = modes().map(|mode| Program::new(mode, FaultPlan::new()).run());
    assert_eq!(threaded, stepped);
    let report = threaded.unwrap();
    assert_eq!((report.failures.len(), report.words), (0, [10, 11]));
}

#[test]
fn a_refused_call_says_so_at_every_operation() {
    for nth in 0..OPERATIONS {
        for mode in modes() {
            let program = Program::new(mode, at(nth, Fault::Refuse));
            let operation = format!("operation {nth} of sim0");
            assert_eq!(program.run(), Err(GpuError::Refused { operation }));
        }
    }
}

#[test]
fn a_delay_moves_the_end_and_no_byte_at_every_operation() {
    let good = Program::new(SimMode::Threaded, FaultPlan::new())
        .run()
        .unwrap();
    for nth in 0..OPERATIONS {
        for mode in modes() {
            let program = Program::new(mode, at(nth, Fault::Delay { nanos: 1 << 40 }));
            let report = program.run().unwrap();
            assert!(report.time.since(good.time) > 1 << 39, "{nth}");
            assert_eq!((report.failures.len(), report.words), (0, [10, 11]));
        }
    }
}

#[test]
fn a_held_operation_holds_what_is_behind_it_until_it_is_released() {
    let good = Program::new(SimMode::Threaded, FaultPlan::new())
        .run()
        .unwrap();
    for nth in 0..OPERATIONS {
        for mode in modes() {
            let report = Program::new(mode, at(nth, Fault::Hold)).run();
            assert_eq!(report.as_ref(), Ok(&good));
        }
        let scheduler = SimScheduler::new(0);
        let device = SimDevice::new(SimConfig::stepped(0, &scheduler));
        device.arm(&at(0, Fault::Hold));
        let stream = device.stream("a").unwrap();
        device.occupy(&stream, 1).unwrap();
        let event = device.event().unwrap();
        device.record(&event, &stream).unwrap();
        let stuck = device.synchronize(&event).unwrap_err().to_string();
        assert!(
            stuck.contains("hold 0 of stream a of sim0 waits for its release"),
            "{stuck}"
        );
        device.release_faults();
        assert!(device.synchronize(&event).is_ok());
    }
}

#[test]
fn a_death_loses_the_device_at_every_operation() {
    for nth in 0..OPERATIONS {
        for mode in modes() {
            let program = Program::new(mode, at(nth, Fault::Die));
            let cause = format!("operation {nth} of sim0 met its end by plan");
            let lost = Err(GpuError::Lost { cause });
            assert_eq!(program.run(), lost);
            assert_eq!(program.run(), lost);
        }
    }
}

#[test]
fn a_failed_copy_is_attributed_and_another_failed_operation_loses_the_device() {
    for nth in 0..OPERATIONS {
        for mode in modes() {
            let program = Program::new(mode, at(nth, Fault::Fail { good_pieces: 1 }));
            let result = program.run();
            if !COPIES.contains(&nth) {
                let cause = format!("operation {nth} of sim0 failed by plan");
                assert_eq!(result, Err(GpuError::Lost { cause }));
                continue;
            }
            let report = result.unwrap();
            let failure = CopyFailure {
                call: 0,
                good_pieces: 1,
                cause: GpuError::CopyFailed {
                    operation: format!("operation {nth} of sim0"),
                    good: 1,
                    pieces: 2,
                },
            };
            assert_eq!((report.failures, report.words), (vec![failure], [10, 0]));
        }
    }
}

#[test]
fn classes_are_counted_apart() {
    let plan = FaultPlan::new()
        .with(
            OpClass::CopyOf(Direction::DeviceToHost),
            0,
            Fault::Fail { good_pieces: 9 },
        )
        .with(OpClass::Copy, 2, Fault::Refuse)
        .with(OpClass::Kernel, 1, Fault::Delay { nanos: 1 << 40 });
    for mode in modes() {
        let program = Program::new(mode, plan.clone());
        let report = program.run().unwrap();
        assert!(report.time.as_nanos() > 1 << 40);
        // All pieces arrived, and it failed all the same.
        assert_eq!((report.failures.len(), report.words), (1, [10, 11]));
        let operation = "copy 2 of sim0".to_owned();
        assert_eq!(program.run(), Err(GpuError::Refused { operation }));
    }
}

#[test]
fn a_failure_is_told_by_the_next_event_only_and_by_its_call() {
    let plan = FaultPlan::new().with(OpClass::Copy, 1, Fault::Fail { good_pieces: 0 });
    for mode in modes() {
        let program = Program::new(mode, plan.clone());
        let device = &program.device;
        let stream = device.stream("a").unwrap();
        let pieces = [piece(0, 0)];
        let events: Vec<_> = (0..3)
            .map(|_| {
                let batch = program.batch(Direction::HostToDevice, &pieces);
                device.copy(&stream, &batch).unwrap();
                device.copy(&stream, &batch).unwrap();
                let event = device.event().unwrap();
                device.record(&event, &stream).unwrap();
                event
            })
            .collect();
        device.synchronize(&events[2]).unwrap();
        let calls: Vec<Vec<usize>> = events
            .iter()
            .map(|event| {
                let failures = device.copy_failures(event).unwrap();
                failures.iter().map(|failure| failure.call).collect()
            })
            .collect();
        assert_eq!(calls, [vec![1], vec![], vec![]]);
    }
}
