// SPDX-License-Identifier: Apache-2.0
//! Bytes and rows of pools: row formats, pool kinds, pages, and how a host pool is laid out.

use serde::{Deserialize, Serialize};

use crate::stripe::Stripe;
use crate::units::{L1Page, LayerId};

/// How one row of an MLA pool is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RowFormat {
    /// 512 latent and 64 rotary lanes in bf16: 1152 B.
    Bf16,
    /// 576 lanes e4m3, one scale for the tensor: 576 B.
    Fp8Tensor,
    /// 576 lanes e4m3, one f32 scale a row, padding: 592 B.
    Fp8Row,
    /// 512 lanes e4m3, four f32 scales, 64 rotary lanes bf16: 656 B.
    Fp8Tile,
    /// Any number of bytes that is a multiple of 4; copies only, no kernel reads it.
    Bytes(u32),
}

impl RowFormat {
    /// Bytes of one row.
    #[must_use]
    pub const fn row_bytes(self) -> u32 {
        match self {
            Self::Bf16 => 1152,
            Self::Fp8Tensor => 576,
            Self::Fp8Row => 592,
            Self::Fp8Tile => 656,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What the rows of a pool are indexed by, and so how its plans are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// Filtered by owner and divided by c.
    Striped,
    /// Every rank stores every token; row = slot (draft KV, index keys).
    Replicated,
    /// A slot a request or checkpoint, never translated (KDA/Mamba state).
    PerRequest,
}

/// Why a geometry is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// A row of no bytes, or of bytes that are not a multiple of 4.
    #[error("a row of {bytes} bytes is refused: it must be a positive multiple of 4")]
    RowBytes {
        /// The refused size.
        bytes: u32,
    },
    /// A pool without layers.
    #[error("a pool of 0 layers is refused")]
    NoLayers,
    /// A page of more bytes than can be counted.
    #[error(
        "a page of {layers} layers of {page_rows} rows of {row_bytes} bytes has more bytes than 64 \
         bits can count"
    )]
    PageBytes {
        /// Rows of a page.
        page_rows: u32,
        /// Bytes of a row.
        row_bytes: u32,
        /// Layers of the pool.
        layers: u32,
    },
    /// A buffer with no page beside the sink.
    #[error(
        "an L1 buffer of {rows} rows has {pages} pages of {page_rows} rows and none is usable: \
         page 0 is the sink, so at least {needed} rows are needed"
    )]
    NoUsablePage {
        /// Rows of the buffer.
        rows: u64,
        /// Whole pages in it.
        pages: u64,
        /// Rows of a page.
        page_rows: u32,
        /// Rows that would do.
        needed: u64,
    },
    /// More pages than page ids.
    #[error("{pages} pages are more than the {max} that page ids can name")]
    TooManyPages {
        /// The refused number.
        pages: u64,
        /// The limit.
        max: u64,
    },
    /// A pool whose rows do not stand in the pages of a token pool.
    #[error("a {kind:?} pool has no row for each token, so it cannot stand beside a pool of pages")]
    NotPaged {
        /// The refused kind.
        kind: PoolKind,
    },
    /// Two descriptions of the same rows disagree.
    #[error("the tiers disagree in {what}: L1 has {l1}, L2 has {l2}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// The L1 side.
        l1: u64,
        /// The L2 side.
        l2: u64,
    },
}

