// SPDX-License-Identifier: Apache-2.0
// Runs of equal length from mapped host memory to the device, or back, by loads and stores of 16
// bytes: what the benchmarks compare the engine with, a launch a layer. Contract:
// kernels/src/run_copy.rs.
//
// A warp a part of a run; every lane has kEach loads in flight.
#include "common.cuh"

constexpr u32 kEach = 4;
constexpr u32 kPart = kWarp * kEach;
constexpr u32 kRuns = 248;

// Twins of CopyRun and RunBatch.
struct CopyRun {
    u64 to;
    u64 from;
};
struct RunBatch {
    u64 units;
    u32 count;
    u32 pad;
    CopyRun runs[kRuns];
};
static_assert(sizeof(CopyRun) == 16 && sizeof(RunBatch) == 16 + 16 * kRuns, "twins of run_copy.rs");
static_assert(sizeof(RunBatch) + 64 <= 4096, "kernel arguments are limited");

extern "C" __global__ void __launch_bounds__(1024)
    striata_copy_runs(const __grid_constant__ RunBatch batch) {
    const u64 parts = (batch.units + kPart - 1) / kPart;
    const u64 all = parts * batch.count;
    for (u64 at = warp_in_grid(); at < all; at += warps_in_grid()) {
        const u64 run = at / parts;
        const u64 first = (at - run * parts) * kPart + lane();
        const uint4* from = reinterpret_cast<const uint4*>(batch.runs[run].from);
        uint4* to = reinterpret_cast<uint4*>(batch.runs[run].to);
        uint4 held[kEach];
#pragma unroll
        for (u32 each = 0; each < kEach; ++each) {
            const u64 unit = first + each * kWarp;
            if (unit < batch.units) {
                held[each] = from[unit];
            }
        }
#pragma unroll
        for (u32 each = 0; each < kEach; ++each) {
            const u64 unit = first + each * kWarp;
            if (unit < batch.units) {
                to[unit] = held[each];
            }
        }
    }
}
