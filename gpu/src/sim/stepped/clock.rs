// SPDX-License-Identifier: Apache-2.0
//! Happens-before: who knows of how many operations of whom.

/// The host, or a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agent(usize);

impl Agent {
    /// The host. Its threads count as one.
    pub(crate) const HOST: Self = Self(0);

    /// The stream at `index` of the scheduler's list.
    pub(crate) const fn stream(index: usize) -> Self {
        Self(index + 1)
    }

    /// The stream's index in the scheduler's list; none for the host.
    pub(crate) const fn index(self) -> Option<usize> {
        self.0.checked_sub(1)
    }
}

/// For each agent, how many of its operations are known to have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorClock(Vec<u64>);

impl VectorClock {
    /// How many operations of `agent` are known.
    pub(crate) fn get(&self, agent: Agent) -> u64 {
        self.0.get(agent.0).copied().unwrap_or(0)
    }

    /// Notes that `count` operations of `agent` are known.
    pub(crate) fn advance(&mut self, agent: Agent, count: u64) {
        if self.0.len() <= agent.0 {
            self.0.resize(agent.0 + 1, 0);
        }
        if let Some(known) = self.0.get_mut(agent.0) {
            *known = (*known).max(count);
        }
    }

    /// Learns what `other` knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (known, theirs) in self.0.iter_mut().zip(&other.0) {
            *known = (*known).max(*theirs);
        }
    }

    /// Whether it knows all that `other` knows.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let mut theirs = other.0.iter().enumerate();
        theirs.all(|(agent, known)| self.get(Agent(agent)) >= *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_knows_what_either_knew() {
        let (mut a, mut b) = (VectorClock::default(), VectorClock::default());
        a.advance(Agent::HOST, 3);
        b.advance(Agent::stream(1), 7);
        assert!(!a.covers(&b) && !b.covers(&a));
        a.join(&b);
        assert!(a.covers(&b) && !b.covers(&a));
        assert_eq!(a.get(Agent::HOST), 3);
        assert_eq!((a.get(Agent::stream(0)), a.get(Agent::stream(1))), (0, 7));
        assert_eq!(a.get(Agent::stream(9)), 0);
        a.advance(Agent::HOST, 1);
        assert_eq!(a.get(Agent::HOST), 3);
    }
}
