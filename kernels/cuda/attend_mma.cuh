// SPDX-License-Identifier: Apache-2.0
// Attention of one rank on the tensor cores. Contracts and references:
// kernels/src/decode/attend.rs and schedule.rs.
//
// A block has M query rows of a request (queries x heads, heads innermost) and walks the tiles of
// its part, 32 rows of the plane each, which several cp.async stages bring into shared memory. Per
// tile:
//   1. scores: each warp a piece of M x 32 and a quarter of the lanes (128 latent and 16 rotary); the
//      four partial sums go to shared memory;
//   2. softmax: all threads, a few scores each; weights as bf16 to shared memory, and how much the
//      row's maximum moved;
//   3. values: each warp 64 of the 512 output lanes for all M rows, f32 in registers.
// A row of the plane is key and value, so it is read once. Tiles of shared memory have rows of
// 1152 bytes, whose units of 16 bytes are permuted by row % 8, so that no ldmatrix meets a conflict.
//
// Queries of 64 rows stand in shared memory; those of 16 and 32 in registers, where every warp has
// the lanes that it multiplies. `Stages` is what a device has room for: 3 (M = 64) and 5 (16) in
// 227 KB, 4 and for fp8 5 in 163 KB, 2 in 99 KB.
//
// fp8: e4m3 is exact in bf16, so tiles are widened without their scales; those of a row or of 128
// lanes multiply scores and weights in f32, the tensor's one multiplies scores and outputs.
#pragma once
#include "attend_tiles.cuh"

// The query rows of a block, and what they have gathered.
template <u32 M, bool Fp8, u32 Stages>
struct Block {
    using R = Room<M, Fp8, Stages>;
    // Score tiles of a warp. Its piece is half of the query rows, or of 16 rows half of the keys.
    static constexpr u32 kScoreRows = M == 64 ? 2 : 1;
    static constexpr u32 kScoreColumns = M == 16 ? 2 : 4;
    static constexpr u32 kPieceRows = M == 16 ? 0 : M / 2;
    static constexpr u32 kRowTiles = M / 16;
    // Threads of a row in the softmax, and scores of a thread.
    static constexpr u32 kRowThreads = kThreads / M;
    static constexpr u32 kOwn = kTileRows / kRowThreads;

    const AttendParams& params;
    const Work& work;
    u8* room;
    u32 base;
    // The warp's share of the queries, unless they stand in shared memory.
    FragmentA query[R::kHeld ? 1 : kOwnSteps];
    float values[kRowTiles][8][4];
    // Of this thread's row in the softmax.
    u32 border;
    float most;
    float sum;

    __device__ Block(const AttendParams& params, const Work& work, u8* room)
        : params(params), work(work), room(room), base(shared_address(room)) {}

    __device__ u32 first_row() const { return blockIdx.x * M; }
    __device__ u32 rows() const { return params.queries * params.heads; }
    __device__ u32 warp() const { return threadIdx.x / kWarp; }
    // Share of the lanes of a score, and piece of the M x 32, of this warp.
    __device__ u32 split() const { return warp() % kSplit; }
    __device__ u32 piece() const { return warp() / kSplit; }

    __device__ const u8* query_row(u32 request, u32 row) const {
        return work.query + request * params.query_request +
               row / params.heads * params.query_token + row % params.heads * params.query_head;
    }

    __device__ void load_query(u32 request) {
        if constexpr (!R::kHeld) {
            const u32 pair = lane() % 4;
            const u32 row = first_row() + piece() * kPieceRows + lane() / 4;
            const u8* low = query_row(request, row);
            const u8* high = query_row(request, row + 8);
            const bool low_there = row < rows(), high_there = row + 8 < rows();
#pragma unroll
            for (u32 step = 0; step < kOwnSteps; step++) {
                const u32 index = step < kLatentSteps ? split() * kLatentSteps + step
                                                      : kLatent / 16 + split();
                const u32 at = index * 32 + pair * 4;
                u32* words = query[step].words;
                words[0] = low_there ? *reinterpret_cast<const u32*>(low + at) : 0;
                words[1] = high_there ? *reinterpret_cast<const u32*>(high + at) : 0;
                words[2] = low_there ? *reinterpret_cast<const u32*>(low + at + 16) : 0;
                words[3] = high_there ? *reinterpret_cast<const u32*>(high + at + 16) : 0;
            }
        } else {
            // Eight threads a row.
            const u32 unit = threadIdx.x % 8;
#pragma unroll
            for (u32 part = 0; part < M / 32; part++) {
                const u32 row = part * 32 + threadIdx.x / 8;
                const bool there = first_row() + row < rows();
                const u8* from = query_row(request, first_row() + row) + unit * kUnit;
                u8* to = room + R::kQuery + row * kBf16RowBytes + ((unit ^ (row & 7)) * kUnit);
#pragma unroll
                for (u32 group = 0; group < 9; group++) {
                    const uint4 zero = make_uint4(0, 0, 0, 0);
                    *reinterpret_cast<uint4*>(to + group * 128) =
                        there ? *reinterpret_cast<const uint4*>(from + group * 128) : zero;
                }
            }
        }
    }

