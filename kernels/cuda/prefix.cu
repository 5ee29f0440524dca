// SPDX-License-Identifier: Apache-2.0
// One rank's rows of a prefix as bf16. Contract and reference: kernels/src/decode/prefix.rs.
//
// A warp a row.
#include "decode.cuh"

struct PrefixParams {
    Stripe stripe;
    u32 rank;
    u32 format;
    float scale;
    u32 kernel_rows;
    u32 kernel_pages;
    u32 width;
    u32 packed;
    u64 start;
    u64 tokens;
};

static_assert(sizeof(PrefixParams) == 56, "twin of PrefixParams");

// plane: [kernel_pages][kernel_rows] of the format; cells: [width]; out: [rows][576] bf16; none
// null.
extern "C" __global__ void __launch_bounds__(256)
    striata_gather_prefix(const PrefixParams params, const u8* __restrict__ plane,
                          const i32* __restrict__ cells, u8* __restrict__ out) {
    const Stripe& stripe = params.stripe;
    const u64 first = stripe.local_len(params.rank, static_cast<i64>(params.start));
    const u64 end = stripe.local_len(params.rank, static_cast<i64>(params.start + params.tokens));
    for (u64 index = warp_in_grid(); index < end - first; index += warps_in_grid()) {
        const u64 local = first + index;
        const u64 cell = local / params.kernel_rows;
        const u32 page = cell < params.width ? static_cast<u32>(cells[cell]) : ~0u;
        RowShare share;
        if (page < params.kernel_pages) {
            const u64 row = static_cast<u64>(page) * params.kernel_rows + local % params.kernel_rows;
            share = load_share(plane + row * row_bytes(params.format), params.format, params.scale);
        } else {
#pragma unroll
            for (u32 at = 0; at < 16; at++) {
                share.latent[at] = not_a_number();
            }
            share.rope[0] = share.rope[1] = not_a_number();
        }
        const u64 to = params.packed ? index : stripe.slot_of(params.rank, local) - params.start;
        store_bf16_share(out + to * kBf16RowBytes, share);
    }
}
