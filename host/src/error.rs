// SPDX-License-Identifier: Apache-2.0
//! Errors of the host tier.

use crate::pin::PinError;

/// Why a host pool could not be made or a view of it was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A pool without bytes.
    #[error("a host pool of {pages} pages of {page_bytes} bytes holds nothing")]
    Empty {
        /// Pages asked for.
        pages: u32,
        /// Bytes of one page in all layers.
        page_bytes: u64,
    },
    /// A pool whose size does not fit the address space.
    #[error(
        "a host pool of {pages} pages of {layers} layers of {chunk_bytes} bytes does not fit the \
         address space"
    )]
    TooLarge {
        /// Pages asked for.
        pages: u32,
        /// Layers of a page.
        layers: u32,
        /// Bytes of a page in one layer.
        chunk_bytes: u64,
    },
    /// More memory than the machine can spare; nothing was mapped.
    #[error(
        "a host pool of {needed} bytes is refused: {available} bytes are available and {reserve} \
         of them stay reserved; ask for fewer pages or lower the reserve"
    )]
    TooMuchMemory {
        /// Bytes of the pool.
        needed: u64,
        /// Bytes that the machine can give.
        available: u64,
        /// Bytes that are kept free.
        reserve: u64,
    },
    /// Huge pages were demanded and are not there.
    #[error(
        "{kind} huge pages are demanded for {needed} bytes and cannot be had: {free} bytes of \
         explicit huge pages are free; {reason}"
    )]
    HugePages {
        /// Which kind.
        kind: &'static str,
        /// Bytes of the pool.
        needed: u64,
        /// Bytes of free explicit huge pages.
        free: u64,
        /// What the platform said.
        reason: String,
    },
    /// The mapping failed.
    #[error("{bytes} bytes of host memory could not be mapped: {reason}")]
    Map {
        /// Bytes asked for.
        bytes: u64,
        /// What the platform said.
        reason: String,
    },
    /// The memory could not be made present.
    #[error("host memory [{start}, {end}) of the pool could not be made present: {reason}")]
    Prefault {
        /// First byte of the span.
        start: u64,
        /// Byte after the last.
        end: u64,
        /// What the platform said.
        reason: String,
    },
    /// A chunk could not be registered; those before it were taken back.
    #[error("chunk {chunk} of {chunks} ({bytes} bytes) could not be registered: {cause}")]
    Register {
        /// The chunk that failed.
        chunk: usize,
        /// Chunks of the pool.
        chunks: usize,
        /// Bytes of the chunk.
        bytes: u64,
        /// What the device said.
        cause: PinError,
    },
    /// A pool that could not grow in its order of pages and layers.
    #[error(
        "a host pool that is layer-first cannot grow from {pages} to {max_pages} pages: its planes \
         would have to move; make it page-first or give it all pages at once"
    )]
    LayerFirstGrowth {
        /// Pages at first.
        pages: u32,
        /// Pages that were to be reserved.
        max_pages: u32,
    },
    /// A growth above what was reserved.
    #[error("a host pool of {pages} pages cannot grow to {asked}: {max_pages} are reserved")]
    AboveReserve {
        /// Pages now.
        pages: u32,
        /// Pages asked for.
        asked: u32,
        /// Pages that address space was reserved for.
        max_pages: u32,
    },
    /// A page that the pool does not have.
    #[error("page {page} is outside the {pages} pages of the host pool")]
    Page {
        /// The page.
        page: u32,
        /// Pages of the pool.
        pages: u32,
    },
    /// A layer that the pool does not have.
    #[error("layer {layer} is outside the {layers} layers of the host pool")]
    Layer {
        /// The layer.
        layer: u32,
        /// Layers of the pool.
        layers: u32,
    },
    /// A buffer that is not one page of one layer long.
    #[error("a buffer of {actual} bytes was given for a chunk of {expected} bytes")]
    Length {
        /// Bytes of a page in one layer.
        expected: u64,
        /// Bytes of the buffer.
        actual: u64,
    },
    /// A byte range outside the pool.
    #[error("{len} bytes at {offset} leave the {bytes} bytes of the host pool")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes of the range.
        len: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// A byte range in two registrations, which no single copy may touch.
    #[error("{len} bytes at {offset} cross the registration edge at {edge}: split the copy there")]
    CrossesChunks {
        /// First byte.
        offset: u64,
        /// Bytes of the range.
        len: u64,
        /// First byte of the next registration.
        edge: u64,
    },
}
