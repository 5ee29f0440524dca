// SPDX-License-Identifier: Apache-2.0
//! One job of the queue, and how urgent it is.

use striata_core::OpId;

use super::window::Room;
use crate::device::Direction;

/// Names a job inside one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobId(pub(super) u64);

/// What the queue knows of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) id: JobId,
    pub(super) op: OpId,
    pub(super) direction: Direction,
    /// Units of submission.
    pub(super) units: u32,
    /// Bytes of the first unit.
    pub(super) first_bytes: u64,
    /// Goes before loads.
    pub(super) urgent: bool,
    /// May not start yet.
    pub(super) fenced: bool,
    /// A load that somebody may give up.
    pub(super) cancellable: bool,
}

/// A job that is here or in hand.
#[derive(Debug)]
pub(super) struct Entry<J> {
    pub(super) ticket: Ticket,
    /// None while it is in hand.
    pub(super) job: Option<J>,
    pub(super) begun: bool,
    /// Units that were submitted or are in hand.
    pub(super) reached: u32,
    /// Units that somebody waits for.
    pub(super) promoted: u32,
    pub(super) next_bytes: u64,
    pub(super) cancelled: bool,
}

/// Lower goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    Promoted,
    UrgentStore,
    Load,
    Store,
}

impl<J> Entry<J> {
    pub(super) const fn new(ticket: Ticket, job: J) -> Self {
        Self {
            ticket,
            job: Some(job),
            begun: false,
            reached: 0,
            promoted: 0,
            next_bytes: ticket.first_bytes,
            cancelled: false,
        }
    }

    pub(super) fn class(&self) -> Class {
        match (self.ticket.direction, self.ticket.urgent) {
            _ if self.reached < self.promoted => Class::Promoted,
            (Direction::DeviceToHost, true) => Class::UrgentStore,
            (Direction::HostToDevice, _) => Class::Load,
            (Direction::DeviceToHost, false) => Class::Store,
        }
    }

    pub(super) const fn may_start(&self) -> bool {
        self.job.is_some() && !self.ticket.fenced
    }

    pub(super) fn fits(&self, room: Room) -> bool {
        self.class() == Class::Promoted || room.fits(self.next_bytes)
    }
}
