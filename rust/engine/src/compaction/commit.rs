//! A commit to the base table that skips no version and is durable.
//!
//! Owns: the commit handler of every commit of this crate to a base table. The handler adds three
//! guarantees to lance's own.
//! Does not own: what is committed, or the next attempt.
//!
//! - *Whole*: lance compares a commit with the transactions of the versions since the version that
//!   was read, and skips a version that a clean-up has removed. The handler refuses such a commit.
//! - *Exact*, where the caller asks for it: the commit becomes the next version after the version
//!   of the plan, or it fails. Lance alone would carry positions and fragment ids over to a later
//!   version, in which they mean other rows.
//! - *Durable*: on a local disk the files of a version are synced before its name appears, and the
//!   name before the commit returns. So a power cut never leaves a version without its files.
//!
//! The order of the checks matters. Lance has read the transactions of all versions up to the
//! newest, `n`, before it calls the handler with `n + 1`. A version that the handler lists was
//! there when lance looked, because a number is given once and higher versions are created later.
//! The creation of the manifest fails where another commit has created `n + 1`. It succeeds where
//! that version was cleaned up meanwhile, below a newer version. So the handler looks for the
//! newest version once more after the creation.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::transaction::{Operation, Transaction, TransactionBuilder};
use lance_io::object_store::ObjectStore as LanceStore;
use lance_table::format::{IndexMetadata, Manifest, Transaction as StoredTransaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter,
    write_version_hint,
};
use lancemem_core::format::graves::GRAVES;
use lancemem_core::mutant;
use lancemem_core::store::change;
use lancemem_core::types::{Error, Result};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload};

use crate::errors::Context;
use crate::holds::{Hold, pass};
use crate::schema::newest_of;
use crate::sstable::{files_of_fragments, local_path, sync_before_version, sync_indices};

/// A commit handler that syncs, and that commits only where every version since `read` exists.
#[derive(Debug)]
pub struct SyncedCommits {
    table: String,
    /// The version that the commit was planned for.
    read: u64,
    /// Whether the commit may become version `read + 1` only.
    is_exact: bool,
    /// Files of version `read`, which are durable.
    known: HashSet<Path>,
    /// The entry of the configuration that the version gets; without a value it loses the entry.
    config: Option<ConfigEntry>,
    /// Whether a version may have been created, although the commit failed.
    attempted: AtomicBool,
    /// Whether the created version was the newest right after its creation.
    was_newest: AtomicBool,
}

impl SyncedCommits {
    /// A handler for a plan on `base`: its commit may follow later versions, if all of them exist.
    #[must_use]
    pub fn above(base: &Dataset) -> Self {
        let root = base.branch_location().path;
        let known = files_of_fragments(&root, base.fragments()).collect();
        Self {
            table: base.uri().to_owned(),
            read: base.version().version,
            is_exact: false,
            known,
            config: None,
            attempted: AtomicBool::new(false),
            was_newest: AtomicBool::new(false),
        }
    }

    fn exactly_above(base: &Dataset, config: Option<ConfigEntry>) -> Self {
        Self { is_exact: !mutant!("B15"), config, ..Self::above(base) }
    }

    /// Changes the configuration of the version that is committed. Lance's operation for rows carries
    /// no configuration, and both must be one commit. A later commit of any program keeps the entry.
    fn configure(&self, manifest: &mut Manifest) {
        match &self.config {
            Some((key, Some(value))) => {
                manifest.config_mut().insert((*key).to_owned(), value.clone());
            }
            Some((key, None)) => {
                manifest.config_mut().remove(*key);
            }
            None => {}
        }
    }

    /// Refuses a commit that lance has not compared with each version since `self.read`.
    async fn refuse_skipped(
        &self,
        next: u64,
        base_path: &Path,
        store: &LanceStore,
    ) -> std::result::Result<(), CommitError> {
        // Lance may have missed versions: it looks upward from a hint, to the first absent version.
        let newest = self.resolve_latest_location(base_path, store).await?.version;
        if newest + 1 != next {
            return Err(CommitError::CommitConflict);
        }
        if self.read == newest {
            return Ok(());
        }
        let there = self.list_manifest_locations_since(base_path, store, self.read);
        let there: HashSet<u64> = there.map_ok(|it| it.version).try_collect().await?;
        match (self.read + 1..next).find(|version| !there.contains(version)) {
            None => Ok(()),
            Some(gone) => Err(CommitError::OtherError(self.skipped(gone, next))),
        }
    }

