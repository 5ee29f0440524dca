// SPDX-License-Identifier: Apache-2.0
//! Cache events: what a router is told, in widened pages.

use striata::core::prefix::PageKey;
use striata::{EventKey, EventTier, KvEvent};
use striata_tests::planned::{NAMESPACE, Planned, W, chain};

fn events(rig: &mut Planned) -> Vec<KvEvent> {
    let mut out = Vec::new();
    rig.planner.take_events(&mut out);
    out
}

fn named(keys: &[PageKey]) -> Vec<EventKey> {
    keys.iter().copied().map(EventKey).collect()
}

#[test]
fn b14_events_name_widened_pages_by_tier() {
    let mut rig = Planned::with(4, 4, |config| config.events = true);
    assert_eq!(rig.planner.event_block_tokens(), W);
    let keys = chain(1, 3);
    rig.compute(&keys);
    let stored = |tier, parent: Option<PageKey>, keys: &[PageKey]| KvEvent::Stored {
        tier,
        parent: parent.map(EventKey),
        pages: named(keys),
    };
    assert_eq!(events(&mut rig), [stored(EventTier::L1, None, &keys)]);
    // Nothing is said of L2 before the copy is acknowledged.
    rig.settle();
    let on_l2: Vec<_> = (0..3)
        .map(|at: usize| {
            stored(
                EventTier::L2,
                at.checked_sub(1).map(|p| keys[p]),
                &keys[at..=at],
            )
        })
        .collect();
    assert_eq!(events(&mut rig), on_l2);
    rig.planner.evict(2).unwrap();
    let removed = |tier, keys: &[PageKey]| KvEvent::Removed {
        tier,
        pages: named(keys),
    };
    assert_eq!(
        events(&mut rig),
        [removed(EventTier::L1, &[keys[2], keys[1]])]
    );
    // A longer request: its new pages follow the last one that is there.
    let longer = [keys.as_slice(), &chain(2, 1)].concat();
    let lease = rig.reserve(&longer, 4 * W);
    rig.settle();
    events(&mut rig);
    rig.insert(&lease);
    assert_eq!(
        events(&mut rig)[0],
        stored(EventTier::L1, Some(keys[2]), &longer[3..])
    );
    rig.settle();
    rig.release(lease);
    events(&mut rig);
    rig.planner.reset(NAMESPACE).unwrap();
    let told = events(&mut rig);
    let gone = |tier| {
        told.iter()
            .filter_map(|event| match event {
                KvEvent::Removed { tier: of, pages } if *of == tier => Some(pages.len()),
                _ => None,
            })
            .sum::<usize>()
    };
    assert_eq!(
        (gone(EventTier::L1), gone(EventTier::L2)),
        (4, 4),
        "{told:?}"
    );
}

#[test]
fn events_survive_a_text_format() {
    let event = KvEvent::Stored {
        tier: EventTier::L2,
        parent: Some(EventKey(PageKey::new(255))),
        pages: named(&chain(7, 1)),
    };
    let text = serde_json::to_string(&event).unwrap();
    assert!(
        text.contains("\"000000000000000000000000000000ff\""),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<KvEvent>(&text).unwrap(), event);
    assert!(serde_json::from_str::<EventKey>("\"xyz\"").is_err());
}

#[test]
fn no_events_are_kept_unless_they_are_asked_for() {
    let mut rig = Planned::new(4, 4);
    rig.cache(&chain(1, 3));
    rig.planner.evict(3).unwrap();
    assert!(events(&mut rig).is_empty());
}
