// SPDX-License-Identifier: Apache-2.0
//! CPU time of a plan: the thread that calls `begin_step`, by the clock of its own CPU time. That is
//! the check of the batch, its staging and the launches; an engine with a process a rank pays the
//! row of one rank a step, whatever its DCP size.

use std::sync::Arc;

use striata::decode::{DcpMla, RequestPages, StepKind, StepRequest, StepStreams};
use striata_core::{L1Page, Stripe};
use striata_gpu::planes::L1Planes;

use super::bed::{BedShape, PAGE_ROWS, config, refused};
use super::report::PlanFigure;
use super::timing::median;
use super::{DecodeBenchError, DecodeOptions, DecodeSubject};
use crate::clock::thread_nanos;

/// Requests of the batch, and most tokens of each.
const BATCH: u32 = 256;
const TOKENS: u32 = 8192;
/// Pages of the pool, which requests share: no row is written or read.
const POOL_PAGES: u32 = 61;
/// Steps for each repetition.
const STEPS: usize = 16;
/// The most microseconds of one rank.
const BAR_US: f64 = 50.0;

/// One rank, and the groups of the options whose heads are shared evenly.
pub(super) fn ranks(options: &DecodeOptions) -> Vec<u32> {
    let whole = |dcp: &&u32| **dcp > 1 && options.group_heads.is_multiple_of(**dcp);
    let groups = options.dcp.iter().filter(whole).copied();
    core::iter::once(1).chain(groups).collect()
}

pub(super) fn plan<D: DecodeSubject>(
    device: &D,
    options: &DecodeOptions,
    dcp: u32,
) -> Result<PlanFigure, DecodeBenchError> {
    let shape = BedShape {
        dcp,
        heads: 1,
        queries: 1,
        batch: BATCH,
        tokens: TOKENS,
        layers: 1,
        mma: options.mma,
    };
    let stripe = Stripe::new(dcp, PAGE_ROWS).map_err(|error| refused(shape, &error))?;
    let config = config(shape, stripe, POOL_PAGES.into())?;
    let (mut planes, mut streams) = (Vec::new(), Vec::new());
    for rank in 0..dcp {
        let plane = L1Planes::alloc(device, config.pool);
        planes.push(Arc::new(plane.map_err(|error| refused(shape, &error))?));
        streams.push(device.stream(&format!("plan {rank}"))?);
    }
    let mut mla = DcpMla::new(config, vec![device.clone(); dcp as usize], &planes)?;
    let each = stripe.pages_for(TOKENS.into());
    let pages: Vec<Vec<L1Page>> = (0..u64::from(BATCH))
        .map(|request| {
            let page = |at| (request * each + at) * 17 % u64::from(POOL_PAGES);
            (0..each)
                .map(|at| L1Page::new(1 + u32::try_from(page(at)).unwrap_or(0)))
                .collect()
        })
        .collect();
    let steps = STEPS * options.reps.max(2);
    let mut taken = Vec::with_capacity(steps);
    for step in 0..steps {
        // Requests begin a page's width apart, so that about as many need a page in every step.
        let requests: Vec<StepRequest<'_>> = pages
            .iter()
            .enumerate()
            .map(|(request, pages)| StepRequest {
                pages: RequestPages::Pages(pages),
                tokens: u64::from(TOKENS) - (steps - step) as u64 - (request % 64) as u64,
                new_tokens: 1,
            })
            .collect();
        let begin = thread_nanos();
        mla.begin_step(
            StepKind::Eager,
            &requests,
            Vec::new(),
            &[],
            StepStreams::Each(&streams),
        )?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 nanoseconds")]
        taken.push((thread_nanos().saturating_sub(begin)) as f64 / 1e3);
        mla.end_step(StepStreams::Each(&streams))?;
        mla.confirm()?;
    }
    let cpu_us = median(&taken[1..]);
    let bar_us = (dcp == 1).then_some(BAR_US);
    Ok(PlanFigure {
        dcp,
        batch: BATCH,
        tokens: TOKENS,
        first_us: taken[0],
        cpu_us,
        bar_us,
        met: bar_us.map(|bar| cpu_us < bar),
    })
}
