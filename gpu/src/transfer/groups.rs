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

    /// The first layer, then groups that grow to `percent` of the one before, rounded up (200: 1,
    /// 2, 4, 8, ... layers), none of more than `most` layers. Below 200 the second layer is alone
    /// too (150: 1, 1, 2, 3, 5, 8, ...): a host that does not prepare two layers while one is copied
    /// has the link wait for each group that doubles.
    ///
    /// Example: 61 layers, 200 percent, most 3 give 1, 2, 3, 3, ..., 3, 1.
    #[must_use]
    pub fn growing(layers: u32, percent: u32, most: u32) -> Self {
        let most = most.max(1);
        let mut ends = Vec::new();
        let (mut end, mut size) = (0u32, 1u32);
        while end < layers {
            end = end.saturating_add(size.min(most)).min(layers);
            ends.push(end);
            if ends.len() > 1 || percent >= 200 {
                size = size.saturating_mul(percent.max(100)).div_ceil(100);
            }
        }
        Self { ends: ends.into() }
    }

    /// These groups of some layers of a pool that has `before` and `behind` more: the first and the
    /// last group hold those, so that who waits for one of them waits for no more than it must.
    #[cfg(not(loom))]
    pub(super) fn among(mut self, before: u32, behind: u32) -> Self {
        for end in &mut self.ends {
            *end += before;
        }
        if let Some(last) = self.ends.last_mut() {
            *last += behind;
        }
        self
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
    fn the_shapes_of_the_kinds() {
        let growing = |factor, most| sizes(&LayerGroups::growing(61, factor, most));
        assert_eq!(growing(200, u32::MAX), [1, 2, 4, 8, 16, 30]);
        assert_eq!(growing(200, 24), [1, 2, 4, 8, 16, 24, 6]);
        assert_eq!(growing(400, u32::MAX), [1, 4, 16, 40]);
        assert_eq!(growing(150, u32::MAX), [1, 1, 2, 3, 5, 8, 12, 18, 11]);
        assert_eq!(growing(u32::MAX, u32::MAX), [1, 60]);
        assert_eq!(growing(200, 0), [1; 61]);
        assert_eq!(growing(0, 9), [1; 61]);
        let capped = growing(200, 3);
        assert_eq!(
            (capped.len(), &capped[..4], capped[21]),
            (22, &[1, 2, 3, 3][..], 1)
        );
        assert_eq!(sizes(&LayerGroups::first_and_rest(61)), [1, 60]);
        assert_eq!(sizes(&LayerGroups::first_and_rest(1)), [1]);
        assert_eq!(sizes(&LayerGroups::whole(61)), [61]);
        assert!(LayerGroups::whole(0).is_empty() && LayerGroups::first_and_rest(0).is_empty());
    }

    proptest! {
        #[test]
        fn every_layer_stands_in_one_group_in_order(
            layers in 0u32..200, percent in 0u32..900, most in 0u32..80, kind in 0..3,
        ) {
            let groups = match kind {
                0 => LayerGroups::whole(layers),
                1 => LayerGroups::first_and_rest(layers),
                _ => LayerGroups::growing(layers, percent, most),
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
        fn growing_groups_obey_the_cap_and_the_factor(
            layers in 1u32..200, percent in 100u32..900, most in 1u32..80,
        ) {
            let groups = LayerGroups::growing(layers, percent, most);
            let mut grown = 1u32;
            for group in 0..groups.len() {
                let len = u32::try_from(groups.range(group).len()).unwrap();
                let last = group + 1 == groups.len();
                // Nothing smaller than it must be, but for the last group.
                prop_assert!(len == grown.min(most) || (last && len < grown.min(most)));
                if group > 0 || percent >= 200 {
                    grown = grown.saturating_mul(percent).div_ceil(100);
                }
            }
        }
    }
}
