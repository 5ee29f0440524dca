// SPDX-License-Identifier: Apache-2.0
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of these tests"
)]

use striata_kernels::decode::{AttendShape, OutputForm, OutputKind};
use striata_kernels::values::RowSeed;

use super::*;
use crate::decode::{DecodeDevice, FillValues, Pack, ValueDevice};
use crate::sim::{SimConfig, SimDevice, SimScheduler, SimStream, Step};

const ROWS: u32 = 4;
const MESSAGE: u64 = ROWS as u64 * 1028;

/// Rounds of an exchange in which every byte says who sent it to whom in which round; what each
/// destination read, round by round. The bytes are written and read by operations of streams, as
/// kernels would.
fn rounds(
    exchange: &mut dyn Exchange<SimDevice>,
    devices: &[SimDevice],
    streams: StepStreams<'_, SimDevice>,
) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let ranks = devices.len() as u32;
    for round in 0..4u32 {
        exchange.open(streams).unwrap();
        for (rank, device) in devices.iter().enumerate() {
            let out = exchange.outgoing(rank).unwrap();
            let seed = round * ranks + rank as u32;
            fill(device, streams.of(rank).unwrap(), out, seed, ranks);
        }
        exchange.cross(streams).unwrap();
        let mut read = Vec::new();
        for (rank, device) in devices.iter().enumerate() {
            let stream = streams.of(rank).unwrap();
            let incoming = exchange.incoming(rank).unwrap();
            let copy = device.alloc(MESSAGE * u64::from(ranks)).unwrap();
            collect(device, stream, &incoming, View::all(&copy));
            read.push(copy);
        }
        exchange.close(streams).unwrap();
        for ((rank, device), copy) in devices.iter().enumerate().zip(&read) {
            let event = device.event().unwrap();
            device.record(&event, streams.of(rank).unwrap()).unwrap();
            // The last round's reads may still run when the next round begins.
            if round % 2 == 1 {
                device.synchronize(&event).unwrap();
                let mut bytes = vec![0; device.memory_len(copy) as usize];
                device.read(copy, 0, &mut bytes).unwrap();
                got.push(bytes);
            }
        }
    }
    got
}

/// Writes c messages that `seed` names.
fn fill(device: &SimDevice, stream: &SimStream, out: View<'_, SimDevice>, seed: u32, ranks: u32) {
    let rows = u64::from(ranks) * MESSAGE / 16;
    let seeds: Vec<u64> = (0..rows).map(|row| u64::from(seed) << 32 | row).collect();
    let list = device.alloc(rows * 8).unwrap();
    device
        .write(&list, 0, bytemuck::cast_slice(&seeds))
        .unwrap();
    let job = FillValues {
        dense: out,
        seeds: View::all(&list),
        rows,
        row_words: 4,
        layer: 0,
    };
    device.fill_values(stream, &job).unwrap();
}

/// Reads messages one behind the other: what is unpacked for one destination has their order.
fn collect(
    device: &SimDevice,
    stream: &SimStream,
    incoming: &[View<'_, SimDevice>],
    to: View<'_, SimDevice>,
) {
    for (at, message) in (0..).zip(incoming) {
        let to = to.plus(at * MESSAGE);
        let job = Pack {
            shape: AttendShape {
                batch: 1,
                queries: 1,
                heads: ROWS,
            },
            form: OutputForm {
                kind: OutputKind::Bf16,
                destinations: 1,
            },
            o: to,
            lse: to.plus(u64::from(ROWS) * 1024),
            messages: *message,
        };
        device.unpack(stream, &job).unwrap();
    }
}

fn devices(count: u32, scheduler: Option<&SimScheduler>) -> Vec<SimDevice> {
    let config = |rank| match scheduler {
        None => SimConfig::new(rank),
        Some(scheduler) => SimConfig::stepped(rank, scheduler),
    };
    (0..count)
        .map(|rank| SimDevice::new(config(rank)))
        .collect()
}

fn streams(devices: &[SimDevice]) -> Vec<SimStream> {
    let open = |device: &SimDevice| device.stream("compute").unwrap();
    devices.iter().map(open).collect()
}

/// What every destination must read: message `destination` of each sender.
fn expected(ranks: u32) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for round in [1, 3] {
        for destination in 0..u64::from(ranks) {
            let mut bytes = Vec::new();
            for sender in 0..ranks {
                let rows = destination * MESSAGE / 16..(destination + 1) * MESSAGE / 16;
                for row in rows {
                    let seed = u64::from(round * ranks + sender) << 32 | row;
                    let seed: RowSeed = bytemuck::cast(seed);
                    bytes.extend((0..4).flat_map(|word| seed.word(0, word).to_le_bytes()));
                }
            }
            all.push(bytes);
        }
    }
    all
}

fn stream_exchange(devices: &[SimDevice]) -> StreamExchange<SimDevice> {
    StreamExchange::new(devices.to_vec(), MESSAGE).unwrap()
}

#[test]
fn both_bring_each_message_to_its_destination_on_any_streams() {
    for ranks in [2, 3, 8] {
        let devices = devices(ranks, None);
        let (each, one) = (streams(&devices), devices[0].stream("all").unwrap());
        for streams in [StepStreams::Each(&each), StepStreams::One(&one)] {
            let want = expected(ranks);
            let mut stream = stream_exchange(&devices);
            assert_eq!(rounds(&mut stream, &devices, streams), want);
            let mut host = HostExchange::new(devices.clone(), MESSAGE).unwrap();
            assert_eq!(rounds(&mut host, &devices, streams), want);
            assert!(stream.outgoing(ranks as usize).is_err());
            assert!(host.incoming(ranks as usize).is_err());
        }
    }
}

#[test]
fn no_order_of_operations_is_a_race() {
    for seed in 0..20 {
        let scheduler = SimScheduler::new(seed);
        let devices = devices(3, Some(&scheduler));
        let each = streams(&devices);
        let streams = StepStreams::Each(&each);
        let want = expected(3);
        assert_eq!(
            rounds(&mut stream_exchange(&devices), &devices, streams),
            want
        );
        let mut host = HostExchange::new(devices.clone(), MESSAGE).unwrap();
        assert_eq!(rounds(&mut host, &devices, streams), want);
        assert_eq!(scheduler.run(), Ok(Step::Idle));
        assert_eq!(scheduler.bugs(), []);
    }
}
