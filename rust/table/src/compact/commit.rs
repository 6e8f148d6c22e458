//! A commit to the base table that is exact and durable.
//!
//! Owns: lance's commit handler with two additions. *Exact*: the commit becomes the version right
//! behind the one that was planned for, or nothing; lance itself would carry positions and
//! fragment ids over to a version in which they mean something else. *Durable*: on a local disk
//! what the version consists of is synced before its name appears, and its name before the
//! commit returns, so a power cut never leaves a version without its files.
//! Does not own: what is committed, or the next attempt.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, Transaction, TransactionBuilder};
use lance_io::object_store::ObjectStore as LanceStore;
use lance_table::format::{IndexMetadata, Manifest, Transaction as StoredTransaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter,
    write_version_hint,
};
use lancemem_core::mutant;
use lancemem_core::store::change;
use lancemem_core::types::{Error, Result};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload};

use crate::errors::Context;
use crate::sstable::{files_of_fragments, local_path, sync_before_version, sync_indices};

/// Commits with syncs, and where it is told so only as one version.
#[derive(Debug)]
pub struct SyncedCommits {
    /// The only version that may be made; any where `None`.
    only: Option<u64>,
    /// Files of the version before, which are durable.
    known: HashSet<Path>,
    /// Whether a version may have been made, seen by anybody or not.
    attempted: AtomicBool,
}

impl SyncedCommits {
    /// Commits on top of `base`, whatever came behind it.
    #[must_use]
    pub fn above(base: &Dataset) -> Self {
        let root = base.branch_location().path;
        let known = files_of_fragments(&root, base.fragments()).collect();
        Self { only: None, known, attempted: AtomicBool::new(false) }
    }

    fn exactly_above(base: &Dataset) -> Self {
        let only = (!mutant!("B15")).then(|| base.version().version + 1);
        Self { only, ..Self::above(base) }
    }

    async fn sync(
        &self,
        store: &LanceStore,
        root: &Path,
        manifest: &Manifest,
        indices: &[IndexMetadata],
    ) -> lance_core::Result<()> {
        let transaction = manifest.transaction_file.as_deref().filter(|file| !file.is_empty());
        let transaction = transaction.map(|file| root.clone().join("_transactions").join(file));
        let files: Vec<Path> = files_of_fragments(root, &manifest.fragments)
            .filter(|file| !self.known.contains(file))
            .chain(transaction)
            .collect();
        // Our own commit makes no index; a rewrite of fragments and an update of indexes do.
        if self.only.is_none() {
            sync_indices(store, root, indices.iter()).await?;
        }
        sync_before_version(store, root, &files).await
    }
}

#[async_trait]
impl CommitHandler for SyncedCommits {
    fn is_version_not_found_definitive(&self) -> bool {
        true
    }

    fn propagate_commit_error_after_success(&self) -> bool {
        false
    }

    async fn commit(
        &self,
        manifest: &mut Manifest,
        indices: Option<Vec<IndexMetadata>>,
        base_path: &Path,
        object_store: &LanceStore,
        manifest_writer: ManifestWriter,
        naming_scheme: ManifestNamingScheme,
        transaction: Option<StoredTransaction>,
    ) -> std::result::Result<ManifestLocation, CommitError> {
        if self.only.is_some_and(|only| only != manifest.version) {
            return Err(CommitError::CommitConflict);
        }
        let made = indices.as_deref().unwrap_or_default();
        self.sync(object_store, base_path, manifest, made).await?;
        let memory = LanceStore::memory();
        let staged = Path::from("manifest");
        manifest_writer(&memory, manifest, indices, &staged, transaction).await?;
        let bytes = memory.read_one_all(&staged).await?;
        let size = bytes.len() as u64;
        let path = naming_scheme.manifest_path(base_path, manifest.version);
        let is_local = local_path(object_store, &path).is_some();
        let store: Arc<dyn ObjectStore> = if is_local {
            // It syncs the file before it links it to its name, and then the folder.
            Arc::new(LocalFileSystem::new().with_fsync(true))
        } else {
            object_store.inner.clone()
        };
        self.attempted.store(true, Ordering::Relaxed);
        let options = PutOptions::from(PutMode::Create);
        let (to, put) = (path.clone(), PutPayload::from(bytes));
        let put = change(async move { store.put_opts(&to, put, options).await });
        let put = put.await.map_err(|error| match error {
            object_store::Error::AlreadyExists { .. }
            | object_store::Error::Precondition { .. } => {
                // Over a network it may be our own, whose answer was lost.
                self.attempted.store(!is_local, Ordering::Relaxed);
                CommitError::CommitConflict
            }
            error => CommitError::OtherError(error.into()),
        })?;
        write_version_hint(object_store, base_path, manifest.version).await;
        Ok(ManifestLocation {
            version: manifest.version,
            path,
            size: Some(size),
            naming_scheme,
            e_tag: put.e_tag,
            identity: None,
        })
    }
}

/// A commit that did not happen.
pub struct Refused {
    /// Why.
    pub error: Error,
    /// Whether it is certain that no version names the files of this attempt.
    pub is_certain: bool,
}

/// Commits `operation` as the version right behind `base`.
///
/// # Errors
/// Of kind retry where another commit came first, or where nobody can say whether it was this one.
pub async fn commit_exactly(
    base: &Arc<Dataset>,
    operation: Operation,
) -> std::result::Result<Dataset, Refused> {
    let planned_for = version_of_plan(base).await;
    let transaction: Transaction = TransactionBuilder::new(planned_for, operation).build();
    let ours = transaction.uuid.clone();
    let handler = Arc::new(SyncedCommits::exactly_above(base));
    let committed = CommitBuilder::new(base.clone())
        .with_commit_handler(handler.clone())
        .with_max_retries(0)
        .execute(transaction)
        .await;
    match committed {
        Ok(committed) => Ok(committed),
        Err(error) => {
            let is_certain = !handler.attempted.load(Ordering::Relaxed);
            if !is_certain && let Some(landed) = landed(base, &ours).await {
                return Ok(landed);
            }
            let error = why(base, Err(error).context("committing to the base table")).await;
            Err(Refused { error, is_certain })
        }
    }
}

/// The version right behind `base`, where it is the one of our transaction and only the answer of an object store
/// was lost. A disk that failed in between may not have synced it: there the commit stays refused.
async fn landed(base: &Arc<Dataset>, transaction: &str) -> Option<Dataset> {
    let store = base.object_store(None).await.ok()?;
    if local_path(&store, &base.branch_location().path).is_some() {
        return None;
    }
    let next = base.checkout_version(base.version().version + 1).await.ok()?;
    let made_by = next.read_transaction().await.ok()??;
    (made_by.uuid == transaction).then_some(next)
}

async fn version_of_plan(base: &Arc<Dataset>) -> u64 {
    let newest = if mutant!("B15") { base.latest_version_id().await.ok() } else { None };
    newest.unwrap_or_else(|| base.version().version)
}

/// Lance has many words for a lost race, some of them those of a wrong input.
async fn why(base: &Arc<Dataset>, refused: Result<()>) -> Error {
    let error = refused.err().unwrap_or_else(|| Error::Internal("no error".to_owned()));
    let planned_for = base.version().version;
    match base.latest_version_id().await {
        Ok(newest) if newest != planned_for => Error::storage(
            "committing to the base table",
            format!("it was planned for version {planned_for}, and {newest} came first: {error}"),
        ),
        _ => error,
    }
}
