// SPDX-License-Identifier: Apache-2.0
//! A batch on one rank: its rows in a poisoned plane, its plan, its queries.

use std::sync::atomic::Ordering;

use striata_core::stripe::whole_share;
use striata_core::{L1Page, Rank, Stripe};
use striata_kernels::decode::attend::HostAttend;
use striata_kernels::decode::plan::HostPlan;
use striata_kernels::decode::row_codec::narrow;
use striata_kernels::decode::write::{Destination, WriteShape};
use striata_kernels::decode::{
    AttendKernel, AttendShape, KernelFormat, LATENT, MmaSize, OutputForm, OutputKind, PlanPlace,
    PlanShape, PlanSource, ROPE, RowScale, Schedule,
};
use striata_kernels::{Base, LogBase, Lse};

use super::super::random::Random;
use super::super::rig::finish;
use super::super::{Checked, Failure, ensure};
use crate::decode::{Attend, BuildPlan, DecodeDevice, Plan, Rows, View, WriteRows, WriteTo};

/// What unused rows hold: bits of bf16, or two bytes of fp8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poison {
    Nan,
    Infinity,
    Large,
    Zero,
}

impl Poison {
    const fn bits(self) -> u16 {
        match self {
            Self::Nan => 0x7FFF,
            Self::Infinity => 0x7F80,
            Self::Large => 0x476A,
            Self::Zero => 0,
        }
    }
}

/// A case: sizes of everything.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) dcp: u32,
    pub(super) page_rows: u32,
    pub(super) kernel_rows: u32,
    pub(super) format: KernelFormat,
    pub(super) queries: u32,
    pub(super) heads: u32,
    pub(super) kind: OutputKind,
    pub(super) base: Base,
    pub(super) poison: Poison,
    pub(super) lens: Vec<i32>,
}

/// Scale of `fp8_tensor` planes: lanes are below 2.
pub(super) const TENSOR_SCALE: RowScale = RowScale(2.0 / 448.0);
/// Factor of the scores; scores of random rows are a few units.
pub(super) const SCALE: f32 = 0.06;

/// The tokens of all requests, one behind the other.
pub(super) struct Tokens {
    pub(super) latent: Vec<u16>,
    pub(super) rope: Vec<u16>,
    /// The slot of each.
    pub(super) slots: Vec<i64>,
    /// Pages of each request.
    pub(super) pages: Vec<Vec<L1Page>>,
    pub(super) query: Vec<u16>,
    /// Physical pages of a plane, the sink and two that nobody has included.
    pub(super) plane_pages: u32,
}

impl Case {
    pub(super) fn stripe(&self) -> Result<Stripe, Failure> {
        Ok(Stripe::new(self.dcp, self.page_rows)?)
    }

    pub(super) fn shape(&self) -> AttendShape {
        AttendShape {
            batch: u32::try_from(self.lens.len()).unwrap_or(0),
            queries: self.queries,
            heads: self.heads,
        }
    }

    /// Messages: one a rank where the heads allow it.
    pub(super) fn form(&self) -> OutputForm {
        let shared = whole_share(self.heads, self.dcp).is_some();
        OutputForm {
            kind: self.kind,
            destinations: if shared { self.dcp } else { 1 },
        }
    }

    pub(super) fn tokens(&self, random: &mut Random) -> Result<Tokens, Failure> {
        let stripe = self.stripe()?;
        let counts: Vec<u64> = self
            .lens
            .iter()
            .map(|&len| stripe.pages_for(u64::try_from(len).unwrap_or(0)))
            .collect();
        let used = u32::try_from(counts.iter().sum::<u64>())?;
        let plane_pages = used + 3;
        let mut free = random
            .order(plane_pages - 1)
            .into_iter()
            .map(|page| page + 1);
        let mut tokens = Tokens {
            latent: Vec::new(),
            rope: Vec::new(),
            slots: Vec::new(),
            pages: Vec::new(),
            query: lanes(
                random,
                usize::try_from(self.shape().rows())? * (LATENT + ROPE),
            ),
            plane_pages,
        };
        for (&len, &count) in self.lens.iter().zip(&counts) {
            let pages: Vec<L1Page> = free
                .by_ref()
                .take(usize::try_from(count)?)
                .map(L1Page::new)
                .collect();
            for position in 0..u64::try_from(len).unwrap_or(0) {
                let slot = stripe.slot_at(&pages, striata_core::TokenPos::new(position));
                let slot =
                    slot.ok_or_else(|| Failure::Wrong("a position without a slot".to_owned()))?;
                tokens.slots.push(slot.get().cast_signed());
            }
            tokens.pages.push(pages);
        }
        tokens.latent = lanes(random, tokens.slots.len() * LATENT);
        tokens.rope = lanes(random, tokens.slots.len() * ROPE);
        Ok(tokens)
    }
}

