// SPDX-License-Identifier: Apache-2.0
//! The L1 shard of one rank: a plane of rows for each layer, ours or an engine's own.

use std::sync::Arc;

use striata_core::{L1Page, LayerId, PoolGeometry};

use crate::device::Device;
use crate::error::GpuError;

/// Where the plane of one layer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlaneSpan {
    /// Index of the allocation.
    pub memory: u32,
    /// Byte of the allocation at which row 0 stands.
    pub offset: u64,
}

/// Why allocations cannot serve as planes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanesError {
    /// Rows of a page, taken from the stripe, do not fill its bytes.
    #[error(
        "planes of {rows} rows of {row_bytes} bytes are not {pages} pages of {page_bytes} bytes"
    )]
    PageRows {
        /// Rows of a plane.
        rows: u64,
        /// Bytes of a row.
        row_bytes: u32,
        /// Pages of the pool.
        pages: u32,
        /// Bytes of a page in a layer.
        page_bytes: u64,
    },
    /// More bytes than 64 bits count.
    #[error("{layers} planes of {pages} pages of {page_bytes} bytes are more than 2^64 bytes")]
    TooLarge {
        /// Layers of the pool.
        layers: u32,
        /// Pages of the pool.
        pages: u32,
        /// Bytes of a page in a layer.
        page_bytes: u64,
    },
    /// Not one plane a layer.
    #[error("{actual} planes were given for {expected} layers")]
    Count {
        /// Layers of the pool.
        expected: u32,
        /// Planes that were given.
        actual: usize,
    },
    /// A plane in an allocation that was not given.
    #[error("the plane of layer {layer} names allocation {memory} of {memories}")]
    Memory {
        /// The layer.
        layer: u32,
        /// The allocation that it names.
        memory: u32,
        /// Allocations that were given.
        memories: usize,
    },
    /// A plane begins between words.
    #[error("the plane of layer {layer} begins at byte {offset}, which is not a multiple of 4")]
    Misaligned {
        /// The layer.
        layer: u32,
        /// Its first byte.
        offset: u64,
    },
    /// A plane leaves its allocation.
    #[error(
        "the plane of layer {layer} needs {plane_bytes} bytes from byte {offset} on, its \
         allocation has {len}"
    )]
    OutOfRange {
        /// The layer.
        layer: u32,
        /// Its first byte.
        offset: u64,
        /// Bytes of a plane.
        plane_bytes: u64,
        /// Bytes of the allocation.
        len: u64,
    },
    /// Two planes share bytes.
    #[error("the planes of layers {first} and {second} overlap at byte {offset}")]
    Overlap {
        /// The plane that begins first.
        first: u32,
        /// The plane that begins inside it.
        second: u32,
        /// Where it begins.
        offset: u64,
    },
    /// The device refused.
    #[error(transparent)]
    Device(#[from] GpuError),
}

/// The L1 shard of one rank.
///
/// Shape of a plane: \[rows\]\[row bytes\], rows = pages * P (pages * W if replicated).
#[derive(Debug)]
pub struct L1Planes<D: Device> {
    memories: Arc<[D::Memory]>,
    spans: Box<[PlaneSpan]>,
    geometry: PoolGeometry,
    uniform: Option<u64>,
}

impl<D: Device> L1Planes<D> {
    /// Allocates all planes as one tensor, \[layers\]\[rows\]\[row bytes\]. Content unspecified.
    ///
    /// # Errors
    /// No room; a geometry whose page and stripe disagree.
    pub fn alloc(device: &D, geometry: PoolGeometry) -> Result<Self, PlanesError> {
        let plane = plane_bytes(geometry)?;
        let layers = geometry.page().layers();
        let bytes = plane
            .checked_mul(u64::from(layers))
            .ok_or_else(|| too_large(geometry))?;
        let memory = device.alloc(bytes)?;
        let spans = (0..u64::from(layers))
            .map(|layer| PlaneSpan {
                memory: 0,
                offset: layer * plane,
            })
            .collect();
        Self::adopt(device, geometry, spans, Arc::from([memory]))
    }

    /// Takes an engine's own allocations: `spans` says for each layer where its plane begins.
    ///
    /// # Errors
    /// Not one span a layer; a span that names no allocation, begins between words, leaves its
    /// allocation or overlaps another.
    pub fn adopt(
        device: &D,
        geometry: PoolGeometry,
        spans: Vec<PlaneSpan>,
        memories: Arc<[D::Memory]>,
    ) -> Result<Self, PlanesError> {
        let plane = plane_bytes(geometry)?;
        let expected = geometry.page().layers();
        if u32::try_from(spans.len()) != Ok(expected) {
            let actual = spans.len();
            return Err(PlanesError::Count { expected, actual });
        }
        for (layer, span) in (0..).zip(&spans) {
            check_span(device, plane, layer, *span, &memories)?;
        }
        check_disjoint(plane, &spans)?;
        Ok(Self {
            uniform: uniform_stride(plane, &spans),
            memories,
            spans: spans.into(),
            geometry,
        })
    }

    /// The allocation that holds the plane of `layer` and the byte at which its row 0 stands; none
    /// past the last layer.
    #[must_use]
    pub fn plane(&self, layer: LayerId) -> Option<(&D::Memory, u64)> {
        let span = self.spans.get(layer.get() as usize)?;
        Some((self.memories.get(span.memory as usize)?, span.offset))
    }

