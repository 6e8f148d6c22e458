//! The attempts of a step that is retried.
//!
//! Owns: the number of attempts, and the pauses between them, which double up to a longest one.
//! Does not own: which errors are retried, or what an attempt reads again.

use std::time::Duration;

/// Counts the attempts of a step, and pauses between them.
///
/// ```
/// # use std::time::Duration;
/// # use lancemem_core::store::Backoff;
/// let (first, longest) = (Duration::from_millis(10), Duration::from_millis(15));
/// let mut backoff = Backoff::exponential(3, first, longest);
/// assert_eq!(backoff.next_pause(), Some(first));
/// assert_eq!(backoff.next_pause(), Some(longest));
/// assert!(backoff.is_last());
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    attempt: usize,
    max_attempts: usize,
    /// Before the next attempt; `None` where attempts follow each other at once.
    pause: Option<Duration>,
    longest: Duration,
}

impl Backoff {
    /// At most `max_attempts`, which follow each other at once.
    #[must_use]
    pub const fn at_once(max_attempts: usize) -> Self {
        Self { attempt: 1, max_attempts, pause: None, longest: Duration::ZERO }
    }

    /// At most `max_attempts`, with a pause of `first` before the second. Each later pause is twice
    /// as long, but at most `longest`.
    #[must_use]
    pub const fn exponential(max_attempts: usize, first: Duration, longest: Duration) -> Self {
        Self { attempt: 1, max_attempts, pause: Some(first), longest }
    }

    /// The number of the running attempt, from 1.
    #[must_use]
    pub const fn attempt(&self) -> usize {
        self.attempt
    }

    /// Whether no attempt may follow the running one.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.attempt >= self.max_attempts
    }

    /// Begins the next attempt. Returns the pause before it, for a caller that sleeps by a clock of
    /// its own.
    pub fn next_pause(&mut self) -> Option<Duration> {
        self.attempt += 1;
        let pause = self.pause;
        self.pause = pause.map(|pause| pause.saturating_mul(2).min(self.longest));
        pause
    }

    /// Begins the next attempt, after the pause before it by the runtime's clock.
    pub async fn wait(&mut self) {
        if let Some(pause) = self.next_pause() {
            #[expect(
                clippy::disallowed_methods,
                reason = "the pause is the point; no decision reads the clock"
            )]
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::exponential(5, MS, 5 * MS);
        let mut pauses = Vec::new();
        while !backoff.is_last() {
            pauses.extend(backoff.next_pause());
        }
        assert_eq!(pauses, [MS, 2 * MS, 4 * MS, 5 * MS]);
        assert_eq!(backoff.attempt(), 5);
    }

    #[test]
    fn a_first_pause_may_be_longer_than_the_longest_of_later_ones() {
        let mut backoff = Backoff::exponential(usize::MAX, 9 * MS, 5 * MS);
        assert_eq!([backoff.next_pause(), backoff.next_pause()], [Some(9 * MS), Some(5 * MS)]);
        let mut without_limit = Backoff::exponential(9, Duration::MAX, Duration::MAX);
        assert_eq!(
            [without_limit.next_pause(), without_limit.next_pause()],
            [Some(Duration::MAX); 2]
        );
    }

    #[test]
    fn attempts_at_once_never_wait() {
        let mut backoff = Backoff::at_once(2);
        assert!(!backoff.is_last());
        // Without a runtime: a sleep would panic.
        assert_eq!(backoff.wait().now_or_never(), Some(()));
        assert!(backoff.is_last());
        assert!(Backoff::at_once(1).is_last() && Backoff::at_once(0).is_last());
    }
}
