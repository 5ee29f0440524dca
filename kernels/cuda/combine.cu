// SPDX-License-Identifier: Apache-2.0
// The pieces of requests that were cut, merged into their outputs. Contract and reference:
// kernels/src/decode/schedule.rs, kernels/src/reference/merge.rs.
#include "attend_work.cuh"

// Merges the pieces of requests that were cut, a warp a row of the output; `blocks` blocks of query
// rows. Everything in base 2 until the end.
extern "C" __global__ void __launch_bounds__(256)
    striata_combine(const __grid_constant__ AttendParams params, const __grid_constant__ Work work,
                    u32 blocks) {
    const u32 heads = params.queries * params.heads;
    const u64 all = static_cast<u64>(params.batch) * heads;
    for (u64 index = warp_in_grid(); index < all; index += warps_in_grid()) {
        const u32 request = static_cast<u32>(index / heads);
        const u32 row = static_cast<u32>(index % heads);
        const Cut cut = work.cuts[request];
        if (cut.pieces <= 1) {
            continue;
        }
        const u64 padded = static_cast<u64>(blocks) * params.block_rows;
        const u64 first = cut.first_piece * padded + row;
        float most = negative_infinity();
        for (u32 piece = lane(); piece < cut.pieces; piece += kWarp) {
            most = fmaxf(most, work.piece_lses[first + piece * padded]);
        }
        for (u32 step = 16; step > 0; step /= 2) {
            most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
        }
        const float reference = most == negative_infinity() ? 0 : most;
        float sums[16];
#pragma unroll
        for (u32 at = 0; at < 16; at++) {
            sums[at] = 0;
        }
        float total = 0;
        for (u32 piece = 0; piece < cut.pieces; piece++) {
            const u64 from = first + piece * padded;
            const float weight = power_of_two(work.piece_lses[from] - reference);
            // Not `> 0`: a NaN goes on to the log-sum-exp.
            if (weight == 0) {
                continue;
            }
            total += weight;
            const float4* values = reinterpret_cast<const float4*>(work.pieces + from * kLatent);
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                const float4 a = values[(half * kWarp + lane()) * 2];
                const float4 b = values[(half * kWarp + lane()) * 2 + 1];
                float* to = sums + half * 8;
                to[0] += weight * a.x, to[1] += weight * a.y;
                to[2] += weight * a.z, to[3] += weight * a.w;
                to[4] += weight * b.x, to[5] += weight * b.y;
                to[6] += weight * b.z, to[7] += weight * b.w;
            }
        }
        const bool empty = total == 0;
        const float inverse = empty ? 0 : 1 / total;
#pragma unroll
        for (u32 at = 0; at < 16; at++) {
            sums[at] *= inverse;
        }
        const u64 token = static_cast<u64>(request) * params.queries + row / params.heads;
        const u32 head = row % params.heads;
        u8* out = work.output + params.output_at(token, head);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const float* own = sums + half * 8;
            const u32 unit = half * kWarp + lane();
            if (params.output == kOutBf16) {
                reinterpret_cast<uint4*>(out)[unit] = eight_bf16(own);
            } else {
                float4* words = reinterpret_cast<float4*>(out) + unit * 2;
                words[0] = make_float4(own[0], own[1], own[2], own[3]);
                words[1] = make_float4(own[4], own[5], own[6], own[7]);
            }
        }
        if (lane() == 0) {
            const float lse = empty ? negative_infinity() : params.in_base(most + log2f(total));
            *reinterpret_cast<float*>(work.output + params.lse_at(token, head)) = lse;
            count_lone_fault(work.tally, index, lse);
        }
    }
}
