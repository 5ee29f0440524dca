// SPDX-License-Identifier: Apache-2.0
//! The check that a block id always has the same predecessor and the same place.

use std::collections::BTreeMap;

use super::error::TraceProblem;
use super::request::Run;

/// Ids that follow each other: id `first + k` stands at `place + k`, and behind `first + k - 1`
/// for k > 0.
#[derive(Clone, Copy, Debug)]
struct Segment {
    end: u64,
    place: u64,
    /// What stands before the first id; nothing at a request's start.
    predecessor: Option<u64>,
}

/// What is known of every id seen so far, in segments: a trace of run-length coded ids needs as
/// many as it has distinct runs, not as many as it has ids.
#[derive(Debug, Default)]
pub(super) struct ChainCheck {
    segments: BTreeMap<u64, Segment>,
}

impl ChainCheck {
    /// Checks the runs of one request and remembers them.
    pub(super) fn request(&mut self, runs: &[Run]) -> Result<(), TraceProblem> {
        let mut place = 0;
        let mut predecessor = None;
        for run in runs {
            self.run(*run, place, predecessor)?;
            place += run.count;
            predecessor = Some(run.first + (run.count - 1));
        }
        Ok(())
    }

    fn run(&mut self, run: Run, place: u64, predecessor: Option<u64>) -> Result<(), TraceProblem> {
        let end = run.first + run.count;
        let mut at = run.first;
        while at < end {
            let expected = Expected {
                place: place + (at - run.first),
                predecessor: if at == run.first {
                    predecessor
                } else {
                    Some(at - 1)
                },
            };
            let known = self.segments.range(..=at).next_back();
            at = match known {
                Some((&first, segment)) if at < segment.end => {
                    expected.check(at, first, segment)?;
                    segment.end
                }
                _ => {
                    let next = self.segments.range(at..end).next();
                    let until = next.map_or(end, |(&first, _)| first);
                    self.learn(at, until, expected);
                    until
                }
            };
        }
        Ok(())
    }

    /// Adds ids `[first, end)`, none of which is known, to the segment that they continue or as
    /// one of their own.
    fn learn(&mut self, first: u64, end: u64, expected: Expected) {
        let before = self.segments.range_mut(..first).next_back();
        if let Some((&start, segment)) = before
            && segment.end == first
            && expected.predecessor == Some(first - 1)
            && segment.place + (first - start) == expected.place
        {
            segment.end = end;
            return;
        }
        let Expected { place, predecessor } = expected;
        self.segments.insert(
            first,
            Segment {
                end,
                place,
                predecessor,
            },
        );
    }
}

/// What a request says of an id.
#[derive(Clone, Copy)]
struct Expected {
    place: u64,
    predecessor: Option<u64>,
}

impl Expected {
    fn check(self, id: u64, first: u64, segment: &Segment) -> Result<(), TraceProblem> {
        let known_place = segment.place + (id - first);
        if known_place != self.place {
            return Err(TraceProblem::MovedBlock {
                id,
                place: self.place,
                before: known_place,
            });
        }
        let known = if id == first {
            segment.predecessor
        } else {
            Some(id - 1)
        };
        if known != self.predecessor {
            let name = |id: Option<u64>| id.map_or("nothing".to_owned(), |id| format!("id {id}"));
            return Err(TraceProblem::ChangedPredecessor {
                id,
                predecessor: name(self.predecessor),
                before: name(known),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// The plain rule: a map of every id.
    #[derive(Default)]
    struct Model(HashMap<u64, (u64, Option<u64>)>);

    impl Model {
        fn request(&mut self, runs: &[Run]) -> bool {
            let ids: Vec<u64> = runs
                .iter()
                .flat_map(|run| run.first..run.first + run.count)
                .collect();
            ids.iter().zip(0..).all(|(&id, place)| {
                let previous = usize::try_from(place).unwrap().checked_sub(1);
                let said = (place, previous.map(|at| ids[at]));
                *self.0.entry(id).or_insert(said) == said
            })
        }
    }

    proptest! {
        #[test]
        fn segments_accept_what_a_map_of_ids_accepts(
            requests in prop::collection::vec(
                prop::collection::vec((0u64..12, 1u64..5), 1..4), 1..8),
        ) {
            let (mut check, mut model) = (ChainCheck::default(), Model::default());
            for request in requests {
                let runs: Vec<Run> =
                    request.into_iter().map(|(first, count)| Run { first, count }).collect();
                let accepted = model.request(&runs);
                prop_assert_eq!(check.request(&runs).is_ok(), accepted, "{:?}", runs);
                if !accepted {
                    break;
                }
            }
        }
    }

    #[test]
    fn growing_requests_need_one_segment() {
        let mut check = ChainCheck::default();
        for count in 1..100 {
            check.request(&[Run { first: 7, count }]).unwrap();
        }
        assert_eq!(check.segments.len(), 1);
    }
}
