// SPDX-License-Identifier: Apache-2.0
//! The run: the ceiling, then trace after trace, system after system.

use std::time::Instant;

use striata_gpu::Device;
use striata_gpu::cuda::CudaDevice;
use striata_gpu::sim::{SimConfig, SimDevice};
use striata_replay::compute::Compute;
use striata_replay::{
    ConfigError, CopiedBytes, DeviceChoice, Devices, OneReplica, RankPools, ReplayConfig,
    VerifyPolicy,
};

use super::error::OffloadError;
use super::link;
use super::options::OffloadOptions;
use super::report::{GeometryEcho, Link, ModelEcho, OffloadReport, Times, TraceReport};
use super::slice::{Requests, TraceSlice};
use super::system::System;
use super::tally::{Floor, SystemTally};

/// How far a run is: requests served, of all.
#[derive(Clone, Copy, Debug)]
pub struct OffloadProgress {
    /// Requests that were served, by all systems together.
    pub done: u64,
    /// Requests to serve, as far as is known.
    pub total: u64,
}

/// Measures.
///
/// # Errors
/// Options and traces that are refused, tiers that do not fit, a device that fails. Rows that differ
/// and bars that are missed are in the report instead.
pub fn run(
    options: &OffloadOptions,
    watch: &mut dyn FnMut(OffloadProgress),
) -> Result<OffloadReport, OffloadError> {
    options.check()?;
    // Kernels are compiled when they are first needed: most of them are not.
    match options.device {
        DeviceChoice::Sim => on_sim(options, None, watch),
        DeviceChoice::Cuda => {
            let device = CudaDevice::new(0).map_err(ConfigError::from)?;
            on_cuda(options, device, watch)
        }
        DeviceChoice::Auto => match CudaDevice::new(0) {
            Ok(device) => on_cuda(options, device, watch),
            Err(error) => {
                let why = format!("--device auto is the simulated device: {error}");
                on_sim(options, Some(why), watch)
            }
        },
    }
}

fn on_cuda(
    options: &OffloadOptions,
    device: CudaDevice,
    watch: &mut dyn FnMut(OffloadProgress),
) -> Result<OffloadReport, OffloadError> {
    let devices = (0..options.ranks).map(|_| device.clone()).collect();
    Bench::new(options, devices, watch).run(None, &Devices::Cuda(device))
}

fn on_sim(
    options: &OffloadOptions,
    why: Option<String>,
    watch: &mut dyn FnMut(OffloadProgress),
) -> Result<OffloadReport, OffloadError> {
    // Scaled rows take as long on the link as the model's.
    let (row, whole) = (options.row_bytes(true), options.model.row_bytes);
    let slower = |rate: u64| rate.saturating_mul(row.into()) / u64::from(whole.max(1));
    let device = |rank| {
        let mut config = SimConfig::new(rank);
        let cost = &mut config.cost;
        cost.host_to_device_bytes_per_s = slower(cost.host_to_device_bytes_per_s).max(1);
        cost.device_to_host_bytes_per_s = slower(cost.device_to_host_bytes_per_s).max(1);
        SimDevice::new(config)
    };
    let devices = (0..options.ranks).map(device).collect();
    Bench::new(options, devices, watch).run(why, &Devices::Sim { why: None })
}

/// What all traces share.
struct Bench<'a, D: Device> {
    options: &'a OffloadOptions,
    devices: Vec<D>,
    simulated: bool,
    row_bytes: u32,
    watch: &'a mut dyn FnMut(OffloadProgress),
    progress: OffloadProgress,
}

impl<'a, D: Device> Bench<'a, D> {
    fn new(
        options: &'a OffloadOptions,
        devices: Vec<D>,
        watch: &'a mut dyn FnMut(OffloadProgress),
    ) -> Self {
        let simulated = devices
            .first()
            .is_some_and(|device| device.describe().simulated_time);
        let of = |slice: &TraceSlice| slice.fill.saturating_add(slice.requests);
        let requests = options.slices.iter().map(of).fold(0, u64::saturating_add);
        Self {
            options,
            devices,
            simulated,
            row_bytes: options.row_bytes(simulated),
            watch,
            progress: OffloadProgress {
                done: 0,
                total: requests.saturating_mul(System::ALL.len() as u64),
            },
        }
    }

