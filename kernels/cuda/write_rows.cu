// SPDX-License-Identifier: Apache-2.0
// New rows into a plane. Contract and reference: kernels/src/decode/write.rs; the bytes are the
// same.
//
// A warp a token.
#include "decode.cuh"

struct WriteParams {
    Stripe stripe;
    u32 rank;
    u32 tokens;
    u32 format;
    u32 destination;
    float scale;
    u64 rows;
    u64 first_row;
    u64 latent_stride;
    u64 rope_stride;
};

static_assert(sizeof(WriteParams) == 64, "twin of WriteParams");

enum Destination : u32 { kRows = 0, kSlots = 1, kRun = 2 };

constexpr u64 kNowhere = ~0ull;

// The row of a token, none where it is not written here. Rows past the plane are returned as they
// are.
__device__ __forceinline__ u64 row_of(const WriteParams& params, const void* to, u32 token) {
    if (params.destination == kRun) {
        return params.first_row + token;
    }
    u64 row;
    if (params.destination == kRows) {
        const i32 given = static_cast<const i32*>(to)[token];
        if (given < 0) {
            return kNowhere;
        }
        row = static_cast<u64>(given);
    } else {
        const i64 slot = static_cast<const i64*>(to)[token];
        if (slot < 0 || params.stripe.owner(static_cast<u64>(slot)) != params.rank) {
            return kNowhere;
        }
        row = params.stripe.row_on_owner(static_cast<u64>(slot));
    }
    return row < params.stripe.page_rows ? kNowhere : row;
}

// The largest magnitude of a lane's latent lanes.
__device__ __forceinline__ float largest_latent(const RowShare& share) {
    float most = 0;
#pragma unroll
    for (u32 at = 0; at < 16; at++) {
        most = fmaxf(most, fabsf(share.latent[at]));
    }
    return most;
}

__device__ __forceinline__ float scale_of(float largest) {
    return largest > 0 ? largest / 448.0f : 1.0f;
}

__device__ __forceinline__ u32 four_e4m3(const float* from, float scale) {
    return to_e4m3(from[0] / scale) | to_e4m3(from[1] / scale) << 8 |
           to_e4m3(from[2] / scale) << 16 | to_e4m3(from[3] / scale) << 24;
}

__device__ __forceinline__ void store_latent(u8* row, const RowShare& share, float scale) {
    reinterpret_cast<uint4*>(row)[lane()] =
        make_uint4(four_e4m3(share.latent, scale), four_e4m3(share.latent + 4, scale),
                   four_e4m3(share.latent + 8, scale), four_e4m3(share.latent + 12, scale));
}

__device__ __forceinline__ void store_rope(u8* row, const RowShare& share, float scale) {
    const u32 pair = to_e4m3(share.rope[0] / scale) | to_e4m3(share.rope[1] / scale) << 8;
    reinterpret_cast<u16*>(row + kLatent)[lane()] = static_cast<u16>(pair);
}

__device__ __forceinline__ void store_share(u8* row, const RowShare& share, u32 format,
                                            float tensor_scale) {
    if (format == kBf16) {
        store_bf16_share(row, share);
    } else if (format == kFp8Tensor) {
        store_latent(row, share, tensor_scale);
        store_rope(row, share, tensor_scale);
    } else if (format == kFp8Row) {
        float most = largest_latent(share);
        most = fmaxf(most, fmaxf(fabsf(share.rope[0]), fabsf(share.rope[1])));
        for (u32 step = 16; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
        }
        const float scale = scale_of(most);
        store_latent(row, share, scale);
        store_rope(row, share, scale);
        if (lane() == 0) {
            *reinterpret_cast<float4*>(row + kRowScaleAt) = make_float4(scale, 0, 0, 0);
        }
    } else {
        // Eight lanes of the warp hold the 128 lanes of a scale.
        float most = largest_latent(share);
        for (u32 step = 4; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
        }
        const float scale = scale_of(most);
        store_latent(row, share, scale);
        if (lane() % 8 == 0) {
            reinterpret_cast<float*>(row + kTileScalesAt)[lane() / 8] = scale;
        }
        reinterpret_cast<u32*>(row + kTileRopeAt)[lane()] =
            pack_bf16(share.rope[0], share.rope[1]);
    }
}

// plane: [rows] of the format; latent: [tokens][512] bf16; rope: [tokens][64] bf16 or null; to:
// [tokens], null for a run; faults: one word.
extern "C" __global__ void __launch_bounds__(256)
    striata_write_rows(const WriteParams params, u8* __restrict__ plane,
                       const u8* __restrict__ latent, const u8* __restrict__ rope,
                       const void* __restrict__ to, u32* faults) {
    for (u64 token = warp_in_grid(); token < params.tokens; token += warps_in_grid()) {
        const u64 row = row_of(params, to, static_cast<u32>(token));
        if (row == kNowhere) {
            continue;
        }
        if (row >= params.rows) {
            if (lane() == 0) {
                atomicAdd(faults, 1u);
            }
            continue;
        }
        const u8* rope_row = rope == nullptr ? nullptr : rope + token * params.rope_stride;
        const RowShare share = load_bf16_share(latent + token * params.latent_stride, rope_row);
        store_share(plane + row * row_bytes(params.format), share, params.format, params.scale);
    }
}