    /// The byte of its allocation at which `page` stands in `layer`; none outside the pool.
    #[must_use]
    pub fn chunk_offset(&self, layer: LayerId, page: L1Page) -> Option<u64> {
        let span = self.spans.get(layer.get() as usize)?;
        let chunk = self.geometry.page().chunk_bytes();
        (page.get() < self.geometry.pages()).then(|| span.offset + u64::from(page.get()) * chunk)
    }

    /// The allocations.
    #[must_use]
    pub const fn memories(&self) -> &Arc<[D::Memory]> {
        &self.memories
    }
    /// Where each layer's plane begins.
    #[must_use]
    pub const fn spans(&self) -> &[PlaneSpan] {
        &self.spans
    }
    /// The pool that the planes hold.
    #[must_use]
    pub const fn geometry(&self) -> PoolGeometry {
        self.geometry
    }
    /// Bytes from a layer's plane to the next, if that is the same for all layers in one
    /// allocation, so that a rectangle can cover several layers.
    #[must_use]
    pub const fn uniform_stride(&self) -> Option<u64> {
        self.uniform
    }
}

const fn too_large(geometry: PoolGeometry) -> PlanesError {
    PlanesError::TooLarge {
        layers: geometry.page().layers(),
        pages: geometry.pages(),
        page_bytes: geometry.page().chunk_bytes(),
    }
}

/// Bytes of one plane; the page's rows must be those of the stripe.
fn plane_bytes(geometry: PoolGeometry) -> Result<u64, PlanesError> {
    let page = geometry.page();
    let bytes = u64::from(geometry.pages())
        .checked_mul(page.chunk_bytes())
        .ok_or_else(|| too_large(geometry))?;
    if geometry.rows().checked_mul(u64::from(page.row_bytes())) == Some(bytes) {
        Ok(bytes)
    } else {
        Err(PlanesError::PageRows {
            rows: geometry.rows(),
            row_bytes: page.row_bytes(),
            pages: geometry.pages(),
            page_bytes: page.chunk_bytes(),
        })
    }
}

fn check_span<D: Device>(
    device: &D,
    plane_bytes: u64,
    layer: u32,
    span: PlaneSpan,
    memories: &[D::Memory],
) -> Result<(), PlanesError> {
    let PlaneSpan { memory, offset } = span;
    let Some(allocation) = memories.get(memory as usize) else {
        let memories = memories.len();
        return Err(PlanesError::Memory {
            layer,
            memory,
            memories,
        });
    };
    if !offset.is_multiple_of(4) {
        return Err(PlanesError::Misaligned { layer, offset });
    }
    let len = device.memory_len(allocation);
    match offset.checked_add(plane_bytes) {
        Some(end) if end <= len => Ok(()),
        _ => Err(PlanesError::OutOfRange {
            layer,
            offset,
            plane_bytes,
            len,
        }),
    }
}

fn check_disjoint(plane_bytes: u64, spans: &[PlaneSpan]) -> Result<(), PlanesError> {
    let mut order: Vec<(PlaneSpan, u32)> = spans.iter().copied().zip(0..).collect();
    order.sort_unstable_by_key(|(span, _)| (span.memory, span.offset));
    for pair in order.windows(2) {
        let [(a, first), (b, second)] = *pair else {
            continue;
        };
        if a.memory == b.memory && b.offset - a.offset < plane_bytes {
            let offset = b.offset;
            return Err(PlanesError::Overlap {
                first,
                second,
                offset,
            });
        }
    }
    Ok(())
}

fn uniform_stride(plane_bytes: u64, spans: &[PlaneSpan]) -> Option<u64> {
    let [first, rest @ ..] = spans else {
        return None;
    };
    let Some(second) = rest.first() else {
        return Some(plane_bytes);
    };
    let stride = second.offset.checked_sub(first.offset)?;
    spans
        .windows(2)
        .all(|pair| {
            pair[0].memory == pair[1].memory
                && pair[1].offset.checked_sub(pair[0].offset) == Some(stride)
        })
        .then_some(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(list: &[(u32, u64)]) -> Vec<PlaneSpan> {
        list.iter()
            .map(|&(memory, offset)| PlaneSpan { memory, offset })
            .collect()
    }

    #[test]
    fn a_constant_ascending_distance_in_one_allocation_is_uniform() {
        let stride = |list| uniform_stride(64, &spans(list));
        assert_eq!(stride(&[(0, 16), (0, 96), (0, 176)]), Some(80));
        assert_eq!(stride(&[(0, 16)]), Some(64));
        assert_eq!(stride(&[(0, 0), (0, 64), (0, 132)]), None);
        assert_eq!(stride(&[(0, 0), (1, 64)]), None);
        assert_eq!(stride(&[(0, 64), (0, 0)]), None);
    }

    #[test]
    fn overlapping_planes_are_named() {
        assert_eq!(
            check_disjoint(64, &spans(&[(0, 64), (1, 0), (0, 0)])),
            Ok(())
        );
        let error = check_disjoint(64, &spans(&[(0, 60), (1, 0), (0, 0)])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the planes of layers 2 and 0 overlap at byte 60"
        );
    }
}
