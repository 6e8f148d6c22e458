//! Rows that belong to another shard are refused before anything is written.
//!
//! Owns: the refusal, with row and column, and that of a shard whose rows were put under another
//! sharding. Does not own: the hash, which golden values hold.

use std::sync::Arc;

use lancemem_core::format::Sharding;
use lancemem_core::shard::{ShardIdentity, retire};
use lancemem_core::types::{ErrorKind, ManifestVersion};

use crate::bench::{Bench, quick, within};

fn sharding() -> Sharding {
    Sharding::Bucket { column: "id".to_owned(), buckets: 4 }
}

#[tokio::test]
async fn a_row_of_a_foreign_shard_is_refused_with_row_and_column() {
    within(async {
        let bench = Bench::new().await;
        let numbers: Vec<i64> = (0..40).collect();
        let ordinals = sharding().ordinals(&bench.shape.keys(&numbers)).unwrap();
        let of = |shard: i32| -> Vec<i64> {
            numbers.iter().zip(&ordinals).filter(|(_, o)| **o == shard).map(|(n, _)| *n).collect()
        };
        let (own, foreign) = (of(2), of(3));
        let identity = ShardIdentity {
            shard_id: bench.shard_id,
            routing: Some((sharding(), 2)),
            sharding: None,
        };
        let writer = bench.try_open_as(identity, quick()).await.unwrap();
        let error = bench.put(&writer, &[(own[0], 0), (own[1], 0), (foreign[0], 0)]).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "row 2 belongs to shard 3 by its column 'id', this job owns shard 2"
        );
        let error = bench.delete(&writer, &[own[0], foreign[0]]).await.unwrap_err();
        assert!(error.to_string().starts_with("row 1 belongs to shard 3"), "{error}");
        assert!(bench.seen(&writer).is_empty(), "nothing of a refused put is written");
        assert!(bench.data_entries().await.is_empty());
        bench.put(&writer, &[(own[0], 1), (own[1], 2)]).await.unwrap();
        assert_eq!(bench.seen(&writer), bench.rows(&[(own[0], 1), (own[1], 2)]));
    })
    .await;
}

#[tokio::test]
async fn a_refused_row_anywhere_in_a_split_put_writes_none_of_its_pieces() {
    within(async {
        let bench = Bench::new().await;
        let writer = bench.open_with(crate::bench::tiny(2)).await;
        let wrong = lancemem_testkit::KeyShape::Utf8.rows(&[(1, 1)]);
        let error = writer.put(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let identity = ShardIdentity {
            shard_id: bench.shard_id,
            routing: Some((sharding(), 0)),
            sharding: None,
        };
        let writer = bench.try_open_as(identity, crate::bench::tiny(2)).await.unwrap();
        let rows: Vec<(i64, i64)> = (0..40).map(|number| (number, 0)).collect();
        assert!(bench.put(&writer, &rows).await.is_err());
        assert!(bench.data_entries().await.is_empty());
        assert_eq!(writer.stats().rows, 0);
    })
    .await;
}

/// Bucket 2 of as many as `buckets`.
fn of(bench: &Bench, buckets: u32) -> ShardIdentity {
    let sharding = Sharding::Bucket { column: "id".to_owned(), buckets };
    let record = Some(sharding.record(Some(0)));
    ShardIdentity { shard_id: bench.shard_id, routing: Some((sharding, 2)), sharding: record }
}

/// A key of bucket 2 of 4.
fn own_key(bench: &Bench) -> i64 {
    let keys: Vec<i64> = (0..40).collect();
    let ordinals = sharding().ordinals(&bench.shape.keys(&keys)).unwrap();
    keys[ordinals.iter().position(|ordinal| *ordinal == 2).unwrap()]
}

#[tokio::test]
async fn a_shard_whose_rows_were_put_under_another_sharding_is_not_claimed() {
    within(async {
        let bench = Bench::new().await;
        let own = own_key(&bench);
        let writer = bench.try_open_as(of(&bench, 4), quick()).await.unwrap();
        let recorded = bench.manifests().existing().await.unwrap().sharding.clone();
        assert_eq!(recorded.as_deref(), Some("bucket(field_id=0, num_buckets=4)"));
        bench.put(&writer, &[(own, 1)]).await.unwrap();

        let error = bench.try_open_as(of(&bench, 3), quick()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("num_buckets=4), this job routes by"), "{error}");
        bench.put(&writer, &[(own, 2)]).await.expect("a refused job fences nobody");
        writer.close(true).await.unwrap();
        assert!(bench.try_open_as(of(&bench, 3), quick()).await.is_err(), "its run has the rows");
        bench.try_open_as(of(&bench, 4), quick()).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_shard_without_rows_can_be_retired_and_claimed_under_another_sharding() {
    within(async {
        let bench = Bench::new().await;
        let writer = bench.try_open_as(of(&bench, 4), quick()).await.unwrap();
        let manifests = Arc::new(bench.manifests());
        retire(&bench.store(), &manifests).await.unwrap();
        let retired = manifests.existing().await.unwrap();
        let claim = manifests.at(ManifestVersion(retired.version.get() - 1)).await.unwrap();
        assert_eq!((claim.writer_epoch, claim.sharding.is_some()), (retired.writer_epoch, true));
        assert_eq!(retired.sharding, None, "named until the fence stands, and then no more");
        let error = bench.put(&writer, &[(own_key(&bench), 1)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        let _taken = bench.try_open_as(of(&bench, 3), quick()).await.unwrap();
        let recorded = bench.manifests().existing().await.unwrap().sharding.clone();
        assert_eq!(recorded.as_deref(), Some("bucket(field_id=0, num_buckets=3)"));
    })
    .await;
}
