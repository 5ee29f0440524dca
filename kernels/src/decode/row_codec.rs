// SPDX-License-Identifier: Apache-2.0
//! Rows of 576 lanes in every format that kernels read and write.
//!
//! | format | bytes |
//! |---|---|
//! | bf16 | 576 bf16 |
//! | fp8_tensor | 576 e4m3; the scale is the tensor's own and stands elsewhere |
//! | fp8_row | 576 e4m3, the scale as f32, 12 bytes of 0 |
//! | fp8_tile | 512 e4m3, four f32 scales of 128 lanes each, 64 rotary lanes in bf16 |
//!
//! A value is e4m3 times its scale. A scale that a row carries is its largest magnitude / 448, and
//! 1 where all lanes are 0.

use striata_core::RowFormat;

use super::e4m3;
use super::{DecodeError, LANES, LATENT, ROPE};

/// Lanes of a scale of `fp8_tile`.
const TILE: usize = 128;
const TILES: usize = LATENT / TILE;
/// Bytes of a row at which its scales begin.
const ROW_SCALE_AT: usize = LANES;
const TILE_SCALES_AT: usize = LATENT;
const TILE_ROPE_AT: usize = TILE_SCALES_AT + TILES * size_of::<f32>();

/// A row format that kernels read; its number is the kernels'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum KernelFormat {
    /// 1152 B.
    Bf16 = 0,
    /// 576 B.
    Fp8Tensor = 1,
    /// 592 B.
    Fp8Row = 2,
    /// 656 B.
    Fp8Tile = 3,
}

impl TryFrom<RowFormat> for KernelFormat {
    type Error = DecodeError;

    fn try_from(format: RowFormat) -> Result<Self, DecodeError> {
        match format {
            RowFormat::Bf16 => Ok(Self::Bf16),
            RowFormat::Fp8Tensor => Ok(Self::Fp8Tensor),
            RowFormat::Fp8Row => Ok(Self::Fp8Row),
            RowFormat::Fp8Tile => Ok(Self::Fp8Tile),
            other => Err(DecodeError::Format {
                bytes: other.row_bytes(),
            }),
        }
    }
}

/// The scale of a tensor in `fp8_tensor`; the other formats ignore it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScale(pub f32);

impl Default for RowScale {
    fn default() -> Self {
        Self(1.0)
    }
}

impl KernelFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bf16, Self::Fp8Tensor, Self::Fp8Row, Self::Fp8Tile];

    /// Bytes of a row, a multiple of 16.
    #[must_use]
    pub const fn row_bytes(self) -> u32 {
        match self {
            Self::Bf16 => 1152,
            Self::Fp8Tensor => 576,
            Self::Fp8Row => 592,
            Self::Fp8Tile => 656,
        }
    }

    /// Writes a row of 512 latent and 64 rotary lanes, as bits of bf16; all its bytes.
    ///
    /// # Errors
    /// Slices of other lengths; nothing is written then.
    pub fn encode(
        self,
        latent: &[u16],
        rope: &[u16],
        scale: RowScale,
        row: &mut [u8],
    ) -> Result<(), DecodeError> {
        super::same_len("latent", latent.len() as u64, LATENT as u64)?;
        super::same_len("rope", rope.len() as u64, ROPE as u64)?;
        super::same_len("row", row.len() as u64, u64::from(self.row_bytes()))?;
        row.fill(0);
        let lanes: Vec<f32> = latent.iter().chain(rope).map(|&bits| widen(bits)).collect();
        match self {
            Self::Bf16 => put_bf16(latent.iter().chain(rope).copied(), row),
            Self::Fp8Tensor => put_e4m3(&lanes, scale.0, row),
            Self::Fp8Row => {
                let scale = scale_of(&lanes);
                put_e4m3(&lanes, scale, row);
                put_f32(scale, &mut row[ROW_SCALE_AT..]);
            }
            Self::Fp8Tile => {
                for (tile, lanes) in lanes[..LATENT].chunks_exact(TILE).enumerate() {
                    let scale = scale_of(lanes);
                    put_e4m3(lanes, scale, &mut row[tile * TILE..]);
                    let at = TILE_SCALES_AT + tile * size_of::<f32>();
                    put_f32(scale, &mut row[at..]);
                }
                put_bf16(rope.iter().copied(), &mut row[TILE_ROPE_AT..]);
            }
        }
        Ok(())
    }

    /// The values of a row's 576 lanes.
    ///
    /// # Errors
    /// A row or lanes of another length; nothing is written then.
    pub fn decode(self, row: &[u8], scale: RowScale, lanes: &mut [f32]) -> Result<(), DecodeError> {
        super::same_len("row", row.len() as u64, u64::from(self.row_bytes()))?;
        super::same_len("lanes", lanes.len() as u64, LANES as u64)?;
        match self {
            Self::Bf16 => get_bf16(row, lanes),
            Self::Fp8Tensor => get_e4m3(row, scale.0, lanes),
            Self::Fp8Row => get_e4m3(row, get_f32(row, ROW_SCALE_AT), lanes),
            Self::Fp8Tile => {
                let (latent, rope) = lanes.split_at_mut(LATENT);
                for (tile, lanes) in latent.chunks_exact_mut(TILE).enumerate() {
                    let scale = get_f32(row, TILE_SCALES_AT + tile * size_of::<f32>());
                    get_e4m3(&row[tile * TILE..], scale, lanes);
                }
                get_bf16(&row[TILE_ROPE_AT..], rope);
            }
        }
        Ok(())
    }
}

