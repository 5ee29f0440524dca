// SPDX-License-Identifier: Apache-2.0
//! A program on its way on three devices, beside a model that runs it in the order of the calls
//! and a model of what orders what.

use std::collections::BTreeSet;
use std::sync::Arc;

use striata_core::PageGeometry;
use striata_gpu::sim::{
    CostModel, SimConfig, SimDevice, SimEvent, SimMemory, SimScheduler, SimStream,
};
use striata_gpu::{CopyBatch, CopyForm, Device, Direction, GpuError};
use striata_host::HostPool;

use crate::bench::{PAGE, host_pool, piece};

pub(crate) const DEVICES: usize = 3;
pub(crate) const STREAMS: usize = 6;
pub(crate) const PAGES: usize = 4;
pub(crate) const HOST_PAGES: usize = 5;

/// A page of a device, or of the host pool (which is "device" [`DEVICES`]).
pub(crate) type Where = (usize, usize);

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Write(Where, u8),
    Read(Where),
    /// A copy on a stream: device page, host page.
    Copy(usize, Direction, Where, usize),
    /// A stream waits for the end of an earlier copy.
    Wait(usize, usize),
    /// The host waits for the end of an earlier copy.
    Sync(usize),
    /// Operations that run now.
    Steps(usize),
}

/// What an act did to memory, for the models.
struct Node {
    reads: Option<Where>,
    writes: Option<Where>,
    /// The acts that are before it.
    past: BTreeSet<usize>,
}

impl Node {
    fn conflicts(&self, reads: Option<Where>, writes: Option<Where>) -> bool {
        let hits = |a: Option<Where>, b: Option<Where>| a.is_some() && a == b;
        hits(self.writes, reads) || hits(self.writes, writes) || hits(self.reads, writes)
    }
}

/// The program on its way, beside both models.
pub(crate) struct Machine {
    pub(crate) scheduler: SimScheduler,
    devices: Vec<SimDevice>,
    memories: Vec<SimMemory>,
    host: Arc<HostPool>,
    streams: Vec<SimStream>,
    /// The copies so far: their events, and their nodes.
    copies: Vec<(SimEvent, usize)>,
    nodes: Vec<Node>,
    host_past: BTreeSet<usize>,
    stream_past: Vec<BTreeSet<usize>>,
    /// What pages hold.
    model: Vec<Vec<u8>>,
    pub(crate) raced: bool,
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Self {
        let scheduler = SimScheduler::new(seed);
        let cost = CostModel {
            kernel_ns: 10,
            ..CostModel::default()
        };
        let devices: Vec<_> = (0..DEVICES as u32)
            .map(|index| {
                let config = SimConfig::stepped(index, &scheduler);
                SimDevice::new(SimConfig { cost, ..config })
            })
            .collect();
        let memories = devices
            .iter()
            .map(|d| d.alloc(PAGES as u64 * PAGE).unwrap());
        let streams = (0..STREAMS).map(|i| devices[i % DEVICES].stream(&i.to_string()).unwrap());
        let mut model = vec![vec![0; PAGES]; DEVICES];
        model.push(vec![0; HOST_PAGES]);
        Self {
            memories: memories.collect(),
            streams: streams.collect(),
            host: host_pool(PageGeometry::new(4, 16, 1).unwrap(), HOST_PAGES as u32),
            devices,
            scheduler,
            copies: Vec::new(),
            nodes: Vec::new(),
            host_past: BTreeSet::new(),
            stream_past: vec![BTreeSet::new(); STREAMS],
            model,
            raced: false,
        }
    }

    fn node(
        &mut self,
        reads: Option<Where>,
        writes: Option<Where>,
        past: BTreeSet<usize>,
    ) -> usize {
        let races =
            |(index, node): (usize, &Node)| node.conflicts(reads, writes) && !past.contains(&index);
        self.raced |= self.nodes.iter().enumerate().any(races);
        self.nodes.push(Node {
            reads,
            writes,
            past,
        });
        self.nodes.len() - 1
    }

    /// The copies that an access would race with.
    fn rivals(
        &self,
        reads: Option<Where>,
        writes: Option<Where>,
        past: &BTreeSet<usize>,
    ) -> Vec<usize> {
        let rivals = self.copies.iter().enumerate().filter(|(_, (_, node))| {
            !past.contains(node) && self.nodes[*node].conflicts(reads, writes)
        });
        rivals.map(|(copy, _)| copy).collect()
    }

    fn sync(&mut self, copy: usize) -> Result<(), GpuError> {
        let Some((event, node)) = self.copies.get(copy).cloned() else {
            return Ok(());
        };
        self.devices[0].synchronize(&event)?;
        self.learn(node, None);
        Ok(())
    }

    fn wait(&mut self, stream: usize, copy: usize) -> Result<(), GpuError> {
        let Some((event, node)) = self.copies.get(copy).cloned() else {
            return Ok(());
        };
        self.devices[stream % DEVICES].wait(&self.streams[stream], &event)?;
        self.learn(node, Some(stream));
        Ok(())
    }