/// Bytes of one rank's physical page of one pool.
///
/// Shape: \[layers\]\[page rows\]\[row bytes\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "PageFields")]
pub struct PageGeometry {
    page_rows: u32,
    row_bytes: u32,
    layers: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageFields {
    page_rows: u32,
    row_bytes: u32,
    layers: u32,
}

impl TryFrom<PageFields> for PageGeometry {
    type Error = GeometryError;
    fn try_from(f: PageFields) -> Result<Self, GeometryError> {
        Self::new(f.page_rows, f.row_bytes, f.layers)
    }
}

impl PageGeometry {
    /// Describes pages of `page_rows` rows of `row_bytes` bytes in each of `layers` layers.
    ///
    /// # Errors
    /// Row bytes that are zero or not a multiple of 4; no layers; more bytes than 64 bits can count.
    pub const fn new(page_rows: u32, row_bytes: u32, layers: u32) -> Result<Self, GeometryError> {
        if row_bytes == 0 || !row_bytes.is_multiple_of(4) {
            return Err(GeometryError::RowBytes { bytes: row_bytes });
        }
        if layers == 0 {
            return Err(GeometryError::NoLayers);
        }
        let chunk = page_rows as u64 * row_bytes as u64;
        if chunk.checked_mul(layers as u64).is_none() {
            return Err(GeometryError::PageBytes {
                page_rows,
                row_bytes,
                layers,
            });
        }
        Ok(Self {
            page_rows,
            row_bytes,
            layers,
        })
    }

    /// Rows of a page on one rank.
    #[must_use]
    pub const fn page_rows(self) -> u32 {
        self.page_rows
    }
    /// Bytes of a row in one layer.
    #[must_use]
    pub const fn row_bytes(self) -> u32 {
        self.row_bytes
    }
    /// Layers of the pool.
    #[must_use]
    pub const fn layers(self) -> u32 {
        self.layers
    }
    /// Bytes of one page in one layer: the unit of a copy.
    #[must_use]
    pub const fn chunk_bytes(self) -> u64 {
        self.page_rows as u64 * self.row_bytes as u64
    }
    /// Bytes of one page in all layers.
    #[must_use]
    pub const fn page_bytes(self) -> u64 {
        self.chunk_bytes() * self.layers as u64
    }

    /// Checks that both tiers hold the same rows.
    ///
    /// # Errors
    /// The first field that differs, with both numbers.
    pub const fn check_same(self, l2: Self) -> Result<(), GeometryError> {
        let pairs = [
            ("row bytes", self.row_bytes, l2.row_bytes),
            ("rows a page", self.page_rows, l2.page_rows),
            ("layers", self.layers, l2.layers),
        ];
        let mut at = 0;
        while at < pairs.len() {
            let (what, l1, l2) = pairs[at];
            if l1 != l2 {
                return Err(GeometryError::Mismatch {
                    what,
                    l1: l1 as u64,
                    l2: l2 as u64,
                });
            }
            at += 1;
        }
        Ok(())
    }
}

/// The L1 pool of one rank: what kind it is, how many pages, which are usable.
///
/// Page 0 is the sink of padded and unowned writes and is never handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PoolFields")]
pub struct PoolGeometry {
    kind: PoolKind,
    stripe: Stripe,
    page: PageGeometry,
    pages: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolFields {
    kind: PoolKind,
    stripe: Stripe,
    page: PageGeometry,
    pages: u32,
}

impl TryFrom<PoolFields> for PoolGeometry {
    type Error = GeometryError;
    fn try_from(f: PoolFields) -> Result<Self, GeometryError> {
        let rows = u64::from(f.pages) * u64::from(f.stripe.page_rows());
        Self::adopted(f.kind, f.stripe, f.page, rows)
    }
}

impl PoolGeometry {
    /// A pool that we allocate, for a capacity of C = `capacity_rows` rows: (floor(C / P) + 1) * P
    /// rows, the page of the sink among them.
    ///
    /// # Errors
    /// No usable page, too many pages.
    pub fn owned(
        kind: PoolKind,
        stripe: Stripe,
        page: PageGeometry,
        capacity_rows: u64,
    ) -> Result<Self, GeometryError> {
        let p = u64::from(stripe.page_rows());
        let rows = (capacity_rows / p).saturating_add(1).saturating_mul(p);
        Self::adopted(kind, stripe, page, rows)
    }