    __device__ void begin(u32 request) {
        load_query(request);
        const u32 row = first_row() + threadIdx.x / kRowThreads;
        border = 0;
        if (row < rows()) {
            border = params.border(work.global_lens[request], work.local_lens[request],
                                   row / params.heads);
        }
        most = negative_infinity();
        sum = 0;
#pragma unroll
        for (u32 i = 0; i < kRowTiles; i++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    values[i][j][k] = 0;
                }
            }
        }
    }

    // The scale of row `row` of a raw tile, of its lanes 128 * group .. + 128; 1 where it has none.
    __device__ float scale_of(const u8* raw, u32 row, u32 group) const {
        const u8* from = raw + row * row_bytes(work.format);
        if (work.format == kFp8Tile) {
            return reinterpret_cast<const float*>(from + kTileScalesAt)[group];
        }
        return work.format == kFp8Row ? *reinterpret_cast<const float*>(from + kRowScaleAt) : 1;
    }

    // Scores of this warp's piece over its lanes, to shared memory. `tile`: where the tile stands;
    // `raw`: the fp8 tile that it was made of.
    __device__ void score(u32 tile, const u8* raw) {
        float scores[kScoreRows][kScoreColumns][4];
#pragma unroll
        for (u32 i = 0; i < kScoreRows; i++) {
#pragma unroll
            for (u32 j = 0; j < kScoreColumns; j++) {
#pragma unroll
                for (u32 k = 0; k < 4; k++) {
                    scores[i][j][k] = 0;
                }
            }
        }
        const u32 turn = lane() & 7;
        // Rows of keys: 8 of a matrix, the second 8 in lanes 16-31; lanes + 8 in lanes 8-15, 24-31.
        const u32 first_key = M == 16 ? piece() * 16 : 0;
        const u32 key_row = first_key + (lane() & 7) + (lane() >> 4) * 8;
        const u32 keys = tile + key_row * kBf16RowBytes;
        const u32 key_second = lane() >> 3 & 1;
        // Rows of queries: 16 in lanes 0-15; lanes + 8 in lanes 16-31.
        const u32 asked = base + R::kQuery + (piece() * kPieceRows + (lane() & 15)) * kBf16RowBytes;
#pragma unroll
        for (u32 step = 0; step < kOwnSteps; step++) {
            if (Fp8 && step == kLatentSteps && work.format == kFp8Tile) {
                // What was summed so far has the scale of this quarter; rotary lanes have none.
#pragma unroll
                for (u32 j = 0; j < kScoreColumns; j++) {
                    const u32 key = first_key + j * 8 + lane() % 4 * 2;
                    const float even = scale_of(raw, key, split());
                    const float odd = scale_of(raw, key + 1, split());
#pragma unroll
                    for (u32 i = 0; i < kScoreRows; i++) {
                        scores[i][j][0] *= even, scores[i][j][1] *= odd;
                        scores[i][j][2] *= even, scores[i][j][3] *= odd;
                    }
                }
            }
            FragmentA a[kScoreRows];
#pragma unroll
            for (u32 i = 0; i < kScoreRows; i++) {
                if constexpr (!R::kHeld) {
                    a[i] = query[step];
                } else {
                    load_matrices(a[i].words, asked + i * 16 * kBf16RowBytes +
                                                  step_at(split(), step, lane() >> 4, turn));
                }
            }
#pragma unroll
            for (u32 j = 0; j < kScoreColumns; j += 2) {
                u32 b[4];
                load_matrices(b, keys + j * 8 * kBf16RowBytes +
                                     step_at(split(), step, key_second, turn));
#pragma unroll
                for (u32 i = 0; i < kScoreRows; i++) {
                    mma(scores[i][j], a[i], b[0], b[1]);
                    mma(scores[i][j + 1], a[i], b[2], b[3]);
                }
            }
        }
        float* to = reinterpret_cast<float*>(room + R::kScores) + split() * M * kTileRows;
        const u32 group = lane() / 4, pair = lane() % 4;
#pragma unroll
        for (u32 i = 0; i < kScoreRows; i++) {
            const u32 row = piece() * kPieceRows + i * 16 + group;
#pragma unroll
            for (u32 j = 0; j < kScoreColumns; j++) {
                const u32 at = score_at(row, first_key + j * 8 + pair * 2);
                *reinterpret_cast<float2*>(to + row * kTileRows + at) =
                    make_float2(scores[i][j][0], scores[i][j][1]);
                *reinterpret_cast<float2*>(to + (row + 8) * kTileRows + at) =
                    make_float2(scores[i][j][2], scores[i][j][3]);
            }
        }
    }

    // The column of this thread's score `index`.
    __device__ static u32 column(u32 index) {
        const u32 thread = threadIdx.x % kRowThreads;
        return M == 16 ? thread * 2 + index
                       : index / 4 * (kRowThreads * 4) + thread * 4 + index % 4;
    }

    // Writes this thread's weights as bf16, into set `set`.
    __device__ void put_weights(const float (&weights)[kOwn], u32 set) {
        u8* to = room + R::kWeights + set * R::kWeightBytes;
        const u32 row = threadIdx.x / kRowThreads, thread = threadIdx.x % kRowThreads;
        if constexpr (M == 16) {
            const u32 at = weight_unit(row, thread / 4, R::kTight) + thread % 4 * 4;
            *reinterpret_cast<u32*>(to + at) = pack_bf16(weights[0], weights[1]);
        } else {
#pragma unroll
            for (u32 part = 0; part < kOwn / 4; part++) {
                const float* own = weights + part * 4;
                const u32 unit = part * (kRowThreads / 2) + thread / 2;
                const u32 at = weight_unit(row, unit, R::kTight) + thread % 2 * 8;
                *reinterpret_cast<uint2*>(to + at) =
                    make_uint2(pack_bf16(own[0], own[1]), pack_bf16(own[2], own[3]));
            }
        }
    }

    // Weights of a tile whose first row is row `first` of the request.
    __device__ void weigh(u32 first, const u8* raw) {
        const u32 row = threadIdx.x / kRowThreads;
        const float* from = reinterpret_cast<const float*>(room + R::kScores) + row * kTileRows;
        float scores[kOwn];
#pragma unroll
        for (u32 index = 0; index < kOwn; index++) {
            scores[index] = 0;
        }
#pragma unroll
        for (u32 split = 0; split < kSplit; split++) {
            const float* part = from + split * M * kTileRows;
            if constexpr (M == 16) {
                const float2 two = *reinterpret_cast<const float2*>(part + score_at(row, column(0)));
                scores[0] += two.x, scores[1] += two.y;
            } else {
#pragma unroll
                for (u32 own = 0; own < kOwn; own += 4) {
                    const float4 four =
                        *reinterpret_cast<const float4*>(part + score_at(row, column(own)));
                    scores[own] += four.x, scores[own + 1] += four.y;
                    scores[own + 2] += four.z, scores[own + 3] += four.w;
                }
            }
        }
        float factor = params.scale_log2;
        if (Fp8 && work.format == kFp8Tensor) {
            factor *= params.row_scale;
        }
        float largest = most;
#pragma unroll
        for (u32 index = 0; index < kOwn; index++) {
            if (Fp8 && work.format == kFp8Row) {
                scores[index] *= scale_of(raw, column(index), 0);
            }
            const bool seen = first + column(index) < border;
            scores[index] = seen ? scores[index] * factor : negative_infinity();
            largest = fmaxf(largest, scores[index]);
        }
#pragma unroll
        for (u32 step = kRowThreads / 2; step > 0; step /= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, step));
        }
        const float reference = largest == negative_infinity() ? 0 : largest;
        const float keep = power_of_two(most - reference);
        most = largest;
        float added = 0;
