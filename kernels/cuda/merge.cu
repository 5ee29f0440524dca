// SPDX-License-Identifier: Apache-2.0
// The merge of packed partials, and packing. Contracts and references:
// kernels/src/decode/message.rs, kernels/src/reference/merge.rs, kernels/src/packed.rs.
//
// A warp a row.
#include "decode.cuh"

struct MergeParams {
    const u8* messages[kMaxPartials];
    u32 ranks;
    u32 rows;
    u32 input;
    u32 output;
    u32 base_two;
    u32 plus_is_empty;
};

static_assert(sizeof(MergeParams) == 536, "twin of MergeParams");

__device__ __forceinline__ float power(bool base_two, float x) {
    return base_two ? exp2f(x) : expf(x);
}

// Eight lanes of a row from lane `at` on, a multiple of 8.
__device__ __forceinline__ void load_eight(const u8* rows, u64 row, u32 kind, u32 at, float* to) {
    if (kind == kOutBf16) {
        unpack_bf16(*reinterpret_cast<const uint4*>(rows + row * 1024 + at * 2), to);
        return;
    }
    const float4* words = reinterpret_cast<const float4*>(rows + row * 2048 + at * 4);
    const float4 a = words[0], b = words[1];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

__device__ __forceinline__ void store_eight(u8* rows, u64 row, u32 kind, u32 at,
                                            const float* from) {
    if (kind == kOutBf16) {
        *reinterpret_cast<uint4*>(rows + row * 1024 + at * 2) = eight_bf16(from);
        return;
    }
    float4* words = reinterpret_cast<float4*>(rows + row * 2048 + at * 4);
    words[0] = make_float4(from[0], from[1], from[2], from[3]);
    words[1] = make_float4(from[4], from[5], from[6], from[7]);
}

// The log-sum-exp of one partial of a row; minus infinity where it has none, also after a fault.
__device__ __forceinline__ float lse_of(const MergeParams& params, u32 rank, u32 row, u64 bytes,
                                        MergeTally* tally) {
    if (rank >= params.ranks) {
        return negative_infinity();
    }
    const u8* lses = params.messages[rank] + params.rows * bytes;
    const float value = reinterpret_cast<const float*>(lses)[row];
    const bool plus = value == -negative_infinity();
    if (plus && params.plus_is_empty) {
        return negative_infinity();
    }
    if (plus || value != value) {
        count_fault(tally, row, rank);
        return negative_infinity();
    }
    return value;
}

// messages: [ranks], planar; merged: [rows] of the output kind, then [rows] f32; none null.
extern "C" __global__ void __launch_bounds__(256)
    striata_merge(const __grid_constant__ MergeParams params, u8* __restrict__ merged,
                  MergeTally* tally) {
    const u64 in_bytes = params.input == kOutBf16 ? 1024 : 2048;
    const u64 out_bytes = params.output == kOutBf16 ? 1024 : 2048;
    float* lses = reinterpret_cast<float*>(merged + params.rows * out_bytes);
    for (u64 at = warp_in_grid(); at < params.rows; at += warps_in_grid()) {
        const u32 row = static_cast<u32>(at);
        // A lane keeps two ranks, for up to 64.
        const float first = lse_of(params, lane(), row, in_bytes, tally);
        const float second = lse_of(params, lane() + kWarp, row, in_bytes, tally);
        float most = fmaxf(first, second);
        for (u32 step = 16; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
        }
        const bool none = most == negative_infinity();
        const bool two = params.base_two;
        const float first_weight = none ? 0 : power(two, first - most);
        const float second_weight = none ? 0 : power(two, second - most);
        const u32 weighty = __popc(__ballot_sync(kFullMask, first_weight > 0)) +
                            __popc(__ballot_sync(kFullMask, second_weight > 0));
        float sums[16];
#pragma unroll
        for (u32 index = 0; index < 16; index++) {
            sums[index] = 0;
        }
        float total = 0;
        for (u32 rank = 0; rank < params.ranks; rank++) {
            const float share = rank < kWarp ? first_weight : second_weight;
            const float weight = __shfl_sync(kFullMask, share, rank % kWarp);
            if (!(weight > 0)) {
                continue;
            }
            total += weight;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float values[8];
                const u32 from = (half * kWarp + lane()) * 8;
                load_eight(params.messages[rank], row, params.input, from, values);
#pragma unroll
                for (u32 index = 0; index < 8; index++) {
                    float& sum = sums[half * 8 + index];
                    // A lone partial keeps its bits: a sum would turn -0.0 into 0.0.
                    sum = weighty == 1 ? values[index] : sum + weight * values[index];
                }
            }
        }
        if (weighty > 1) {
#pragma unroll
            for (u32 index = 0; index < 16; index++) {
                sums[index] = sums[index] / total;
            }
        }
        store_eight(merged, row, params.output, lane() * 8, sums);
        store_eight(merged, row, params.output, (kWarp + lane()) * 8, sums + 8);
        if (lane() == 0) {
            const float log = two ? log2f(total) : logf(total);
            lses[row] = none || weighty == 1 ? most : most + log;
        }
    }
}

struct PackParams {
    u32 tokens;
    u32 heads;
    u32 message_heads;
    u32 kind;
    u32 unpack;
    u32 unused;
    u64 message_stride;
};

static_assert(sizeof(PackParams) == 32, "twin of PackParams");

// o: [tokens][heads][512] of the kind; lse: [tokens][heads]; messages: planar, one a destination;
// none null. Packs, or unpacks.
extern "C" __global__ void __launch_bounds__(256)
    striata_pack(const PackParams params, u8* __restrict__ o, float* __restrict__ lse,
                 u8* __restrict__ messages) {
    const u64 bytes = params.kind == kOutBf16 ? 1024 : 2048;
    const u64 message_rows = static_cast<u64>(params.tokens) * params.message_heads;
    const u64 rows = static_cast<u64>(params.tokens) * params.heads;
    for (u64 row = warp_in_grid(); row < rows; row += warps_in_grid()) {
        const u32 head = static_cast<u32>(row % params.heads);
        u8* message = messages + head / params.message_heads * params.message_stride;
        const u64 at = row / params.heads * params.message_heads + head % params.message_heads;
        uint4* plain = reinterpret_cast<uint4*>(o + row * bytes);
        uint4* packed = reinterpret_cast<uint4*>(message + at * bytes);
        for (u32 unit = lane(); unit < bytes / 16; unit += kWarp) {
            if (params.unpack) {
                plain[unit] = packed[unit];
            } else {
                packed[unit] = plain[unit];
            }
        }
        if (lane() == 0) {
            // As bits: a move of a float could change a NaN.
            u32* plain_lse = reinterpret_cast<u32*>(lse) + row;
            u32* packed_lse = reinterpret_cast<u32*>(message + message_rows * bytes) + at;
            if (params.unpack) {
                *plain_lse = *packed_lse;
            } else {
                *packed_lse = *plain_lse;
            }
        }
    }
}
