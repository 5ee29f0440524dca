// SPDX-License-Identifier: Apache-2.0
//! The one place that names lock and atomic types, in `parking_lot`'s shape: guards without a
//! poison result. Under `cfg(loom)` the same names are loom's, so that what ships is what is
//! model-checked.
//!
//! Nothing in this crate uses it; it lives here because every other crate rests on this one.

#[cfg(not(loom))]
mod real {
    pub use parking_lot::{Condvar, Mutex, MutexGuard};
    pub use std::sync::Arc;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub use std::thread;
}

#[cfg(loom)]
mod model {
    pub use loom::sync::Arc;
    pub use loom::sync::MutexGuard;
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub use loom::thread;

    /// loom's mutex with `parking_lot`'s shape.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// A mutex around `value`.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        /// Locks.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .expect("a model thread panicked while it held the lock")
        }
    }

    /// loom's condition variable with `parking_lot`'s shape.
    #[derive(Debug, Default)]
    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        /// A condition variable.
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }
        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
        /// Wakes every waiter.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
        /// Waits while `condition` holds; gives the guard back.
        pub fn wait_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> MutexGuard<'a, T> {
            while condition(&mut guard) {
                guard = self.0.wait(guard).expect("a model thread panicked");
            }
            guard
        }
    }
}

#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;

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
