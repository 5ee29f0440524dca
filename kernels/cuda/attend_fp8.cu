// SPDX-License-Identifier: Apache-2.0
// Attention on the tensor cores over fp8 rows of every format.
//
// Grid: x blocks of query rows, y parts. query: bf16 with strides; plane: [kernel_pages]
// [kernel_rows] of the format; cells: [B][width]; local_lens, global_lens, cuts: [B]; starts:
// [parts + 1]; output: messages; pieces: as the schedule says; none null.
#include "attend_mma.cuh"

#define STRIATA_ATTEND(M)                                                              \
    extern "C" __global__ void __launch_bounds__(256, 1)                               \
        striata_attend_fp8_##M(const __grid_constant__ AttendParams params,             \
                                const __grid_constant__ Work work) {                 \
        attend<M, true>(params, work);                                                \
    }

STRIATA_ATTEND(16)
STRIATA_ATTEND(64)