    fn run(mut self, why: Option<String>, on: &Devices) -> Result<OffloadReport, OffloadError> {
        let begun = Instant::now();
        let options = self.options;
        let mut report = self.blank();
        report.notices.extend(why);
        if self.devices.iter().any(|device| !device.maps_host()) {
            report.notices.push(format!(
                "kernels of this device do not reach host memory: \"{}\" copies in batched calls",
                System::CopyKernel
            ));
        }
        // Everything that can be refused is, before time is spent.
        let mut parts = Vec::new();
        for slice in &options.slices {
            let config = options.replay(slice, self.row_bytes);
            on.check_ranks(&config, options.ranks)?;
            let probe = OneReplica::<D>::without_bytes(&planned(&config))?;
            let requests = slice.read(probe.usable_pages(), probe.page_tokens())?;
            parts.push((slice, config, requests));
        }
        self.devices.iter().try_for_each(warm)?;
        report.link = self.link()?;
        report.void = !self.simulated && report.link.h2d_gb_per_s < options.floor_gb_per_s;
        for (slice, config, requests) in &parts {
            let trace = self.trace(slice, config, requests, report.link.h2d_gb_per_s)?;
            report.traces.push(trace);
        }
        report.judge();
        report.seconds = begun.elapsed().as_secs_f64();
        Ok(report)
    }

