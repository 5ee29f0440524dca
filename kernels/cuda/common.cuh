// SPDX-License-Identifier: Apache-2.0
// Types and index helpers of every kernel. Nothing here needs a CUDA header: NVRTC knows the rest.
#pragma once

using u8 = unsigned char;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8, "the widths of the contracts");

constexpr u32 kWarp = 32;
constexpr u32 kFullMask = 0xFFFFFFFFu;

__device__ __forceinline__ u32 lane() { return threadIdx.x % kWarp; }

// Index of this warp in the x dimension of the grid, and how many there are.
__device__ __forceinline__ u64 warp_in_grid() {
    return (static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
}
__device__ __forceinline__ u64 warps_in_grid() {
    return static_cast<u64>(gridDim.x) * blockDim.x / kWarp;
}
__device__ __forceinline__ u64 thread_in_grid() {
    return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ u64 threads_in_grid() {
    return static_cast<u64>(gridDim.x) * blockDim.x;
}
