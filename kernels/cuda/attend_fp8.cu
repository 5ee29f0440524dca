// SPDX-License-Identifier: Apache-2.0
// Attention on the tensor cores over fp8 rows of every format.
//
// Grid: x blocks of query rows, y parts. query: bf16 with strides; plane: [kernel_pages]
// [kernel_rows] of the format; cells: [B][width]; local_lens, global_lens, cuts: [B]; starts:
// [parts + 1]; output: messages; pieces: as the schedule says; none null.
#include "attend_mma.cuh"

STRIATA_ATTEND(striata_attend_fp8_16, 16, true, 5)
STRIATA_ATTEND(striata_attend_fp8_64, 64, true, 3)
