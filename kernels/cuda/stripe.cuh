// SPDX-License-Identifier: Apache-2.0
// The stripe on the device: twin of core/src/stripe.rs, and the only CUDA file with a modulo or a
// division by the DCP size c. Every function has the name of its twin and is compared with it over
// the vectors by the self-test.
#pragma once
#include "common.cuh"

struct Stripe {
    u32 dcp;
    u32 page_rows;
    u32 interleave;

    // W, the tokens of a widened page.
    __device__ u64 widened_page() const { return static_cast<u64>(page_rows) * dcp; }

    // I * c.
    __device__ u64 cycle() const { return static_cast<u64>(interleave) * dcp; }

    // The rank that owns a position or a slot.
    __device__ u32 owner(u64 index) const {
        return static_cast<u32>(index / interleave % dcp);
    }

    // The row of a slot on its owner.
    __device__ u64 row_on_owner(u64 slot) const {
        return slot / cycle() * interleave + slot % interleave;
    }

    // The slot that stands at `row` of `rank`.
    __device__ u64 slot_of(u32 rank, u64 row) const {
        return row / interleave * cycle() + static_cast<u64>(rank) * interleave + row % interleave;
    }

    // Rows that `rank` owns of the first `length` tokens; a negative length has none.
    __device__ u64 local_len(u32 rank, i64 length) const {
        if (length <= 0) {
            return 0;
        }
        const u64 tokens = static_cast<u64>(length);
        const u64 tail = tokens % cycle();
        const u64 before = static_cast<u64>(rank) * interleave;
        const u64 extra = tail > before ? tail - before : 0;
        return tokens / cycle() * interleave + (extra < interleave ? extra : interleave);
    }

    // The first position at or after `start` that `rank` owns.
    __device__ u64 first_owned(u32 rank, u64 start) const {
        if (owner(start) == rank) {
            return start;
        }
        const u64 wanted = static_cast<u64>(rank) * interleave;
        return start + (wanted + cycle() - start % cycle()) % cycle();
    }

    // Local rows that query `query` of `queries` sees of a sequence of `global_length` tokens.
    __device__ u64 visible_rows(u32 rank, i64 global_length, u32 queries, u32 query) const {
        const i64 behind = static_cast<i64>(queries) - 1 - static_cast<i64>(query);
        return local_len(rank, global_length - behind);
    }

    // The widened page of a slot, and the slot's place in it.
    __device__ u64 page_number(u64 slot) const { return slot / widened_page(); }
    __device__ u64 offset_in_page(u64 slot) const { return slot % widened_page(); }
};

static_assert(sizeof(Stripe) == 12, "twin of StripeWords");
