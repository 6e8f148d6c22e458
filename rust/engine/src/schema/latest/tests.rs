//! A look for the newest version during a clean-up of old ones.
//!
//! Owns: the race between a listing and the read of a listed version: a commit handler commits and
//! cleans up in between. Does not own: what a handle does with a newer version.

use std::path::{Path as LocalPath, PathBuf};
use std::sync::atomic::AtomicBool;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, Schema};
use async_trait::async_trait;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::{WriteMode, WriteParams};
use lance_io::object_store::ObjectStore;
use lance_table::format::{IndexMetadata, Manifest, Transaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ConditionalPutCommitHandler, ManifestLocation,
    ManifestNamingScheme, ManifestWriter,
};
use lancemem_core::types::ErrorKind;
use object_store::path::Path;

use super::*;

/// Lists the newest version, then commits another one and cleans up the listed one.
#[derive(Debug)]
struct CleanedUp {
    folder: PathBuf,
    is_armed: AtomicBool,
}

#[async_trait]
impl CommitHandler for CleanedUp {
    async fn resolve_latest_location(
        &self,
        base_path: &Path,
        store: &ObjectStore,
    ) -> lance_core::Result<ManifestLocation> {
        let listed = ConditionalPutCommitHandler.resolve_latest_location(base_path, store).await?;
        if self.is_armed.swap(false, std::sync::atomic::Ordering::SeqCst) {
            std::fs::remove_file(manifest_of(&self.folder, listed.version)).unwrap();
            let next = manifest_of(&self.folder, listed.version + 1);
            std::fs::rename(next.with_extension("later"), next).unwrap();
        }
        Ok(listed)
    }

    async fn commit(
        &self,
        _: &mut Manifest,
        _: Option<Vec<IndexMetadata>>,
        _: &Path,
        _: &ObjectStore,
        _: ManifestWriter,
        _: ManifestNamingScheme,
        _: Option<Transaction>,
    ) -> std::result::Result<ManifestLocation, CommitError> {
        Err(CommitError::CommitConflict)
    }
}

fn manifest_of(folder: &LocalPath, version: u64) -> PathBuf {
    folder.join("_versions").join(format!("{:020}.manifest", u64::MAX - version))
}

/// A table of `columns` columns and of three versions, of which the newest is hidden at first.
async fn table_of(folder: &LocalPath, columns: usize) {
    let fields = (0..columns).map(|it| Field::new(format!("column_{it}"), DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let values = (0..columns).map(|_| Arc::new(Int64Array::from_iter_values(0..3)) as ArrayRef);
    let rows = RecordBatch::try_new(schema.clone(), values.collect()).unwrap();
    for mode in [WriteMode::Create, WriteMode::Append, WriteMode::Append] {
        let reader = RecordBatchIterator::new([Ok(rows.clone())], schema.clone());
        let params = WriteParams { mode, ..WriteParams::default() };
        Dataset::write(reader, folder.to_str().unwrap(), Some(params)).await.unwrap();
    }
    let newest = manifest_of(folder, 3);
    std::fs::rename(&newest, newest.with_extension("later")).unwrap();
}

async fn opened(folder: &LocalPath) -> (Arc<CleanedUp>, Arc<LatestBase>) {
    let folder = folder.to_owned();
    let handler = Arc::new(CleanedUp { folder: folder.clone(), is_armed: AtomicBool::new(false) });
    let base = DatasetBuilder::from_uri(folder.to_str().unwrap())
        .with_version(1)
        .with_commit_handler(handler.clone())
        .load()
        .await
        .unwrap();
    (handler, LatestBase::new(base, None, Arc::default()).unwrap())
}

/// Lance reads a small manifest at once and a large one in parts, with a different error for each.
const COLUMNS: [usize; 2] = [2, 400];

#[tokio::test]
async fn a_version_that_goes_between_its_listing_and_its_read_is_no_damage() {
    for columns in COLUMNS {
        let folder = tempfile::tempdir().unwrap();
        table_of(folder.path(), columns).await;
        let (handler, base) = opened(folder.path()).await;
        handler.is_armed.store(true, std::sync::atomic::Ordering::SeqCst);
        base.check_there().await.unwrap();
        assert_eq!(base.newest().await.unwrap().dataset.version().version, 3);
    }
}

#[tokio::test]
async fn a_version_that_stays_the_newest_and_is_not_there_is_damage() {
    for columns in COLUMNS {
        let folder = tempfile::tempdir().unwrap();
        table_of(folder.path(), columns).await;
        let (_, base) = opened(folder.path()).await;
        std::os::unix::fs::symlink("nothing", manifest_of(folder.path(), 4)).unwrap();
        let error = base.newest().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}
