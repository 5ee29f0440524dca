// SPDX-License-Identifier: Apache-2.0
//! Locks that check their order, for builds with debug assertions.
//!
//! Locks are classed by the line that made them. Taking a lock of class B while one of class A is
//! held adds the edge A to B; an edge that closes a circle panics and names both lines, though the
//! threads that would deadlock never met. Two locks of one class cannot be told apart, so holding
//! both is refused too.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

type Class = &'static Location<'static>;
/// For each class, those that were taken while it was held.
type Edges = BTreeMap<Class, BTreeSet<Class>>;

static EDGES: parking_lot::Mutex<Edges> = parking_lot::Mutex::new(BTreeMap::new());

thread_local! {
    /// Classes of the locks that this thread holds, in the order in which it took them.
    static HELD: RefCell<Vec<Class>> = const { RefCell::new(Vec::new()) };
}

/// Checks and notes that this thread is about to take a lock of `class`.
fn check(class: Class) {
    let held = HELD.with_borrow(Clone::clone);
    if held.is_empty() {
        return;
    }
    let mut edges = EDGES.lock();
    for outer in held {
        let known = edges.get(outer).is_some_and(|inner| inner.contains(class));
        if known {
            continue;
        }
        let circle = outer == class || reaches(&edges, class, outer);
        assert!(
            !circle,
            "lock order: the lock made at {class} is taken while the one made at {outer} is held, \
             and elsewhere it is the other way round"
        );
        edges.entry(outer).or_default().insert(class);
    }
}

/// Whether a chain of edges leads from `from` to `to`.
fn reaches(edges: &Edges, from: Class, to: Class) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(class) = open.pop() {
        for next in edges.get(class).into_iter().flatten() {
            if *next == to {
                return true;
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

/// A mutex with `parking_lot`'s shape.
#[derive(Debug)]
pub struct Mutex<T: ?Sized> {
    class: Class,
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex around `value`; its class is the calling line.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self {
            class: Location::caller(),
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks.
    ///
    /// # Panics
    /// The order of locks could deadlock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        check(self.class);
        self.guard(self.inner.lock())
    }

    /// Locks if nobody holds it; that cannot deadlock, so the order is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().map(|inner| self.guard(inner))
    }

    /// The value, without a lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    fn guard<'a>(&'a self, inner: parking_lot::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        HELD.with_borrow_mut(|held| held.push(self.class));
        MutexGuard {
            class: self.class,
            inner,
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A held lock.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    class: Class,
    inner: parking_lot::MutexGuard<'a, T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // A guard may outlive the thread's bookkeeping while the thread ends.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|class| *class == self.class) {
                held.remove(at);
            }
        });
    }
}

/// A condition variable with `parking_lot`'s shape.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }
    /// Wakes one waiter; whether there was one.
    pub fn notify_one(&self) -> bool {
        self.0.notify_one()
    }
    /// Wakes every waiter; how many there were.
    pub fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
    /// Waits once.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }
    /// Waits once, for `timeout` at most.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> parking_lot::WaitTimeoutResult {
        self.0.wait_for(&mut guard.inner, timeout)
    }
    /// Waits while `condition` holds.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        self.0.wait_while(&mut guard.inner, condition);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn panics(work: impl FnOnce() + Send) -> bool {
        thread::scope(|scope| scope.spawn(work).join().is_err())
    }

    #[test]
    fn one_order_is_fine_and_the_other_way_round_is_refused() {
        let (a, b, c) = (Mutex::new(1), Mutex::new(2), Mutex::new(3));
        for _ in 0..2 {
            let first = a.lock();
            let second = b.lock();
            assert_eq!(*first + *second, 3);
        }
        let both = || drop((b.lock(), c.lock()));
        both();
        assert!(panics(|| drop((b.lock(), a.lock()))));
        assert!(panics(|| drop((c.lock(), a.lock()))), "a circle of three");
        assert!(!panics(|| drop((a.lock(), c.lock()))));
        assert!(a.try_lock().is_some());
    }

    #[test]
    fn two_locks_of_one_line_are_not_held_together() {
        let pair: Vec<Mutex<u32>> = (0..2).map(Mutex::new).collect();
        drop(pair[0].lock());
        drop(pair[1].lock());
        assert!(panics(|| drop((pair[0].lock(), pair[1].lock()))));
    }

    #[test]
    fn released_locks_are_forgotten_in_any_order() {
        let (a, b) = (Mutex::new(()), Mutex::new(()));
        let first = a.lock();
        let second = b.lock();
        drop(first);
        drop(second);
        HELD.with_borrow(|held| assert!(held.is_empty()));
    }

    #[test]
    fn waiting_gives_the_lock_away() {
        let (flag, changed) = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                *flag.lock() = true;
                changed.notify_all();
            });
            let mut guard = flag.lock();
            changed.wait_while(&mut guard, |set| !*set);
            assert!(*guard);
        });
    }
}
