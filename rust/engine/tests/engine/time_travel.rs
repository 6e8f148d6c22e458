//! Older versions of the base table: which rows they have, by scan and by key.
//!
//! Owns: `Table::snapshot_of_version` and `Table::snapshot_as_of`, their tokens, and that caches of
//! the newest version answer for no older one.
//! Does not own: which commits make a version (`compactions`), or arguments in Python.

use std::time::{Duration, SystemTime};

use lancemem::ErrorKind;

use crate::fixture::{Fixture, Level, within};

/// The rows of the version behind the first compaction, and behind the second.
const FIRST: [(i64, i64); 6] = [(1, 10), (2, 20), (5, 50), (6, 60), (7, 70), (8, 80)];
const SECOND: [(i64, i64); 6] = [(1, 11), (3, 31), (5, 50), (6, 60), (7, 70), (8, 80)];

/// The version of the base table now.
async fn version(fixture: &Fixture) -> u64 {
    fixture.table.latest_base().await.unwrap().version().version
}

/// A table with two compactions, and rows above them. Returns the version behind the first.
async fn moved_on(fixture: &Fixture) -> u64 {
    fixture.to_base(&FIRST).await;
    let first = version(fixture).await;
    fixture.to_sstable(&[(1, 11), (3, 31)], &[2]).await;
    fixture.table.compact().await.unwrap();
    fixture.to_log(&[(4, 42)], &[1]).await;
    first
}

#[tokio::test]
async fn a_version_has_its_own_rows_and_none_above_them() {
    within(async {
        let fixture = Fixture::new().await;
        let first = moved_on(&fixture).await;
        let before = fixture.table.snapshot_of_version(first).await.unwrap();
        assert_eq!(fixture.seen_in(&before).await, fixture.rows(&FIRST));
        let found = [Some(10), Some(20), None, None];
        assert_eq!(fixture.get_in(&before, &[1, 2, 3, 4]).await, found);
        let after = fixture.table.snapshot_of_version(version(&fixture).await).await.unwrap();
        assert_eq!(fixture.seen_in(&after).await, fixture.rows(&SECOND));
        let found = [Some(11), None, Some(31), None];
        assert_eq!(fixture.get_in(&after, &[1, 2, 3, 4]).await, found);
        let newest = [None, None, Some(31), Some(42)];
        assert_eq!(fixture.get(&Level::durable(), &[1, 2, 3, 4]).await, newest);
    })
    .await;
}

#[tokio::test]
async fn indexes_and_caches_of_the_newest_version_answer_for_no_older_one() {
    within(async {
        let fixture = Fixture::new().await;
        let first = moved_on(&fixture).await;
        // The index has no entry for the deleted key 2, and covers the fragment that had it.
        fixture.table.create_record_index().await.unwrap();
        let newest = [None, None, Some(31), Some(42)];
        for _ in 0..2 {
            assert_eq!(fixture.get(&Level::durable(), &[1, 2, 3, 4]).await, newest);
            let before = fixture.table.snapshot_of_version(first).await.unwrap();
            let found = [Some(10), Some(20), None, None];
            assert_eq!(fixture.get_in(&before, &[1, 2, 3, 4]).await, found);
            assert_eq!(fixture.seen_in(&before).await, fixture.rows(&FIRST));
        }
    })
    .await;
}

#[tokio::test]
async fn another_handle_opens_the_version_by_its_token() {
    within(async {
        let mut fixture = Fixture::new().await;
        let first = moved_on(&fixture).await;
        let token = fixture.table.snapshot_of_version(first).await.unwrap().token().unwrap();
        assert_eq!(token.to_string(), first.to_string());
        fixture.reopen().await;
        let before = fixture.table.snapshot_at(&token).await.unwrap();
        assert_eq!(fixture.seen_in(&before).await, fixture.rows(&FIRST));
        assert_eq!(fixture.get_in(&before, &[2, 3]).await, [Some(20), None]);
    })
    .await;
}

#[tokio::test]
async fn a_time_is_the_newest_version_that_was_committed_by_then() {
    within(async {
        let fixture = Fixture::new().await;
        moved_on(&fixture).await;
        let history = fixture.table.history(None).await.unwrap();
        assert!(history.len() >= 3);
        for known in &history {
            for later in [0, 1] {
                let time = known.timestamp + Duration::from_micros(later);
                let snapshot = fixture.table.snapshot_as_of(time).await.unwrap();
                assert_eq!(snapshot.base_version(), known.version);
            }
        }
        let far = history[0].timestamp + Duration::from_hours(1);
        let newest = fixture.table.snapshot_as_of(far).await.unwrap();
        assert_eq!(newest.base_version(), history[0].version);
    })
    .await;
}

#[tokio::test]
async fn a_version_that_is_not_there_is_refused_with_the_oldest_that_is() {
    within(async {
        let fixture = Fixture::new().await;
        moved_on(&fixture).await;
        let newest = version(&fixture).await;
        for number in [0, newest + 1] {
            let refused = fixture.table.snapshot_of_version(number).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            let text = format!("no version {number}, or it was cleaned up; the oldest version");
            assert!(refused.to_string().contains(&text), "{refused}");
            assert!(refused.to_string().contains(&format!("left is 1, the newest {newest}")));
        }
        let refused = fixture.table.snapshot_as_of(SystemTime::UNIX_EPOCH).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("the oldest version left is 1, committed at"));
    })
    .await;
}
