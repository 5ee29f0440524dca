// SPDX-License-Identifier: Apache-2.0
//! What one rank keeps on its device between steps, at fixed addresses.

use std::sync::Arc;

use striata_core::{LayerId, Rank};
use striata_gpu::decode::{DecodeDevice, Plan, Rows, View};
use striata_gpu::planes::L1Planes;
use striata_kernels::decode::{AttendKernel, MergeTally, PlanStatus, RowScale};

use super::config::DcpMlaConfig;
use super::error::{DecodeError, StepFault};

/// Bytes of the words that kernels count faults in: a [`MergeTally`], and from this byte on, which
/// kernels can be given, rows outside the plane.
const COUNTS: usize = 32;
const ROWS_AT: usize = 16;
const TALLY_WORDS: usize = size_of::<MergeTally>() / size_of::<u32>();

/// One rank.
#[derive(Debug)]
pub(super) struct RankBuffers<D: DecodeDevice> {
    pub(super) rank: Rank,
    pub(super) device: D,
    pub(super) planes: Arc<L1Planes<D>>,
    pub(super) kernel: AttendKernel,
    pub(super) plan: Plan<D>,
    /// The tensor-core kernel's.
    workspace: D::Memory,
    /// Merged rows, then their log-sum-exps.
    merged: D::Memory,
    /// Where kernels count faults.
    counts: D::Memory,
    /// What they had counted when the step before was confirmed.
    seen: [u32; 2],
}

impl<D: DecodeDevice> RankBuffers<D> {
    pub(super) fn new(
        config: &DcpMlaConfig,
        rank: Rank,
        device: &D,
        planes: &Arc<L1Planes<D>>,
    ) -> Result<Self, DecodeError> {
        check_pool(config, rank, planes)?;
        let config = &config.settled(device)?;
        let shape = config.plan_shape(rank, device.multiprocessors());
        let plan = Plan::new(device, shape)?;
        // What a step reads before the first plan is built: no request, no page.
        device.write(&plan.memory, 0, &zeros(plan.layout.bytes)?)?;
        let merged = device.alloc(config.merged_bytes())?;
        let workspace = device.alloc(shape.schedule.workspace_bytes())?;
        let counts = device.alloc(COUNTS as u64)?;
        device.write(&counts, 0, &[0; COUNTS])?;
        Ok(Self {
            rank,
            device: device.clone(),
            planes: Arc::clone(planes),
            kernel: config.kernel(device.has_mma()),
            plan,
            workspace,
            merged,
            counts,
            seen: [0; 2],
        })
    }

    /// The plane of a layer.
    pub(super) fn rows(
        &self,
        layer: LayerId,
        config: &DcpMlaConfig,
    ) -> Result<Rows<'_, D>, DecodeError> {
        let layers = config.pool.page().layers();
        let plane = self.planes.plane(layer);
        let (memory, offset) = plane.ok_or_else(|| DecodeError::Range {
            what: "the layer",
            value: layer.get().into(),
            range: format!("below {layers}"),
        })?;
        Ok(Rows {
            at: View { memory, offset },
            format: config.format()?,
            scale: RowScale(config.row_scale.0),
            rows: config.pool.rows(),
        })
    }

    pub(super) const fn workspace(&self) -> View<'_, D> {
        View::all(&self.workspace)
    }

    pub(super) const fn merged(&self) -> View<'_, D> {
        View::all(&self.merged)
    }

    pub(super) const fn tally(&self) -> View<'_, D> {
        View::all(&self.counts)
    }

    pub(super) const fn row_faults(&self) -> View<'_, D> {
        self.tally().plus(ROWS_AT as u64)
    }

    /// What kernels have counted and planned since the last look. Everything of the step must have
    /// ended.
    pub(super) fn look(
        &mut self,
        config: &DcpMlaConfig,
        requests: usize,
    ) -> Result<Option<StepFault>, DecodeError> {
        let mut words = [0u32; COUNTS / size_of::<u32>()];
        let bytes = bytemuck::cast_slice_mut(&mut words);
        self.device.read(&self.counts, 0, bytes)?;
        let tally: MergeTally = *bytemuck::from_bytes(bytemuck::cast_slice(&words[..TALLY_WORDS]));
        let now = [tally.faults, words[ROWS_AT / size_of::<u32>()]];
        let [merges, rows] = [0, 1].map(|at| now[at].wrapping_sub(self.seen[at]));
        let fault = if merges > 0 {
            Some(self.log_sum_exp(config, merges, tally))
        } else if rows > 0 {
            Some(StepFault::Rows { count: rows })
        } else {
            self.plan_fault(requests)?
        };
        if fault.is_some() {
            self.device.write(&self.counts, 0, &[0; COUNTS])?;
            self.seen = [0; 2];
        }
        Ok(fault)
    }

    /// Names the first faulty partial.
    fn log_sum_exp(&self, config: &DcpMlaConfig, count: u32, tally: MergeTally) -> StepFault {
        let (row, partial) = tally.first().unwrap_or_default();
        let heads = config.settings.heads.local.max(1);
        let token = row / heads;
        let queries = config.queries.max(1);
        StepFault::LogSumExp {
            count,
            partial,
            request: token / queries,
            query: token % queries,
            head: self.rank.get() * heads + row % heads,
        }
    }

    fn plan_fault(&self, requests: usize) -> Result<Option<StepFault>, DecodeError> {
        let mut words = vec![0u32; requests];
        let bytes = bytemuck::cast_slice_mut(&mut words);
        let (plan, at) = (&self.plan.memory, self.plan.layout.status);
        self.device.read(plan, at, bytes)?;
        let bad = words
            .iter()
            .position(|&word| word != PlanStatus::Good as u32);
        Ok(bad.map(|request| {
            let word = words[request];
            match PlanStatus::of(word) {
                Some(status) => StepFault::Plan { request, status },
                None => StepFault::Status { request, word },
            }
        }))
    }
}

fn zeros(bytes: u64) -> Result<Vec<u8>, DecodeError> {
    let room = usize::try_from(bytes).map_err(|_| DecodeError::Range {
        what: "the size of a plan",
        value: bytes,
        range: "what the host can count".to_owned(),
    })?;
    Ok(vec![0; room])
}

/// The planes must be those of the configured pool.
fn check_pool<D: DecodeDevice>(
    config: &DcpMlaConfig,
    rank: Rank,
    planes: &L1Planes<D>,
) -> Result<(), DecodeError> {
    let (given, wanted) = (planes.geometry(), config.pool);
    let format = u64::from(config.format()?.row_bytes());
    let pairs = [
        ("pages", given.pages().into(), wanted.pages().into()),
        (
            "layers",
            given.page().layers().into(),
            wanted.page().layers().into(),
        ),
        (
            "rows a page",
            given.page().page_rows().into(),
            wanted.page().page_rows().into(),
        ),
        (
            "a dcp size of",
            given.stripe().dcp().into(),
            wanted.stripe().dcp().into(),
        ),
        ("bytes a row", u64::from(given.page().row_bytes()), format),
    ];
    for (what, given, expected) in pairs {
        if given != expected {
            return Err(DecodeError::Pool {
                rank: rank.get() as usize,
                what,
                given,
                expected,
            });
        }
    }
    Ok(())
}
