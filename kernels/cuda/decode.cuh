// SPDX-License-Identifier: Apache-2.0
// What kernels of the decode path share: row formats, the attention argument, where outputs go.
// Contracts: kernels/src/decode.
#pragma once
#include "stripe.cuh"

using u16 = unsigned short;

constexpr u32 kLatent = 512;
constexpr u32 kRope = 64;
constexpr u32 kLanes = kLatent + kRope;

enum Format : u32 { kBf16 = 0, kFp8Tensor = 1, kFp8Row = 2, kFp8Tile = 3 };
enum Output : u32 { kOutBf16 = 0, kOutF32 = 1 };

constexpr u32 kBf16RowBytes = 2 * kLanes;
constexpr u32 kRowScaleAt = kLanes;
constexpr u32 kTileScalesAt = kLatent;
constexpr u32 kTileRopeAt = kLatent + 16;

__device__ __forceinline__ u32 row_bytes(u32 format) {
    return format == kBf16 ? 1152 : format == kFp8Tensor ? 576 : format == kFp8Row ? 592 : 656;
}

__device__ __forceinline__ float negative_infinity() { return __uint_as_float(0xFF800000u); }
__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7FFFFFFFu); }

// Two floats as bf16, the first in the low half.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
__device__ __forceinline__ float low_bf16(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_bf16(u32 both) {
    return __uint_as_float(both & 0xFFFF0000u);
}

// The value of an e4m3 byte: twin of decode/e4m3.rs.
__device__ __forceinline__ float e4m3(u32 byte) {
    const u32 magnitude = byte & 0x7Fu;
    const float rebias = __uint_as_float((127u + 120u) << 23);
    const float value = __uint_as_float((byte & 0x80u) << 24 | magnitude << 20) * rebias;
    return magnitude == 0x7Fu ? not_a_number() : value;
}

// The nearest e4m3 byte, ties to even, saturating: twin of decode/e4m3.rs.
__device__ __forceinline__ u32 to_e4m3(float value) {
    const u32 sign = __float_as_uint(value) >> 24 & 0x80u;
    const float magnitude = fabsf(value);
    if (magnitude != magnitude) {
        return sign | 0x7Fu;
    }
    const float bounded = fminf(magnitude, 448.0f);
    if (bounded < 0.015625f) {
        return sign | static_cast<u32>(__float2int_rn(bounded * 512.0f));
    }
    const u32 bits = __float_as_uint(bounded);
    const u32 rounded = bits + 0x7FFFFu + (bits >> 20 & 1u);
    return sign | ((rounded >> 20) - (120u << 3));
}

// Two e4m3 bytes, the first in the low one, as bf16; exact.
__device__ __forceinline__ u32 e4m3_pair_to_bf16(u32 pair) {
#if __CUDA_ARCH__ >= 890
    u32 halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(pair)));
    float low, high;
    asm("{.reg .f16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(halves));
    return pack_bf16(low, high);
#else
    return pack_bf16(e4m3(pair & 0xFFu), e4m3(pair >> 8 & 0xFFu));
#endif
}

// A lane's share of a row: latent lanes 16 * lane .. + 16 and rotary lanes 2 * lane, + 1.
struct RowShare {
    float latent[16];
    float rope[2];
};

__device__ __forceinline__ void unpack_bf16(const uint4& words, float* to) {
    to[0] = low_bf16(words.x), to[1] = high_bf16(words.x);
    to[2] = low_bf16(words.y), to[3] = high_bf16(words.y);
    to[4] = low_bf16(words.z), to[5] = high_bf16(words.z);
    to[6] = low_bf16(words.w), to[7] = high_bf16(words.w);
}

__device__ __forceinline__ void unpack_e4m3(u32 word, float scale, float* to) {
    to[0] = e4m3(word & 0xFFu) * scale;
    to[1] = e4m3(word >> 8 & 0xFFu) * scale;
    to[2] = e4m3(word >> 16 & 0xFFu) * scale;
    to[3] = e4m3(word >> 24) * scale;
}

// Reads a lane's share of a bf16 row of latent and, if not null, rotary lanes; both 16-byte aligned.
__device__ __forceinline__ RowShare load_bf16_share(const u8* latent, const u8* rope) {
    RowShare share;
    const uint4* words = reinterpret_cast<const uint4*>(latent + lane() * 32);
    unpack_bf16(words[0], share.latent);
    unpack_bf16(words[1], share.latent + 8);
    const u32 both = rope == nullptr ? 0 : reinterpret_cast<const u32*>(rope)[lane()];
    share.rope[0] = low_bf16(both);
    share.rope[1] = high_bf16(both);
    return share;
}

