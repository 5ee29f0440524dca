// SPDX-License-Identifier: Apache-2.0
//! Order, completion and modelled time of streams; ends of streams and devices.

use super::*;

#[test]
fn a_stream_runs_in_order_and_completes_when_its_bytes_have_moved() {
    let setup = Setup::new();
    let stream = setup.device.stream("one").unwrap();
    setup.set_host_word(0, 11);
    setup.set_host_word(1, 22);
    let hold = setup.device.hold(&stream).unwrap();
    setup.copy(&stream, Direction::HostToDevice, &[run(0, 0, 0, 4)]);
    setup.copy(&stream, Direction::DeviceToHost, &[run(0, 0, 8, 4)]);
    setup.copy(&stream, Direction::HostToDevice, &[run(0, 0, 4, 4)]);
    let event = setup.mark(&stream);
    assert_eq!(setup.device.is_complete(&event), Ok(false));
    assert_eq!(setup.device.event_time(&event), Ok(None));
    assert_eq!((setup.plane_word(), setup.host_word(2)), (0, 0));
    hold.release();
    let ended = setup.device.synchronize(&event).unwrap();
    assert_eq!((setup.host_word(2), setup.plane_word()), (11, 22));
    assert_eq!(setup.device.is_complete(&event), Ok(true));
    assert_eq!(setup.device.event_time(&event), Ok(Some(ended)));
}

#[test]
fn an_event_orders_two_streams() {
    let setup = Setup::new();
    let load = setup.device.stream("load").unwrap();
    let store = setup.device.stream("store").unwrap();
    for value in 1..200 {
        setup.set_host_word(0, value);
        let hold = setup.device.hold(&load).unwrap();
        setup.copy(&load, Direction::HostToDevice, &[run(0, 0, 0, 4)]);
        let loaded = setup.mark(&load);
        setup.device.wait(&store, &loaded).unwrap();
        setup.copy(&store, Direction::DeviceToHost, &[run(0, 0, 4, 4)]);
        let stored = setup.mark(&store);
        assert_eq!(setup.device.is_complete(&stored), Ok(false));
        drop(hold);
        setup.device.synchronize(&stored).unwrap();
        assert_eq!(setup.host_word(1), value);
    }
}

#[test]
fn modelled_times_are_exact() {
    let setup = Setup::new();
    let device = &setup.device;
    let load = device.stream("load").unwrap();
    let store = device.stream("store").unwrap();
    // 2 descriptors are prepared, then a call of 64 bytes at 1 ns: 20 + 100 + 64.
    let runs = [run(0, 0, 0, 32), run(0, 32, 32, 32)];
    setup.copy(&load, Direction::HostToDevice, &runs);
    assert_eq!(setup.finish(&load), 184);
    // The next call was prepared meanwhile.
    setup.copy(&load, Direction::HostToDevice, &runs[..1]);
    let loaded = setup.mark(&load);
    assert_eq!(device.synchronize(&loaded).unwrap().as_nanos(), 184 + 132);
    // The store begins when the load has ended: 3 rows of 8 bytes at 2 ns, 5 ns a row.
    let rectangle = Piece {
        height: 3,
        device_pitch: 16,
        host_pitch: 8,
        ..run(0, 0, 0, 8)
    };
    device.wait(&store, &loaded).unwrap();
    setup.copy(&store, Direction::DeviceToHost, &[rectangle]);
    assert_eq!(setup.finish(&store), 316 + 100 + 15 + 48);
    device.occupy(&store, 1000).unwrap();
    assert_eq!(setup.finish(&store), 1479);
    device
        .not_before(&store, DeviceTime::from_nanos(1400))
        .unwrap();
    assert_eq!(setup.finish(&store), 1479);
    device
        .not_before(&store, DeviceTime::from_nanos(5000))
        .unwrap();
    setup.copy(&store, Direction::DeviceToHost, &runs[..1]);
    assert_eq!(setup.finish(&store), 5000 + 10 + 100 + 64);
    let none: Arc<[RowSpan]> = Arc::from([]);
    let params = RowParams {
        row_words: 1,
        layer: 0,
        rank: 0,
        stride: 1,
    };
    device
        .fill_rows(&load, &setup.planes[0], 0, params, &none)
        .unwrap();
    assert_eq!(setup.finish(&load), 316 + 7);
}

#[test]
fn the_hosts_clock_only_moves_on() {
    let device = device(0);
    assert_eq!(device.now(), DeviceTime::default());
    device.advance_to(DeviceTime::from_nanos(50));
    device.clone().advance_to(DeviceTime::from_nanos(20));
    assert_eq!(device.now().as_nanos(), 50);
}

#[test]
fn dropping_a_stream_finishes_its_work_even_when_it_is_held() {
    let setup = Setup::new();
    let stream = setup.device.stream("dropped").unwrap();
    let other = setup.device.stream("waiting").unwrap();
    setup.set_host_word(0, 5);
    let hold = setup.device.hold(&stream).unwrap();
    setup.copy(&stream, Direction::HostToDevice, &[run(0, 0, 0, 4)]);
    let event = setup.mark(&stream);
    setup.device.wait(&other, &event).unwrap();
    let clone = stream.clone();
    drop(stream);
    assert_eq!(setup.device.is_complete(&event), Ok(false));
    drop(clone);
    assert_eq!(setup.plane_word(), 5);
    assert_eq!(setup.finish(&other), 10 + 100 + 4);
    drop(hold);
}

#[test]
fn a_dropped_device_finishes_what_runs() {
    let setup = Setup::new();
    let stream = setup.device.stream("left").unwrap();
    setup.set_host_word(0, 6);
    for _ in 0..1000 {
        setup.copy(&stream, Direction::HostToDevice, &[run(0, 0, 0, 4)]);
    }
    let Setup {
        device,
        planes,
        host,
    } = setup;
    drop((device, host));
    drop(stream);
    assert_eq!(
        planes[0].words()[0].load(core::sync::atomic::Ordering::Relaxed),
        6
    );
}

#[test]
fn devices_run_side_by_side_and_work_on_each_others_memory_is_counted() {
    let setups: Vec<_> = (0..4).map(|_| Setup::new()).collect();
    std::thread::scope(|scope| {
        for (rank, setup) in (0u32..).zip(&setups) {
            scope.spawn(move || {
                let stream = setup.device.stream("rank").unwrap();
                for value in 0..500 {
                    setup.set_host_word(0, rank << 16 | value);
                    setup.copy(&stream, Direction::HostToDevice, &[run(0, 0, 0, 4)]);
                    setup.finish(&stream);
                    assert_eq!(setup.plane_word(), rank << 16 | value);
                }
            });
        }
    });
    let (near, far) = (&setups[0], &setups[1]);
    assert_eq!(near.device.stats().cross_device, 0);
    let stream = near.device.stream("peer").unwrap();
    far.set_host_word(1, 77);
    let pieces = [run(0, 0, 4, 4)];
    near.device
        .copy(&stream, &far.batch(Direction::HostToDevice, &pieces))
        .unwrap();
    near.finish(&stream);
    assert_eq!(far.plane_word(), 77);
    assert_eq!(near.device.stats().cross_device, 1);
    assert_eq!(far.device.stats().cross_device, 0);
    let far_stream = far.device.stream("far").unwrap();
    let event = far.mark(&far_stream);
    near.device.wait(&stream, &event).unwrap();
    near.finish(&stream);
    assert_eq!(near.device.stats().cross_device, 2);
}
