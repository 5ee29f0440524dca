// SPDX-License-Identifier: Apache-2.0
//! The decode path of a group: a plan once a step, then layer by layer.

use core::sync::atomic::AtomicU32;
use std::collections::VecDeque;
use std::sync::Arc;

use striata_core::LayerId;
use striata_core::config::CommBackend;
use striata_gpu::decode::{Attend, BuildPlan, DecodeDevice, Merge, Plan, View, WriteRows, WriteTo};
use striata_gpu::exchange::{Exchange, HostExchange, StepStreams, StreamExchange};
use striata_gpu::planes::L1Planes;
use striata_kernels::decode::{AttendKernel, LANES, MmaSize, OutputForm};

use super::buffers::RankBuffers;
use super::config::{DcpMlaConfig, TableSource};
use super::error::DecodeError;
use super::known;
use super::stage::{Stage, StepRequest};
use super::step::{Ended, Running, Stagings, StepKind};
use crate::shards::LayerGates;

/// Bytes of a query.
const QUERY_BYTES: u64 = LANES as u64 * 2;
/// Ends of steps that wait for `confirm`; older ones are dropped.
const UNCONFIRMED: usize = 64;

/// What a layer is given on one rank, in bf16.
#[derive(Debug)]
pub struct LayerInput<'a, D: DecodeDevice> {
    /// Queries of all heads of the group, rotary lanes last: gathered by the engine, or computed
    /// from replicated projections. Shape: \[B\]\[s_q\]\[H * c\]\[576\], with strides.
    pub query: View<'a, D>,
    /// Bytes from a request, a query and a head to the next.
    pub query_strides: [u64; 3],
    /// Latent lanes of the new tokens, the same on every rank. Shape: \[B * s_q\]\[512\].
    pub latent: View<'a, D>,
    /// Bytes from a token to the next.
    pub latent_stride: u64,
    /// Rotary lanes of the new tokens; without, they become 0. Shape: \[B * s_q\]\[64\].
    pub rope: Option<View<'a, D>>,
    /// Bytes from a token to the next.
    pub rope_stride: u64,
}

impl<D: DecodeDevice> Clone for LayerInput<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: DecodeDevice> Copy for LayerInput<'_, D> {}

/// The decode path of one DCP group.
#[derive(Debug)]
pub struct DcpMla<D: DecodeDevice> {
    config: DcpMlaConfig,
    devices: Vec<D>,
    ranks: Vec<RankBuffers<D>>,
    exchange: Option<Box<dyn Exchange<D>>>,
    stage: Stage,
    stagings: Stagings<D>,
    running: Option<Running<D>>,
    ended: VecDeque<Ended<D>>,
    /// Whether the step before ran on one stream.
    on_one: Option<bool>,
    stopped: Option<String>,
}

impl<D: DecodeDevice> DcpMla<D> {
    /// The decode path over the pools of a group, one device and one pool a rank, in rank order.
    /// It first computes known results on those devices, so that a kernel, an exchange or a base
    /// of logarithms that is wrong never serves a request.
    ///
    /// # Errors
    /// A configuration that is refused; pools of another geometry; no room; a known result that
    /// does not come.
    pub fn new(
        config: DcpMlaConfig,
        devices: Vec<D>,
        planes: &[Arc<L1Planes<D>>],
    ) -> Result<Self, DecodeError> {
        config.check()?;
        known::check(&config, &devices)?;
        let made = Self::unchecked(config, devices, planes)?;
        for (rank, name) in (0..made.ranks.len()).map(|rank| (rank, made.kernel_name(rank))) {
            tracing::info!(rank, kernel = name, "attention of the decode path");
        }
        Ok(made)
    }

    /// As [`DcpMla::new`], without the known results.
    pub(super) fn unchecked(
        config: DcpMlaConfig,
        devices: Vec<D>,
        planes: &[Arc<L1Planes<D>>],
    ) -> Result<Self, DecodeError> {
        let dcp = config.stripe().dcp() as usize;
        for (what, given) in [("devices", devices.len()), ("pools", planes.len())] {
            let ranks = dcp;
            if given != ranks {
                return Err(DecodeError::Ranks { what, given, ranks });
            }
        }
        let ranks = config.stripe().ranks().zip(&devices).zip(planes);
        let ranks = ranks
            .map(|((rank, device), planes)| RankBuffers::new(&config, rank, device, planes))
            .collect::<Result<_, _>>()?;
        let stage = Stage::new(&config);
        Ok(Self {
            exchange: exchange(&config, &devices)?,
            stagings: Stagings::new(&devices, stage.words())?,
            stage,
            ranks,
            devices,
            config,
            running: None,
            ended: VecDeque::new(),
            on_one: None,
            stopped: None,
        })
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &DcpMlaConfig {
        &self.config
    }

    /// The exchange that crosses ranks, by its name; none for one rank.
    #[must_use]
    pub fn exchange_name(&self) -> Option<&'static str> {
        self.exchange.as_ref().map(|exchange| exchange.name())
    }