// Reads a lane's share of a row of a plane.
__device__ __forceinline__ RowShare load_share(const u8* row, u32 format, float tensor_scale) {
    if (format == kBf16) {
        return load_bf16_share(row, row + 2 * kLatent);
    }
    float scale = tensor_scale;
    if (format == kFp8Row) {
        scale = *reinterpret_cast<const float*>(row + kRowScaleAt);
    } else if (format == kFp8Tile) {
        scale = reinterpret_cast<const float*>(row + kTileScalesAt)[lane() / 8];
    }
    RowShare share;
    const uint4 words = reinterpret_cast<const uint4*>(row)[lane()];
    unpack_e4m3(words.x, scale, share.latent);
    unpack_e4m3(words.y, scale, share.latent + 4);
    unpack_e4m3(words.z, scale, share.latent + 8);
    unpack_e4m3(words.w, scale, share.latent + 12);
    if (format == kFp8Tile) {
        const u32 both = reinterpret_cast<const u32*>(row + kTileRopeAt)[lane()];
        share.rope[0] = low_bf16(both);
        share.rope[1] = high_bf16(both);
    } else {
        const u32 pair = reinterpret_cast<const u16*>(row + kLatent)[lane()];
        share.rope[0] = e4m3(pair & 0xFFu) * scale;
        share.rope[1] = e4m3(pair >> 8) * scale;
    }
    return share;
}

__device__ __forceinline__ uint4 eight_bf16(const float* from) {
    return make_uint4(pack_bf16(from[0], from[1]), pack_bf16(from[2], from[3]),
                      pack_bf16(from[4], from[5]), pack_bf16(from[6], from[7]));
}

// Writes a lane's share of a bf16 row.
__device__ __forceinline__ void store_bf16_share(u8* row, const RowShare& share) {
    uint4* words = reinterpret_cast<uint4*>(row + lane() * 32);
    words[0] = eight_bf16(share.latent);
    words[1] = eight_bf16(share.latent + 8);
    reinterpret_cast<u32*>(row + 2 * kLatent)[lane()] = pack_bf16(share.rope[0], share.rope[1]);
}

constexpr u32 kMaxPartials = 64;

// Twin of MergeTally.
struct MergeTally {
    u32 faults;
    u32 first_inverted;
};

static_assert(sizeof(MergeTally) == 8, "twin of MergeTally");

// Counts the log-sum-exp of a row in the partial of a rank that is not a number.
__device__ __forceinline__ void count_fault(MergeTally* tally, u32 row, u32 rank) {
    atomicAdd(&tally->faults, 1u);
    atomicMax(&tally->first_inverted, ~(row * kMaxPartials + rank));
}

// The same of the only partial that a row has, where nobody merges; `tally`: null elsewhere.
__device__ __forceinline__ void count_lone_fault(MergeTally* tally, u64 row, float lse) {
    if (tally != nullptr && !(lse < -negative_infinity())) {
        count_fault(tally, static_cast<u32>(row), 0);
    }
}

// Twin of AttendParams.
struct AttendParams {
    Stripe stripe;
    u32 rank;
    u32 batch;
    u32 queries;
    u32 heads;
    u32 kernel_rows;
    u32 width;
    u32 kernel_pages;
    u32 message_heads;
    u32 output;
    u32 base_two;
    float scale_log2;
    float row_scale;
    u32 block_rows;
    u64 query_request;
    u64 query_token;
    u64 query_head;
    u64 message_stride;
    u64 lse_offset;

    // Rows of the rank that query `query` of a request sees, and never more than it has.
    __device__ u32 border(i32 global_len, i32 local_len, u32 query) const {
        const u64 visible = stripe.visible_rows(rank, global_len, queries, query);
        const u64 held = local_len < 0 ? 0 : static_cast<u64>(local_len);
        return static_cast<u32>(visible < held ? visible : held);
    }

    // Byte of an output row, and of its log-sum-exp.
    __device__ u64 output_at(u64 token, u32 head) const {
        const u64 row = token * message_heads + head % message_heads;
        return head / message_heads * message_stride + row * (output == kOutBf16 ? 1024 : 2048);
    }
    __device__ u64 lse_at(u64 token, u32 head) const {
        const u64 row = token * message_heads + head % message_heads;
        return head / message_heads * message_stride + lse_offset + row * 4;
    }

    // A log-sum-exp in base 2, in the base that the caller wants.
    __device__ float in_base(float lse_two) const {
        return base_two ? lse_two : lse_two * 0.69314718055994530942f;
    }
};

static_assert(sizeof(AttendParams) == 104, "twin of AttendParams");
