// SPDX-License-Identifier: Apache-2.0
// Page tables of a batch on one rank: twin of core/src/table.rs. Contract: kernels/src/table.rs.
//
// A block a place. A place that is refused keeps its cells and says why in its status.
#include "stripe.cuh"

struct TableParams {
    Stripe stripe;
    u32 rank;
    u32 kernel_rows;
    u32 width;
    u32 places;
    // 0: `source` holds widened pages of requests; 1: slots of their positions.
    u32 from_slots;
    // 1: cells behind the live ones become empty; 0: they stay.
    u32 clear;
};

static_assert(sizeof(TableParams) == 36, "twin of TableParams");

enum Status : u32 {
    kGood = 0,
    kTooWide = 1,
    kNoSlot = 2,
    kNotPageStart = 3,
    kPageNumber = 4,
};

constexpr i32 kEmptyCell = -1;
constexpr u64 kCellEnd = 1ull << 31;

// The first kernel page of the page of index `index` of a request whose source is [begin, end), or
// why there is none.
__device__ Status first_cell(const TableParams& params, const u64* __restrict__ source, u64 begin,
                             u64 end, u64 index, u64* cell) {
    const u64 split = params.stripe.page_rows / params.kernel_rows;
    const u64 step = params.from_slots ? params.stripe.widened_page() : 1;
    if (index * step >= end - begin) {
        return kNoSlot;
    }
    u64 page = source[begin + index * step];
    if (params.from_slots) {
        if (params.stripe.offset_in_page(page) != 0) {
            return kNotPageStart;
        }
        page = params.stripe.page_number(page);
    }
    if (page >= kCellEnd || page * split + split > kCellEnd) {
        return kPageNumber;
    }
    *cell = page * split;
    return kGood;
}

// source: [starts[places]]; starts: [places + 1], rising; lengths: [places], tokens; cells:
// [places][width]; local_lens, status: [places]; none null.
extern "C" __global__ void __launch_bounds__(128)
    striata_page_tables(const TableParams params, const u64* __restrict__ source,
                        const u64* __restrict__ starts, const i64* __restrict__ lengths,
                        i32* __restrict__ cells, u64* __restrict__ local_lens,
                        u32* __restrict__ status) {
    __shared__ u32 worst;
    const u32 place = blockIdx.x;
    const u64 rows = params.stripe.local_len(params.rank, lengths[place]);
    const u64 live = (rows + params.kernel_rows - 1) / params.kernel_rows;
    const u64 split = params.stripe.page_rows / params.kernel_rows;
    const u64 begin = starts[place], end = starts[place + 1];
    if (threadIdx.x == 0) {
        worst = live > params.width ? kTooWide : kGood;
    }
    __syncthreads();
    if (live <= params.width) {
        u64 cell = 0;
        for (u64 index = threadIdx.x; index * split < live; index += blockDim.x) {
            const u32 found = first_cell(params, source, begin, end, index, &cell);
            if (found != kGood) {
                atomicMax(&worst, found);
            }
        }
    }
    __syncthreads();
    const bool good = worst == kGood;
    if (threadIdx.x == 0) {
        status[place] = worst;
        local_lens[place] = good ? rows : 0;
    }
    if (!good) {
        return;
    }
    i32* row = cells + static_cast<u64>(place) * params.width;
    for (u64 at = threadIdx.x; at < params.width; at += blockDim.x) {
        if (at < live) {
            u64 cell = 0;
            first_cell(params, source, begin, end, at / split, &cell);
            row[at] = static_cast<i32>(cell + at % split);
        } else if (params.clear) {
            row[at] = kEmptyCell;
        }
    }
}
