// SPDX-License-Identifier: Apache-2.0
//! Which rows of which pages a request reads and writes on a rank, with their fingerprints.

use std::sync::Arc;

use striata_core::{L1Page, Rank};
use striata_kernels::rows::{PageSeed, RowSpan};

use super::engine::Step;
use super::plan::Plan;

/// Spans of the hit pages: the same on every rank, since a whole page has P rows on each.
pub(crate) fn hit_spans(plan: &Plan, step: Step<'_>) -> Arc<[RowSpan]> {
    let pages = pages_of(step, plan.stripe.whole_pages(step.lease.hit_tokens()));
    pages
        .map(|(at, page)| whole_span(plan, step, at, page))
        .collect()
}

/// Spans of the rows that `rank` computes: whole pages after the hits, and its share of a last page
/// that is not whole.
pub(crate) fn computed_spans(plan: &Plan, step: Step<'_>, rank: Rank) -> Arc<[RowSpan]> {
    let stripe = plan.stripe;
    let whole = stripe.whole_pages(step.stored_tokens);
    let hits = stripe.whole_pages(step.lease.hit_tokens());
    let skip = usize::try_from(hits).unwrap_or(usize::MAX);
    let spans = pages_of(step, whole).skip(skip);
    let spans = spans.map(|(at, page)| whole_span(plan, step, at, page));
    spans.chain(tail_span(plan, step, whole, rank)).collect()
}

fn pages_of(step: Step<'_>, pages: u64) -> impl Iterator<Item = (u64, L1Page)> {
    let pages = usize::try_from(pages).unwrap_or(usize::MAX);
    (0..).zip(step.lease.pages().iter().copied().take(pages))
}

fn whole_span(plan: &Plan, step: Step<'_>, at: u64, page: L1Page) -> RowSpan {
    let content = usize::try_from(at)
        .ok()
        .and_then(|at| step.identity.content.get(at));
    span(
        plan,
        content.copied().unwrap_or_default(),
        at,
        page,
        plan.stripe.page_rows(),
    )
}

/// The rows of the last page that hold tokens, if it is not whole and has any on this rank.
fn tail_span(plan: &Plan, step: Step<'_>, whole: u64, rank: Rank) -> Option<RowSpan> {
    let tokens = step.stored_tokens - whole * plan.stripe.widened_page();
    let rows = plan.stripe.local_len(rank, i64::try_from(tokens).ok()?);
    let rows = u32::try_from(rows).ok().filter(|rows| *rows > 0)?;
    let page = *step.lease.pages().get(usize::try_from(whole).ok()?)?;
    Some(span(plan, step.identity.partial, whole, page, rows))
}

fn span(plan: &Plan, content: u128, at: u64, page: L1Page, rows: u32) -> RowSpan {
    RowSpan {
        seed: PageSeed::new(
            plan.fingerprint_namespace,
            content,
            at * plan.stripe.widened_page(),
        ),
        first_row: plan.stripe.page_row_range(page).start,
        rows,
        skip: 0,
    }
}
