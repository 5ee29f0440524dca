// SPDX-License-Identifier: Apache-2.0
// The plan of a step: twin of kernels/src/decode/plan.rs and schedule.rs.
#include "stripe.cuh"

struct PlanParams {
    Stripe stripe;
    u32 rank;
    u32 kernel_rows;
    u32 pages;
    u32 width;
    u32 batch;
    u32 queries;
    u32 source;
    u32 source_width;
    u32 source_rows;
    u32 parts;
};

struct PlanPlace {
    i32 global_len;
    u32 source_row;
    u32 kept_pages;
    u32 new_tokens;
};

struct WorkStart {
    u32 request;
    u32 tile;
};

struct Cut {
    u32 first_part;
    u32 pieces;
    u32 first_piece;
};

static_assert(sizeof(PlanParams) == 52 && sizeof(PlanPlace) == 16, "twins of plan.rs");
static_assert(sizeof(WorkStart) == 8 && sizeof(Cut) == 12, "twins of schedule.rs");

enum Status : u32 {
    kGood = 0,
    kTooWide = 1,
    kNoSlot = 2,
    kNotPageStart = 3,
    kPage = 4,
    kNewTokens = 5,
};

constexpr i32 kEmptyCell = -1;
constexpr i32 kNoRow = -1;
constexpr u32 kSlots = 1;

// The page of index `index` of a request, or why there is none.
__device__ __forceinline__ Status page_of(const PlanParams& params, const PlanPlace& place,
                                          const i32* __restrict__ source, u64 index, u64* page) {
    const u64 at = params.source == kSlots ? index * params.stripe.widened_page() : index;
    if (place.source_row >= params.source_rows || at >= params.source_width) {
        return kNoSlot;
    }
    const i32 entry = source[static_cast<u64>(place.source_row) * params.source_width + at];
    if (entry < 0) {
        return kPage;
    }
    u64 found = static_cast<u64>(entry);
    if (params.source == kSlots) {
        if (params.stripe.offset_in_page(found) != 0) {
            return kNotPageStart;
        }
        found = params.stripe.page_number(found);
    }
    if (found == 0 || found >= params.pages) {
        return kPage;
    }
    *page = found;
    return kGood;
}

// A block a place. places: [B]; source: [source_rows][source_width]; rows: [B][queries]; cells:
// [B][width]; the others: [B]; none null. Places and source may lie in mapped host memory.
extern "C" __global__ void __launch_bounds__(128)
    striata_plan(const PlanParams params, const PlanPlace* __restrict__ places,
                 const i32* __restrict__ source, i32* __restrict__ local_lens,
                 i32* __restrict__ global_lens, i32* __restrict__ rows, u32* __restrict__ statuses,
                 i32* cells) {
    // The first index of a page with a fault, and the fault.
    __shared__ u64 first_fault;
    const u32 index = blockIdx.x;
    const PlanPlace place = places[index];
    const i32 global = place.global_len > 0 ? place.global_len : 0;
    const u64 local = params.stripe.local_len(params.rank, global);
    const u64 live = (local + params.kernel_rows - 1) / params.kernel_rows;
    const u32 split = params.stripe.page_rows / params.kernel_rows;
    const u64 pages = (live + split - 1) / split;
    const u32 most_new = params.queries < static_cast<u32>(global) ? params.queries
                                                                   : static_cast<u32>(global);
    i32* own = cells + static_cast<u64>(index) * params.width;
    u32 status = kGood;
    if (place.new_tokens > most_new) {
        status = kNewTokens;
    } else if (live > params.width) {
        status = kTooWide;
    }
    if (threadIdx.x == 0) {
        first_fault = ~0ull;
    }
    __syncthreads();
    if (status == kGood) {
        for (u64 at = place.kept_pages + static_cast<u64>(threadIdx.x); at < pages;
             at += blockDim.x) {
            u64 page = 0;
            const u32 found = page_of(params, place, source, at, &page);
            if (found != kGood) {
                atomicMin(&first_fault, at << 8 | found);
                continue;
            }
            for (u32 part = 0; part < split && at * split + part < live; part++) {
                own[at * split + part] = static_cast<i32>(page * split + part);
            }
        }
    }
    __syncthreads();
    if (status == kGood && first_fault != ~0ull) {
        status = static_cast<u32>(first_fault & 0xFF);
    }
    const u64 kept = status == kGood ? live : 0;
    for (u64 at = kept + threadIdx.x; at < params.width; at += blockDim.x) {
        own[at] = kEmptyCell;
    }
    // Cells of this block are read below, and those behind the live ones are not.
    __syncthreads();
    for (u32 query = threadIdx.x; query < params.queries; query += blockDim.x) {
        const u32 behind = params.queries - 1 - query;
        i32 row = kNoRow;
        if (status == kGood && behind < place.new_tokens) {
            const u64 position = static_cast<u64>(global) - 1 - behind;
            if (params.stripe.owner(position) == params.rank) {
                const u64 at = params.stripe.row_on_owner(position);
                const u64 cell = static_cast<u64>(own[at / params.kernel_rows]);
                row = static_cast<i32>(cell * params.kernel_rows + at % params.kernel_rows);
            }
        }
        rows[static_cast<u64>(index) * params.queries + query] = row;
    }
    if (threadIdx.x == 0) {
        statuses[index] = status;
        local_lens[index] = status == kGood ? static_cast<i32>(local) : 0;
        global_lens[index] = status == kGood ? global : 0;
    }
}

