// SPDX-License-Identifier: Apache-2.0
// Rows of a plane by list, to and from a dense buffer. Contract and reference:
// kernels/src/row_list.rs. Rows are bytes; a unit is the widest of 16, 8 and 4 that divides the row
// and both addresses.
//
// plane: [rows][units]; list: [count], rows of the plane; dense: [count][units]; none null. A list
// that scatters names no row twice. A warp a row.
#include "common.cuh"

using Unit16 = uint4;
using Unit8 = uint2;
using Unit4 = u32;

template <typename Unit>
__device__ __forceinline__ void gather(const Unit* __restrict__ plane,
                                       const u64* __restrict__ list, Unit* __restrict__ dense,
                                       u64 count, u32 units) {
    for (u64 row = warp_in_grid(); row < count; row += warps_in_grid()) {
        const Unit* from = plane + list[row] * units;
        Unit* to = dense + row * units;
        for (u32 unit = lane(); unit < units; unit += kWarp) {
            to[unit] = from[unit];
        }
    }
}

template <typename Unit>
__device__ __forceinline__ void scatter(Unit* __restrict__ plane, const u64* __restrict__ list,
                                        const Unit* __restrict__ dense, u64 count, u32 units) {
    for (u64 row = warp_in_grid(); row < count; row += warps_in_grid()) {
        Unit* to = plane + list[row] * units;
        const Unit* from = dense + row * units;
        for (u32 unit = lane(); unit < units; unit += kWarp) {
            to[unit] = from[unit];
        }
    }
}

#define STRIATA_ROW_LIST(BYTES)                                                                 \
    extern "C" __global__ void __launch_bounds__(256) striata_gather_rows_##BYTES(              \
        const Unit##BYTES* plane, const u64* list, Unit##BYTES* dense, u64 count, u32 units) {  \
        gather(plane, list, dense, count, units);                                               \
    }                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) striata_scatter_rows_##BYTES(             \
        Unit##BYTES* plane, const u64* list, const Unit##BYTES* dense, u64 count, u32 units) {  \
        scatter(plane, list, dense, count, units);                                              \
    }

STRIATA_ROW_LIST(16)
STRIATA_ROW_LIST(8)
STRIATA_ROW_LIST(4)

// Cells: equal numbers of bytes at any places of the planes of several layers, each with a place on
// one far side, which is mapped host memory or a buffer of the device. Contract and reference:
// kernels/src/cells.rs.
//
// A warp moves a part of a cell in one layer at a time, four units a lane, all of them loaded before
// the first is stored: so many bytes are on their way that 16 blocks of 512 threads fill a PCIe
// link. The list may lie in host memory too, so a warp reads the cells of a whole batch of parts at
// once, a lane each.
constexpr u32 kPlanes = 128;
constexpr u32 kUnitsALane = 4;
constexpr u32 kPart = kUnitsALane * kWarp;

struct Cell {
    u64 plane;
    u64 far_side;
};

struct CellParams {
    u64 far_side;
    u64 far_layer;
    const Cell* cells;
    u64 count;
    u64 total;
    u32 layers;
    u32 units;
    u32 parts;
    u32 batch;
    u64 planes[kPlanes];
};

static_assert(sizeof(Cell) == 16 && sizeof(CellParams) == 56 + 8 * kPlanes, "twins of cells.rs");

// cells: [count]; total = layers * count * parts; units = units of a cell, in parts of kPart; batch
// is 1..32. Every address is a multiple of the unit, and no two cells share a byte of the side that
// is written.
template <typename Unit, bool kToPlanes>
__device__ __forceinline__ void move_cells(const CellParams& params) {
    const u64 step = warps_in_grid() * params.batch;
    for (u64 first = warp_in_grid() * params.batch; first < params.total; first += step) {
        const u64 item = first + lane();
        u64 plane = 0;
        u64 far_side = 0;
        u32 units = 0;
        if (lane() < params.batch && item < params.total) {
            const u64 whole = item / params.parts;
            const u32 part = static_cast<u32>(item - whole * params.parts);
            const u64 layer = whole / params.count;
            const Cell cell = params.cells[whole - layer * params.count];
            const u64 ahead = static_cast<u64>(part) * kPart * sizeof(Unit);
            plane = params.planes[layer] + cell.plane + ahead;
            far_side = params.far_side + layer * params.far_layer + cell.far_side + ahead;
            const u32 rest = params.units - part * kPart;
            units = rest < kPart ? rest : kPart;
        }
        const u64 left = params.total - first;
        const u32 here = left < params.batch ? static_cast<u32>(left) : params.batch;
        for (u32 at = 0; at < here; ++at) {
            const u64 plane_at = __shfl_sync(kFullMask, plane, at);
            const u64 far_at = __shfl_sync(kFullMask, far_side, at);
            const u32 count = __shfl_sync(kFullMask, units, at);
            const Unit* from = reinterpret_cast<const Unit*>(kToPlanes ? far_at : plane_at);
            Unit* to = reinterpret_cast<Unit*>(kToPlanes ? plane_at : far_at);
            Unit held[kUnitsALane];
#pragma unroll
            for (u32 k = 0; k < kUnitsALane; ++k) {
                const u32 unit = k * kWarp + lane();
                if (unit < count) {
                    held[k] = __ldcs(from + unit);
                }
            }
#pragma unroll
            for (u32 k = 0; k < kUnitsALane; ++k) {
                const u32 unit = k * kWarp + lane();
                if (unit < count) {
                    to[unit] = held[k];
                }
            }
        }
    }
}

#define STRIATA_CELLS(BYTES)                                                    \
    extern "C" __global__ void __launch_bounds__(512)                           \
        striata_gather_cells_##BYTES(const __grid_constant__ CellParams params) { \
        move_cells<Unit##BYTES, false>(params);                                 \
    }                                                                           \
    extern "C" __global__ void __launch_bounds__(512)                           \
        striata_scatter_cells_##BYTES(const __grid_constant__ CellParams params) { \
        move_cells<Unit##BYTES, true>(params);                                  \
    }

STRIATA_CELLS(16)
STRIATA_CELLS(8)
STRIATA_CELLS(4)
