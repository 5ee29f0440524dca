// SPDX-License-Identifier: Apache-2.0
// What a block of the tensor-core kernels has in shared memory, and how the tiles of its part get
// there. `attend_mma.cuh` says what is done with them.
#pragma once
#include "attend_work.cuh"

constexpr u32 kThreads = 256;
constexpr u32 kTileRows = 32;
constexpr u32 kTileBytes = kTileRows * kBf16RowBytes;
constexpr u32 kRawTileBytes = kTileRows * 656;
// Warps that share the 576 lanes of a score, and steps of 16 lanes of each; the last one is rotary.
constexpr u32 kSplit = 4;
constexpr u32 kOwnSteps = kLanes / 16 / kSplit;
constexpr u32 kLatentSteps = kOwnSteps - 1;
constexpr u32 kUnit = 16;

// Shared memory of a block, as byte offsets.
template <u32 M, bool Fp8, u32 Stages>
struct Room {
    static_assert(M == 16 || M == 32 || M == 64, "rows of a block");
    // Whether queries stand in shared memory.
    static constexpr bool kHeld = M == 64;
    // Whether a row's weights take the place of its scores, which nobody reads any more.
    static constexpr bool kTight = Stages == 2;
    static constexpr u32 kStages = Stages;
    static constexpr u32 kStageBytes = Fp8 ? kRawTileBytes : kTileBytes;
    static constexpr u32 kQuery = 0;
    static constexpr u32 kTiles = kHeld ? M * kBf16RowBytes : 0;
    static constexpr u32 kStage = kTiles + (Fp8 ? kTileBytes : 0);
    static constexpr u32 kScores = kStage + kStages * kStageBytes;
    static constexpr u32 kScoreBytes = M * kTileRows * 4;
    static constexpr u32 kBehindScores = kScores + kSplit * kScoreBytes;
    static constexpr u32 kWeights = kTight ? kScores : kBehindScores;
    // Weights times the scales of 128 lanes each.
    static constexpr u32 kWeightBytes = kTight ? kScoreBytes : M * kTileRows * 2;
    static constexpr u32 kKeep = kTight ? kBehindScores : kWeights + (Fp8 ? 4 : 1) * kWeightBytes;
    static constexpr u32 kInverse = kKeep + M * 4;
    static constexpr u32 kLost = kInverse + M * 4;
    static constexpr u32 kBytes = kLost + 16;
};

static_assert(Room<64, false, 3>::kBytes == 221712, "twin of Kernel::shared_bytes");
static_assert(Room<64, true, 3>::kBytes == 223248, "twin of Kernel::shared_bytes");
static_assert(Room<16, false, 5>::kBytes == 193680, "twin of Kernel::shared_bytes");
static_assert(Room<16, true, 5>::kBytes == 154256, "twin of Kernel::shared_bytes");
static_assert(Room<32, false, 4>::kBytes == 166160, "twin of Kernel::shared_bytes");
static_assert(Room<32, true, 5>::kBytes == 166672, "twin of Kernel::shared_bytes");
static_assert(Room<16, false, 4>::kBytes == 156816, "twin of Kernel::shared_bytes");
static_assert(Room<32, false, 2>::kBytes == 90384, "twin of Kernel::shared_bytes");
static_assert(Room<32, true, 2>::kBytes == 95504, "twin of Kernel::shared_bytes");
static_assert(Room<16, false, 2>::kBytes == 82064, "twin of Kernel::shared_bytes");
static_assert(Room<16, true, 2>::kBytes == 87184, "twin of Kernel::shared_bytes");

// Where a score of row `row` and column `column` of a tile stands among the floats of a row.
__device__ __forceinline__ u32 score_at(u32 row, u32 column) {
    return column ^ ((row & 1) << 4 | (row >> 1 & 1) << 3);
}

// Byte of unit `unit` of a row of weights, whose rows have four units. `tight`: in the place of
// scores, rows are twice as far apart; the half that a row has keeps all banks apart as before.
__device__ __forceinline__ u32 weight_unit(u32 row, u32 unit, bool tight) {
    const u32 start = tight ? row * (kTileRows * 4) + (row & 1) * (kTileRows * 2)
                            : row * (kTileRows * 2);
    return start + ((unit ^ (row >> 1 & 3)) * kUnit);
}

// Byte of the first unit of step `step` of quarter `split` in a row of a tile whose rows are turned by
// `turn`; `second`: of its second unit.
__device__ __forceinline__ u32 step_at(u32 split, u32 step, u32 second, u32 turn) {
    const u32 unit = step < kLatentSteps ? step * 2 % 8 : split * 2;
    const u32 group = step < kLatentSteps ? split * 2 + step / 4 : 8;
    return group * 128 + (((unit + second) ^ turn) * kUnit);
}

// The requests and tiles of a part, one behind the other.
struct Walk {
    u32 request;
    u32 tile;
    // Tiles of the request from 0 on that belong to the part.
    u32 end;
    u32 last_request;
    u32 last_tile;

