// SPDX-License-Identifier: Apache-2.0
// Evaluates every function of stripe.cuh, so that the self-test can compare them with core.
// Contract and reference: kernels/src/stripe_twin.rs.
#include "stripe.cuh"

struct StripeCase {
    Stripe stripe;
    u32 rank;
    u64 index;
    i64 length;
    u32 queries;
    u32 query;
};

struct StripeAnswer {
    u64 owner;
    u64 row_on_owner;
    u64 slot_of;
    u64 local_len;
    u64 first_owned;
    u64 visible_rows;
    u64 page_number;
    u64 offset_in_page;
};

static_assert(sizeof(StripeCase) == 40 && sizeof(StripeAnswer) == 64, "twins of stripe_twin.rs");

// cases, answers: [count]; neither null.
extern "C" __global__ void __launch_bounds__(128)
    striata_stripe_check(const StripeCase* __restrict__ cases, StripeAnswer* __restrict__ answers,
                         u64 count) {
    for (u64 at = thread_in_grid(); at < count; at += threads_in_grid()) {
        const StripeCase c = cases[at];
        StripeAnswer answer;
        answer.owner = c.stripe.owner(c.index);
        answer.row_on_owner = c.stripe.row_on_owner(c.index);
        answer.slot_of = c.stripe.slot_of(c.rank, c.index);
        answer.local_len = c.stripe.local_len(c.rank, c.length);
        answer.first_owned = c.stripe.first_owned(c.rank, c.index);
        answer.visible_rows = c.stripe.visible_rows(c.rank, c.length, c.queries, c.query);
        answer.page_number = c.stripe.page_number(c.index);
        answer.offset_in_page = c.stripe.offset_in_page(c.index);
        answers[at] = answer;
    }
}
