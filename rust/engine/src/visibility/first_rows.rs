//! The order in which the sources of a large scan begin.
//!
//! Sources that begin at once share the processors until the first of them has rows. A source that
//! compares no keys has rows soonest, so this source begins alone.
//!
//! Owns: the wait of the other sources, which ends with the first rows or after a bounded time.
//! Does not own: the choice of the first source, or which scans are large (`plan`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The other sources begin after this time in any case: the plan's caller may poll them first.
const AT_MOST: Duration = Duration::from_millis(50);

/// Whether the first source has yielded rows.
#[derive(Debug)]
pub struct HeadStart(watch::Sender<bool>);

/// The gate before a source of a plan with a [`HeadStart`].
#[derive(Clone, Debug)]
pub enum StartGate {
    /// The source begins at once.
    First(Arc<HeadStart>),
    /// The source waits for the first rows of the first source.
    Later(Arc<HeadStart>),
}

impl Default for HeadStart {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl StartGate {
    /// Waits until the source may begin; called before anything of the source is read.
    pub async fn come(&self) {
        if let Self::Later(start) = self {
            let mut rows = start.0.subscribe();
            // After the timeout the source begins too, so the result does not matter.
            drop(timeout(AT_MOST, rows.wait_for(|given| *given)).await);
        }
    }

    /// Records that the source has yielded rows or has ended.
    pub fn given(&self) {
        if let Self::First(start) = self {
            start.0.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn the_other_sources_wait_for_the_first_rows_of_the_first_source() {
        let start = Arc::<HeadStart>::default();
        let (first, later) = (StartGate::First(start.clone()), StartGate::Later(start));
        assert!(poll!(pin!(first.come())).is_ready());
        let mut waits = pin!(later.come());
        assert!(poll!(&mut waits).is_pending());
        first.given();
        assert!(poll!(&mut waits).is_ready());
        assert!(poll!(pin!(later.come())).is_ready(), "a source that asks later does not wait");
    }

    #[tokio::test]
    async fn the_other_sources_begin_where_the_first_source_is_never_polled() {
        StartGate::Later(Arc::default()).come().await;
    }
}
