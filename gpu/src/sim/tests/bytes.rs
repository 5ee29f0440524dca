// SPDX-License-Identifier: Apache-2.0
//! What moves, and what row kernels write and find.

use core::sync::atomic::Ordering;

use proptest::prelude::*;
use striata_kernels::rows::{PageSeed, VerifyLog, fingerprint, read_log};

use super::*;

const PLANES: usize = 3;
const PLANE_BYTES: u64 = 640;
const POOL_BYTES: u64 = 8 * 128;

/// Both sides as plain bytes.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    planes: Vec<Vec<u8>>,
    host: Vec<u8>,
}

impl Model {
    fn seeded() -> Self {
        let fill = |len: u64, salt: u8| (0..len).map(|i| (i * 7) as u8 ^ salt).collect();
        Self {
            planes: (0..PLANES as u8)
                .map(|p| fill(PLANE_BYTES, p * 40))
                .collect(),
            host: fill(POOL_BYTES, 200),
        }
    }

    fn copy(&mut self, direction: Direction, piece: &Piece) {
        for row in 0..u64::from(piece.height) {
            let at = |start: u64, pitch: u64| {
                let first = (start + row * pitch) as usize;
                first..first + piece.width as usize
            };
            let device = at(piece.device, piece.device_pitch);
            let host = at(piece.host, piece.host_pitch);
            let plane = &mut self.planes[piece.plane as usize];
            match direction {
                Direction::HostToDevice => plane[device].copy_from_slice(&self.host[host]),
                Direction::DeviceToHost => self.host[host].copy_from_slice(&plane[device]),
            }
        }
    }
}

/// A piece that lies inside both sides; all its numbers are words.
fn piece() -> impl Strategy<Value = Piece> {
    let word = 4u64;
    (0..PLANES as u32, 0..5u32, 0..10u64, 0..4u64, 0..4u64).prop_flat_map(
        move |(plane, height, width, device_gap, host_gap)| {
            let extent = |gap: u64| match height {
                0 => 0,
                rows => (u64::from(rows) - 1) * (width + gap) + width,
            };
            let device = 0..=PLANE_BYTES / word - extent(device_gap);
            let host = 0..=POOL_BYTES / word - extent(host_gap);
            (device, host).prop_map(move |(device, host)| Piece {
                plane,
                height,
                device: device * word,
                host: host * word,
                width: width * word,
                device_pitch: (width + device_gap) * word,
                host_pitch: (width + host_gap) * word,
            })
        },
    )
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::HostToDevice), Just(Direction::DeviceToHost)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Pieces of one batch are unordered, so each is a batch of its own here; a batch of many is
    /// compared below where it has no overlap.
    #[test]
    fn copies_equal_a_model_of_bytes(
        copies in prop::collection::vec((direction(), piece()), 1..20),
    ) {
        let device = device(0);
        let host = pool(8);
        let mut model = Model::seeded();
        let planes: Arc<[SimMemory]> =
            (0..PLANES).map(|_| device.alloc(PLANE_BYTES).unwrap()).collect();
        for (plane, bytes) in planes.iter().zip(&model.planes) {
            device.write(plane, 0, bytes).unwrap();
        }
        memory::write_words(host.words(), &model.host);
        let stream = device.stream("copies").unwrap();
        for (direction, piece) in &copies {
            let form = if piece.height == 1 { CopyForm::Runs } else { CopyForm::Rectangles };
            let pieces = core::slice::from_ref(piece);
            let batch = CopyBatch {
                direction: *direction, form, planes: &planes, host: &host, pieces,
            };
            device.copy(&stream, &batch).unwrap();
            model.copy(*direction, piece);
        }
        drop(stream);
        let mut found = model.clone();
        for (plane, bytes) in planes.iter().zip(&mut found.planes) {
            device.read(plane, 0, bytes).unwrap();
        }
        memory::read_words(host.words(), &mut found.host);
        prop_assert_eq!(found, model);
    }
}

#[test]
fn a_batch_of_many_pieces_moves_them_all_and_counts_them() {
    let setup = Setup::new();
    (0..256).for_each(|i| setup.set_host_word(i, 1000 + i as u32));
    let stream = setup.device.stream("load").unwrap();
    let runs: Vec<_> = (0..16).map(|i| run(0, i * 64, (15 - i) * 64, 64)).collect();
    setup.copy(&stream, Direction::HostToDevice, &runs);
    setup.copy(&stream, Direction::HostToDevice, &[]);
    setup.finish(&stream);
    let words = setup.planes[0].words();
    for (i, word) in words.iter().enumerate() {
        let expected = 1000 + (15 - i / 16) * 16 + i % 16;
        assert_eq!(word.load(Ordering::Relaxed) as usize, expected);
    }
    let stats = setup.device.stats();
    assert_eq!((stats.copies, stats.pieces), (2, 16));
    assert_eq!((stats.bytes_to_device, stats.bytes_to_host), (1024, 0));
    assert_eq!(stats.cross_device, 0);
}

const PARAMS: RowParams = RowParams {
    row_words: 4,
    layer: 1,
    rank: 3,
    stride: 1,
};

#[test]
fn filled_rows_verify_and_a_changed_word_is_reported_by_row() {
    let setup = Setup::new();
    let (device, plane) = (&setup.device, &setup.planes[0]);
    let stream = device.stream("rows").unwrap();
    let log = device.alloc(VerifyLog::words(4) as u64 * 4).unwrap();
    let seed = PageSeed::new(1, 2, 3);
    let span = |first_row, rows, skip| RowSpan {
        seed,
        first_row,
        rows,
        skip,
    };
    let spans: Arc<[RowSpan]> = Arc::from([span(0, 4, 0), span(8, 6, 2)]);
    let base = 64;
    device
        .fill_rows(&stream, plane, base, PARAMS, &spans)
        .unwrap();
    let verify = || {
        device
            .verify_rows(&stream, plane, base, PARAMS, &spans, &log)
            .unwrap();
        setup.finish(&stream);
        let mut words = [0u32; VerifyLog::words(4)];
        device
            .read(&log, 0, bytemuck::cast_slice_mut(&mut words))
            .unwrap();
        let (count, records) = read_log(&words);
        (count, records.to_vec())
    };
    assert_eq!(verify(), (0, Vec::new()));
    let first = plane.words()[16].load(Ordering::Relaxed);
    assert_eq!(first, fingerprint(seed, &PARAMS, 0, 0));
    // Row 11 of the plane behind the base is row 5 of the page, in span 1.
    plane.words()[16 + 11 * 4 + 2].fetch_xor(1 << 31, Ordering::Relaxed);
    let (count, records) = verify();
    assert_eq!((count, records.len()), (1, 1));
    let found = records[0];
    assert_eq!(
        (found.layer, found.rank, found.span, found.row),
        (1, 3, 1, 5)
    );
    assert_eq!(device.stats().kernels, 3);
}

#[test]
fn reads_and_writes_of_the_host_are_exact() {
    let device = device(0);
    let memory = device.alloc(64).unwrap();
    device.write(&memory, 60, &[1, 2, 3, 4]).unwrap();
    let mut all = [9; 64];
    device.read(&memory, 0, &mut all).unwrap();
    assert!(all[..60].iter().all(|byte| *byte == 0));
    assert_eq!(all[60..], [1, 2, 3, 4]);
    assert_eq!(device.memory_len(&memory), 64);
}
