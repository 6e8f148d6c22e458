//! Who of the sources of a large scan begins.
//!
//! Every source would begin at once, and all would share the processors until the first of them
//! has rows. One that compares no keys has them soonest, and it begins alone.
//!
//! Owns: the wait of the others, which ends with its first rows and is bounded by time.
//! Does not own: which source that is, or what scan is large (`plan`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The others begin after this time in any case: the caller of the plan may poll them first.
const AT_MOST: Duration = Duration::from_millis(50);

/// Whether the source that begins has given rows.
#[derive(Debug)]
pub struct HeadStart(watch::Sender<bool>);

/// What a source does about a [`HeadStart`].
#[derive(Clone, Debug)]
pub enum StartGate {
    /// It begins.
    First(Arc<HeadStart>),
    /// It waits for the one that begins.
    Later(Arc<HeadStart>),
}

impl Default for HeadStart {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl StartGate {
    /// Before anything of the source is read.
    pub async fn come(&self) {
        if let Self::Later(start) = self {
            let mut rows = start.0.subscribe();
            // Time is up as well as rows are there: either way it is this source's turn.
            drop(timeout(AT_MOST, rows.wait_for(|given| *given)).await);
        }
    }

    /// The source has given rows.
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
    async fn the_others_wait_for_the_first_rows_of_the_one_that_begins() {
        let start = Arc::<HeadStart>::default();
        let (first, later) = (StartGate::First(start.clone()), StartGate::Later(start));
        assert!(poll!(pin!(first.come())).is_ready());
        let mut waits = pin!(later.come());
        assert!(poll!(&mut waits).is_pending());
        first.given();
        assert!(poll!(&mut waits).is_ready());
        assert!(poll!(pin!(later.come())).is_ready(), "who asks later does not wait");
    }

    #[tokio::test]
    async fn the_others_begin_where_nobody_asks_for_the_one_that_should() {
        StartGate::Later(Arc::default()).come().await;
    }
}
