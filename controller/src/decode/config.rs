// SPDX-License-Identifier: Apache-2.0
//! Sizes and choices of the decode path of one DCP group.

use striata_core::config::{AttentionKernel, CommBackend, DecodeSettings};
use striata_core::{PoolGeometry, Rank, Stripe};
use striata_gpu::decode::DecodeDevice;
use striata_kernels::decode::{
    AttendKernel, AttendShape, KernelFormat, MmaSize, OutputForm, OutputKind, PlanShape,
    PlanSource, RowScale, Schedule,
};
use striata_kernels::{Base, EmptySentinel};

use super::error::DecodeError;

/// Rows of an output that make the messages of a group begin on 16 bytes.
const MESSAGE_ROWS: u64 = 4;

/// Where the page tables of requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSource {
    /// Lists of widened pages, from the host.
    Pages,
    /// An engine's map from requests to slots, \[rows\]\[width\] i32 on every rank's device.
    Slots {
        /// Rows of the map.
        rows: u32,
        /// Slots of a row, as wide as whole widened pages.
        width: u32,
    },
}

/// What a [`super::DcpMla`] is made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcpMlaConfig {
    /// Exchange, kernel, heads and row format, resolved from the engine's configuration.
    pub settings: DecodeSettings,
    /// The L1 pool.
    pub pool: PoolGeometry,
    /// Most requests of a step: what every step is padded to.
    pub max_batch: u32,
    /// s_q, queries of a request in a step: 1 to decode, the drafts and one more to verify.
    pub queries: u32,
    /// Most tokens of a request.
    pub max_tokens: u64,
    /// Rows of a kernel page; divides P, and I divides it.
    pub kernel_rows: u32,
    /// Where page tables come from.
    pub source: TableSource,
    /// Factor of the scores before the softmax.
    pub scale: f32,
    /// Scale of `fp8_tensor` rows.
    pub row_scale: RowScale,
    /// Base of log-sum-exps, from the attention kernel to the merge.
    pub base: Base,
    /// Type of partial results as they cross ranks.
    pub partials: OutputKind,
    /// Type of merged results.
    pub outputs: OutputKind,
    /// Which tensor-core kernels run; none: the largest that the device runs.
    pub mma: Option<MmaSize>,
}

impl DcpMlaConfig {
    /// A configuration with the defaults of the seldom set: kernel pages are physical pages, page
    /// lists, natural logarithms, bf16 results.
    #[must_use]
    pub fn new(settings: DecodeSettings, pool: PoolGeometry, max_batch: u32, scale: f32) -> Self {
        Self {
            settings,
            pool,
            max_batch,
            queries: 1,
            max_tokens: u64::from(pool.usable_pages()) * pool.stripe().widened_page(),
            kernel_rows: pool.stripe().page_rows(),
            source: TableSource::Pages,
            scale,
            row_scale: RowScale::default(),
            base: Base::E,
            partials: OutputKind::Bf16,
            outputs: OutputKind::Bf16,
            mma: None,
        }
    }

    /// The same with everything settled that depends on the device.
    ///
    /// # Errors
    /// Tensor-core kernels that are larger than those that the device runs.
    pub fn settled<D: DecodeDevice>(self, device: &D) -> Result<Self, DecodeError> {
        let most = device.mma_size();
        let Some(size) = self.mma else {
            return Ok(Self { mma: most, ..self });
        };
        if most >= Some(size) {
            return Ok(self);
        }
        let runs = most.map_or("none", MmaSize::name);
        Err(DecodeError::Range {
            what: "the shared memory of the tensor-core kernels",
            value: size.shared_bytes().into(),
            range: format!(
                "that of kernels which the device runs: {size} was asked for, {runs} run"
            ),
        })
    }

    /// The stripe.
    #[must_use]
    pub const fn stripe(&self) -> Stripe {
        self.pool.stripe()
    }

    /// Sizes of the attention call: the batch is rounded up until messages begin on 16 bytes.
    #[must_use]
    pub fn attend_shape(&self) -> AttendShape {
        let rows = u64::from(self.queries) * u64::from(self.settings.heads.local);
        let mut batch = self.max_batch;
        while (u64::from(batch) * rows) % MESSAGE_ROWS != 0 {
            batch = batch.saturating_add(1);
        }
        AttendShape {
            batch,
            queries: self.queries,
            heads: self.settings.heads.gathered,
        }
    }

