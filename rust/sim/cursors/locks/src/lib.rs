//! `parking_lot::Mutex` over loom's. Owns the difference between the two: no poisoning.
//! Does not own: anything that the MemTable does not use.

/// A lock whose waiters loom knows.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// Where a holder panicked, which fails the run anyway.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a holder panicked")
    }
}