    /// A stream, or the host, comes behind a node and all before it.
    fn learn(&mut self, node: usize, stream: Option<usize>) {
        let mut news = self.nodes[node].past.clone();
        news.insert(node);
        match stream {
            None => self.host_past.extend(news),
            Some(stream) => {
                news.extend(&self.host_past);
                self.stream_past[stream].extend(news);
            }
        }
    }

    fn host_act(&mut self, reads: Option<Where>, writes: Option<Where>) {
        let node = self.node(reads, writes, self.host_past.clone());
        self.host_past.insert(node);
    }

    fn copy(
        &mut self,
        stream: usize,
        direction: Direction,
        at: Where,
        host: usize,
    ) -> Result<(), GpuError> {
        let on_host = (DEVICES, host);
        let (from, to) = match direction {
            Direction::HostToDevice => (on_host, at),
            Direction::DeviceToHost => (at, on_host),
        };
        let mut past = self.stream_past[stream].clone();
        past.extend(&self.host_past);
        let node = self.node(Some(from), Some(to), past.clone());
        past.insert(node);
        self.stream_past[stream] = past;
        self.model[to.0][to.1] = self.model[from.0][from.1];

        let device = &self.devices[stream % DEVICES];
        let planes: Arc<[SimMemory]> = Arc::from([self.memories[at.0].clone()]);
        let batch = CopyBatch {
            direction,
            form: CopyForm::Runs,
            planes: &planes,
            host: &self.host,
            pieces: &[piece(at.1 as u64, host as u64)],
        };
        device.copy(&self.streams[stream], &batch)?;
        let event = device.event()?;
        device.record(&event, &self.streams[stream])?;
        self.copies.push((event, node));
        Ok(())
    }

    /// Does an act; with care, everything that it would race with is waited for first.
    pub(crate) fn act(&mut self, act: &Act, careful: bool) -> Result<(), GpuError> {
        match *act {
            Act::Write(at, value) => {
                self.host_care(careful, None, Some(at))?;
                self.host_act(None, Some(at));
                self.model[at.0][at.1] = value;
                let bytes = [value; PAGE as usize];
                self.devices[0].write(&self.memories[at.0], at.1 as u64 * PAGE, &bytes)
            }
            Act::Read(at) => {
                self.host_care(careful, Some(at), None)?;
                self.host_act(Some(at), None);
                let expected = self.model[at.0][at.1];
                let found = self.page(at)?;
                // Where nothing raced so far, what is read is what was written.
                assert!(self.raced || found.iter().all(|byte| *byte == expected));
                Ok(())
            }
            Act::Copy(stream, direction, at, host) => {
                let on_host = (DEVICES, host);
                let (from, to) = match direction {
                    Direction::HostToDevice => (on_host, at),
                    Direction::DeviceToHost => (at, on_host),
                };
                let mut past = self.stream_past[stream].clone();
                past.extend(&self.host_past);
                let rivals = self.rivals(Some(from), Some(to), &past);
                for rival in rivals.into_iter().filter(|_| careful) {
                    self.wait(stream, rival)?;
                }
                self.copy(stream, direction, at, host)
            }
            Act::Wait(stream, copy) => self.wait(stream, copy % self.copies.len().max(1)),
            Act::Sync(copy) => self.sync(copy % self.copies.len().max(1)),
            Act::Steps(count) => {
                for _ in 0..count {
                    self.scheduler.step()?;
                }
                Ok(())
            }
        }
    }

    fn host_care(
        &mut self,
        careful: bool,
        reads: Option<Where>,
        writes: Option<Where>,
    ) -> Result<(), GpuError> {
        let rivals = self.rivals(reads, writes, &self.host_past);
        for rival in rivals.into_iter().filter(|_| careful) {
            self.sync(rival)?;
        }
        Ok(())
    }

    fn page(&self, at: Where) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; PAGE as usize];
        self.devices[0].read(&self.memories[at.0], at.1 as u64 * PAGE, &mut bytes)?;
        Ok(bytes)
    }

    /// Runs all to its end and compares every byte.
    pub(crate) fn finish(&mut self) -> Result<(), GpuError> {
        self.scheduler.run()?;
        for copy in 0..self.copies.len() {
            self.sync(copy)?;
        }
        for device in 0..DEVICES {
            for page in 0..PAGES {
                let expected = self.model[device][page];
                assert!(
                    self.page((device, page))?
                        .iter()
                        .all(|byte| *byte == expected)
                );
            }
        }
        let words = self
            .host
            .words()
            .iter()
            .map(|w| w.load(core::sync::atomic::Ordering::Relaxed));
        let found: Vec<u32> = words.collect();
        for (page, words) in found.chunks(PAGE as usize / 4).take(HOST_PAGES).enumerate() {
            let expected = u32::from_ne_bytes([self.model[DEVICES][page]; 4]);
            assert!(words.iter().all(|word| *word == expected));
        }
        Ok(())
    }
}
