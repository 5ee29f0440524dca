// SPDX-License-Identifier: Apache-2.0
// Instructions of the tensor cores and of asynchronous copies (PTX ISA: mma.m16n8k16, ldmatrix,
// cp.async), sm_80 and newer.
#pragma once
#include "common.cuh"

// A fragment of 16 x 16: register 0 holds row g, columns 2t and 2t + 1; register 1 row g + 8;
// registers 2 and 3 the same of columns + 8 (g = lane / 4, t = lane % 4).
struct FragmentA {
    u32 words[4];
};

// acc += a * b. b0, b1: column g, rows 2t, 2t + 1 and the same + 8. acc: row g, columns 2t, 2t + 1;
// then row g + 8.
__device__ __forceinline__ void mma(float (&acc)[4], const FragmentA& a, u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16 bits, whose rows' addresses lanes 0-7, 8-15, 16-23 and 24-31 give. A
// lane gets row lane / 4, columns 2 * (lane % 4) and + 1 of each.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// The same with each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(u32 (&to)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// Copies 16 bytes to shared memory; zeros if not `there`, and then nothing is read.
__device__ __forceinline__ void copy_async(u32 to, const u8* from, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `Open` groups of this thread are under way.
template <u32 Open>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Open) : "memory");
}

// 2 to the power x; 0 for minus infinity.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The address of shared memory for the instructions above.
__device__ __forceinline__ u32 shared_address(const void* at) {
    return static_cast<u32>(__cvta_generic_to_shared(at));
}