    /// Sizes of a rank's plan on a device of `multiprocessors`, for the tensor-core kernels that
    /// are settled, or the large ones.
    #[must_use]
    pub fn plan_shape(&self, rank: Rank, multiprocessors: u32) -> PlanShape {
        let attend = self.attend_shape();
        let stripe = self.stripe();
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let pages = narrow(stripe.pages_for(self.max_tokens));
        let split = stripe.page_rows() / self.kernel_rows.max(1);
        let (source, source_width, source_rows) = match self.source {
            TableSource::Pages => (PlanSource::Pages, pages, attend.batch),
            TableSource::Slots { rows, width } => (PlanSource::Slots, width, rows),
        };
        PlanShape {
            stripe,
            rank,
            kernel_rows: self.kernel_rows,
            pages: self.pool.pages(),
            width: pages.saturating_mul(split),
            attend,
            schedule: Schedule::new(attend, multiprocessors, self.mma.unwrap_or(MmaSize::Large)),
            source,
            source_width,
            source_rows,
        }
    }

    /// Form of a rank's partial results: one message a destination.
    #[must_use]
    pub const fn partial_form(&self) -> OutputForm {
        OutputForm {
            kind: if self.stripe().is_identity() {
                self.outputs
            } else {
                self.partials
            },
            destinations: self.stripe().dcp(),
        }
    }

    /// Rows of a merged result: B * s_q * H.
    #[must_use]
    pub fn merged_rows(&self) -> u64 {
        self.attend_shape().tokens() * u64::from(self.settings.heads.local)
    }

    /// Bytes of a merged result: rows, then log-sum-exps.
    #[must_use]
    pub fn merged_bytes(&self) -> u64 {
        self.merged_rows() * (self.outputs.row_bytes() + 4)
    }

    /// Bytes that each rank's device needs beside its pool, for `multiprocessors`: the plan,
    /// partial results twice, merged results and the kernel's workspace.
    ///
    /// # Errors
    /// Heads that the ranks cannot share.
    pub fn bytes_per_rank(&self, multiprocessors: u32) -> Result<u64, DecodeError> {
        let plan = self.plan_shape(Rank::new(0), multiprocessors);
        let crossing = match self.settings.exchange {
            Some(_) => 2 * self.partial_form().bytes(plan.attend)?,
            None => 0,
        };
        Ok(plan.layout().bytes + crossing + self.merged_bytes() + plan.schedule.workspace_bytes())
    }

    /// How rows are stored.
    ///
    /// # Errors
    /// A format that no kernel reads.
    pub fn format(&self) -> Result<KernelFormat, DecodeError> {
        Ok(KernelFormat::try_from(self.settings.format)?)
    }

    /// What our kernels write for a row that saw no key.
    #[must_use]
    pub const fn empty(&self) -> EmptySentinel {
        EmptySentinel::NegativeInfinity
    }

    /// The kernel for a device with or without matrix units.
    #[must_use]
    pub const fn kernel(&self, has_mma: bool) -> AttendKernel {
        match (self.settings.kernel, has_mma) {
            (AttentionKernel::Auto | AttentionKernel::Mma, true)
            | (AttentionKernel::Mma, false) => AttendKernel::Mma,
            (AttentionKernel::Simt, _) | (AttentionKernel::Auto, false) => AttendKernel::Simt,
        }
    }

    /// Checks what does not depend on devices.
    ///
    /// # Errors
    /// The first size that is refused.
    pub fn check(&self) -> Result<(), DecodeError> {
        let (heads, stripe) = (self.settings.heads, self.stripe());
        let range = |what, value: u64, range: String| DecodeError::Range { what, value, range };
        if u64::from(heads.local) * u64::from(stripe.dcp()) != u64::from(heads.gathered) {
            let wanted = format!("{} heads for each of {} ranks", heads.local, stripe.dcp());
            return Err(range("the number of heads", heads.gathered.into(), wanted));
        }
        if !(self.scale.is_finite() && self.scale > 0.0) {
            let wanted = format!("finite and above 0, and it is {}", self.scale);
            return Err(range(
                "the bits of the scale",
                self.scale.to_bits().into(),
                wanted,
            ));
        }
        if !self.kernel_rows.is_multiple_of(stripe.interleave()) {
            let wanted = format!("a multiple of the interleave {}", stripe.interleave());
            return Err(range("the kernel page", self.kernel_rows.into(), wanted));
        }
        let most = u64::from(i32::MAX.unsigned_abs());
        if self.max_tokens == 0 || self.max_tokens > most {
            let wanted = format!("1..={most}");
            return Err(range(
                "the most tokens of a request",
                self.max_tokens,
                wanted,
            ));
        }
        match self.settings.exchange {
            None | Some(CommBackend::Stream | CommBackend::Sim) => {}
            Some(backend) => {
                return Err(DecodeError::Config(
                    striata_core::config::ConfigError::Exchange {
                        backend,
                        reason: "collectives and one-sided stores between processes are not built",
                    },
                ));
            }
        }
        if self.settings.exchange.is_some() == stripe.is_identity() {
            let wanted = "an exchange for more than one rank, and none for one".to_owned();
            return Err(range("the dcp size", stripe.dcp().into(), wanted));
        }
        self.format()?;
        self.partial_form().message_bytes(self.attend_shape())?;
        Ok(self.plan_shape(Rank::new(0), 1).check()?)
    }
}
