// SPDX-License-Identifier: Apache-2.0
//! What ships: `parking_lot` and the standard library.

pub use parking_lot::{Condvar, Mutex, MutexGuard};
