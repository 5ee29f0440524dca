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
