// SPDX-License-Identifier: Apache-2.0
// The second argument of the tensor-core kernels and of the combination of their pieces.
#pragma once
#include "decode.cuh"
#include "tensor.cuh"

struct WorkStart {
    u32 request;
    u32 tile;
};

struct Cut {
    u32 first_part;
    u32 pieces;
    u32 first_piece;
};

// What a launch works on.
struct Work {
    const u8* query;
    const u8* plane;
    const i32* cells;
    const i32* local_lens;
    const i32* global_lens;
    const WorkStart* starts;
    const Cut* cuts;
    u8* output;
    // Pieces: [piece][block][M][512] f32, then [piece][block][M] log-sum-exps in base 2.
    float* pieces;
    float* piece_lses;
    // Where log-sum-exps that are no numbers are counted; null if a merge counts them.
    MergeTally* tally;
    u32 format;
    u32 unused;
};

static_assert(sizeof(Work) == 96, "twin of WorkWords");
