// SPDX-License-Identifier: Apache-2.0
//! Rows of a cached prefix in token order on every rank, as bf16, for extend; new tokens behind.
//!
//! The workspace bounds what is gathered at once: a longer prefix comes in pieces that meet at
//! cycle edges, so that every rank sends the same number of rows of each.

use std::sync::Arc;

use striata_core::gather::{GatherPiece, GatherPlan};
use striata_core::table::{EMPTY_CELL, StaleCells, TableLayout};
use striata_core::{L1Page, LayerId, TokenPos};
use striata_gpu::GpuError;
use striata_gpu::decode::{DecodeDevice, GatherPrefix, Rows, View, WriteRows, WriteTo};
use striata_gpu::exchange::StepStreams;
use striata_gpu::planes::L1Planes;
use striata_kernels::decode::{KernelFormat, RowScale};

use super::config::DcpMlaConfig;
use super::error::DecodeError;

/// What one rank has.
#[derive(Debug)]
struct RankRows<D: DecodeDevice> {
    device: D,
    planes: Arc<L1Planes<D>>,
    /// The request's kernel pages.
    cells: D::Memory,
    /// Rows in token order. Shape: \[rows\]\[576\] bf16.
    workspace: D::Memory,
    /// Counts rows outside the workspace.
    faults: D::Memory,
}

/// See the module.
#[derive(Debug)]
pub struct PrefixGather<D: DecodeDevice> {
    config: DcpMlaConfig,
    layout: TableLayout,
    width: u32,
    rows: u64,
    ranks: Vec<RankRows<D>>,
    /// Pages and tokens of the request.
    request: Option<(Vec<L1Page>, u64)>,
    /// Behind the last reads of cells.
    readers: Vec<D::Event>,
}

impl<D: DecodeDevice> PrefixGather<D> {
    /// A gather from the pools of a group into workspaces of `rows` rows.
    ///
    /// # Errors
    /// Sizes that are refused; not one pool a rank; no room.
    pub fn new(
        config: &DcpMlaConfig,
        devices: &[D],
        planes: &[Arc<L1Planes<D>>],
        rows: u64,
    ) -> Result<Self, DecodeError> {
        let stripe = config.stripe();
        let ranks = stripe.dcp() as usize;
        for (what, given) in [("devices", devices.len()), ("pools", planes.len())] {
            if given != ranks {
                return Err(DecodeError::Ranks { what, given, ranks });
            }
        }
        let layout = TableLayout::with_kernel_page(stripe, config.kernel_rows);
        let layout = layout.map_err(|error| refused(&error))?;
        let width = layout.width_for(config.max_tokens);
        let width = u32::try_from(width).map_err(|_| DecodeError::Range {
            what: "the cells of a request",
            value: width,
            range: "below 2^32".to_owned(),
        })?;
        let bytes = rows * row_bytes();
        let of_rank = |(device, planes): (&D, &Arc<L1Planes<D>>)| {
            let faults = device.alloc(4)?;
            device.write(&faults, 0, &[0; 4])?;
            Ok(RankRows {
                cells: device.alloc(u64::from(width) * 4)?,
                workspace: device.alloc(bytes)?,
                faults,
                device: device.clone(),
                planes: Arc::clone(planes),
            })
        };
        let made = devices.iter().zip(planes).map(of_rank);
        Ok(Self {
            config: *config,
            layout,
            width,
            rows,
            ranks: made.collect::<Result<_, GpuError>>()?,
            request: None,
            readers: Vec::new(),
        })
    }

    /// Takes a request whose first `tokens` tokens stand on `pages`. Blocks until the gathers of
    /// the request before have run.
    ///
    /// # Errors
    /// Pages that do not hold the tokens; a device that fails.
    pub fn set_request(&mut self, pages: &[L1Page], tokens: u64) -> Result<(), DecodeError> {
        let length = i64::try_from(tokens).unwrap_or(i64::MAX);
        let mut lists = Vec::with_capacity(self.ranks.len());
        for rank in self.config.stripe().ranks() {
            let mut cells = vec![EMPTY_CELL; self.width as usize];
            let clear = StaleCells::Clear;
            self.layout
                .write_pages(rank, pages, length, clear, &mut cells)
                .map_err(|error| refused(&error))?;
            lists.push(cells);
        }
        for (rank, event) in self.ranks.iter().zip(&self.readers) {
            rank.device.synchronize(event)?;
        }
        self.readers.clear();
        for (rank, cells) in self.ranks.iter().zip(&lists) {
            rank.device
                .write(&rank.cells, 0, bytemuck::cast_slice(cells))?;
        }
        self.request = Some((pages.to_vec(), tokens));
        Ok(())
    }

    /// The pieces of `tokens` tokens from `start` on, each of which the workspace holds behind its
    /// first `at` rows.
    ///
    /// # Errors
    /// Less room than a cycle; more tokens than the request has.
    pub fn pieces(
        &self,
        start: TokenPos,
        tokens: u64,
        at: u64,
    ) -> Result<Vec<GatherPiece>, DecodeError> {
        let held = self.request.as_ref().map_or(0, |(_, tokens)| *tokens);
        if start.get().saturating_add(tokens) > held {
            return Err(DecodeError::Range {
                what: "the end of the prefix",
                value: start.get().saturating_add(tokens),
                range: format!("at most the {held} tokens of the request"),
            });
        }
        let room = self.rows.saturating_sub(at);
        let plan = GatherPlan::new(self.config.stripe(), start, tokens, room);
        Ok(plan.map_err(|error| refused(&error))?.pieces().collect())
    }

