// SPDX-License-Identifier: Apache-2.0
//! The parts of the benchmark.

use std::time::Instant;

use striata_core::LayerId;
use striata_core::stripe::whole_share;
use striata_gpu::decode::{Attend, Merge, Rows, View};
use striata_kernels::EmptySentinel;
use striata_kernels::decode::{AttendKernel, KernelFormat, OutputKind, RowScale, Schedule};

use super::bed::{Bed, BedShape};
use super::report::{DecodeReport, GroupFigure, KernelFigure, MergeFigure};
use super::timing::{Timer, median};
use super::{Ceilings, DecodeBenchError, DecodeOptions, DecodeSubject, Part, Peers, Shape, plan};

/// Bytes of a row.
const ROW_BYTES: u64 = 1152;
/// Most layers of rows that launches read in turn.
const MOST_LAYERS: u64 = 64;

/// Measures; `tell` is given the name of what begins.
///
/// # Errors
/// A device that fails, results that are wrong.
pub fn run<D: DecodeSubject>(
    device: &D,
    options: &DecodeOptions,
    tell: &mut dyn FnMut(&str),
) -> Result<DecodeReport, DecodeBenchError> {
    let peers = Peers::read()?;
    let about = device.describe();
    let mut report = DecodeReport {
        device: about.backend.to_owned(),
        device_name: about.name,
        simulated: about.simulated_time,
        kernel: match options.mma.or(device.mma_size()) {
            Some(size) => format!("mma, {size}"),
            None => "simt".to_owned(),
        },
        peers_source: peers.source.clone(),
        layers: options.layers,
        ..DecodeReport::default()
    };
    tell("ceilings");
    report.ceilings = device.ceilings()?;
    if options.wants(Part::Kernel) {
        for &shape in &options.shapes {
            tell(&format!("attention {shape}"));
            match kernel(device, options, shape, report.ceilings) {
                Ok(figure) => report.kernels.push(KernelFigure {
                    peers: peers.of(shape),
                    ..figure
                }),
                Err(DecodeBenchError::Device(error)) if is_room(&error) => {
                    report.skipped.push(format!("attention {shape}: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    if options.wants(Part::Plan) {
        for dcp in plan::ranks(options) {
            tell(&format!("the plan of {dcp} ranks"));
            report.plans.push(plan::plan(device, options, dcp)?);
        }
    }
    for &dcp in &options.dcp {
        for &batch in &options.group_batches {
            let Some(heads) = whole_share(options.group_heads, dcp) else {
                let all = options.group_heads;
                let what = format!("{all} heads are not shared by {dcp} ranks");
                report.skipped.push(what);
                continue;
            };
            if options.wants(Part::Merge) {
                tell(&format!("merge of {dcp} ranks, batch {batch}"));
                let rows = u64::from(batch) * u64::from(heads);
                let figure = merge(device, options, dcp, rows, report.ceilings)?;
                report.merges.push(figure);
            }
            if options.wants(Part::Group) {
                tell(&format!("a group of {dcp} ranks, batch {batch}"));
                match group(device, options, dcp, heads, batch) {
                    Ok(figure) => report.groups.push(figure),
                    Err(DecodeBenchError::Device(error)) if is_room(&error) => {
                        let what = format!("a group of {dcp} ranks, batch {batch}: {error}");
                        report.skipped.push(what);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(report)
}

const fn is_room(error: &striata_gpu::GpuError) -> bool {
    matches!(error, striata_gpu::GpuError::OutOfMemory { .. })
}

/// Layers of rows that together are more than caches hold.
fn layers(options: &DecodeOptions, rows: u64) -> u32 {
    let wanted = options.rotation_bytes.div_ceil((rows * ROW_BYTES).max(1));
    u32::try_from(wanted.clamp(1, MOST_LAYERS)).unwrap_or(1)
}

fn kernel<D: DecodeSubject>(
    device: &D,
    options: &DecodeOptions,
    shape: Shape,
    ceilings: Option<Ceilings>,
) -> Result<KernelFigure, DecodeBenchError> {
    let rows = u64::from(shape.batch) * u64::from(shape.length);
    let mut bed = Bed::new(
        device,
        BedShape {
            dcp: 1,
            heads: shape.heads,
            queries: shape.queries,
            batch: shape.batch,
            tokens: shape.length,
            layers: layers(options, rows),
            mma: options.mma,
        },
    )?;
    bed.begin(0, true)?;
    bed.layer(0, true)?;
    bed.end(true)?;
    let us = attention(&bed, options)?;
    let floor_us = ceilings.map(|c| c.floor_us(shape.bytes(), shape.operations()));
    Ok(KernelFigure {
        shape,
        us,
        floor_us,
        share_of_floor: floor_us.map(|floor| floor / us),
        peers: Vec::new(),
    })
}

/// Microseconds of the attention of rank 0 of a bed, whose plan is built.
fn attention<D: DecodeSubject>(
    bed: &Bed<D>,
    options: &DecodeOptions,
) -> Result<f64, DecodeBenchError> {
    let config = *bed.mla.config();
    let plan = bed.mla.plan(0).ok_or_else(no_rank)?;
    let form = config.partial_form();
    let output = bed
        .device
        .alloc(form.bytes(plan.shape.attend).map_err(contract)?)?;
    let schedule: Schedule = plan.shape.schedule;
    let workspace = bed.device.alloc(schedule.workspace_bytes().max(16))?;
    let input = bed.input(0);
    let kernel = if bed.device.has_mma() {
        AttendKernel::Mma
    } else {
        AttendKernel::Simt
    };
    let layers = config.pool.page().layers();
    let timer = Timer::new(&bed.device, &bed.streams[0]);
    timer.launches(options.launches, options.reps, |launch| {
        let plane = bed.planes[0].plane(LayerId::new(launch % layers));
        let (memory, offset) = plane.ok_or_else(no_rank)?;
        let job = Attend {
            kernel,
            plan,
            rows: Rows {
                at: View { memory, offset },
                format: KernelFormat::Bf16,
                scale: RowScale::default(),
                rows: config.pool.rows(),
            },
            query: input.query,
            query_strides: input.query_strides,
            scale: config.scale,
            base: config.base,
            form,
            output: View::all(&output),
            workspace: View::all(&workspace),
            tally: None,
        };
        Ok(bed.device.attend(&bed.streams[0], &job)?)
    })
}

fn no_rank() -> DecodeBenchError {
    DecodeBenchError::Pool {
        what: "rank 0".to_owned(),
        reason: "it has no plane or plan".to_owned(),
    }
}

fn contract(error: striata_kernels::decode::DecodeError) -> DecodeBenchError {
    DecodeBenchError::Decode(error.into())
}

fn merge<D: DecodeSubject>(
    device: &D,
    options: &DecodeOptions,
    dcp: u32,
    rows: u64,
    ceilings: Option<Ceilings>,
) -> Result<MergeFigure, DecodeBenchError> {
    let kind = OutputKind::Bf16;
    let rows_up = rows.next_multiple_of(4);
    let message = rows_up * (kind.row_bytes() + 4);
    let stream = device.stream("merge")?;
    let messages = device.alloc(message * u64::from(dcp))?;
    let zeros = vec![0u8; usize::try_from(message).unwrap_or(0)];
    for rank in 0..u64::from(dcp) {
        device.write(&messages, rank * message, &zeros)?;
    }
    let (merged, tally) = (device.alloc(message)?, device.alloc(16)?);
    device.write(&tally, 0, &[0; 16])?;
    let views: Vec<_> = (0..u64::from(dcp))
        .map(|rank| View::all(&messages).plus(rank * message))
        .collect();
    let job = Merge {
        messages: &views,
        rows: u32::try_from(rows_up).unwrap_or(u32::MAX),
        input: kind,
        output: kind,
        base: striata_kernels::Base::E,
        empty: EmptySentinel::NegativeInfinity,
        merged: View::all(&merged),
        tally: View::all(&tally),
    };
    let timer = Timer::new(device, &stream);
    let us = timer.launches(options.launches, options.reps, |_| {
        Ok(device.merge(&stream, &job)?)
    })?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    let bytes = (message * (u64::from(dcp) + 1)) as f64;
    Ok(MergeFigure {
        dcp,
        rows: rows_up,
        us,
        floor_us: ceilings.map(|c| c.floor_us(bytes, 0.0)),
    })
}

fn group<D: DecodeSubject>(
    device: &D,
    options: &DecodeOptions,
    dcp: u32,
    heads: u32,
    batch: u32,
) -> Result<GroupFigure, DecodeBenchError> {
    let shape = BedShape {
        dcp,
        heads,
        queries: 1,
        batch,
        tokens: options.group_tokens,
        layers: 2,
        mma: options.mma,
    };
    let mut bed = Bed::new(device, shape)?;
    // The host's part, with a page list that grows by a token a step.
    let mut plans = Vec::new();
    for less in (0..options.reps.max(2)).rev() {
        let begun = Instant::now();
        bed.begin(u32::try_from(less).unwrap_or(0), true)?;
        plans.push(begun.elapsed().as_secs_f64() * 1e6);
        bed.layer(0, true)?;
        bed.end(true)?;
    }
    // The first one stages every page.
    let plan_host_us = median(&plans[1..]);
    bed.begin(0, true)?;
    let stream = bed.streams[0].clone();
    let on = bed.device.clone();
    let timer = Timer::new(&on, &stream);
    let layer_us = timer.launches(options.launches, options.reps, |at| bed.layer(at, true))?;
    let whole = timer.launches(options.layers, options.reps, |at| bed.layer(at, true))?;
    bed.end(true)?;
    let alone_us = attention(&bed, options)?;
    bed.begin(0, false)?;
    let layer_streams_us = timer.direct(options.launches, |at| bed.layer(at, false))?;
    bed.end(false)?;
    Ok(GroupFigure {
        dcp,
        heads: heads * dcp,
        batch,
        tokens: options.group_tokens,
        layer_us,
        exchange_us: (layer_us - alone_us * f64::from(dcp)).max(0.0),
        layer_streams_us,
        step_us: whole * f64::from(options.layers),
        plan_host_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_gpu::sim::{SimConfig, SimDevice};

    #[test]
    fn every_part_runs_on_the_simulated_device() {
        let device = SimDevice::new(SimConfig::new(0));
        let mut told = Vec::new();
        let options = DecodeOptions::simulated();
        let report = run(&device, &options, &mut |what| told.push(what.to_owned())).unwrap();
        assert!(report.simulated && report.ceilings.is_none());
        assert_eq!(report.kernels.len(), options.shapes.len());
        assert_eq!((report.merges.len(), report.groups.len()), (2, 2));
        assert!(report.kernels.iter().all(|figure| figure.us > 0.0));
        assert!(report.groups.iter().all(|figure| figure.plan_host_us > 0.0));
        let plans: Vec<_> = report
            .plans
            .iter()
            .map(|plan| (plan.dcp, plan.met.is_some()))
            .collect();
        assert_eq!(plans, [(1, true), (2, false), (3, false)]);
        assert!(report.plans.iter().all(|plan| plan.cpu_us > 0.0));
        assert!(told.len() >= 10 && report.skipped.is_empty());
    }
}
