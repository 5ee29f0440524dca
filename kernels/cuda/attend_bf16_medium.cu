// SPDX-License-Identifier: Apache-2.0
// Attention on the tensor cores over bf16 rows, for blocks of 163 KB.
//
// Grid and arguments: as in attend_bf16.cu.
#include "attend_mma.cuh"

STRIATA_ATTEND(striata_attend_bf16_medium_16, 16, false, 4)
STRIATA_ATTEND(striata_attend_bf16_medium_32, 32, false, 4)
