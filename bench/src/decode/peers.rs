// SPDX-License-Identifier: Apache-2.0
//! Figures of other kernels on an H200, as shares of the floor of their own run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DecodeBenchError, Shape};

const FILE: &str = include_str!("../../data/h200_mla_decode_peers.json");

/// The file.
#[derive(Clone, Debug, Deserialize)]
pub struct Peers {
    /// Machine, versions, how it was measured.
    pub source: String,
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
struct Row {
    heads: u32,
    queries: u32,
    batch: u32,
    length: u32,
    floor_us: f64,
    us: BTreeMap<String, f64>,
}

/// One kernel's figure for a shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Floor over time, both of its own run.
    pub share_of_floor: f64,
}

impl Peers {
    /// Reads the file.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read() -> Result<Self, DecodeBenchError> {
        serde_json::from_str(FILE).map_err(|error| DecodeBenchError::Peers(error.to_string()))
    }

    /// What the file has of a shape, best first.
    #[must_use]
    pub fn of(&self, shape: Shape) -> Vec<Peer> {
        let same = |row: &&Row| {
            (row.heads, row.queries, row.batch, row.length)
                == (shape.heads, shape.queries, shape.batch, shape.length)
        };
        let Some(row) = self.rows.iter().find(same) else {
            return Vec::new();
        };
        let share = |(name, us): (&String, &f64)| Peer {
            name: name.clone(),
            share_of_floor: row.floor_us / us,
        };
        let mut peers: Vec<Peer> = row.us.iter().map(share).collect();
        peers.sort_by(|a, b| b.share_of_floor.total_cmp(&a.share_of_floor));
        peers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_a_shape_are_shares_of_their_own_floor() {
        let peers = Peers::read().unwrap();
        assert!(peers.source.contains("H200"));
        let best = &peers.of(Shape::new(128, 1, 64, 8192))[0];
        assert_eq!(best.name, "fmla");
        assert!((best.share_of_floor - 0.98).abs() < 0.01, "{best:?}");
        assert!(peers.of(Shape::new(127, 1, 64, 8192)).is_empty());
    }
}