    __device__ void bound(const AttendParams& params, const Work& work) {
        end = 0;
        if (request < params.batch && request <= last_request) {
            const i32 rows = work.local_lens[request];
            const u32 tiles = rows <= 0 ? 0 : (static_cast<u32>(rows) + kTileRows - 1) / kTileRows;
            end = request < last_request ? tiles : last_tile < tiles ? last_tile : tiles;
        }
    }
    __device__ void begin(const AttendParams& params, const Work& work, u32 part) {
        const WorkStart from = work.starts[part], to = work.starts[part + 1];
        request = from.request;
        tile = from.tile;
        last_request = to.request;
        last_tile = to.tile;
        bound(params, work);
    }
    // Whether the request belongs to the part at all.
    __device__ bool inside() const {
        return request < last_request || (request == last_request && last_tile > 0);
    }
    __device__ void next_request(const AttendParams& params, const Work& work) {
        request++;
        tile = 0;
        bound(params, work);
    }
    // Moves on to a tile, if there is one.
    __device__ bool find(const AttendParams& params, const Work& work) {
        while (inside() && tile >= end) {
            next_request(params, work);
        }
        return inside();
    }
};

// Brings tiles into the stages, ahead of their use.
template <u32 M, bool Fp8, u32 Stages>
struct Loader {
    using R = Room<M, Fp8, Stages>;
    Walk walk;
    u32 stage;
    // Of this thread: its row of a tile, its first unit, and where that goes.
    u32 row;
    u32 unit;
    u32 to;
    // The cell for this thread's row of the next tile.
    u32 page;
    bool there;

    __device__ void look(const AttendParams& params, const Work& work) {
        there = walk.find(params, work);
        page = ~0u;
        if (!there) {
            return;
        }
        const u32 local = walk.tile * kTileRows + row;
        if (local < static_cast<u32>(work.local_lens[walk.request])) {
            const u32 cell = local / params.kernel_rows;
            if (cell < params.width) {
                page = static_cast<u32>(
                    work.cells[static_cast<u64>(walk.request) * params.width + cell]);
            }
        }
    }

    __device__ void begin(const AttendParams& params, const Work& work, u32 part, u32 base) {
        walk.begin(params, work, part);
        stage = 0;
        row = threadIdx.x / 8;
        unit = threadIdx.x % 8;
        to = base + R::kStage +
             (Fp8 ? row * row_bytes(work.format) + unit * kUnit
                  : row * kBf16RowBytes + ((unit ^ (row & 7)) * kUnit));
        look(params, work);
    }

    // Submits the next tile, if there is one, as one group.
    __device__ void submit(const AttendParams& params, const Work& work, u32* lost) {
        if (there) {
            const u32 local = walk.tile * kTileRows + row;
            const bool held = local < static_cast<u32>(work.local_lens[walk.request]);
            const bool known = page < params.kernel_pages;
            if (held && !known) {
                *lost = 1;
            }
            const u32 bytes = Fp8 ? row_bytes(work.format) : kBf16RowBytes;
            const u64 from_row = known ? static_cast<u64>(page) * params.kernel_rows +
                                             local % params.kernel_rows
                                       : 0;
            const u8* from = work.plane + from_row * bytes + unit * kUnit;
            const u32 into = to + stage * R::kStageBytes;
            constexpr u32 kMost = Fp8 ? 6 : 9;
#pragma unroll
            for (u32 part = 0; part < kMost; part++) {
                if (!Fp8 || unit + part * 8 < bytes / kUnit) {
                    copy_async(into + part * 128, from + part * 128, held && known);
                }
            }
            walk.tile++;
            look(params, work);
        }
        commit_copies();
        stage = stage + 1 == R::kStages ? 0 : stage + 1;
    }
};

// Turns a raw fp8 tile into the bf16 tile, without scales.
__device__ __forceinline__ void widen_tile(const u8* __restrict__ raw, u8* __restrict__ tile,
                                           u32 format) {
    const u32 row = threadIdx.x / 8, first = threadIdx.x % 8;
    const u8* from = raw + row * row_bytes(format);
    u8* to = tile + row * kBf16RowBytes;
    const u32 turn = row & 7;
    const u32 units = format == kFp8Tile ? kLatent / 16 : kLanes / 16;
#pragma unroll
    for (u32 part = 0; part < 5; part++) {
        const u32 unit = first + part * 8;
        if (unit >= units) {
            break;
        }
        const uint4 words = reinterpret_cast<const uint4*>(from)[unit];
        uint4 low, high;
        low.x = e4m3_pair_to_bf16(words.x);
        low.y = e4m3_pair_to_bf16(words.x >> 16);
        low.z = e4m3_pair_to_bf16(words.y);
        low.w = e4m3_pair_to_bf16(words.y >> 16);
        high.x = e4m3_pair_to_bf16(words.z);
        high.y = e4m3_pair_to_bf16(words.z >> 16);
        high.z = e4m3_pair_to_bf16(words.w);
        high.w = e4m3_pair_to_bf16(words.w >> 16);
        *reinterpret_cast<uint4*>(to + ((2 * unit) ^ turn) * kUnit) = low;
        *reinterpret_cast<uint4*>(to + ((2 * unit + 1) ^ turn) * kUnit) = high;
    }
    if (format == kFp8Tile) {
        const uint4 rope = reinterpret_cast<const uint4*>(from + kTileRopeAt)[first];
        *reinterpret_cast<uint4*>(to + ((kLatent / 8 + first) ^ turn) * kUnit) = rope;
    }
}
