// SPDX-License-Identifier: Apache-2.0
// Keeps a stream busy for a time: compute that is held for a test, or modelled by a replay. It
// waits for nothing but the clock, so it always ends.
#include "common.cuh"

__device__ __forceinline__ u64 global_nanos() {
    u64 nanos;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos));
    return nanos;
}

extern "C" __global__ void __launch_bounds__(32) striata_spin(u64 nanos) {
    const u64 begin = global_nanos();
    while (global_nanos() - begin < nanos) {
        __nanosleep(500);
    }
}
