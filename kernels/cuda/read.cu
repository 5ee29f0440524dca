// SPDX-License-Identifier: Apache-2.0
// Reads memory, all of it once, and keeps one word: compute that is bound by the bandwidth of device
// memory, for benchmarks. Contract: kernels/src/page_copy.rs.
//
// from: [units] of 16 bytes; sink: one word, which is changed so that no read can be left out.
#include "common.cuh"

constexpr u32 kEach = 4;

extern "C" __global__ void __launch_bounds__(256) striata_read(const uint4* __restrict__ from,
                                                               u64 units, u32* sink) {
    const u64 step = threads_in_grid();
    u32 mixed = 0;
    u64 unit = thread_in_grid();
    for (; unit + (kEach - 1) * step < units; unit += kEach * step) {
        uint4 held[kEach];
#pragma unroll
        for (u32 each = 0; each < kEach; ++each) {
            held[each] = from[unit + each * step];
        }
#pragma unroll
        for (u32 each = 0; each < kEach; ++each) {
            mixed ^= held[each].x ^ held[each].y ^ held[each].z ^ held[each].w;
        }
    }
    for (; unit < units; unit += step) {
        const uint4 one = from[unit];
        mixed ^= one.x ^ one.y ^ one.z ^ one.w;
    }
#pragma unroll
    for (u32 offset = kWarp / 2; offset > 0; offset /= 2) {
        mixed ^= __shfl_xor_sync(kFullMask, mixed, offset);
    }
    if (lane() == 0) {
        atomicXor(sink, mixed);
    }
}
