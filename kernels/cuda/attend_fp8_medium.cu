// SPDX-License-Identifier: Apache-2.0
// Attention on the tensor cores over fp8 rows, for blocks of 163 KB.
//
// Grid and arguments: as in attend_fp8.cu.
#include "attend_mma.cuh"

STRIATA_ATTEND(striata_attend_fp8_medium_16, 16, true, 5)
STRIATA_ATTEND(striata_attend_fp8_medium_32, 32, true, 5)