/// Random bf16 lanes in (-2, 2), most of them small.
fn lanes(random: &mut Random, count: usize) -> Vec<u16> {
    let mut lane = || {
        let word = random.word().to_le_bytes();
        let share = |a: u8, b: u8| f32::from(u16::from_le_bytes([a, b])) / 32768.0 - 1.0;
        let (a, b) = (share(word[0], word[1]), share(word[2], word[3]));
        narrow(a + b * a.abs())
    };
    (0..count).map(|_| lane()).collect()
}

/// Outputs and log-sum-exps of all rows of one rank, in f64.
pub(super) type Reference<B> = (Vec<f64>, Vec<Lse<B, f64>>);

/// One rank of a case.
pub(super) struct Scene<D: DecodeDevice> {
    pub(super) case: Case,
    pub(super) rank: Rank,
    pub(super) device: D,
    pub(super) stream: D::Stream,
    pub(super) plane: D::Memory,
    /// The same bytes.
    pub(super) host_plane: Vec<u8>,
    pub(super) plan: Plan<D>,
    pub(super) host_plan: HostPlan,
    pub(super) query: D::Memory,
    pub(super) host_query: Vec<u16>,
    pub(super) output: D::Memory,
    workspace: D::Memory,
    /// Where attention counts what is no number, if it does.
    pub(super) tally: Option<D::Memory>,
}

impl<D: DecodeDevice> Scene<D> {
    /// Makes it all; rows and plan are compared with their references on the way.
    pub(super) fn new(
        device: &D,
        case: &Case,
        rank: Rank,
        tokens: &Tokens,
    ) -> Result<Self, Failure> {
        let stripe = case.stripe()?;
        let stream = device.stream("decode")?;
        let size = device.mma_size().unwrap_or(MmaSize::Large);
        let shape = plan_shape(device, case, rank, tokens, size)?;
        let plan = Plan::new(device, shape)?;
        device.write(
            &plan.memory,
            0,
            &vec![0xFF; usize::try_from(plan.layout.bytes)?],
        )?;
        let bytes = case.form().bytes(case.shape())?;
        let query = upload(device, bytemuck::cast_slice(&tokens.query))?;
        let plane_bytes = u64::from(tokens.plane_pages)
            * u64::from(stripe.page_rows())
            * u64::from(case.format.row_bytes());
        let poison = case.poison.bits().to_le_bytes();
        let host_plane: Vec<u8> = poison
            .into_iter()
            .cycle()
            .take(usize::try_from(plane_bytes)?)
            .collect();
        let mut scene = Self {
            case: case.clone(),
            rank,
            device: device.clone(),
            plane: upload(device, &host_plane)?,
            host_plane,
            host_plan: shape.host_plan(),
            plan,
            query,
            host_query: tokens.query.clone(),
            output: device.alloc(bytes)?,
            workspace: device.alloc(shape.schedule.workspace_bytes())?,
            tally: None,
            stream,
        };
        scene.write_rows(tokens)?;
        scene.build_plan(tokens)?;
        Ok(scene)
    }

