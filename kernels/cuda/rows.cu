// SPDX-License-Identifier: Apache-2.0
// Fingerprints of rows: writes them and compares rows with them. Contract and reference:
// kernels/src/rows.rs and kernels/src/spans.rs; the bytes are the same.
//
// A warp a row. Grid: x strides over the rows of a span, y is the span of the batch.
#include "common.cuh"

struct RowSpan {
    u64 seed;
    u64 first_row;
    u32 rows;
    u32 skip;
};

struct RowParams {
    u32 row_words;
    u32 layer;
    u32 rank;
    u32 stride;
};

constexpr u32 kSpans = 160;
constexpr u32 kRecordWords = 4;

struct SpanBatch {
    u32 count;
    u32 first_span;
    RowSpan spans[kSpans];
};

static_assert(sizeof(RowSpan) == 24 && sizeof(RowParams) == 16, "twins of rows.rs");
static_assert(sizeof(SpanBatch) == 8 + 24 * kSpans, "twin of spans.rs");
static_assert(sizeof(SpanBatch) + 64 <= 4096, "kernel arguments are limited");

__device__ __forceinline__ u64 mix64(u64 x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

__device__ __forceinline__ u32 mix32(u32 x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return x ^ (x >> 16);
}

// The two halves that the words of one page, layer and rank are made from.
struct Base {
    u32 low;
    u32 high;

    __device__ Base(u64 seed, const RowParams& params) {
        const u64 place = static_cast<u64>(params.layer) << 32 | params.rank;
        const u64 hash = mix64(seed ^ mix64(place + 0x9E3779B97F4A7C15ull));
        low = static_cast<u32>(hash);
        high = static_cast<u32>(hash >> 32);
    }

    __device__ u32 word(u32 index) const { return mix32(low + index * 0x9E3779B1u) ^ high; }
};

// Calls `visit(first word in the plane, row of the page)` for every row of a span, with a whole
// warp each time.
template <typename Visit>
__device__ __forceinline__ void for_rows(const RowSpan& span, const RowParams& params,
                                         Visit visit) {
    const u32 stride = params.stride == 0 ? 1 : params.stride;
    const u64 steps = (static_cast<u64>(span.rows) + stride - 1) / stride;
    for (u64 step = warp_in_grid(); step < steps; step += warps_in_grid()) {
        const u64 ahead = step * stride;
        visit((span.first_row + ahead) * params.row_words, span.skip + static_cast<u32>(ahead));
    }
}

// plane: [rows][row_words], not null.
extern "C" __global__ void __launch_bounds__(256)
    striata_fill_rows(u32* __restrict__ plane, const RowParams params,
                      const __grid_constant__ SpanBatch batch) {
    const RowSpan& span = batch.spans[blockIdx.y];
    const Base base(span.seed, params);
    for_rows(span, params, [&](u64 at, u32 row) {
        const u32 first = row * params.row_words;
        for (u32 word = lane(); word < params.row_words; word += kWarp) {
            plane[at + word] = base.word(first + word);
        }
    });
}

// plane: [rows][row_words]; log: a count, then `records` records of four words; neither null. The
// count goes on past the room.
extern "C" __global__ void __launch_bounds__(256)
    striata_verify_rows(const u32* __restrict__ plane, const RowParams params,
                        const __grid_constant__ SpanBatch batch, u32* log, const u64 records) {
    const u32 index = blockIdx.y;
    const RowSpan& span = batch.spans[index];
    const Base base(span.seed, params);
    for_rows(span, params, [&](u64 at, u32 row) {
        const u32 first = row * params.row_words;
        u32 differs = 0;
        for (u32 word = lane(); word < params.row_words; word += kWarp) {
            differs |= plane[at + word] ^ base.word(first + word);
        }
        if (__any_sync(kFullMask, differs != 0) && lane() == 0) {
            const u64 place = atomicAdd(log, 1u);
            if (place < records) {
                u32* record = log + 1 + place * kRecordWords;
                record[0] = params.layer;
                record[1] = params.rank;
                record[2] = batch.first_span + index;
                record[3] = row;
            }
        }
    });
}
