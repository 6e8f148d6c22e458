//! Changes of a store that complete although the task that asked for them was cancelled.
//!
//! Owns: which changes of a piece of work are in flight, and the wait for their end.
//! Does not own: the changes. Each is a single step that happens or not; no change needs another
//! one to follow it.
//!
//! A write to a local disk runs on a blocking thread, which cancellation does not stop. A caller
//! that cancels work and then reports it as stopped has to wait for these changes first.

use std::future::{Future, pending};
use std::sync::Arc;

use tokio::sync::RwLock;

tokio::task_local! {
    static OF: Changes;
}

/// The changes of some work. Clones share one count.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<RwLock<()>>);

impl Changes {
    /// Runs `work` and counts its changes.
    pub async fn of<F: Future>(&self, work: F) -> F::Output {
        OF.scope(self.clone(), work).await
    }

    /// Returns once no change is in flight, those of cancelled work included.
    pub async fn ended(&self) {
        drop(self.0.write().await);
    }
}

/// Makes a change. Inside of counted work it runs on a task of its own, which is never aborted.
pub async fn change<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let Ok(changes) = OF.try_with(Clone::clone) else { return work.await };
    let on_its_way = changes.0.read_owned().await;
    let done = tokio::spawn(async move {
        let _on_its_way = on_its_way;
        work.await
    });
    match done.await {
        Ok(done) => done,
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        // The runtime ends, and this task with it.
        Err(_) => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_change_comes_to_its_end_although_its_work_is_cancelled() {
        let (changes, may_end) = (Changes::default(), Arc::new(Notify::new()));
        let (begun, made) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
        let work = {
            let (changes, may_end) = (changes.clone(), may_end.clone());
            let (begun, made) = (begun.clone(), made.clone());
            let one = async move {
                begun.notify_one();
                may_end.notified().await;
                made.fetch_add(1, Ordering::SeqCst);
            };
            tokio::spawn(async move { changes.of(change(one)).await })
        };
        begun.notified().await;
        work.abort();
        assert!(work.await.unwrap_err().is_cancelled());
        let waits = tokio::spawn({
            let changes = changes.clone();
            async move { changes.ended().await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        may_end.notify_one();
        waits.await.unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_change_outside_of_counted_work_is_made_where_it_is() {
        let here = tokio::task::try_id();
        assert_eq!(change(async { tokio::task::try_id() }).await, here);
    }
}