#pragma unroll
        for (u32 index = 0; index < kOwn; index++) {
            scores[index] = power_of_two(scores[index] - reference);
            added += scores[index];
        }
#pragma unroll
        for (u32 step = kRowThreads / 2; step > 0; step /= 2) {
            added += __shfl_xor_sync(kFullMask, added, step);
        }
        sum = sum * keep + added;
        if constexpr (R::kTight) {
            // The threads of a row are of one warp, and all have read its scores.
            __syncwarp();
        }
        if constexpr (Fp8) {
            const u32 sets = work.format == kFp8Tile ? 4 : 1;
            for (u32 set = 0; set < sets; set++) {
                float scaled[kOwn];
#pragma unroll
                for (u32 index = 0; index < kOwn; index++) {
                    // A row that is not seen may hold anything, its scale too.
                    const float scale = scale_of(raw, column(index), set);
                    scaled[index] = scores[index] > 0 ? scores[index] * scale : scores[index];
                }
                put_weights(scaled, set);
            }
        } else {
            put_weights(scores, 0);
        }
        if (threadIdx.x % kRowThreads == 0) {
            reinterpret_cast<float*>(room + R::kKeep)[row] = keep;
        }
    }

    // Adds the weighted values of a tile to this warp's 64 output lanes.
    __device__ void gather(u32 tile) {
        const float* kept = reinterpret_cast<const float*>(room + R::kKeep);
        const u32 group = lane() / 4;
        float keep[kRowTiles][2];
        bool moved = false;
#pragma unroll
        for (u32 i = 0; i < kRowTiles; i++) {
            keep[i][0] = kept[i * 16 + group];
            keep[i][1] = kept[i * 16 + group + 8];
            moved |= keep[i][0] != 1 || keep[i][1] != 1;
        }
        if (__any_sync(kFullMask, moved)) {
#pragma unroll
            for (u32 i = 0; i < kRowTiles; i++) {
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    values[i][j][0] *= keep[i][0];
                    values[i][j][1] *= keep[i][0];
                    values[i][j][2] *= keep[i][1];
                    values[i][j][3] *= keep[i][1];
                }
            }
        }
        u32 weights = base + R::kWeights;
        if (Fp8 && work.format == kFp8Tile) {
            weights += warp() / 2 * R::kWeightBytes;
        }
        const u32 turn = lane() & 7;
        // Rows of values: 16 in lanes 0-15; output lanes + 8 in lanes 16-31.
        const u32 from = tile + (lane() & 15) * kBf16RowBytes + warp() * 128;
