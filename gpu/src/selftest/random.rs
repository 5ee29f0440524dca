// SPDX-License-Identifier: Apache-2.0
//! Numbers that are the same in every run.

/// A splitmix generator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        match self.word().checked_rem(end) {
            Some(number) => number,
            None => 0,
        }
    }

    /// A number below `end`.
    pub(super) fn below_u32(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap_or(0)
    }

    pub(super) const fn coin(&mut self) -> bool {
        self.word() & 1 == 1
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(from.len() as u64)).ok()?;
        from.get(at).copied()
    }

    /// Numbers below `end` in a random order.
    pub(super) fn order(&mut self, end: u32) -> Vec<u32> {
        let mut list: Vec<(u64, u32)> = (0..end).map(|number| (self.word(), number)).collect();
        list.sort_unstable();
        list.into_iter().map(|(_, number)| number).collect()
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
