// SPDX-License-Identifier: Apache-2.0
//! How the work of an attention call is divided: contiguous runs of tiles of about equal cost.
//!
//! A request costs its tiles and a constant; requests stand one behind the other on a line of
//! cost, which is cut into equal parts. So a part is a run of tiles over one or more requests, and
//! a request that is cut has one piece in each of consecutive parts. The plan kernel computes the
//! cut on the device, so a captured launch follows lengths that change.

use core::fmt;
use core::str::FromStr;

use bytemuck::{Pod, Zeroable};

use super::attend::AttendShape;
use super::row_codec::KernelFormat;
use crate::source::Kernel;

/// Rows of the plane in a tile.
pub const TILE_ROWS: u32 = 32;
/// What a request costs beside its tiles, in tiles: filling the pipeline and writing outputs.
pub const OVERHEAD_TILES: u64 = 3;
/// Which tensor-core kernels run, by the shared memory that a block of theirs takes. All compute
/// the same; smaller ones have smaller blocks of query rows and keep fewer tiles in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MmaSize {
    /// In 99 KB: compute capability 8.6, 8.9 and 12.x.
    Small,
    /// In 163 KB: compute capability 8.0 and 8.7.
    Medium,
    /// In 227 KB: compute capability 9.0 and 10.x.
    Large,
}

impl MmaSize {
    /// All of them, the largest first.
    pub const ALL: [Self; 3] = [Self::Large, Self::Medium, Self::Small];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// Query rows (of all queries and heads of a request) of a block: of few and of many.
    #[must_use]
    pub const fn block_rows(self) -> [u32; 2] {
        match self {
            Self::Large => [16, 64],
            Self::Medium | Self::Small => [16, 32],
        }
    }

    /// Bytes of shared memory that the hungriest of its kernels asks for.
    #[must_use]
    pub const fn shared_bytes(self) -> u32 {
        let bf16 = Kernel::attend(self, KernelFormat::Bf16, true).shared_bytes();
        let fp8 = Kernel::attend(self, KernelFormat::Fp8Tile, true).shared_bytes();
        if bf16 > fp8 { bf16 } else { fp8 }
    }

    /// The largest whose kernels fit blocks of `shared_bytes` bytes; none if none fits.
    #[must_use]
    pub fn largest_in(shared_bytes: u32) -> Option<Self> {
        let mut sizes = Self::ALL.into_iter();
        sizes.find(|size| size.shared_bytes() <= shared_bytes)
    }
}

/// A name that is no size of tensor-core kernels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no size of tensor-core kernels: they are large, medium and small")]
pub struct NoMmaSize(String);

impl FromStr for MmaSize {
    type Err = NoMmaSize;

    fn from_str(text: &str) -> Result<Self, NoMmaSize> {
        let found = Self::ALL.into_iter().find(|size| size.name() == text);
        found.ok_or_else(|| NoMmaSize(text.to_owned()))
    }
}

impl fmt::Display for MmaSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The division of one shape of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// The tensor-core kernels that it is for.
    pub size: MmaSize,
    /// Query rows of a block.
    pub block_rows: u32,
    /// Blocks that share the query rows of a request.
    pub blocks: u32,
    /// Parts of the work; parts x blocks fill the device.
    pub parts: u32,
}

/// Where a part begins; it ends where the next one begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct WorkStart {
    /// The request; the batch size behind the last one.
    pub request: u32,
    /// The tile of the request.
    pub tile: u32,
}

/// How a request is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cut {
    /// The part with its first piece; the others are in the parts behind it.
    pub first_part: u32,
    /// Pieces; 1 for a request that is not cut.
    pub pieces: u32,
    /// Index of its first piece among the pieces of all requests that are cut.
    pub first_piece: u32,
}

impl Schedule {
    /// The division for kernels of a size on a device of `multiprocessors`.
    #[must_use]
    pub const fn new(shape: AttendShape, multiprocessors: u32, size: MmaSize) -> Self {
        let rows = shape.queries.saturating_mul(shape.heads);
        let [few, many] = size.block_rows();
        let block_rows = if rows <= few { few } else { many };
        let blocks = rows.div_ceil(block_rows);
        let blocks = if blocks == 0 { 1 } else { blocks };
        let parts = multiprocessors / blocks;
        Self {
            size,
            block_rows,
            blocks,
            parts: if parts == 0 { 1 } else { parts },
        }
    }

    /// Most pieces of requests that are cut: a part has at most one at either end.
    #[must_use]
    pub const fn most_pieces(self) -> u64 {
        2 * self.parts as u64
    }

    /// Query rows of all blocks, the padding of the last one included.
    #[must_use]
    pub const fn padded_rows(self) -> u64 {
        self.blocks as u64 * self.block_rows as u64
    }

    /// Bytes of the workspace that pieces of cut requests need: outputs in f32 and log-sum-exps.
    #[must_use]
    pub const fn workspace_bytes(self) -> u64 {
        self.most_pieces() * self.padded_rows() * (super::LATENT as u64 + 1) * 4
    }

