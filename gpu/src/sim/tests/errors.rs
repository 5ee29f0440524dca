// SPDX-License-Identifier: Apache-2.0
//! What is refused, and that nothing happens then.

use super::*;

#[test]
fn events_are_recorded_once_and_before_they_are_used() {
    let setup = Setup::new();
    let device = &setup.device;
    let stream = device.stream("s").unwrap();
    let event = device.event().unwrap();
    let unrecorded = |what| GpuError::EventNotRecorded { what };
    assert_eq!(device.wait(&stream, &event), Err(unrecorded("wait")));
    assert_eq!(device.is_complete(&event), Err(unrecorded("is_complete")));
    assert_eq!(device.synchronize(&event), Err(unrecorded("synchronize")));
    assert!(device.event_time(&event).is_err());
    device.record(&event, &stream).unwrap();
    assert_eq!(
        device.record(&event, &stream),
        Err(GpuError::EventRecordedTwice)
    );
    assert!(device.synchronize(&event).is_ok());
}

#[test]
fn a_bad_piece_refuses_the_whole_batch() {
    let setup = Setup::new();
    let stream = setup.device.stream("s").unwrap();
    setup.set_host_word(0, 1);
    let good = run(0, 0, 0, 4);
    let rows = Piece { height: 2, ..good };
    let bad = [
        Piece { plane: 1, ..good },
        Piece {
            device: 1024,
            ..good
        },
        Piece { host: 1024, ..good },
        Piece {
            device: u64::MAX - 3,
            ..good
        },
        Piece {
            host: u64::MAX - 3,
            width: 8,
            ..good
        },
        Piece { device: 2, ..good },
        Piece { host: 1, ..good },
        Piece { width: 6, ..good },
        Piece {
            device_pitch: 5,
            ..rows
        },
        Piece {
            host_pitch: 7,
            ..rows
        },
        Piece {
            device_pitch: 0,
            ..rows
        },
        Piece {
            host_pitch: 0,
            ..rows
        },
        Piece {
            device_pitch: 1024,
            ..rows
        },
        Piece {
            host_pitch: 1 << 63,
            height: u32::MAX,
            ..good
        },
    ];
    for piece in bad {
        let pieces = [good, piece];
        let batch = CopyBatch {
            form: CopyForm::Rectangles,
            ..setup.batch(Direction::HostToDevice, &pieces)
        };
        assert!(setup.device.copy(&stream, &batch).is_err(), "{piece:?}");
    }
    let pieces = [good, rows];
    let batch = CopyBatch {
        form: CopyForm::Runs,
        ..setup.batch(Direction::HostToDevice, &pieces)
    };
    let refused = setup.device.copy(&stream, &batch);
    assert_eq!(refused, Err(GpuError::NotARun { height: 2 }));
    assert_eq!(setup.finish(&stream), 0);
    assert_eq!(setup.plane_word(), 0);
    assert_eq!(setup.device.stats(), DeviceStats::default());
}

#[test]
fn a_row_in_two_registrations_is_refused_and_rows_beside_the_edge_are_not() {
    let page = PageGeometry::new(64, 64, 1).unwrap();
    let device = device(0);
    let host = pool_of(page, 2, 4096);
    assert_eq!(host.report().chunks, 2);
    let planes = Arc::from([device.alloc(host.bytes()).unwrap()]);
    let stream = device.stream("s").unwrap();
    let copy = |piece| {
        let batch = CopyBatch {
            direction: Direction::HostToDevice,
            form: CopyForm::Rectangles,
            planes: &planes,
            host: &host,
            pieces: &[piece],
        };
        device.copy(&stream, &batch)
    };
    let rows = Piece {
        height: 2,
        ..run(0, 0, 4032, 64)
    };
    assert_eq!(copy(rows), Ok(()));
    let crossing = GpuError::SplitRegistration {
        start: 4096 - 32,
        end: 4096 + 32,
        edge: 4096,
    };
    let rows = Piece { host: 4000, ..rows };
    assert_eq!(copy(rows), Err(crossing));
}

