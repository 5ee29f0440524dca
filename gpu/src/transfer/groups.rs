// SPDX-License-Identifier: Apache-2.0
//! How the layers of a load are grouped: the first layer alone, so that compute starts early, then
//! groups that grow, so that the calls are few.

use core::ops::Range;

use striata_core::LayerId;

/// Consecutive groups that cover the layers of a pool, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerGroups {
    /// The layer after the last of each group.
    ends: Box<[u32]>,
}

impl LayerGroups {
    /// One group of all layers.
    #[must_use]
    pub fn whole(layers: u32) -> Self {
        Self {
            ends: (layers > 0).then_some(layers).into_iter().collect(),
        }
    }

    /// The first layer, then the rest: for loads of a page or two, whose rectangles take one call.
    #[must_use]
    pub fn first_and_rest(layers: u32) -> Self {
        let first = (layers > 1).then_some(1);
        let rest = (layers > 0).then_some(layers);
        Self {
            ends: first.into_iter().chain(rest).collect(),
        }
    }

    /// Groups of 1, 2, 4, 8, ... layers; a group of several layers never holds more than
    /// `cap_bytes` when a layer of the load has `layer_bytes`.
    ///
    /// Example: 61 layers of 4.5 MiB and a cap of 50 MiB give 1, 2, 4, 8, 11, 11, 11, 11, 2.
    #[must_use]
    pub fn progressive(layers: u32, layer_bytes: u64, cap_bytes: u64) -> Self {
        let fit = cap_bytes.checked_div(layer_bytes).unwrap_or(u64::MAX);
        let most = u32::try_from(fit).unwrap_or(u32::MAX).max(1);
        let mut ends = Vec::new();
        let (mut end, mut size) = (0u32, 1u32);
        while end < layers {
            end = end.saturating_add(size.min(most)).min(layers);
            ends.push(end);
            size = size.saturating_mul(2);
        }
        Self { ends: ends.into() }
    }

    /// How many groups.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }
    /// Whether there is no layer.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// How many layers.
    #[must_use]
    pub fn layers(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The layers of group `group`; empty past the last group.
    #[must_use]
    pub fn range(&self, group: usize) -> Range<u32> {
        let Some(&end) = self.ends.get(group) else {
            return self.layers()..self.layers();
        };
        let start = group
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        start..end
    }

    /// The group of a layer; none past the last layer.
    #[must_use]
    pub fn group_of(&self, layer: LayerId) -> Option<usize> {
        let group = self.ends.partition_point(|&end| end <= layer.get());
        (group < self.ends.len()).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(groups: &LayerGroups) -> Vec<usize> {
        (0..groups.len()).map(|g| groups.range(g).len()).collect()
    }

    #[test]
    fn the_shapes_of_the_three_kinds() {
        let free = LayerGroups::progressive(61, 4, 1 << 40);
        assert_eq!(sizes(&free), [1, 2, 4, 8, 16, 30]);
        let capped = LayerGroups::progressive(61, 4_718_592, 50 << 20);
        assert_eq!(sizes(&capped), [1, 2, 4, 8, 11, 11, 11, 11, 2]);
        let huge = LayerGroups::progressive(3, u64::MAX, 1);
        assert_eq!(sizes(&huge), [1, 1, 1]);
        assert_eq!(sizes(&LayerGroups::first_and_rest(61)), [1, 60]);
        assert_eq!(sizes(&LayerGroups::first_and_rest(1)), [1]);
        assert_eq!(sizes(&LayerGroups::whole(61)), [61]);
        assert!(LayerGroups::whole(0).is_empty() && LayerGroups::first_and_rest(0).is_empty());
    }

    proptest! {
        #[test]
        fn every_layer_stands_in_one_group_in_order(
            layers in 0u32..200, layer_bytes in 0u64..1 << 28, cap in 0u64..1 << 30, kind in 0..3,
        ) {
            let groups = match kind {
                0 => LayerGroups::whole(layers),
                1 => LayerGroups::first_and_rest(layers),
                _ => LayerGroups::progressive(layers, layer_bytes, cap),
            };
            let listed: Vec<u32> = (0..groups.len()).flat_map(|g| groups.range(g)).collect();
            prop_assert_eq!(listed, (0..layers).collect::<Vec<_>>());
            for group in 0..groups.len() {
                prop_assert!(!groups.range(group).is_empty());
                for layer in groups.range(group) {
                    prop_assert_eq!(groups.group_of(LayerId::new(layer)), Some(group));
                }
            }
            prop_assert_eq!(groups.group_of(LayerId::new(layers)), None);
            prop_assert!(groups.range(groups.len()).is_empty());
        }

        #[test]
        fn growing_groups_obey_the_cap_and_the_doubling(
            layers in 1u32..200, layer_bytes in 0u64..1 << 28, cap in 0u64..1 << 30,
        ) {
            let groups = LayerGroups::progressive(layers, layer_bytes, cap);
            for group in 0..groups.len() {
                let len = groups.range(group).len() as u64;
                prop_assert!(len == 1 || len * layer_bytes <= cap);
                prop_assert!(len <= 1 << group.min(63));
                // Nothing smaller than it must be, but for the last group.
                let doubled = 1u64 << group.min(32);
                let last = group + 1 == groups.len();
                prop_assert!(last || len == doubled || (len + 1) * layer_bytes > cap);
            }
        }
    }
}
