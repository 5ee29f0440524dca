// SPDX-License-Identifier: Apache-2.0
// Attention of one rank in plain f32, a warp a row of the output: the oracle on the device.
// Contract and reference: kernels/src/decode/attend.rs.
#include "decode.cuh"

__device__ __forceinline__ float dot(const RowShare& a, const RowShare& b) {
    float sum = a.rope[0] * b.rope[0] + a.rope[1] * b.rope[1];
#pragma unroll
    for (u32 at = 0; at < 16; at++) {
        sum += a.latent[at] * b.latent[at];
    }
    for (u32 step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(kFullMask, sum, step);
    }
    return sum;
}

// query: bf16 with strides; plane: [kernel_pages][kernel_rows] of the format; cells: [B][width];
// local_lens, global_lens: [B]; output: messages; none null. tally: null if a merge counts faults.
extern "C" __global__ void __launch_bounds__(128, 4)
    striata_attend_simt(const __grid_constant__ AttendParams params, u32 format, const u8* __restrict__ query,
                        const u8* __restrict__ plane, const i32* __restrict__ cells,
                        const i32* __restrict__ local_lens, const i32* __restrict__ global_lens,
                        u8* __restrict__ output, MergeTally* tally) {
    const u64 rows = static_cast<u64>(params.batch) * params.queries * params.heads;
    for (u64 index = warp_in_grid(); index < rows; index += warps_in_grid()) {
        const u32 head = static_cast<u32>(index % params.heads);
        const u64 token = index / params.heads;
        const u32 request = static_cast<u32>(token / params.queries);
        const u32 position = static_cast<u32>(token % params.queries);
        const u32 border = params.border(global_lens[request], local_lens[request], position);
        const u8* own = query + request * params.query_request + position * params.query_token +
                        head * params.query_head;
        const RowShare asked = load_bf16_share(own, own + 2 * kLatent);
        const i32* pages = cells + static_cast<u64>(request) * params.width;
        float most = negative_infinity(), sum = 0;
        bool lost = false;
        float values[16];
#pragma unroll
        for (u32 at = 0; at < 16; at++) {
            values[at] = 0;
        }
        for (u32 local = 0; local < border; local++) {
            const u32 cell = local / params.kernel_rows;
            const u32 page = cell < params.width ? static_cast<u32>(pages[cell]) : ~0u;
            if (page >= params.kernel_pages) {
                lost = true;
                break;
            }
            const u64 row = static_cast<u64>(page) * params.kernel_rows + local % params.kernel_rows;
            const RowShare key = load_share(plane + row * row_bytes(format), format,
                                            params.row_scale);
            const float score = dot(asked, key) * params.scale_log2;
            const float before = most;
            most = fmaxf(most, score);
            const float base = most == negative_infinity() ? 0 : most;
            const float keep = exp2f(before - base), weight = exp2f(score - base);
            sum = sum * keep + weight;
#pragma unroll
            for (u32 at = 0; at < 16; at++) {
                values[at] = values[at] * keep + weight * key.latent[at];
            }
        }
        const bool empty = sum == 0;
#pragma unroll
        for (u32 at = 0; at < 16; at++) {
            values[at] = empty ? 0 : values[at] / sum;
        }
        u8* out = output + params.output_at(token, head);
        if (params.output == kOutBf16) {
            uint4* words = reinterpret_cast<uint4*>(out + lane() * 32);
            words[0] = eight_bf16(values);
            words[1] = eight_bf16(values + 8);
        } else {
            float4* words = reinterpret_cast<float4*>(out + lane() * 64);
#pragma unroll
            for (u32 at = 0; at < 4; at++) {
                words[at] = make_float4(values[4 * at], values[4 * at + 1], values[4 * at + 2],
                                        values[4 * at + 3]);
            }
        }
        if (lane() == 0) {
            const float seen = empty ? negative_infinity() : params.in_base(most + log2f(sum));
            const float lse = lost ? not_a_number() : seen;
            *reinterpret_cast<float*>(output + params.lse_at(token, head)) = lse;
            count_lone_fault(tally, index, lse);
        }
    }
}