#pragma unroll
        for (u32 step = 0; step < kTileRows / 16; step++) {
            FragmentA a[kRowTiles];
#pragma unroll
            for (u32 i = 0; i < kRowTiles; i++) {
                const u32 row = i * 16 + (lane() & 15);
                load_matrices(a[i].words,
                              weights + weight_unit(row, step * 2 + (lane() >> 4), R::kTight));
            }
#pragma unroll
            for (u32 j = 0; j < 8; j += 2) {
                u32 b[4];
                const u32 unit = (j + (lane() >> 4)) ^ turn;
                load_matrices_transposed(b, from + step * 16 * kBf16RowBytes + unit * kUnit);
#pragma unroll
                for (u32 i = 0; i < kRowTiles; i++) {
                    mma(values[i][j], a[i], b[0], b[1]);
                    mma(values[i][j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    // Log-sum-exp and inverse sum of every row; then a barrier.
    __device__ float close() {
        const bool empty = sum == 0;
        const float scale = Fp8 && work.format == kFp8Tensor ? params.row_scale : 1;
        // A request before may still be read.
        __syncthreads();
        if (threadIdx.x % kRowThreads == 0) {
            reinterpret_cast<float*>(room + R::kInverse)[threadIdx.x / kRowThreads] =
                empty ? 0 : scale / sum;
        }
        __syncthreads();
        const bool lost = *reinterpret_cast<const u32*>(room + R::kLost) != 0;
        return lost ? not_a_number() : empty ? negative_infinity() : most + log2f(sum);
    }

    // Calls `put(row of the block, first of two output lanes, values)` for all that this thread has.
    template <typename Put>
    __device__ void each_pair(Put put) {
        const float* inverses = reinterpret_cast<const float*>(room + R::kInverse);
        const u32 group = lane() / 4, pair = lane() % 4;
#pragma unroll
        for (u32 i = 0; i < kRowTiles; i++) {
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                const u32 row = i * 16 + half * 8 + group;
                const float inverse = inverses[row];
                auto to = put.row(row);
#pragma unroll
                for (u32 j = 0; j < 8; j++) {
                    put.pair(to, row, warp() * 64 + j * 8 + pair * 2,
                             values[i][j][half * 2] * inverse,
                             values[i][j][half * 2 + 1] * inverse);
                }
            }
        }
    }

    // A whole request's rows, as outputs.
    struct PutOutput {
        const Block& block;
        u64 first_token;
        __device__ u8* row(u32 row) const {
            const u32 at = block.first_row() + row;
            if (at >= block.rows()) {
                return nullptr;
            }
            const AttendParams& params = block.params;
            const u64 token = first_token + at / params.heads;
            return block.work.output + params.output_at(token, at % params.heads);
        }
        __device__ void pair(u8* to, u32, u32 lane_of, float low, float high) const {
            if (to == nullptr) {
                return;
            }
            if (block.params.output == kOutBf16) {
                *reinterpret_cast<u32*>(to + lane_of * 2) = pack_bf16(low, high);
            } else {
                *reinterpret_cast<float2*>(to + lane_of * 4) = make_float2(low, high);
            }
        }
    };

    // Rows of a piece.
    struct PutPiece {
        float* first;
        __device__ float* row(u32 row) const { return first + static_cast<u64>(row) * kLatent; }
        __device__ void pair(float* to, u32, u32 lane_of, float low, float high) const {
            *reinterpret_cast<float2*>(to + lane_of) = make_float2(low, high);
        }
    };

    // Writes what the part has of a request.
    __device__ void end(u32 request, u32 part) {
        const float lse = close();
        const u32 row = threadIdx.x / kRowThreads;
        const bool first = threadIdx.x % kRowThreads == 0;
        const Cut cut = work.cuts[request];
        if (cut.pieces > 1) {
            const u64 piece = cut.first_piece + (part - cut.first_part);
            const u64 at = (piece * gridDim.x + blockIdx.x) * M;
            each_pair(PutPiece{work.pieces + at * kLatent});
            if (first) {
                work.piece_lses[at + row] = lse;
            }
            return;
        }
        const u64 token = static_cast<u64>(request) * params.queries;
        each_pair(PutOutput{*this, token});
        const u32 at = first_row() + row;
        if (first && at < rows()) {
            const u64 byte = params.lse_at(token + at / params.heads, at % params.heads);
            *reinterpret_cast<float*>(work.output + byte) =
                lse == negative_infinity() ? lse : params.in_base(lse);
            count_lone_fault(work.tally, token * params.heads + at, lse);
        }
    }
};

template <u32 M, bool Fp8, u32 Stages>
__device__ __forceinline__ void attend(const AttendParams& params, const Work& work) {
    using R = Room<M, Fp8, Stages>;
    extern __shared__ __align__(128) u8 room[];
    u32* lost = reinterpret_cast<u32*>(room + R::kLost);
    const u32 base = shared_address(room);
    const u32 part = blockIdx.y;
    if (threadIdx.x == 0) {
        *lost = 0;
    }
    __syncthreads();
    Loader<M, Fp8, Stages> loader;
    loader.begin(params, work, part, base);
#pragma unroll
    for (u32 ahead = 0; ahead + 1 < R::kStages; ahead++) {
        loader.submit(params, work, lost);
    }
    Walk walk;
    walk.begin(params, work, part);
    u32 stage = 0;
    Block<M, Fp8, Stages> block(params, work, room);
    for (; walk.inside(); walk.next_request(params, work)) {
        block.begin(walk.request);
        for (; walk.tile < walk.end; walk.tile++) {
            // The tile is there for all, and the stage before it is free.
            wait_copies<R::kStages - 2>();
            __syncthreads();
            loader.submit(params, work, lost);
            const u8* raw = room + R::kStage + stage * R::kStageBytes;
            u32 tile = base + R::kStage + stage * R::kStageBytes;
            if constexpr (Fp8) {
                widen_tile(raw, room + R::kTiles, work.format);
                tile = base + R::kTiles;
                __syncthreads();
            }
            stage = stage + 1 == R::kStages ? 0 : stage + 1;
            block.score(tile, raw);
            __syncthreads();
            block.weigh(walk.tile * kTileRows, raw);
            __syncthreads();
            block.gather(tile);
        }
        block.end(walk.request, part);
    }
}

// A kernel of blocks of M query rows.
#define STRIATA_ATTEND(NAME, M, FP8, STAGES)                                           \
    extern "C" __global__ void __launch_bounds__(256, 1)                               \
        NAME(const __grid_constant__ AttendParams params,                              \
             const __grid_constant__ Work work) {                                      \
        attend<M, FP8, STAGES>(params, work);                                          \
    }
