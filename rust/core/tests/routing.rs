//! Rows that belong to another shard are refused before anything is written.
//!
//! Owns: the refusal of a row, with row and column, and of a shard whose rows were put under
//! another sharding.
//! Does not own: the hash, which golden values hold.

use std::sync::Arc;

use lancemem_core::format::Sharding;
use lancemem_core::shard::{
    ShardIdentity, WriteBatch, WriteOptions, check_empty, retire, take_over,
};
use lancemem_core::types::{ErrorKind, ManifestVersion, ONCE, Standing, Txn};

use crate::fixture::{Fixture, quick, within};

fn sharding() -> Sharding {
    Sharding::Bucket { column: "id".to_owned(), buckets: 4 }
}

#[tokio::test]
async fn a_row_of_a_foreign_shard_is_refused_with_row_and_column() {
    within(async {
        let fixture = Fixture::new().await;
        let numbers: Vec<i64> = (0..40).collect();
        let ordinals = sharding().ordinals(&fixture.shape.keys(&numbers)).unwrap();
        let of = |shard: i32| -> Vec<i64> {
            numbers.iter().zip(&ordinals).filter(|(_, o)| **o == shard).map(|(n, _)| *n).collect()
        };
        let (own, foreign) = (of(2), of(3));
        let identity = ShardIdentity::new(fixture.shard_id).with_routing((sharding(), 2));
        let writer = fixture.try_open_as(identity, quick()).await.unwrap();
        let error = fixture.put(&writer, &[(own[0], 0), (own[1], 0), (foreign[0], 0)]).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "row 2 belongs to shard 3 by its column 'id', this job owns shard 2; a writer of the \
             table sends each row to its shard"
        );
        let error = fixture.delete(&writer, &[own[0], foreign[0]]).await.unwrap_err();
        assert!(error.to_string().starts_with("row 1 belongs to shard 3"), "{error}");
        assert!(fixture.seen(&writer).is_empty(), "nothing of a refused put is written");
        assert!(fixture.data_entries().await.is_empty());
        fixture.put(&writer, &[(own[0], 1), (own[1], 2)]).await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(own[0], 1), (own[1], 2)]));
    })
    .await;
}

#[tokio::test]
async fn a_refused_row_anywhere_in_a_split_put_writes_none_of_its_pieces() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(crate::fixture::tiny(2)).await;
        let wrong = lancemem_testkit::KeyShape::Utf8.rows(&[(1, 1)]);
        let error = writer.put(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let identity = ShardIdentity::new(fixture.shard_id).with_routing((sharding(), 0));
        let writer = fixture.try_open_as(identity, crate::fixture::tiny(2)).await.unwrap();
        let rows: Vec<(i64, i64)> = (0..40).map(|number| (number, 0)).collect();
        assert!(fixture.put(&writer, &rows).await.is_err());
        assert!(fixture.data_entries().await.is_empty());
        assert_eq!(writer.stats().rows, 0);
    })
    .await;
}

/// Bucket 2 of as many as `buckets`.
fn of(fixture: &Fixture, buckets: u32) -> ShardIdentity {
    let sharding = Sharding::Bucket { column: "id".to_owned(), buckets };
    let record = sharding.record(Some(0));
    ShardIdentity::new(fixture.shard_id).with_routing((sharding, 2)).with_sharding(record)
}

/// A key of bucket 2 of 4.
fn own_key(fixture: &Fixture) -> i64 {
    let keys: Vec<i64> = (0..40).collect();
    let ordinals = sharding().ordinals(&fixture.shape.keys(&keys)).unwrap();
    keys[ordinals.iter().position(|ordinal| *ordinal == 2).unwrap()]
}

#[tokio::test]
async fn a_shard_whose_rows_were_put_under_another_sharding_is_not_claimed() {
    within(async {
        let fixture = Fixture::new().await;
        let own = own_key(&fixture);
        let writer = fixture.try_open_as(of(&fixture, 4), quick()).await.unwrap();
        let recorded = fixture.manifests().existing().await.unwrap().sharding.clone();
        assert_eq!(recorded.as_deref(), Some("bucket(field_id=0, num_buckets=4)"));
        fixture.put(&writer, &[(own, 1)]).await.unwrap();

        let error = fixture.try_open_as(of(&fixture, 3), quick()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("num_buckets=4), this job routes by"), "{error}");
        fixture.put(&writer, &[(own, 2)]).await.expect("a refused job fences no writer");
        writer.close(true).await.unwrap();
        assert!(
            fixture.try_open_as(of(&fixture, 3), quick()).await.is_err(),
            "its SSTable has the rows"
        );
        fixture.try_open_as(of(&fixture, 4), quick()).await.unwrap();
    })
    .await;
}

/// The sharding that the shard's manifest records.
async fn recorded(fixture: &Fixture) -> Option<String> {
    fixture.manifests().existing().await.unwrap().sharding.clone()
}

fn bucket_of(buckets: u32) -> String {
    format!("bucket(field_id=0, num_buckets={buckets})")
}