    fn blank(&self) -> OffloadReport {
        let options = self.options;
        let description = self.devices.first().map(Device::describe);
        let (device, name) = description.map_or(("", String::new()), |d| (d.backend, d.name));
        let compute = options.compute;
        OffloadReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: device.to_owned(),
            device_name: name,
            simulated: self.simulated,
            scaled: self.row_bytes != options.model.row_bytes,
            link: Link::default(),
            void: false,
            compute: ModelEcho {
                model: options.model.name.clone(),
                active_parameters: options.model.active_parameters,
                ranks: options.tp,
                layer_us: compute.layer_us,
                prefill_tflops: compute.prefill_tflops,
                attention_tflops: compute.attention_tflops,
                decode_steps: compute.decode_steps,
                decode_step_us: compute.decode_step_us,
                kernel_blocks: options.kernel_blocks,
            },
            verify: options.verify.to_string(),
            traces: Vec::new(),
            notices: Vec::new(),
            seconds: 0.0,
        }
    }

    /// Bytes of the model's rows for each byte that is moved.
    fn scale(&self) -> f64 {
        f64::from(self.options.model.row_bytes) / f64::from(self.row_bytes.max(1))
    }

    fn link(&self) -> Result<Link, OffloadError> {
        let (row, whole) = (self.row_bytes, self.options.model.row_bytes);
        let bytes = self.options.link_bytes.saturating_mul(row.into()) / u64::from(whole.max(1));
        let Some(device) = self.devices.first() else {
            return Ok(Link::default());
        };
        let (rate, bytes) = link::measure(device, bytes)?;
        Ok(Link {
            copy_bytes: bytes as f64 * self.scale(),
            h2d_gb_per_s: rate * self.scale(),
            floor_gb_per_s: self.options.floor_gb_per_s,
        })
    }

    fn trace(
        &mut self,
        slice: &TraceSlice,
        config: &ReplayConfig,
        requests: &Requests,
        link: f64,
    ) -> Result<TraceReport, OffloadError> {
        let begun = Instant::now();
        let mut pools = Vec::new();
        for device in &self.devices {
            pools.push(RankPools::alloc(config, device.clone())?);
        }
        let mut trace = TraceReport {
            trace: slice.source.to_string(),
            replicas: slice.replicas,
            skipped: slice.skip,
            filled: requests.fill.len() as u64,
            requests: requests.measured.len() as u64,
            left_out: requests.left_out,
            geometry: GeometryEcho::default(),
            l2_share_of_hits: 0.0,
            systems: Vec::new(),
            bars: Vec::new(),
            seconds: 0.0,
        };
        for system in System::ALL {
            let mut replica = self.replica(system, config, &pools)?;
            trace.geometry = self.geometry(config, &replica, &pools);
            let floor = self.floor(&trace.geometry, link);
            let (tally, copied) = self.serve(&mut replica, requests, floor)?;
            if system == System::Striata {
                trace.l2_share_of_hits = tally.l2_share();
            }
            let replayed = replica.finish();
            let scaled = (self.scale(), link);
            let times = self.times(system);
            let report = tally.report(system, times, copied, scaled, &replayed);
            trace.systems.push(report);
        }
        trace.seconds = begun.elapsed().as_secs_f64();
        Ok(trace)
    }

    const fn times(&self, system: System) -> Times {
        match (system, self.simulated) {
            (System::NoL2, _) => Times::Modelled,
            (_, true) => Times::Simulated,
            (_, false) => Times::Measured,
        }
    }

    /// A replica that loads as `system` does, over pools that all systems share.
    fn replica(
        &self,
        system: System,
        config: &ReplayConfig,
        pools: &[RankPools<D>],
    ) -> Result<OneReplica<D>, OffloadError> {
        if system == System::NoL2 {
            // Without an L2 nothing is copied before the first token: the model is all of it.
            let config = ReplayConfig {
                l2: striata_replay::HostCapacity::Off,
                ..planned(config)
            };
            return Ok(OneReplica::without_bytes(&config)?);
        }
        let whole = self.options.model.row_bytes;
        let chunk = u64::from(whole) * u64::from(self.options.page_rows);
        let rows = (self.row_bytes, whole);
        let style = system.style(chunk, rows, self.options.kernel_blocks);
        Ok(OneReplica::with_bytes(config, pools.to_vec(), style)?)
    }

    /// Fills the tiers and serves the measured requests.
    fn serve(
        &mut self,
        replica: &mut OneReplica<D>,
        requests: &Requests,
        floor: Floor,
    ) -> Result<(SystemTally, CopiedBytes), OffloadError> {
        for request in &requests.fill {
            replica.fill(request)?;
            self.step();
        }
        let before = replica.copied();
        let compute: Compute = replica.compute();
        let mut tally = SystemTally::default();
        for request in &requests.measured {
            tally.add(&replica.serve(request)?, compute, floor);
            self.step();
        }
        let after = replica.copied();
        let copied = CopiedBytes {
            to_device: after.to_device.saturating_sub(before.to_device),
            to_host: after.to_host.saturating_sub(before.to_host),
        };
        Ok((tally, copied))
    }

    fn step(&mut self) {
        self.progress.done += 1;
        self.progress.total = self.progress.total.max(self.progress.done);
        (self.watch)(self.progress);
    }

    fn geometry(
        &self,
        config: &ReplayConfig,
        replica: &OneReplica<D>,
        pools: &[RankPools<D>],
    ) -> GeometryEcho {
        let l2_pages = pools.iter().filter_map(RankPools::host);
        GeometryEcho {
            tp: config.parallel.tp,
            dcp: config.parallel.dcp,
            ranks: self.options.ranks,
            page_rows: config.parallel.page_rows,
            page_tokens: replica.page_tokens(),
            layers: config.model.layers,
            row_bytes: self.row_bytes,
            model_row_bytes: config.model.row_bytes,
            l1_pages: replica.usable_pages(),
            l2_pages: l2_pages.map(|host| host.pages().into()).min().unwrap_or(0),
        }
    }

    /// Ranks of a GPU share its link; simulated ones have a link each.
    fn floor(&self, geometry: &GeometryEcho, link: f64) -> Floor {
        let page = u64::from(geometry.page_rows)
            * u64::from(geometry.row_bytes)
            * u64::from(geometry.layers);
        let sharing = if self.simulated {
            1
        } else {
            self.options.ranks
        };
        Floor {
            layers: geometry.layers,
            page_tokens: geometry.page_tokens,
            page_bytes: page.saturating_mul(sharing.into()),
            link: link / self.scale(),
        }
    }
}

/// The same without bytes.
fn planned(config: &ReplayConfig) -> ReplayConfig {
    ReplayConfig {
        metadata_only: true,
        verify: VerifyPolicy::None,
        ..config.clone()
    }
}

/// Compiles and loads the kernel that stands for computing, which filling the tiers does not need.
fn warm<D: Device>(device: &D) -> Result<(), OffloadError> {
    let stream = device.stream("warm")?;
    device.occupy(&stream, 1)?;
    let event = device.event()?;
    device.record(&event, &stream)?;
    device.synchronize(&event)?;
    Ok(())
}