    pub(super) fn rows(&self) -> Rows<'_, D> {
        let bytes = u64::from(self.case.format.row_bytes());
        Rows {
            at: View::all(&self.plane),
            format: self.case.format,
            scale: TENSOR_SCALE,
            rows: self.host_plane.len() as u64 / bytes,
        }
    }

    /// Writes every token through the owner filter, on the device and on the host.
    fn write_rows(&mut self, tokens: &Tokens) -> Checked {
        let device = &self.device;
        let latent = upload(device, bytemuck::cast_slice(&tokens.latent))?;
        let rope = upload(device, bytemuck::cast_slice(&tokens.rope))?;
        let slots = upload(device, bytemuck::cast_slice(&tokens.slots))?;
        let faults = upload(device, &[0; 16])?;
        let stripe = self.case.stripe()?;
        let (rank, format) = (self.rank, self.case.format);
        device.write_rows(
            &self.stream,
            &WriteRows {
                rows: self.rows(),
                to: WriteTo::Slots {
                    slots: View::all(&slots),
                    stripe,
                    rank,
                },
                tokens: u32::try_from(tokens.slots.len())?,
                latent: View::all(&latent),
                latent_stride: 2 * LATENT as u64,
                rope: Some(View::all(&rope)),
                rope_stride: 2 * ROPE as u64,
                faults: View::all(&faults),
            },
        )?;
        finish(device, &self.stream)?;
        let shape = WriteShape {
            stripe,
            rank,
            format,
            scale: TENSOR_SCALE,
        };
        let to = Destination::Slots(&tokens.slots);
        let outside = shape.write(
            &to,
            &tokens.latent,
            Some(&tokens.rope),
            &mut self.host_plane,
        )?;
        let found = read(device, &self.plane)?;
        let at = found.iter().zip(&self.host_plane).position(|(a, b)| a != b);
        if let Some(at) = at {
            let bytes = format.row_bytes() as usize;
            let (got, want) = (found[at], self.host_plane[at]);
            return Err(Failure::Wrong(format!(
                "{:?} {rank:?}: written row {} differs at byte {}: {got:#x}, not {want:#x}",
                self.case,
                at / bytes,
                at % bytes
            )));
        }
        let counted: u32 = bytemuck::pod_read_unaligned(&read(device, &faults)?[..4]);
        ensure!(
            outside == 0 && counted == 0,
            "{:?}: {counted} rows outside",
            self.case
        );
        Ok(())
    }

    /// Builds the plan, on the device and on the host.
    fn build_plan(&mut self, tokens: &Tokens) -> Checked {
        let shape = self.plan.shape;
        let width = shape.source_width as usize;
        let mut source = vec![-1i32; width * shape.source_rows as usize];
        let mut places = Vec::new();
        for (request, (pages, &len)) in tokens.pages.iter().zip(&self.case.lens).enumerate() {
            for (entry, page) in source[request * width..].iter_mut().zip(pages) {
                *entry = i32::try_from(page.get())?;
            }
            let new = self.case.queries.min(u32::try_from(len).unwrap_or(0));
            places.push(PlanPlace {
                global_len: len,
                source_row: u32::try_from(request)?,
                kept_pages: 0,
                new_tokens: new,
            });
        }
        stage_and_build(&self.device, &self.stream, &self.plan, &places, &source)?;
        shape.build(&places, &source, &mut self.host_plan)?;
        compare_plan(&self.device, &self.plan, &self.host_plan)
            .map_err(|error| within(&format!("{:?} {:?}", self.case, self.rank), error))
    }

    /// Divides the work for tensor-core kernels of a size: a plan of its own, built like the first.
    pub(super) fn divide_for(&mut self, size: MmaSize, tokens: &Tokens) -> Checked {
        let shape = plan_shape(&self.device, &self.case, self.rank, tokens, size)?;
        if shape == self.plan.shape {
            return Ok(());
        }
        let device = &self.device;
        self.plan = Plan::new(device, shape)?;
        let unbuilt = vec![0xFF; usize::try_from(self.plan.layout.bytes)?];
        device.write(&self.plan.memory, 0, &unbuilt)?;
        self.host_plan = shape.host_plan();
        self.workspace = device.alloc(shape.schedule.workspace_bytes())?;
        self.build_plan(tokens)
    }

    /// Runs a kernel into poisoned outputs; returns their bytes.
    fn attend(&self, kernel: AttendKernel) -> Result<Vec<u8>, Failure> {
        let bytes = usize::try_from(self.device.memory_len(&self.output))?;
        self.device.write(&self.output, 0, &vec![0xFF; bytes])?;
        self.device.attend(&self.stream, &self.job(kernel))?;
        finish(&self.device, &self.stream)?;
        read(&self.device, &self.output)
    }

    pub(super) fn job(&self, kernel: AttendKernel) -> Attend<'_, D> {
        let row = 2 * (LATENT + ROPE) as u64;
        let token = row * u64::from(self.case.heads);
        Attend {
            kernel,
            plan: &self.plan,
            rows: self.rows(),
            query: View::all(&self.query),
            query_strides: [token * u64::from(self.case.queries), token, row],
            scale: SCALE,
            base: self.case.base,
            form: self.case.form(),
            output: View::all(&self.output),
            workspace: View::all(&self.workspace),
            tally: self.tally.as_ref().map(View::all),
        }
    }

    /// What the outputs must be.
    pub(super) fn reference<B: LogBase>(&self) -> Result<Reference<B>, Failure> {
        let rows = usize::try_from(self.case.shape().rows())?;
        let (mut o, mut lse) = (vec![0.0; rows * LATENT], vec![Lse::EMPTY; rows]);
        let host = HostAttend {
            shape: self.case.shape(),
            stripe: self.case.stripe()?,
            rank: self.rank,
            kernel_rows: self.case.kernel_rows,
            format: self.case.format,
            row_scale: TENSOR_SCALE,
            scale: f64::from(SCALE),
            query: &self.host_query,
            plane: &self.host_plane,
            cells: &self.host_plan.cells,
            width: self.plan.shape.width as usize,
            local_lens: &self.host_plan.local_lens,
            global_lens: &self.host_plan.global_lens,
        };
        host.run(&mut o, &mut lse)?;
        Ok((o, lse))
    }
}