    /// A pool of an engine's buffer of `rows` rows a layer: floor(R / P) pages, one of them the
    /// sink.
    ///
    /// # Errors
    /// Fewer than two pages, too many pages.
    pub fn adopted(
        kind: PoolKind,
        stripe: Stripe,
        page: PageGeometry,
        rows: u64,
    ) -> Result<Self, GeometryError> {
        let page_rows = stripe.page_rows();
        let pages = rows / u64::from(page_rows);
        if pages < 2 {
            let needed = 2 * u64::from(page_rows);
            return Err(GeometryError::NoUsablePage {
                rows,
                pages,
                page_rows,
                needed,
            });
        }
        let max = u64::from(u32::MAX);
        let pages = u32::try_from(pages).map_err(|_| GeometryError::TooManyPages { pages, max })?;
        Ok(Self {
            kind,
            stripe,
            page,
            pages,
        })
    }

    /// A side pool: `layers` layers of rows of `row_bytes` bytes for the same tokens (draft KV, index
    /// keys). It has this pool's stripe and page ids; a page is P rows on a rank if `kind` is
    /// striped, and all W rows on every rank if it is replicated.
    ///
    /// # Errors
    /// A kind without a row a token; row bytes that are zero or not a multiple of 4; no layers.
    pub fn beside(
        self,
        kind: PoolKind,
        row_bytes: u32,
        layers: u32,
    ) -> Result<Self, GeometryError> {
        let page_rows = match kind {
            PoolKind::Striped => self.stripe.page_rows(),
            // W, which the limits of a stripe keep below 2^27.
            PoolKind::Replicated => self.stripe.page_rows() * self.stripe.dcp(),
            PoolKind::PerRequest => return Err(GeometryError::NotPaged { kind }),
        };
        let page = PageGeometry::new(page_rows, row_bytes, layers)?;
        Ok(Self { kind, page, ..self })
    }

    /// What the rows are indexed by.
    #[must_use]
    pub const fn kind(self) -> PoolKind {
        self.kind
    }
    /// The stripe that the pool was made for.
    #[must_use]
    pub const fn stripe(self) -> Stripe {
        self.stripe
    }
    /// Bytes of a page.
    #[must_use]
    pub const fn page(self) -> PageGeometry {
        self.page
    }
    /// Pages, the sink included.
    #[must_use]
    pub const fn pages(self) -> u32 {
        self.pages
    }
    /// Pages that can be handed out.
    #[must_use]
    pub const fn usable_pages(self) -> u32 {
        self.pages - 1
    }
    /// Bytes of the buffer of one rank, the sink included.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        (self.pages as u64).saturating_mul(self.page.page_bytes())
    }
    /// Whether a slot may be handed out: neither in the sink nor past the end.
    #[must_use]
    pub const fn is_usable_slot(self, slot: crate::Slot) -> bool {
        let w = self.stripe.widened_page();
        slot.get() >= w && slot.get() < self.pages as u64 * w
    }
    /// Whether a page may be handed out.
    #[must_use]
    pub const fn is_usable_page(self, page: L1Page) -> bool {
        page.get() > 0 && page.get() < self.pages
    }
    /// Rows that the buffer of one rank has in each layer: pages * P, or pages * W if replicated.
    #[must_use]
    pub const fn rows(self) -> u64 {
        match self.kind {
            PoolKind::Striped | PoolKind::PerRequest => {
                self.pages as u64 * self.stripe.page_rows() as u64
            }
            PoolKind::Replicated => self.pages as u64 * self.stripe.widened_page(),
        }
    }
}

/// Order of pages and layers in a host pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostLayout {
    /// \[page\]\[layer\]\[P rows\]: a page is one contiguous object.
    #[default]
    PageFirst,
    /// \[layer\]\[page\]\[P rows\]: as the L1 planes are.
    LayerFirst,
}

/// The two strides of a host pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStrides {
    /// From a page to the next, in the same layer.
    pub page: u64,
    /// From a layer to the next, in the same page.
    pub layer: u64,
}

impl HostLayout {
    /// The strides of a pool of `pages` pages.
    #[must_use]
    pub const fn strides(self, page: PageGeometry, pages: u32) -> HostStrides {
        match self {
            Self::PageFirst => HostStrides {
                page: page.page_bytes(),
                layer: page.chunk_bytes(),
            },
            Self::LayerFirst => HostStrides {
                page: page.chunk_bytes(),
                layer: page.chunk_bytes().saturating_mul(pages as u64),
            },
        }
    }
}