    /// Gathers a piece of `layer` into every rank's workspace from row `at` on, behind what all
    /// streams hold.
    ///
    /// # Errors
    /// A piece that has no room; a device that fails.
    pub fn gather(
        &mut self,
        layer: LayerId,
        piece: GatherPiece,
        at: u64,
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        let positions = piece.positions();
        let (start, tokens) = (positions.start, positions.end - positions.start);
        self.check_room(at, tokens)?;
        // Rows of the others may have been written on their own streams.
        self.wait_for_all(streams)?;
        for (index, rank) in self.ranks.iter().enumerate() {
            let stream = streams.of(index)?;
            for (from, source) in self.config.stripe().ranks().zip(&self.ranks) {
                let job = GatherPrefix {
                    stripe: self.config.stripe(),
                    rank: from,
                    rows: self.plane(source, layer)?,
                    kernel_rows: self.config.kernel_rows,
                    cells: View::all(&source.cells),
                    width: self.width,
                    start,
                    tokens,
                    packed: false,
                    out: View::all(&rank.workspace).plus(at * row_bytes()),
                };
                rank.device.gather_prefix(stream, &job)?;
            }
        }
        // And may be written again there.
        self.wait_for_all(streams)
    }

    /// Puts `tokens` new tokens behind row `at` of every rank's workspace: bf16 latent and rotary
    /// lanes that stand one behind the other, rank by rank.
    ///
    /// # Errors
    /// Tokens that have no room; not one input a rank; a device that fails.
    pub fn append(
        &mut self,
        inputs: &[(View<'_, D>, View<'_, D>)],
        tokens: u32,
        at: u64,
        streams: StepStreams<'_, D>,
    ) -> Result<(), DecodeError> {
        let (given, ranks) = (inputs.len(), self.ranks.len());
        if given != ranks {
            let what = "inputs";
            return Err(DecodeError::Ranks { what, given, ranks });
        }
        self.check_room(at, tokens.into())?;
        for (index, (rank, (latent, rope))) in self.ranks.iter().zip(inputs).enumerate() {
            let job = WriteRows {
                rows: Rows {
                    at: View::all(&rank.workspace),
                    format: KernelFormat::Bf16,
                    scale: RowScale::default(),
                    rows: self.rows,
                },
                to: WriteTo::Run { first_row: at },
                tokens,
                latent: *latent,
                latent_stride: striata_kernels::decode::LATENT as u64 * 2,
                rope: Some(*rope),
                rope_stride: striata_kernels::decode::ROPE as u64 * 2,
                faults: View::all(&rank.faults),
            };
            rank.device.write_rows(streams.of(index)?, &job)?;
        }
        Ok(())
    }

    /// The rows of a rank. Shape: \[rows\]\[576\] bf16.
    #[must_use]
    pub fn workspace(&self, rank: usize) -> Option<View<'_, D>> {
        self.ranks.get(rank).map(|rank| View::all(&rank.workspace))
    }

    /// Rows of a workspace.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    fn check_room(&self, at: u64, tokens: u64) -> Result<(), DecodeError> {
        if at.saturating_add(tokens) <= self.rows {
            return Ok(());
        }
        Err(DecodeError::Range {
            what: "the last row of the workspace",
            value: at.saturating_add(tokens),
            range: format!("at most {}", self.rows),
        })
    }

    fn plane<'a>(
        &self,
        source: &'a RankRows<D>,
        layer: LayerId,
    ) -> Result<Rows<'a, D>, DecodeError> {
        let plane = source.planes.plane(layer);
        let (memory, offset) = plane.ok_or_else(|| DecodeError::Range {
            what: "the layer",
            value: layer.get().into(),
            range: format!("below {}", self.config.pool.page().layers()),
        })?;
        Ok(Rows {
            at: View { memory, offset },
            format: self.config.format()?,
            scale: self.config.row_scale,
            rows: self.config.pool.rows(),
        })
    }

    /// Lets every stream wait for what all hold now.
    fn wait_for_all(&mut self, streams: StepStreams<'_, D>) -> Result<(), DecodeError> {
        let mut events = Vec::with_capacity(self.ranks.len());
        for (index, rank) in self.ranks.iter().enumerate() {
            let event = rank.device.event()?;
            rank.device.record(&event, streams.of(index)?)?;
            events.push(event);
        }
        if !streams.is_one() {
            for (index, rank) in self.ranks.iter().enumerate() {
                for (other, event) in events.iter().enumerate() {
                    if other != index {
                        rank.device.wait(streams.of(index)?, event)?;
                    }
                }
            }
        }
        self.readers = events;
        Ok(())
    }
}

/// Bytes of a gathered row.
const fn row_bytes() -> u64 {
    striata_kernels::decode::LANES as u64 * 2
}

fn refused(error: &dyn core::fmt::Display) -> DecodeError {
    DecodeError::Device(GpuError::Argument {
        call: "prefix gather",
        reason: error.to_string(),
    })
}
