// SPDX-License-Identifier: Apache-2.0
// Pages between planes and mapped host memory in one launch, by loads and stores of 16 bytes: what
// the benchmarks compare the engine with. Contract: kernels/src/page_copy.rs.
//
// planes: the first plane; host: the host pool, registered and mapped; pairs: [pages] of (L1 page,
// L2 page); none null. A list names no target twice. A warp a part of a chunk, layer by layer, so
// that layers end in order; every lane has kEach loads in flight.
#include "common.cuh"

constexpr u32 kEach = 4;
constexpr u32 kPart = kWarp * kEach;

// Twin of PageCopyParams.
struct PageCopy {
    u64 plane;
    u64 host_page;
    u64 host_layer;
    u64 chunk;
    u32 pages;
    u32 layers;
};
static_assert(sizeof(PageCopy) == 40, "PageCopyParams");

template <bool kToHost>
__device__ __forceinline__ void copy_pages(uint4* planes, uint4* host,
                                           const uint2* __restrict__ pairs,
                                           const PageCopy& shape) {
    const u64 parts = (shape.chunk + kPart - 1) / kPart;
    const u64 of_layer = parts * shape.pages;
    const u64 all = of_layer * shape.layers;
    for (u64 at = warp_in_grid(); at < all; at += warps_in_grid()) {
        const u64 layer = at / of_layer;
        const u64 rest = at - layer * of_layer;
        const u64 page = rest / parts;
        const u64 first = (rest - page * parts) * kPart + lane();
        const uint2 pair = pairs[page];
        uint4* on_device = planes + layer * shape.plane + pair.x * shape.chunk;
        uint4* on_host = host + pair.y * shape.host_page + layer * shape.host_layer;
        const uint4* from = kToHost ? on_device : on_host;
        uint4* to = kToHost ? on_host : on_device;
        uint4 held[kEach];
#pragma unroll
        for (u32 each = 0; each < kEach; ++each) {
            const u64 unit = first + each * kWarp;
            if (unit < shape.chunk) {
                held[each] = from[unit];
            }
        }
#pragma unroll
        for (u32 each = 0; each < kEach; ++each) {
            const u64 unit = first + each * kWarp;
            if (unit < shape.chunk) {
                to[unit] = held[each];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(1024) striata_pages_to_device(
    uint4* planes, uint4* host, const uint2* pairs, PageCopy shape) {
    copy_pages<false>(planes, host, pairs, shape);
}

extern "C" __global__ void __launch_bounds__(1024) striata_pages_to_host(
    uint4* planes, uint4* host, const uint2* pairs, PageCopy shape) {
    copy_pages<true>(planes, host, pairs, shape);
}