    fn skipped(&self, gone: u64, next: u64) -> lance_core::Error {
        let why = format!(
            "the commit was planned for version {}; version {gone} was cleaned up before version \
             {next} could be created, so the changes of version {gone} are unknown",
            self.read
        );
        lance_core::Error::retryable_commit_conflict_source(next, why.into())
    }

    /// Records whether `made`, which was just created, is the newest version. Below a newer version
    /// the number may have been given before, to a version that was cleaned up meanwhile.
    async fn look_above(&self, made: u64, base_path: &Path, store: &LanceStore) -> bool {
        let newest = self.resolve_latest_location(base_path, store).await;
        let is_newest = newest.is_ok_and(|newest| newest.version == made);
        self.was_newest.store(is_newest, Ordering::Relaxed);
        is_newest
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
        // An exact commit writes no index; a rewrite of fragments and an update of indexes do.
        if !self.is_exact {
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
        pass(Hold::Commit, &self.table).await;
        if self.is_exact && manifest.version != self.read + 1 {
            return Err(CommitError::CommitConflict);
        }
        self.configure(manifest);
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
            // `with_fsync` syncs the file before it links the name, and then the folder.
            Arc::new(LocalFileSystem::new().with_fsync(true))
        } else {
            object_store.inner.clone()
        };
        // As late as possible, because the syncs before take long.
        self.refuse_skipped(manifest.version, base_path, object_store).await?;
        pass(Hold::Manifest, &self.table).await;
        self.attempted.store(true, Ordering::Relaxed);
        let options = PutOptions::from(PutMode::Create);
        let (to, put) = (path.clone(), PutPayload::from(bytes));
        let put = change(async move { store.put_opts(&to, put, options).await });
        let put = put.await.map_err(|error| match error {
            object_store::Error::AlreadyExists { .. }
            | object_store::Error::Precondition { .. } => {
                // On a network store it may be this commit's manifest, whose answer was lost.
                self.attempted.store(!is_local, Ordering::Relaxed);
                CommitError::CommitConflict
            }
            error => CommitError::OtherError(error.into()),
        })?;
        if self.look_above(manifest.version, base_path, object_store).await {
            write_version_hint(object_store, base_path, manifest.version).await;
        }
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

const COMMITTING: &str = "committing to the base table";

/// A commit that failed.
pub struct Refused {
    /// The reason.
    pub error: Error,
    /// Whether it is certain that no version names the files of this attempt.
    pub is_certain: bool,
}

/// An entry of the configuration of the base table; without a value it is removed.
type ConfigEntry = (&'static str, Option<String>);

/// What a commit stores beside its operation.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Properties of its transaction.
    pub properties: Option<HashMap<String, String>>,
    /// The entry of the configuration that it changes.
    pub config: Option<ConfigEntry>,
}

/// Commits `operation` as the next version after `base`.
///
/// # Errors
/// Of kind retry where another commit came first, or where the outcome of this commit is unknown.
pub(crate) async fn commit_exactly(
    base: &Arc<Dataset>,
    operation: Operation,
    beside: Beside,
) -> std::result::Result<Dataset, Refused> {
    let planned_for = version_of_plan(base).await;
    let transaction: Transaction = TransactionBuilder::new(planned_for, operation)
        .transaction_properties(beside.properties.map(Arc::new))
        .build();
    let (ours, operation) = (transaction.uuid.clone(), transaction.operation.clone());
    let handler = Arc::new(SyncedCommits::exactly_above(base, beside.config));
    let committed = CommitBuilder::new(base.clone())
        .with_commit_handler(handler.clone())
        .with_max_retries(0)
        .execute(transaction)
        .await;
    let is_certain = !handler.attempted.load(Ordering::Relaxed);
    let committed = match committed {
        Ok(committed) => committed,
        Err(error) => {
            let landed = if is_certain { None } else { Box::pin(landed(base, &ours)).await };
            let Some(landed) = landed else {
                let error = why(base, Err(error).context(COMMITTING)).await;
                return Err(Refused { error, is_certain });
            };
            landed
        }
    };
    if handler.was_newest.load(Ordering::Relaxed) {
        return Ok(committed);
    }
    match Box::pin(took_hold(base, &operation)).await {
        Ok(true) => Ok(committed),
        Ok(false) => {
            let version = committed.version().version;
            let error = Error::storage(
                COMMITTING,
                format!(
                    "version {version} was created below a newer version, and the newest version \
                     lacks its changes"
                ),
            );
            Err(Refused { error, is_certain: false })
        }
        Err(error) => Err(Refused { error, is_certain: false }),
    }
}

/// Commits `segments` beside the index segments that `base` has. The commit may follow later
/// versions: Lance refuses it where one of them changed an index of the same name, or moved rows of
/// a fragment that a segment covers.
///
/// # Errors
/// As [`commit_exactly`].
pub async fn commit_segments(
    base: &Arc<Dataset>,
    segments: Vec<IndexMetadata>,
) -> std::result::Result<u64, Refused> {
    let operation = Operation::CreateIndex { new_indices: segments, removed_indices: Vec::new() };
    let transaction = TransactionBuilder::new(base.version().version, operation).build();
    let handler = Arc::new(SyncedCommits::above(base));
    let committed = CommitBuilder::new(base.clone())
        .with_commit_handler(handler.clone())
        .execute(transaction)
        .await;
    match committed {
        Ok(committed) => Ok(committed.version().version),
        Err(error) => {
            let is_certain = !handler.attempted.load(Ordering::Relaxed);
            Err(Refused { error: why(base, Err(error).context(COMMITTING)).await, is_certain })
        }
    }
}

/// `base` at its version, with a handler whose commits are whole and durable.
///
/// # Errors
/// An error of lance, also where the version of `base` was cleaned up.
#[boxed]
pub async fn committing(base: &Dataset) -> lance_core::Result<Dataset> {
    let mut builder = DatasetBuilder::from_uri(base.uri())
        .with_session(base.session())
        .with_version(base.version().version)
        .with_commit_handler(Arc::new(SyncedCommits::above(base)));
    if let Some(params) = base.store_params() {
        builder = builder.with_store_params(params.clone());
    }
    builder.load().await
}

/// A handler as that of [`committing`], for the commit that gives a table its merge rule. Deletes that
/// an earlier life of the table remembered do not count in the new one.
#[must_use]
pub fn forgetting_deletes(base: &Dataset) -> Arc<dyn CommitHandler> {
    Arc::new(SyncedCommits { config: Some((GRAVES, None)), ..SyncedCommits::above(base) })
}

/// Whether the newest version contains the changes of `operation`. Asked where a newer version
/// existed right after the commit: it may build on the commit, or be older than the commit.
async fn took_hold(base: &Arc<Dataset>, operation: &Operation) -> Result<bool> {
    let newest = newest_of(base).await.context(COMMITTING)?;
    match operation {
        Operation::Update { compacted_sstables, .. } => {
            let details = newest.mem_wal_index_details().await.context(COMMITTING)?;
            let has = details.map(|details| details.compacted_sstables).unwrap_or_default();
            Ok(compacted_sstables.iter().all(|moved| {
                let mut of_shard = has.iter().filter(|it| it.shard_id == moved.shard_id);
                of_shard.any(|it| it.generation >= moved.generation)
            }))
        }
        Operation::UpdateConfig { config_updates: Some(updates), .. } => {
            let config = newest.config();
            Ok(updates.update_entries.iter().all(|it| config.get(&it.key) == it.value.as_ref()))
        }
        Operation::Merge { schema, .. } => Ok(schema.fields.iter().all(|field| {
            let there = newest.schema().field_by_id(field.id);
            there.is_some_and(|there| there.data_type() == field.data_type())
        })),
        _ => Ok(true),
    }
}

/// The next version after `base`, where `transaction` created it and only the answer of an object
/// store was lost. `None` on a local disk: a disk that failed may not have synced the version.
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

/// The error of a refused commit. Lance reports a lost race in several ways, some of which look
/// like an input error, so the newest version decides.
async fn why(base: &Arc<Dataset>, refused: Result<()>) -> Error {
    let error = refused.err().unwrap_or_else(|| Error::internal("a refused commit has no error"));
    let planned_for = base.version().version;
    match base.latest_version_id().await {
        Ok(newest) if newest != planned_for => {
            let reason = format!(
                "the commit was planned for version {planned_for}, the newest version is {newest}: \
                 {error}"
            );
            Error::storage(COMMITTING, reason).with_source(error)
        }
        _ => error,
    }
}
