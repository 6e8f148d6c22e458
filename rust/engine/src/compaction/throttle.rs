//! A rate limit in bytes a second.
//!
//! Owns: the pause after a piece of work.
//! Does not own: which bytes count; the callers decide.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Delays work to a rate. Work is never refused.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: u64,
    /// The end of the pause for all bytes taken so far.
    paid: Mutex<Option<Instant>>,
}

impl Throttle {
    /// A limit of `bytes_per_second`; 0 for none.
    #[must_use]
    pub const fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, paid: Mutex::new(None) }
    }

    /// Takes `bytes` and waits as long as they last at the rate, after all bytes taken before.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate is bytes and a clock; no decision about data depends on it"
    )]
    pub async fn take(&self, bytes: usize) {
        if self.bytes_per_second == 0 {
            return;
        }
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let until = {
            let mut paid = self.paid.lock();
            let now = Instant::now();
            let until = paid.map_or(now, |paid| paid.max(now)) + cost;
            *paid = Some(until);
            until
        };
        tokio::time::sleep_until(until.into()).await;
    }
}