    /// The attention kernel of a rank: `simt`, or `mma` and the size of its kernels.
    #[must_use]
    pub fn kernel_name(&self, rank: usize) -> Option<&'static str> {
        let rank = self.ranks.get(rank)?;
        Some(match (rank.kernel, rank.plan.shape.schedule.size) {
            (AttendKernel::Simt, _) => "simt",
            (AttendKernel::Mma, MmaSize::Large) => "mma, large",
            (AttendKernel::Mma, MmaSize::Medium) => "mma, medium",
            (AttendKernel::Mma, MmaSize::Small) => "mma, small",
        })
    }

    /// Strides of queries that stand one behind the other.
    #[must_use]
    pub fn dense_query_strides(&self) -> [u64; 3] {
        let shape = self.config.attend_shape();
        let token = u64::from(shape.heads) * QUERY_BYTES;
        [token * u64::from(shape.queries), token, QUERY_BYTES]
    }

    /// The plan of a rank, as the last step left it.
    #[must_use]
    pub fn plan(&self, rank: usize) -> Option<&Plan<D>> {
        self.ranks.get(rank).map(|buffers| &buffers.plan)
    }

    /// The merged rows of the last layer on a rank, and then their log-sum-exps.
    ///
    /// Shapes: \[B\]\[s_q\]\[H\]\[512\], then \[B\]\[s_q\]\[H\] f32.
    #[must_use]
    pub fn output(&self, rank: usize) -> Option<View<'_, D>> {
        self.ranks.get(rank).map(RankBuffers::merged)
    }

    /// Begins a step of `requests` on the first places of the batch and builds its plan, behind
    /// what the streams hold. `gates` are those of the requests' loads, rank by rank, or empty.
    /// `slots` is the engine's map on each rank, where tables come from one.
    ///
    /// # Errors
    /// A request that cannot stand on its place, and in a captured step one with another number of
    /// new tokens or a load that is in flight: nothing has begun then. A step that has not ended;
    /// a device that fails.
    pub fn begin_step(
        &mut self,
        kind: StepKind,
        requests: &[StepRequest<'_>],
        gates: Vec<Vec<LayerGates<D>>>,
        slots: &[View<'_, D>],
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        self.check_alive()?;
        if self.running.is_some() {
            let when = "before the step before was ended";
            return Err(DecodeError::Order {
                call: "begin_step",
                when,
            });
        }
        self.check_step(kind, &gates, slots, streams)?;
        self.stagings.next(&self.devices)?;
        let staged = staged(&self.devices, self.stagings.current());
        let uniform = kind == StepKind::Captured;
        self.stage.step(requests, uniform, &staged)?;
        let built = self.build(requests.len(), gates, slots, streams);
        self.guard(built)
    }

    /// Whatever is left half-done stops the path.
    fn guard<T>(&mut self, done: Result<T, DecodeError>) -> Result<T, DecodeError> {
        if let Err(error) = &done {
            self.stopped.get_or_insert_with(|| error.to_string());
        }
        done
    }

    fn check_alive(&self) -> Result<(), DecodeError> {
        match &self.stopped {
            None => Ok(()),
            Some(cause) => Err(DecodeError::Stopped {
                cause: cause.clone(),
            }),
        }
    }

    fn check_step(
        &self,
        kind: StepKind,
        gates: &[Vec<LayerGates<D>>],
        slots: &[View<'_, D>],
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        let ranks = self.ranks.len();
        let count = |what, given: usize, allowed: &[usize]| {
            if allowed.contains(&given) {
                return Ok(());
            }
            Err(DecodeError::Ranks { what, given, ranks })
        };
        count("lists of gates", gates.len(), &[0, ranks])?;
        let maps = match self.config.source {
            TableSource::Pages => 0,
            TableSource::Slots { .. } => ranks,
        };
        count("maps of slots", slots.len(), &[maps])?;
        if let StepStreams::Each(streams) = streams {
            count("streams", streams.len(), &[ranks])?;
        }
        let shut = gates.iter().flatten().any(|gates| !gates.is_open());
        if kind == StepKind::Captured && shut {
            return Err(DecodeError::Order {
                call: "begin_step",
                when: "for a captured step while loads of its requests are in flight",
            });
        }
        Ok(())
    }

    fn build(
        &mut self,
        requests: usize,
        gates: Vec<Vec<LayerGates<D>>>,
        slots: &[View<'_, D>],
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        // Streams of another kind know nothing of what the step before left running.
        if self.on_one.is_some_and(|one| one != streams.is_one())
            && let Some(last) = self.ended.back()
        {
            for (device, event) in self.devices.iter().zip(&last.events) {
                device.synchronize(event)?;
            }
        }
        self.on_one = Some(streams.is_one());
        let mut readers = Vec::with_capacity(self.ranks.len());
        for (index, rank) in self.ranks.iter().enumerate() {
            let stream = streams.of(index)?;
            let job = BuildPlan {
                plan: &rank.plan,
                staging: &self.stagings.current()[index],
                source: slots.get(index).copied(),
            };
            rank.device.build_plan(stream, &job)?;
            let event = rank.device.event()?;
            rank.device.record(&event, stream)?;
            readers.push(event);
        }
        self.stagings.read_until(readers);
        self.running = Some(Running { requests, gates });
        Ok(())
    }

    /// Computes a layer on every rank: waits for its gates, writes the new rows, attends,
    /// exchanges and merges. Results are in [`DcpMla::output`] once the streams get there. May be
    /// captured where one stream serves all ranks.
    ///
    /// # Errors
    /// Not one input a rank; no step; a load that failed; a device that fails.
    pub fn layer(
        &mut self,
        layer: LayerId,
        inputs: &[LayerInput<'_, D>],
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        self.check_alive()?;
        let (given, ranks) = (inputs.len(), self.ranks.len());
        if given != ranks {
            let what = "inputs";
            return Err(DecodeError::Ranks { what, given, ranks });
        }
        if self.running.is_none() {
            return Err(DecodeError::Order {
                call: "layer",
                when: "outside a step",
            });
        }
        // A load that failed leaves the layer out, and the path as it was.
        self.wait(layer, streams)?;
        let done = self.compute(layer, inputs, streams);
        self.guard(done)
    }

    fn wait(&self, layer: LayerId, streams: StepStreams<'_, D>) -> Result<(), DecodeError> {
        let Some(running) = &self.running else {
            return Ok(());
        };
        for (rank, gates) in running.gates.iter().enumerate() {
            let stream = streams.of(rank)?;
            for gate in gates {
                let waited = gate.wait_layer(layer, stream);
                waited.map_err(|source| DecodeError::Gate {
                    rank,
                    source: Box::new(source),
                })?;
            }
        }
        Ok(())
    }

    fn compute(
        &mut self,
        layer: LayerId,
        inputs: &[LayerInput<'_, D>],
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        let form = self.config.partial_form();
        let Some(exchange) = &mut self.exchange else {
            // One rank: its partial result is the result.
            for (index, (rank, input)) in self.ranks.iter().zip(inputs).enumerate() {
                let stream = streams.of(index)?;
                attend(
                    &self.config,
                    rank,
                    layer,
                    input,
                    form,
                    rank.merged(),
                    stream,
                )?;
            }
            return Ok(());
        };
        exchange.open(streams)?;
        for (index, (rank, input)) in self.ranks.iter().zip(inputs).enumerate() {
            let (stream, to) = (streams.of(index)?, exchange.outgoing(index)?);
            attend(&self.config, rank, layer, input, form, to, stream)?;
        }
        exchange.cross(streams)?;
        for (index, rank) in self.ranks.iter().enumerate() {
            let messages = exchange.incoming(index)?;
            merge(&self.config, rank, &messages, form, streams.of(index)?)?;
        }
        exchange.close(streams)?;
        Ok(())
    }

    /// Ends a step.
    ///
    /// # Errors
    /// No step; a device that fails.
    pub fn end_step(&mut self, streams: StepStreams<'_, D>) -> Result<(), DecodeError> {
        self.check_alive()?;
        let running = self.running.take().ok_or(DecodeError::Order {
            call: "end_step",
            when: "outside a step",
        })?;
        let marked = self.mark(streams);
        let events = self.guard(marked)?;
        if self.ended.len() >= UNCONFIRMED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended {
            requests: running.requests,
            events,
        });
        Ok(())
    }

    fn mark(&self, streams: StepStreams<'_, D>) -> Result<Vec<D::Event>, DecodeError> {
        let mut events = Vec::with_capacity(self.devices.len());
        for (index, device) in self.devices.iter().enumerate() {
            let event = device.event()?;
            device.record(&event, streams.of(index)?)?;
            events.push(event);
        }
        Ok(events)
    }

    /// Waits until every step that was ended has run, and says whether its numbers are right; ask
    /// before what they led to is published.
    ///
    /// # Errors
    /// The first fault of any rank, which is then forgotten; a device that fails.
    pub fn confirm(&mut self) -> Result<(), DecodeError> {
        self.check_alive()?;
        while let Some(step) = self.ended.pop_front() {
            for (device, event) in self.devices.iter().zip(&step.events) {
                device.synchronize(event)?;
            }
            // The plan holds the last step only; counters hold all.
            let last = self.ended.is_empty() && self.running.is_none();
            let requests = if last { step.requests } else { 0 };
            let mut first = Ok(());
            for (rank, buffers) in self.ranks.iter_mut().enumerate() {
                if let Some(fault) = buffers.look(&self.config, requests)? {
                    first = first.and(Err(DecodeError::Fault { rank, fault }));
                }
            }
            if first.is_err() {
                // Cells of a place that the kernel refused are not what the host believes.
                self.stage.forget();
                return first;
            }
        }
        Ok(())
    }
}

/// The staging words of a step, rank by rank.
fn staged<'a, D: DecodeDevice>(devices: &[D], stagings: &'a [D::Staging]) -> Vec<&'a [AtomicU32]> {
    let pairs = devices.iter().zip(stagings);
    pairs
        .map(|(device, staging)| device.staged(staging))
        .collect()
}

/// Writes the new rows and computes a rank's partial results.
fn attend<D: DecodeDevice>(
    config: &DcpMlaConfig,
    rank: &RankBuffers<D>,
    layer: LayerId,
    input: &LayerInput<'_, D>,
    form: OutputForm,
    output: View<'_, D>,
    stream: &D::Stream,
) -> Result<(), DecodeError> {
    let rows = rank.rows(layer, config)?;
    let tokens = config.attend_shape().tokens();
    let write = WriteRows {
        rows,
        to: WriteTo::Plan(&rank.plan),
        tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        latent: input.latent,
        latent_stride: input.latent_stride,
        rope: input.rope,
        rope_stride: input.rope_stride,
        faults: rank.row_faults(),
    };
    rank.device.write_rows(stream, &write)?;
    let attend = Attend {
        kernel: rank.kernel,
        plan: &rank.plan,
        rows,
        query: input.query,
        query_strides: input.query_strides,
        scale: config.scale,
        base: config.base,
        form,
        output,
        workspace: rank.workspace(),
        // Where ranks merge, the merge counts.
        tally: config.stripe().is_identity().then(|| rank.tally()),
    };
    Ok(rank.device.attend(stream, &attend)?)
}

/// Merges what a rank received.
fn merge<D: DecodeDevice>(
    config: &DcpMlaConfig,
    rank: &RankBuffers<D>,
    messages: &[View<'_, D>],
    form: OutputForm,
    stream: &D::Stream,
) -> Result<(), DecodeError> {
    let merge = Merge {
        messages,
        rows: u32::try_from(config.merged_rows()).unwrap_or(u32::MAX),
        input: form.kind,
        output: config.outputs,
        base: config.base,
        empty: config.empty(),
        merged: rank.merged(),
        tally: rank.tally(),
    };
    Ok(rank.device.merge(stream, &merge)?)
}

/// The exchange of a configuration.
fn exchange<D: DecodeDevice>(
    config: &DcpMlaConfig,
    devices: &[D],
) -> Result<Option<Box<dyn Exchange<D>>>, DecodeError> {
    let Some(backend) = config.settings.exchange else {
        return Ok(None);
    };
    let bytes = config
        .partial_form()
        .message_stride(config.attend_shape())?;
    let devices = devices.to_vec();
    Ok(Some(match backend {
        CommBackend::Sim => Box::new(HostExchange::new(devices, bytes)?),
        // `check` has refused every other.
        _ => Box::new(StreamExchange::new(devices, bytes)?),
    }))
}