#[test]
fn kernels_stay_inside_their_memory() {
    let setup = Setup::new();
    let (device, plane) = (&setup.device, &setup.planes[0]);
    let stream = device.stream("s").unwrap();
    let params = RowParams {
        row_words: 4,
        layer: 0,
        rank: 0,
        stride: 1,
    };
    let span = |first_row, rows| {
        let seed = striata_kernels::rows::PageSeed::new(0, 0, 0);
        let spans: Arc<[RowSpan]> = Arc::from([RowSpan {
            seed,
            first_row,
            rows,
            skip: 0,
        }]);
        spans
    };
    for (base, spans) in [
        (0, span(0, 65)),
        (16, span(0, 64)),
        (0, span(64, 1)),
        (0, span(u64::MAX, 1)),
        (0, span(u64::MAX / 16, 1)),
        (u64::MAX - 3, span(0, 1)),
        (2, span(0, 1)),
    ] {
        let filled = device.fill_rows(&stream, plane, base, params, &spans);
        assert!(filled.is_err(), "{base} {spans:?}");
        let verified = device.verify_rows(&stream, plane, base, params, &spans, plane);
        assert_eq!(verified.is_err(), filled.is_err());
    }
    let empty = device.alloc(0).unwrap();
    let log = device.verify_rows(&stream, plane, 0, params, &span(0, 1), &empty);
    assert!(matches!(log, Err(GpuError::OutOfRange { .. })));
    device
        .fill_rows(&stream, plane, 0, params, &span(0, 64))
        .unwrap();
    assert_eq!(device.stats().kernels, 1);
}

#[test]
fn memory_is_limited_and_comes_back() {
    let limited = SimDevice::new(SimConfig {
        memory_bytes: Some(100),
        ..SimConfig::new(3)
    });
    let first = limited.alloc(60).unwrap();
    let refused = limited.alloc(44).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "device sim3 cannot allocate 44 bytes: 60 of 100 bytes are used"
    );
    let misaligned = limited.alloc(6);
    assert!(matches!(
        misaligned,
        Err(GpuError::Misaligned { value: 6, .. })
    ));
    drop(first);
    assert!(limited.alloc(100).is_ok());
    let endless = SimDevice::new(SimConfig::default());
    assert!(matches!(
        endless.alloc(u64::MAX - 3),
        Err(GpuError::OutOfMemory { .. })
    ));
    let all = endless.alloc(8).unwrap();
    assert!(matches!(
        endless.write(&all, 8, &[0; 4]),
        Err(GpuError::OutOfRange { .. })
    ));
    assert!(matches!(
        endless.read(&all, 4, &mut [0; 3]),
        Err(GpuError::Misaligned { .. })
    ));
}

#[test]
fn a_lost_device_names_the_first_cause_and_nobody_waits_for_ever() {
    let setup = Setup::new();
    let stream = setup.device.stream("s").unwrap();
    setup.set_host_word(0, 3);
    let hold = setup.device.hold(&stream).unwrap();
    setup.copy(&stream, Direction::HostToDevice, &[run(0, 0, 0, 4)]);
    let event = setup.mark(&stream);
    setup.device.kill("an injected fault");
    setup.device.kill("a later one");
    drop(hold);
    let lost = GpuError::Lost {
        cause: "an injected fault".to_owned(),
    };
    assert_eq!(setup.device.synchronize(&event), Err(lost.clone()));
    assert_eq!(event.wait().as_nanos(), 0);
    assert_eq!(setup.device.occupy(&stream, 1), Err(lost.clone()));
    assert_eq!(setup.device.alloc(4).err(), Some(lost));
    drop(stream);
    let words = setup.planes[0].words();
    assert_eq!(words[0].load(core::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn names_that_the_platform_cannot_take_are_no_panic() {
    let device = device(0);
    assert!(device.stream("a\0b").is_ok());
    assert_eq!(device.describe().backend, "sim");
    assert!(device.describe().simulated_time);
}
