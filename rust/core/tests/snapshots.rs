//! What a snapshot shows while a writer works: whole puts, and always the same rows.
//!
//! Owns: snapshots beside running puts.
//! Does not own: snapshots beside flushes (`flushing`).

use std::sync::Arc;

use lancemem_testkit::reader::newest_of;

use crate::fixture::{Fixture, quick, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_never_shows_half_a_put() {
    within(async {
        for durable_write in [false, true] {
            let fixture = Arc::new(Fixture::new().await);
            let config = quick().with_durable_write(durable_write);
            let writer = Arc::new(fixture.open_with(config).await);
            let putting = {
                let (fixture, writer) = (fixture.clone(), writer.clone());
                tokio::spawn(async move {
                    for value in 0..12 {
                        let rows: Vec<(i64, i64)> = (0..8000).map(|n| (n, value)).collect();
                        fixture.put(&writer, &rows).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                })
            };
            while !putting.is_finished() {
                for view in writer.snapshot().unwrap().memtables {
                    let newest = newest_of(&view);
                    assert_eq!(newest.len(), 8000);
                    let first = newest.values().next().unwrap();
                    assert!(newest.values().all(|value| value == first), "two puts are mixed");
                }
                tokio::task::yield_now().await;
            }
            putting.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_outlives_the_flush_of_its_memtables_and_the_end_of_the_job() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        let pinned = writer.snapshot().unwrap();
        fixture.put(&writer, &[(1, 11)]).await.unwrap();
        writer.close(true).await.unwrap();
        drop(writer);
        let seen = lancemem_testkit::merge(&pinned.manifest, &pinned.memtables, &fixture.sink);
        assert_eq!(seen, fixture.rows(&[(1, 10)]));
    })
    .await;
}