/// The value of a bf16; exact.
#[must_use]
pub const fn widen(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The nearest bf16, ties to even.
#[must_use]
pub const fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return 0x7FFF;
    }
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
    let [_, _, low, high] = rounded.to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn scale_of(lanes: &[f32]) -> f32 {
    let largest = lanes.iter().fold(0f32, |most, lane| most.max(lane.abs()));
    if largest > 0.0 {
        largest / e4m3::MAX
    } else {
        1.0
    }
}

fn put_bf16(lanes: impl Iterator<Item = u16>, row: &mut [u8]) {
    for (bytes, bits) in row.chunks_exact_mut(2).zip(lanes) {
        bytes.copy_from_slice(&bits.to_le_bytes());
    }
}

fn put_e4m3(lanes: &[f32], scale: f32, row: &mut [u8]) {
    for (byte, lane) in row.iter_mut().zip(lanes) {
        *byte = e4m3::encode(lane / scale);
    }
}

fn put_f32(value: f32, row: &mut [u8]) {
    row[..size_of::<f32>()].copy_from_slice(&value.to_le_bytes());
}

fn get_bf16(row: &[u8], lanes: &mut [f32]) {
    for (bytes, lane) in row.chunks_exact(2).zip(lanes) {
        *lane = widen(u16::from_le_bytes([bytes[0], bytes[1]]));
    }
}

fn get_e4m3(row: &[u8], scale: f32, lanes: &mut [f32]) {
    for (byte, lane) in row.iter().zip(lanes) {
        *lane = e4m3::decode(*byte) * scale;
    }
}

fn get_f32(row: &[u8], at: usize) -> f32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&row[at..at + 4]);
    f32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(count: usize, seed: u32) -> Vec<u16> {
        let mut word = seed;
        let next = |_| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let share = f64::from(word >> 8) / f64::from(1 << 24);
            #[expect(clippy::cast_possible_truncation, reason = "rounding is what is meant")]
            narrow((8.0 * share - 4.0) as f32)
        };
        (0..count).map(next).collect()
    }

    // Seen to fail if all tiles are read with the scale of the first.
    #[test]
    fn every_format_keeps_its_lanes_within_its_precision() {
        let (mut latent, rope) = (lanes(LATENT, 1), lanes(ROPE, 2));
        // A tile has a quarter of the lanes before it, so that each needs a scale of its own.
        for (tile, lanes) in latent.chunks_exact_mut(TILE).enumerate() {
            for _ in 0..2 * tile {
                lanes
                    .iter_mut()
                    .for_each(|bits| *bits = narrow(widen(*bits) / 2.0));
            }
        }
        for format in KernelFormat::ALL {
            let scale = RowScale(4.0 / 448.0);
            let mut row = vec![0xAA; format.row_bytes() as usize];
            format.encode(&latent, &rope, scale, &mut row).unwrap();
            let mut back = vec![f32::NAN; LANES];
            format.decode(&row, scale, &mut back).unwrap();
            let exact = |lane| {
                format == KernelFormat::Bf16 || (format == KernelFormat::Fp8Tile && lane >= LATENT)
            };
            for (lane, (value, bits)) in back.iter().zip(latent.iter().chain(&rope)).enumerate() {
                let want = widen(*bits);
                // Half a step of three mantissa bits, or of a subnormal of the largest lane.
                let room = if exact(lane) {
                    0.0
                } else {
                    want.abs() / 16.0 + 4.0 / 448.0 / 1024.0
                };
                assert!(
                    (value - want).abs() <= room,
                    "{format:?} {lane}: {value} {want}"
                );
            }
        }
    }

    // Seen to fail if the scale of zeros is 0.
    #[test]
    fn rows_of_zeros_stay_zero_and_the_padding_is_zero() {
        let (latent, rope) = (vec![0; LATENT], vec![0; ROPE]);
        for format in KernelFormat::ALL {
            let mut row = vec![0xAA; format.row_bytes() as usize];
            format
                .encode(&latent, &rope, RowScale::default(), &mut row)
                .unwrap();
            let mut back = vec![f32::NAN; LANES];
            format.decode(&row, RowScale::default(), &mut back).unwrap();
            assert!(back.iter().all(|lane| *lane == 0.0));
        }
        let mut row = vec![0xAA; 592];
        KernelFormat::Fp8Row
            .encode(&latent, &rope, RowScale::default(), &mut row)
            .unwrap();
        assert_eq!(row[576..580], 1f32.to_le_bytes());
        assert!(row[580..].iter().all(|byte| *byte == 0));
    }

    // Seen to fail if ties are rounded up.
    #[test]
    fn bf16_rounds_to_the_nearest_and_ties_to_even() {
        assert_eq!(narrow(1.0), 0x3F80);
        assert_eq!(narrow(f32::from_bits(0x3F80_8000)), 0x3F80);
        assert_eq!(narrow(f32::from_bits(0x3F81_8000)), 0x3F82);
        assert_eq!(narrow(f32::from_bits(0x3F80_8001)), 0x3F81);
        assert_eq!(narrow(f32::NEG_INFINITY), 0xFF80);
        assert!(widen(narrow(f32::NAN)).is_nan());
    }
}