constexpr u32 kTileRows = 32;
constexpr u32 kOverheadTiles = 3;
constexpr u32 kMaxBatch = 4096;
constexpr u32 kThreads = 256;

__device__ __forceinline__ u64 tiles_of(i32 rows) {
    return rows <= 0 ? 1 : (static_cast<u64>(rows) + kTileRows - 1) / kTileRows;
}
__device__ __forceinline__ u64 fixed_of(i32 rows) { return rows <= 0 ? 0 : kOverheadTiles; }

// The sum of `value` over the threads before this one; `*total` is the sum over all. All threads.
__device__ __forceinline__ u64 sum_before(u64 value, u64* __restrict__ room, u64* total) {
    u64 inclusive = value;
    for (u32 step = 1; step < kWarp; step *= 2) {
        const u64 other = __shfl_up_sync(kFullMask, inclusive, step);
        inclusive += lane() >= step ? other : 0;
    }
    const u32 warp = threadIdx.x / kWarp;
    if (lane() == kWarp - 1) {
        room[warp] = inclusive;
    }
    __syncthreads();
    u64 before = 0, all = 0;
    for (u32 other = 0; other < kThreads / kWarp; other++) {
        before += other < warp ? room[other] : 0;
        all += room[other];
    }
    __syncthreads();
    *total = all;
    return before + inclusive - value;
}

// One block. local_lens: [batch]; starts: [parts + 1]; cuts: [batch]; none null.
extern "C" __global__ void __launch_bounds__(256)
    striata_schedule(const i32* __restrict__ local_lens, WorkStart* __restrict__ starts,
                     Cut* __restrict__ cuts, u32 batch, u32 parts) {
    __shared__ u64 ends[kMaxBatch];
    __shared__ u64 room[kThreads / kWarp];
    const u32 each = (batch + kThreads - 1) / kThreads;
    const u32 begin = threadIdx.x * each < batch ? threadIdx.x * each : batch;
    const u32 end = begin + each < batch ? begin + each : batch;
    u64 cost = 0;
    for (u32 request = begin; request < end; request++) {
        cost += fixed_of(local_lens[request]) + tiles_of(local_lens[request]);
    }
    u64 total;
    const u64 before = sum_before(cost, room, &total);
    const u64 wanted = (total + parts - 1) / parts;
    const u64 share = wanted > 0 ? wanted : 1;
    u64 at = before, pieces = 0;
    for (u32 request = begin; request < end; request++) {
        const i32 rows = local_lens[request];
        const u64 first = at + fixed_of(rows);
        at = first + tiles_of(rows);
        ends[request] = at;
        const u64 count = (at - 1) / share - first / share + 1;
        pieces += count > 1 ? count : 0;
    }
    u64 all_pieces;
    u64 piece = sum_before(pieces, room, &all_pieces);
    at = before;
    for (u32 request = begin; request < end; request++) {
        const i32 rows = local_lens[request];
        const u64 first = at + fixed_of(rows);
        at = first + tiles_of(rows);
        Cut cut;
        cut.first_part = static_cast<u32>(first / share);
        cut.pieces = static_cast<u32>((at - 1) / share) - cut.first_part + 1;
        cut.first_piece = static_cast<u32>(piece);
        cuts[request] = cut;
        piece += cut.pieces > 1 ? cut.pieces : 0;
    }
    __syncthreads();
    for (u32 part = threadIdx.x; part <= parts; part += kThreads) {
        const u64 from = part * share;
        u32 low = 0, high = batch;
        while (low < high) {
            const u32 middle = (low + high) / 2;
            if (ends[middle] <= from) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        WorkStart start = {low, 0};
        if (low < batch) {
            const u64 first = ends[low] - tiles_of(local_lens[low]);
            start.tile = from > first ? static_cast<u32>(from - first) : 0;
        }
        starts[part] = start;
    }
}
