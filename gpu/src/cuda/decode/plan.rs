// SPDX-License-Identifier: Apache-2.0
//! The plan of a step.

use striata_kernels::decode::PlanPlace;
use striata_kernels::source::Kernel;

use super::{address, product};
use crate::cuda::device::CudaDevice;
use crate::cuda::keep::Kept;
use crate::cuda::launch::{Grid, argument, launch};
use crate::cuda::stream::CudaStream;
use crate::decode::{BuildPlan, View, refused};
use crate::error::GpuError;

const PLACE_THREADS: u32 = 128;
const SCHEDULE_THREADS: u32 = 256;

pub(super) fn build(stream: &CudaStream, job: &BuildPlan<'_, CudaDevice>) -> Result<(), GpuError> {
    const CALL: &str = "build_plan";
    let shared = stream.owner();
    let (shape, layout) = (&job.plan.shape, &job.plan.layout);
    shape.check().map_err(|error| refused(CALL, &error))?;
    let plan = address(shared, CALL, View::all(&job.plan.memory), layout.bytes)?;
    shared.check_same(CALL, "staging", job.staging.owner())?;
    let places = u64::from(shape.attend.batch) * size_of::<PlanPlace>() as u64;
    let entries = product(&[shape.source_rows.into(), shape.source_width.into(), 4]);
    let staged = if job.source.is_some() {
        places
    } else {
        places.saturating_add(entries)
    };
    let words = job.staging.words().len() as u64;
    if staged > words.saturating_mul(4) {
        return Err(GpuError::OutOfRange {
            what: "build_plan: the staging",
            start: 0,
            end: staged,
            len: words * 4,
        });
    }
    let source = match job.source {
        Some(view) => address(shared, CALL, view, entries)?,
        None => job.staging.address() + places,
    };
    let _scope = stream.enter_launch(CALL)?;
    let mut kept = vec![
        Kept::Memory(job.plan.memory.clone()),
        Kept::Staging(job.staging.clone()),
    ];
    kept.extend(job.source.map(|view| Kept::Memory(view.memory.clone())));
    stream.submit(&kept, || {
        let (mut params, mut places, mut source) = (shape.params(), job.staging.address(), source);
        let (mut local, mut global) = (plan + layout.local_lens, plan + layout.global_lens);
        let (mut rows, mut status) = (plan + layout.rows, plan + layout.status);
        let mut cells = plan + layout.cells;
        let grid = Grid {
            x: params.batch,
            y: 1,
            threads: PLACE_THREADS,
        };
        let mut list = [
            argument(&mut params),
            argument(&mut places),
            argument(&mut source),
            argument(&mut local),
            argument(&mut global),
            argument(&mut rows),
            argument(&mut status),
            argument(&mut cells),
        ];
        // SAFETY: (7) staging, source and plan hold what the shape asks for; (9) twin of
        // `striata_plan`.
        unsafe { launch(shared, stream, Kernel::Plan, grid, &mut list) }?;
        let (mut starts, mut cuts) = (plan + layout.starts, plan + layout.cuts);
        let (mut batch, mut parts) = (params.batch, params.parts);
        let grid = Grid {
            x: 1,
            y: 1,
            threads: SCHEDULE_THREADS,
        };
        let mut list = [
            argument(&mut local),
            argument(&mut starts),
            argument(&mut cuts),
            argument(&mut batch),
            argument(&mut parts),
        ];
        // SAFETY: (7) the plan holds them; (9) twin of `striata_schedule`.
        unsafe { launch(shared, stream, Kernel::Schedule, grid, &mut list) }
    })
}