fn plan_shape<D: DecodeDevice>(
    device: &D,
    case: &Case,
    rank: Rank,
    tokens: &Tokens,
    size: MmaSize,
) -> Result<PlanShape, Failure> {
    let widest = tokens.pages.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let widest = u32::try_from(widest)?;
    let attend = case.shape();
    Ok(PlanShape {
        stripe: case.stripe()?,
        rank,
        kernel_rows: case.kernel_rows,
        pages: tokens.plane_pages,
        width: widest * (case.page_rows / case.kernel_rows) + 1,
        attend,
        schedule: Schedule::new(attend, device.multiprocessors(), size),
        source: PlanSource::Pages,
        source_width: widest,
        source_rows: attend.batch,
    })
}

/// Stages places and source and builds the plan of them.
pub(super) fn stage_and_build<D: DecodeDevice>(
    device: &D,
    stream: &D::Stream,
    plan: &Plan<D>,
    places: &[PlanPlace],
    source: &[i32],
) -> Checked {
    let words: &[u32] = bytemuck::cast_slice(places);
    let entries: &[u32] = bytemuck::cast_slice(source);
    let staging = device.staging(words.len() + entries.len())?;
    for (word, value) in device
        .staged(&staging)
        .iter()
        .zip(words.iter().chain(entries))
    {
        word.store(*value, Ordering::Relaxed);
    }
    device.build_plan(
        stream,
        &BuildPlan {
            plan,
            staging: &staging,
            source: None,
        },
    )?;
    finish(device, stream)
}

/// Compares a plan on the device with what it must be.
pub(super) fn compare_plan<D: DecodeDevice>(
    device: &D,
    plan: &Plan<D>,
    host: &HostPlan,
) -> Checked {
    let bytes = read(device, &plan.memory)?;
    let compare = |what: &str, offset: u64, want: &[u32]| -> Checked {
        let from = usize::try_from(offset)?;
        let got = bytes[from..]
            .chunks_exact(4)
            .map(bytemuck::pod_read_unaligned::<u32>);
        let differs = got
            .zip(want)
            .enumerate()
            .find(|(_, (got, want))| got != *want);
        if let Some((at, (got, want))) = differs {
            let (got, want) = (got.cast_signed(), want.cast_signed());
            return Err(Failure::Wrong(format!(
                "{what}[{at}] of the plan is {got}, not {want}"
            )));
        }
        Ok(())
    };
    let layout = &plan.layout;
    compare("status", layout.status, &host.status)?;
    compare(
        "local_lens",
        layout.local_lens,
        bytemuck::cast_slice(&host.local_lens),
    )?;
    compare(
        "global_lens",
        layout.global_lens,
        bytemuck::cast_slice(&host.global_lens),
    )?;
    compare("cells", layout.cells, bytemuck::cast_slice(&host.cells))?;
    compare("rows", layout.rows, bytemuck::cast_slice(&host.rows))?;
    compare("cuts", layout.cuts, bytemuck::cast_slice(&host.cuts))?;
    compare("starts", layout.starts, bytemuck::cast_slice(&host.starts))
}

/// Memory with these bytes.
pub(super) fn upload<D: DecodeDevice>(device: &D, bytes: &[u8]) -> Result<D::Memory, Failure> {
    // Never empty: a view of it must have an address.
    let memory = device.alloc((bytes.len() as u64).next_multiple_of(16).max(16))?;
    let whole = bytes.len() / 4 * 4;
    device.write(&memory, 0, &bytes[..whole])?;
    Ok(memory)
}

/// All bytes of a memory.
pub(super) fn read<D: DecodeDevice>(device: &D, memory: &D::Memory) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; usize::try_from(device.memory_len(memory))?];
    device.read(memory, 0, &mut bytes)?;
    Ok(bytes)
}

/// A failure with where it was found.
pub(super) fn within(place: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Wrong(what) => Failure::Wrong(format!("{place}: {what}")),
        other => other,
    }
}

/// A kernel that a device runs, and of the tensor-core kernels their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Simt,
    Mma(MmaSize),
}

impl Variant {
    pub(super) const fn kernel(self) -> AttendKernel {
        match self {
            Self::Simt => AttendKernel::Simt,
            Self::Mma(_) => AttendKernel::Mma,
        }
    }
}

/// Every kernel that a device runs: tensor-core kernels of the size that fits it best, and those of
/// smaller devices too.
pub(super) fn variants<D: DecodeDevice>(device: &D) -> Vec<Variant> {
    let runs = |size: &MmaSize| device.mma_size() >= Some(*size);
    let sizes = MmaSize::ALL.into_iter().filter(runs).map(Variant::Mma);
    core::iter::once(Variant::Simt).chain(sizes).collect()
}

impl<D: DecodeDevice> Scene<D> {
    /// Runs a variant into poisoned outputs; returns their bytes.
    pub(super) fn run(&mut self, variant: Variant, tokens: &Tokens) -> Result<Vec<u8>, Failure> {
        if let Variant::Mma(size) = variant {
            self.divide_for(size, tokens)?;
        }
        self.attend(variant.kernel())
    }
}
