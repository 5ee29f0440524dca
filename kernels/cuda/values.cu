// SPDX-License-Identifier: Apache-2.0
// Rows whose bf16 lanes follow from a seed a row: twin of kernels/src/values.rs, bit for bit.
//
// A warp a row. Grid: x strides over the rows.
#include "common.cuh"

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

// bf16 bits of 0.25 in both halves, and the bits of a half that are random: sign, lowest bit of the
// exponent, mantissa.
constexpr u32 kQuarters = 0x3E803E80u;
constexpr u32 kRandom = 0x80FF80FFu;

// dense: [rows][row_words]; seeds: [rows]; neither null, and they do not overlap.
extern "C" __global__ void __launch_bounds__(256)
    striata_fill_values(u32* __restrict__ dense, const u64* __restrict__ seeds, const u64 rows,
                        const u32 row_words, const u32 layer) {
    for (u64 row = warp_in_grid(); row < rows; row += warps_in_grid()) {
        const u64 hash = mix64(seeds[row] ^ static_cast<u64>(layer) * 0x9E3779B97F4A7C15ull);
        const u32 low = static_cast<u32>(hash);
        const u32 high = static_cast<u32>(hash >> 32);
        u32* to = dense + row * row_words;
        for (u32 word = lane(); word < row_words; word += kWarp) {
            const u32 random = mix32(low + word * 0x9E3779B1u) ^ high;
            to[word] = (random & kRandom) + kQuarters;
        }
    }
}