impl HostStrides {
    /// Byte offset of one page in one layer. Saturates: no pool is as long.
    #[must_use]
    pub const fn offset(self, page: u32, layer: LayerId) -> u64 {
        let of_page = self.page.saturating_mul(page as u64);
        of_page.saturating_add(self.layer.saturating_mul(layer.get() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen to fail if a page may have any size.
    #[test]
    fn no_description_leads_to_numbers_that_overflow() {
        let error = PageGeometry::new(u32::MAX, u32::MAX - 3, u32::MAX).unwrap_err();
        assert!(error.to_string().contains("4294967292"), "{error}");
        let page = PageGeometry::new(1 << 16, 1 << 20, 1 << 27).unwrap();
        assert_eq!(page.page_bytes(), 1 << 63);
        for layout in [HostLayout::PageFirst, HostLayout::LayerFirst] {
            let strides = layout.strides(page, u32::MAX);
            assert_eq!(strides.offset(u32::MAX, LayerId::new(u32::MAX)), u64::MAX);
        }
        let text = |rows: u32, pages: u32| {
            format!(
                r#"{{"kind": "striped", "stripe": {{"dcp": 2, "page_rows": 4}},
                    "page": {{"page_rows": 4, "row_bytes": {rows}, "layers": 3}},
                    "pages": {pages}}}"#
            )
        };
        let read = |rows, pages| serde_json::from_str::<PoolGeometry>(&text(rows, pages));
        let pool = read(8, 2).unwrap();
        let again = serde_json::to_string(&pool).unwrap();
        assert_eq!(serde_json::from_str::<PoolGeometry>(&again).unwrap(), pool);
        assert_eq!(pool.usable_pages(), 1);
        for (rows, pages) in [(8, 0), (8, 1), (6, 2), (0, 2)] {
            assert!(read(rows, pages).is_err(), "{rows} bytes, {pages} pages");
        }
    }

    #[test]
    fn a_side_pool_has_the_pages_of_the_pool_beside_it() {
        let stripe = Stripe::new(8, 64).unwrap();
        let page = PageGeometry::new(64, 1152, 61).unwrap();
        let main = PoolGeometry::owned(PoolKind::Striped, stripe, page, 640).unwrap();
        let side = |kind, bytes, layers| main.beside(kind, bytes, layers);
        let draft = side(PoolKind::Replicated, 132, 2).unwrap();
        assert_eq!((draft.pages(), draft.page().page_rows()), (11, 512));
        assert_eq!(
            (draft.rows(), draft.bytes()),
            (11 * 512, 11 * 512 * 132 * 2)
        );
        let scales = side(PoolKind::Striped, 4, 61).unwrap();
        assert_eq!((scales.rows(), scales.stripe()), (11 * 64, stripe));
        let refused = |kind, bytes, layers| side(kind, bytes, layers).unwrap_err().to_string();
        assert!(refused(PoolKind::PerRequest, 4, 1).contains("PerRequest"));
        assert!(refused(PoolKind::Striped, 6, 1).contains("6 bytes"));
        assert!(refused(PoolKind::Replicated, 4, 0).contains("0 layers"));
    }

    #[test]
    fn both_layouts_give_every_chunk_its_own_bytes() {
        let page = PageGeometry::new(4, 8, 3).unwrap();
        for layout in [HostLayout::PageFirst, HostLayout::LayerFirst] {
            let strides = layout.strides(page, 5);
            let mut seen = std::collections::BTreeSet::new();
            for p in 0..5 {
                for l in 0..3 {
                    let at = strides.offset(p, LayerId::new(l));
                    assert_eq!(at % page.chunk_bytes(), 0);
                    assert!(at < 5 * page.page_bytes());
                    assert!(seen.insert(at));
                }
            }
        }
    }
}