    /// The division of requests with these local lengths: `parts` + 1 starts, a cut a request.
    #[must_use]
    pub fn divide(self, local_lens: &[i32]) -> (Vec<WorkStart>, Vec<Cut>) {
        let costs: Vec<(u64, u64)> = local_lens.iter().map(|&rows| cost(rows)).collect();
        let total: u64 = costs.iter().map(|(fixed, tiles)| fixed + tiles).sum();
        let share = total.div_ceil(u64::from(self.parts)).max(1);
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let (mut at, mut pieces) = (0, 0);
        let mut cuts = Vec::with_capacity(costs.len());
        let mut spans = Vec::with_capacity(costs.len());
        for (fixed, tiles) in costs {
            let first = at + fixed;
            at = first + tiles;
            let (first_part, last_part) = (first / share, (at - 1) / share);
            let count = last_part - first_part + 1;
            cuts.push(Cut {
                first_part: narrow(first_part),
                pieces: narrow(count),
                first_piece: narrow(pieces),
            });
            spans.push((first, at));
            pieces += if count > 1 { count } else { 0 };
        }
        let start = |part: u64| {
            let begin = part * share;
            let request = spans.partition_point(|&(_, end)| end <= begin);
            let tile = spans
                .get(request)
                .map_or(0, |&(first, _)| begin.saturating_sub(first));
            WorkStart {
                request: narrow(request as u64),
                tile: narrow(tile),
            }
        };
        let starts = (0..=u64::from(self.parts)).map(start).collect();
        (starts, cuts)
    }
}

/// What a request costs before its tiles, and its tiles: one for a request without rows, whose
/// outputs are still written.
fn cost(local_len: i32) -> (u64, u64) {
    let rows = u64::try_from(local_len).unwrap_or(0);
    if rows == 0 {
        return (0, 1);
    }
    (OVERHEAD_TILES, rows.div_ceil(u64::from(TILE_ROWS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(rows: i32) -> u32 {
        u32::try_from(cost(rows).1).unwrap()
    }

    fn random_lens(seed: u64, count: usize) -> Vec<i32> {
        let mut word = seed;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i32::try_from(word >> 40).unwrap() % 9000
        };
        (0..count)
            .map(|_| if next() % 4 == 0 { 0 } else { next() })
            .collect()
    }

    // Seen to fail if the start of a part ignores the fixed cost.
    #[test]
    fn every_tile_is_in_one_part_and_the_cuts_say_which() {
        for (parts, count) in [(1, 3), (7, 1), (132, 5), (66, 128), (16, 257)] {
            let lens = random_lens(parts.into(), count);
            let schedule = Schedule {
                size: MmaSize::Large,
                block_rows: 64,
                blocks: 2,
                parts,
            };
            let (starts, cuts) = schedule.divide(&lens);
            assert_eq!(starts.len(), parts as usize + 1);
            let end = WorkStart {
                request: u32::try_from(count).unwrap(),
                tile: 0,
            };
            assert_eq!(
                (starts[0], starts[parts as usize]),
                (WorkStart::default(), end)
            );
            let mut pieces = 0;
            for (request, (&rows, cut)) in lens.iter().zip(&cuts).enumerate() {
                let request = u32::try_from(request).unwrap();
                let mut parts_of = Vec::new();
                for tile in 0..tiles(rows) {
                    let inside = |part: usize| {
                        let key = |start: WorkStart| (start.request, start.tile);
                        key(starts[part]) <= (request, tile)
                            && (request, tile) < key(starts[part + 1])
                    };
                    let holders: Vec<usize> = (0..parts as usize).filter(|&p| inside(p)).collect();
                    assert_eq!(holders.len(), 1, "{request} {tile}");
                    if parts_of.last() != Some(&holders[0]) {
                        parts_of.push(holders[0]);
                    }
                }
                let expected: Vec<usize> = (0..cut.pieces)
                    .map(|i| (cut.first_part + i) as usize)
                    .collect();
                assert_eq!(parts_of, expected);
                if cut.pieces > 1 {
                    assert_eq!(u64::from(cut.first_piece), pieces);
                    pieces += u64::from(cut.pieces);
                }
            }
            assert!(pieces <= schedule.most_pieces());
        }
    }

    // Seen to fail if every block has as many parts as there are multiprocessors.
    #[test]
    fn parts_and_blocks_fill_the_device() {
        let sized = |heads, queries, size| {
            let shape = AttendShape {
                batch: 1,
                queries,
                heads,
            };
            let Schedule {
                block_rows,
                blocks,
                parts,
                ..
            } = Schedule::new(shape, 132, size);
            (block_rows, blocks, parts)
        };
        let of = |heads, queries| sized(heads, queries, MmaSize::Large);
        assert_eq!(of(16, 1), (16, 1, 132));
        assert_eq!(of(64, 1), (64, 1, 132));
        assert_eq!(of(128, 1), (64, 2, 66));
        assert_eq!(of(128, 8), (64, 16, 8));
        assert_eq!(of(5, 3), (16, 1, 132));
        assert_eq!(of(17, 1), (64, 1, 132));
        assert_eq!(sized(128, 2, MmaSize::Medium), (32, 8, 16));
        assert_eq!(sized(16, 1, MmaSize::Small), (16, 1, 132));
    }
}
