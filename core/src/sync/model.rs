// SPDX-License-Identifier: Apache-2.0
//! loom's types, with `parking_lot`'s shape.

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
