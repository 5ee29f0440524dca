// SPDX-License-Identifier: Apache-2.0
//! The one place that names lock and atomic types, in `parking_lot`'s shape: guards without a
//! poison result. Under `cfg(loom)` the same names are loom's, so that what ships is what is
//! model-checked. With debug assertions they trace the order in which locks are taken and refuse
//! an order that could deadlock.
//!
//! Nothing in this crate uses it; it lives here because every other crate rests on this one.

#[cfg(loom)]
mod model;
#[cfg(all(debug_assertions, not(loom)))]
mod ordered;
#[cfg(all(not(debug_assertions), not(loom)))]
mod real;

#[cfg(loom)]
pub use model::*;
#[cfg(all(debug_assertions, not(loom)))]
pub use ordered::{Condvar, Mutex, MutexGuard};
#[cfg(all(not(debug_assertions), not(loom)))]
pub use real::{Condvar, Mutex, MutexGuard};

#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use std::thread;

/// Locks `mutex`, waits on `condvar` while `condition` holds, and returns the guard.
#[cfg(not(loom))]
pub fn lock_while<'a, T>(
    mutex: &'a Mutex<T>,
    condvar: &Condvar,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let mut guard = mutex.lock();
    condvar.wait_while(&mut guard, condition);
    guard
}

/// Locks `mutex`, waits on `condvar` while `condition` holds, and returns the guard.
#[cfg(loom)]
pub fn lock_while<'a, T>(
    mutex: &'a Mutex<T>,
    condvar: &Condvar,
    condition: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    condvar.wait_while(mutex.lock(), condition)
}
