// SPDX-License-Identifier: Apache-2.0
//! Copy plans from slot lists against a plain reading of the contract.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use striata_core::plan::{CopyDirection, CopyPlan};
use striata_core::{L1Page, L2Page, PagePair, PoolKind, Rank, Slot, Stripe};

/// One change to a slot list.
#[derive(Arbitrary, Debug)]
struct Edit {
    host: bool,
    at: u8,
    change: Change,
}

#[derive(Arbitrary, Debug)]
enum Change {
    Set(u16),
    Far(u64),
    Drop,
    Repeat,
    SwapWithNext,
}

/// Two lists: pages spelled out, then edited.
#[derive(Arbitrary, Debug)]
pub struct Input {
    dcp: u8,
    page_rows: u8,
    interleave: u8,
    kind: u8,
    store: bool,
    pages: Vec<(u8, u8)>,
    l1_pages: u8,
    l2_pages: u8,
    edits: Vec<Edit>,
}

/// The call's arguments beside the slots.
struct Call {
    kind: PoolKind,
    stripe: Stripe,
    direction: CopyDirection,
    pages: [u32; 2],
}

impl Call {
    /// Slots of a page.
    fn unit(&self) -> u64 {
        match self.kind {
            PoolKind::Striped | PoolKind::Replicated => self.stripe.widened_page(),
            PoolKind::PerRequest => u64::from(self.stripe.page_rows()),
        }
    }

    fn plan_slots(&self, lists: &[Vec<Slot>; 2]) -> Option<CopyPlan> {
        let capacity = self.pages.map(|pages| u64::from(pages) * self.unit());
        let plan = CopyPlan::from_slots(
            self.kind,
            self.stripe,
            self.direction,
            &lists[0],
            &lists[1],
            capacity[0],
            capacity[1],
        );
        plan.inspect_err(|error| crate::assert_one_line(error)).ok()
    }

    fn plan_pages(&self, pairs: &[PagePair]) -> Option<CopyPlan> {
        let [l1, l2] = self.pages;
        let plan = CopyPlan::from_pages(self.kind, self.stripe, self.direction, pairs, l1, l2);
        plan.inspect_err(|error| crate::assert_one_line(error)).ok()
    }

    /// The pages that both lists spell out, if the contract accepts them.
    fn read(&self, lists: &[Vec<Slot>; 2]) -> Option<Vec<PagePair>> {
        let device = self.read_list(&lists[0], self.pages[0])?;
        let host = self.read_list(&lists[1], self.pages[1])?;
        let targets = match self.direction {
            CopyDirection::HostToDevice => &device,
            CopyDirection::DeviceToHost => &host,
        };
        let distinct: BTreeSet<_> = targets.iter().collect();
        if device.len() != host.len() || distinct.len() != targets.len() {
            return None;
        }
        let pair = |(&l1, &l2): (&u32, &u32)| PagePair {
            l1: L1Page::new(l1),
            l2: L2Page::new(l2),
        };
        Some(device.iter().zip(&host).map(pair).collect())
    }

    fn read_list(&self, slots: &[Slot], pages: u32) -> Option<Vec<u32>> {
        let by_first: BTreeMap<u64, u32> = (0..pages)
            .map(|page| (u64::from(page) * self.unit(), page))
            .collect();
        let unit = usize::try_from(self.unit()).ok()?;
        slots
            .chunks(unit)
            .map(|run| {
                let page = by_first.get(&run.first()?.get())?;
                let ascends = run.windows(2).all(|w| w[0].get() + 1 == w[1].get());
                (run.len() == unit && ascends).then_some(*page)
            })
            .collect()
    }

    /// The rows that one pair of slots moves on `rank`.
    fn rows(&self, rank: Rank, device: Slot, host: Slot) -> Option<(u64, u64)> {
        match self.kind {
            PoolKind::Striped => {
                let device = self.stripe.localize(rank, device)?;
                let host = self.stripe.localize(rank, host)?;
                Some((device.get(), host.get()))
            }
            PoolKind::Replicated | PoolKind::PerRequest => Some((device.get(), host.get())),
        }
    }

    /// Every rank copies the rows of its slots, all of them and no other.
    fn check_rows(&self, plan: &CopyPlan, lists: &[Vec<Slot>; 2]) {
        for rank in self.stripe.ranks() {
            let pairs = lists[0].iter().zip(&lists[1]);
            let mut want: Vec<_> = pairs
                .filter_map(|(&device, &host)| self.rows(rank, device, host))
                .collect();
            let mut got = Vec::new();
            for run in plan.runs(rank) {
                let rows = 0..run.rows;
                got.extend(rows.map(|k| (run.device_row.get() + k, run.host_row.get() + k)));
            }
            want.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, want, "rank {rank}");
            assert_eq!(got.len() as u64, plan.rows_per_rank());
        }
    }
}

fn edit(lists: &mut [Vec<Slot>; 2], edit: &Edit) {
    let list = &mut lists[usize::from(edit.host)];
    if list.is_empty() {
        return;
    }
    let at = usize::from(edit.at) % list.len();
    match edit.change {
        Change::Set(slot) => list[at] = Slot::new(u64::from(slot)),
        Change::Far(slot) => list[at] = Slot::new(slot),
        Change::Drop => drop(list.remove(at)),
        Change::Repeat => list.insert(at, list[at]),
        Change::SwapWithNext => {
            let next = (at + 1) % list.len();
            list.swap(at, next);
        }
    }
}

/// Plans a copy from edited slot lists and compares it with the plain reading.
pub fn run(input: &Input) {
    let page_rows = u32::from(input.page_rows % 9);
    let interleave = u32::from(input.interleave % 4);
    let dcp = u32::from(input.dcp % 9);
    let Ok(stripe) = Stripe::with_interleave(dcp, page_rows, interleave) else {
        return;
    };
    let kinds = [
        PoolKind::Striped,
        PoolKind::Replicated,
        PoolKind::PerRequest,
    ];
    let call = Call {
        kind: kinds[usize::from(input.kind) % kinds.len()],
        stripe,
        direction: if input.store {
            CopyDirection::DeviceToHost
        } else {
            CopyDirection::HostToDevice
        },
        pages: [
            u32::from(input.l1_pages % 24),
            u32::from(input.l2_pages % 24),
        ],
    };
    let spell = |page: u8| {
        let first = u64::from(page % 24) * call.unit();
        (first..first + call.unit()).map(Slot::new)
    };
    let pages = &input.pages[..input.pages.len().min(12)];
    let mut lists = [
        pages.iter().flat_map(|&(l1, _)| spell(l1)).collect(),
        pages.iter().flat_map(|&(_, l2)| spell(l2)).collect(),
    ];
    input.edits.iter().take(6).for_each(|e| edit(&mut lists, e));

    let plan = call.plan_slots(&lists);
    let read = call.read(&lists);
    assert_eq!(plan.is_some(), read.is_some(), "{lists:?}");
    if let (Some(plan), Some(pairs)) = (plan, read) {
        assert_eq!(Some(&plan), call.plan_pages(&pairs).as_ref());
        assert!(plan.check_for(call.kind, stripe).is_ok());
        call.check_rows(&plan, &lists);
    }
    // Pages as the caller named them, in range or not: both forms decide alike.
    let pairs: Vec<PagePair> = pages
        .iter()
        .map(|&(l1, l2)| PagePair {
            l1: L1Page::new(u32::from(l1 % 24)),
            l2: L2Page::new(u32::from(l2 % 24)),
        })
        .collect();
    if input.edits.is_empty() {
        assert_eq!(call.plan_pages(&pairs), call.plan_slots(&lists));
    }
}