#[tokio::test]
async fn a_shard_without_rows_is_retired_and_claimed_under_another_sharding() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.try_open_as(of(&fixture, 4), quick()).await.unwrap();
        let manifests = Arc::new(fixture.manifests());
        retire(&fixture.store(), &manifests, &bucket_of(3)).await.unwrap();
        let retired = manifests.existing().await.unwrap();
        let claim = manifests.at(ManifestVersion(retired.version.get() - 1)).await.unwrap();
        assert_eq!(claim.writer_epoch, retired.writer_epoch);
        assert_eq!(claim.sharding, Some(bucket_of(4)), "until the fence stands");
        assert_eq!(retired.sharding, Some(bucket_of(3)));
        let error = fixture.put(&writer, &[(own_key(&fixture), 1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert!(fixture.try_open_as(of(&fixture, 4), quick()).await.is_err());
        let _taken = fixture.try_open_as(of(&fixture, 3), quick()).await.unwrap();
        assert_eq!(recorded(&fixture).await, Some(bucket_of(3)));
    })
    .await;
}

#[tokio::test]
async fn a_takeover_that_comes_too_late_leaves_the_rows_and_the_job_of_the_faster_alone() {
    within(async {
        let fixture = Fixture::new().await;
        let own = own_key(&fixture);
        fixture.try_open_as(of(&fixture, 3), quick()).await.unwrap();
        let (store, manifests) = (fixture.store(), Arc::new(fixture.manifests()));
        check_empty(&store, &manifests, &bucket_of(4)).await.unwrap();
        take_over(&store, &manifests, &bucket_of(4)).await.unwrap();
        let writer = fixture.try_open_as(of(&fixture, 4), quick()).await.unwrap();
        take_over(&store, &manifests, &bucket_of(4)).await.unwrap();
        fixture.put(&writer, &[(own, 1)]).await.expect("it is not fenced");
        check_empty(&store, &manifests, &bucket_of(4)).await.unwrap();
        take_over(&store, &manifests, &bucket_of(4)).await.unwrap();
        fixture.put(&writer, &[(own, 2)]).await.expect("nor where it has rows");
        let error = check_empty(&store, &manifests, &bucket_of(3)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let error = take_over(&store, &manifests, &bucket_of(3)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        fixture.put(&writer, &[(own, 3)]).await.expect("a refusal fences no writer");
    })
    .await;
}

#[tokio::test]
async fn many_take_a_shard_over_at_once_and_it_is_one_of_the_new_sharding() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.try_open_as(of(&fixture, 3), quick()).await.unwrap();
        let taken = (0..6).map(|_| {
            let (store, manifests) = (fixture.store(), Arc::new(fixture.manifests()));
            async move { take_over(&store, &manifests, &bucket_of(4)).await }
        });
        let taken = futures::future::join_all(taken).await;
        for error in taken.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        }
        assert_eq!(recorded(&fixture).await, Some(bucket_of(4)));
    })
    .await;
}

#[tokio::test]
async fn a_shard_of_a_sharding_is_not_claimed_for_a_table_without_one() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.try_open_as(of(&fixture, 4), quick()).await.unwrap();
        let manual = ShardIdentity::new(fixture.shard_id);
        let error = fixture.try_open_as(manual, quick()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("and the table's index has none"), "{error}");
        fixture.put(&writer, &[(own_key(&fixture), 1)]).await.expect("it is not fenced");
    })
    .await;
}

/// Under another sharding the rows of one transaction id may belong to other shards. Rows of the
/// newest version may be missing there; older versions were overtaken.
#[tokio::test]
async fn under_another_sharding_the_newest_version_of_an_application_is_written_once_more() {
    within(async {
        let fixture = Fixture::new().await;
        let own = own_key(&fixture);
        let writer = fixture.try_open_as(of(&fixture, 4), quick()).await.unwrap();
        let txn = |version| Txn::new("app", version).unwrap();
        let sstable = format!("{ONCE}{:016x}-0123abcd_gen_0", 7);
        for txn in [txn(5), Txn::new("first", i64::MIN).unwrap(), Txn::new(&sstable, 0).unwrap()] {
            let rows = fixture.shape.rows(&[(own, 1)]);
            writer
                .write(WriteBatch::upserts(&rows), WriteOptions::default().txn(&txn))
                .await
                .unwrap();
        }
        writer.close(true).await.unwrap();
        let manifests = Arc::new(fixture.manifests());
        manifests.update_beside_owner(|manifest| manifest.sstables.clear()).await.unwrap();
        for _ in 0..2 {
            retire(&fixture.store(), &manifests, &bucket_of(4)).await.unwrap();
        }
        assert_eq!(manifests.existing().await.unwrap().txns.get("app"), Some(5), "the same");
        for _ in 0..2 {
            retire(&fixture.store(), &manifests, &bucket_of(3)).await.unwrap();
        }
        let txns = manifests.existing().await.unwrap().txns.clone();
        assert_eq!(
            (txns.get("app"), txns.get("first"), txns.get(&sstable)),
            (Some(4), None, Some(0))
        );
        assert_eq!(txns.standing(&txn(5)), Standing::New);
        assert_eq!(txns.standing(&txn(3)), Standing::Stale(4));
    })
    .await;
}
