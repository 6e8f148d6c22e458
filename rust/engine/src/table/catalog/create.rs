//! Creates a table, or enables an existing Lance table.
//!
//! Owns: the MemWAL index, the table identity in it, the ids of shards and their first manifests.
//! Does not own: an open table, or the rules for its columns (`schema_rules`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::ready;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{Schema, SchemaRef};
use async_recursion::async_recursion as boxed;
use futures::future::try_join_all;
use lance::Dataset;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::{WriteMode, WriteParams};
use lance_core::datatypes::Schema as Columns;
use lance_index::mem_wal::MemWalIndexDetails;
use lancemem_core::format::reconcile::KEY_MARK;
use lancemem_core::format::{Sharding, paths};
use lancemem_core::merge::{MergeRule, RuleError, RuleOptions};
use lancemem_core::shard::retire;
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId, WriterConfig};
use uuid::Uuid;

use super::claims::ShardTurns;
use super::commit::beside_commits;
use super::location::Location;
use super::maintenance_config::MaintenanceConfig;
use super::merge_functions::{checked_rule, rule_for};
use super::merge_gate::refuse_flushed_changes;
use super::progress::details_of;
use super::schema_rules::{check_key_field, refuse_unstorable, with_key};
use super::shards::shard_ids;
use super::single_flight::session;
use super::specifications::add_index_with_rule;
use super::{Catalog, SHARDING_FIELD};
use crate::changes::{
    Changelog, FlushedPosition, alter_changelog, flushed_errors, refuse_reserved,
    refuse_reserved_of_flushes,
};
use crate::compaction::committing;
use crate::deletion_vectors::switch;
use crate::errors::{Context, from_create};
use crate::schema::{key_of, newest_of, refuse_structs_of_old_formats, rule_in_table};
use crate::sstable::sync_base;
use crate::table::Table;

/// The key of the table identity in the index. It differs from that of any earlier or later table
/// at the same location. Ids of shards are derived from it, so a job of another table writes
/// nothing into shards of this one.
const TABLE_ID: &str = "lancemem_table_id";
/// Attempts of a commit to the base table.
const MAX_ATTEMPTS: usize = 8;

/// The settings of a new table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateOptions {
    /// Columns.
    pub schema: SchemaRef,
    /// Names of the key columns, in order; empty for an append-only table.
    pub primary_key: Vec<String>,
    /// How rows are spread over shards.
    pub sharding: Sharding,
    /// The defaults of the table's jobs.
    pub config: WriterConfig,
    /// The defaults of the maintenance beside them.
    pub maintenance: MaintenanceConfig,
    /// Which changes are stored. Changes of flushes switch deletion-vector mode on.
    pub changelog: Changelog,
    /// How the events of a key become one row; plain `deduplicate` is no rule.
    pub rule: RuleOptions,
}

impl CreateOptions {
    /// An append-only table with one shard, whose jobs have the default settings.
    #[must_use]
    pub fn new(schema: SchemaRef) -> Self {
        Self {
            schema,
            primary_key: Vec::new(),
            sharding: Sharding::Unsharded,
            config: WriterConfig::default(),
            maintenance: MaintenanceConfig::default(),
            changelog: Changelog::Off,
            rule: RuleOptions::default(),
        }
    }

    /// Sets [`Self::primary_key`].
    #[must_use]
    pub fn with_primary_key(self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let primary_key = columns.into_iter().map(Into::into).collect();
        Self { primary_key, ..self }
    }

    /// Sets [`Self::sharding`].
    #[must_use]
    pub fn with_sharding(self, sharding: Sharding) -> Self {
        Self { sharding, ..self }
    }

    /// Sets [`Self::config`].
    #[must_use]
    pub fn with_config(self, config: WriterConfig) -> Self {
        Self { config, ..self }
    }

    /// Sets [`Self::maintenance`].
    #[must_use]
    pub fn with_maintenance(self, maintenance: MaintenanceConfig) -> Self {
        Self { maintenance, ..self }
    }

    /// Sets [`Self::changelog`].
    #[must_use]
    pub fn with_changelog(self, changelog: Changelog) -> Self {
        Self { changelog, ..self }
    }

    /// Sets [`Self::rule`].
    #[must_use]
    pub fn with_rule(self, rule: RuleOptions) -> Self {
        Self { rule, ..self }
    }
}

impl Table {
    /// Creates an empty table with its shards. A create that was interrupted is finished.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use arrow_schema::{DataType, Field, Schema};
    /// use lancemem::table::CreateOptions;
    /// use lancemem::{Sharding, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let schema = Schema::new(vec![
    ///     Field::new("id", DataType::Int64, false),
    ///     Field::new("price", DataType::Float64, true),
    /// ]);
    /// let options = CreateOptions::new(Arc::new(schema))
    ///     .with_primary_key(["id"])
    ///     .with_sharding(Sharding::Bucket { column: "id".to_owned(), buckets: 4 });
    /// let table = Table::create("/data/board.lance", &options).await?;
    /// assert_eq!(table.primary_key(), ["id"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`] where a table exists at `location`; an input error where the key, the
    /// sharding or the merge rule cannot be used.
    pub async fn create(
        location: impl Into<Location>,
        options: &CreateOptions,
    ) -> Result<Arc<Self>> {
        let catalog = Catalog::create_at(location.into().resolved()?, options).await;
        catalog.map(Self::over)
    }

    /// Enables a Lance table with a primary key: commits its MemWAL index with `sharding` (`None`:
    /// one shard), with `rule` (`None`: no merge rule) and with `config` and `maintenance` as the
    /// defaults of its jobs, and creates its shards. A table that has the index is opened as it is.
    ///
    /// # Errors
    /// [`Error::NoTable`] where there is no table; an input error where the table has no primary
    /// key, cannot have the rule, or has the index with another sharding or rule.
    pub async fn enable(
        location: impl Into<Location>,
        sharding: Option<&Sharding>,
        rule: Option<&RuleOptions>,
        config: &WriterConfig,
        maintenance: &MaintenanceConfig,
    ) -> Result<Arc<Self>> {
        let location = location.into().resolved()?;
        let catalog = Catalog::enable_at(location, sharding, rule, config, maintenance).await;
        catalog.map(Self::over)
    }
}

impl Catalog {
    #[boxed]
    async fn create_at(location: Location, options: &CreateOptions) -> Result<Self> {
        options.config.validate()?;
        options.maintenance.validate()?;
        let schema = Arc::new(with_key(&options.schema, &options.primary_key)?);
        refuse_unstorable(&schema)?;
        options.sharding.validate(&schema, &options.primary_key)?;
        refuse_changelog(location.uri(), &schema, options)?;
        let columns = Columns::try_from(schema.as_ref()).context("numbering the columns")?;
        let rule = checked_rule(&location, &columns, &options.primary_key, &options.rule).await?;
        if options.changelog == Changelog::Flushed {
            refuse_flushed_changes(location.uri(), rule.as_ref())?;
        }
        let action = format!("creating table {}", location.uri());
        // Before anything else: the next steps would fence the jobs of a table that exists.
        if let Some(base) = location.open_if_there().await? {
            if !is_half_made(&base, &schema, &options.primary_key).await? {
                return Err(exists(&base, location.uri()).await?);
            }
            return Self::finished(base, location, options).await;
        }
        if !location.is_local() {
            location.far_store().await?.prove_conditional_put().await?;
        } else if Path::new(location.uri()).join(paths::MEM_WAL).is_dir() {
            // Before anything is written: a table that was not deleted completely left its shards.
            let sharding = record_of(&options.sharding, &columns);
            retire_shards(&Store::open(location.uri(), true)?, &location, &sharding).await?;
        }
        let empty = RecordBatch::new_empty(schema.clone());
        let reader = RecordBatchIterator::new([Ok(empty)], schema);
        let params = WriteParams {
            mode: WriteMode::Create,
            store_params: location.store_params(),
            session: Some(session()),
            ..WriteParams::default()
        };
        let written = Dataset::write(reader, location.uri(), Some(params)).await;
        let base = written.map_err(|error| from_create(&action, error))?;
        Self::finished(base, location, options).await
    }

    /// Adds the index and the shards to a base table that was created.
    async fn finished(base: Dataset, location: Location, options: &CreateOptions) -> Result<Self> {
        let settings = IndexSettings {
            sharding: &options.sharding,
            rule: &options.rule,
            config: &options.config,
            maintenance: &options.maintenance,
        };
        let catalog = enable(base, location, &settings).await?;
        catalog.without_reused_ids().await?;
        catalog.set_changelog(options.changelog).await?;
        let is_asked = catalog.sharding.as_ref() == Some(&options.sharding)
            && catalog.rule_options() == options.rule.clone().with_defaults();
        if is_asked {
            return Ok(catalog);
        }
        Err(Error::table_exists(format!(
            "table {} exists; another process created it at the same time with another sharding or \
             merge rule; open it with lancemem.open_table(uri), or choose another address",
            catalog.uri()
        )))
    }

    /// Makes an empty table store its changes. Changes of flushes need deletion-vector mode.
    async fn set_changelog(&self, changelog: Changelog) -> Result<()> {
        if changelog == Changelog::Off {
            return Ok(());
        }
        if changelog == Changelog::Flushed {
            self.commit_on_newest(MAX_ATTEMPTS, |_| ready(Ok(switch(true)))).await?;
        }
        let nothing = FlushedPosition::default();
        let operation = |_| ready(Ok(alter_changelog(Some(changelog), None, &nothing)));
        self.commit_on_newest(MAX_ATTEMPTS, operation).await?;
        self.latest_base().await?;
        Ok(())
    }

    #[boxed]
    async fn enable_at(
        location: Location,
        sharding: Option<&Sharding>,
        rule: Option<&RuleOptions>,
        config: &WriterConfig,
        maintenance: &MaintenanceConfig,
    ) -> Result<Self> {
        let base = location.open().await?;
        let Some(details) = details_of(&base).await? else {
            if key_of(&base)?.is_empty() {
                return Err(Error::input(format!(
                    "table {} names no primary key, so an upsert would append: name its key columns with \
                     primary_key=, or make them not nullable (alter_columns) and set '{KEY_MARK}' to \
                     'true' in their metadata (update_field_metadata)",
                    location.uri()
                )));
            }
            refuse_structs_of_old_formats(&base)?;
            let sharding = sharding.unwrap_or(&Sharding::Unsharded);
            let none = RuleOptions::default();
            let rule = rule.unwrap_or(&none);
            let settings = IndexSettings { sharding, rule, config, maintenance };
            return enable(base, location, &settings).await;
        };
        let catalog = Self::with_details(location, base, &details).await?;
        if let Some(sharding) = sharding {
            catalog.check_has_sharding(sharding)?;
        }
        if let Some(rule) = rule {
            catalog.check_has_rule(rule)?;
        }
        Ok(catalog)
    }

    fn check_has_sharding(&self, sharding: &Sharding) -> Result<()> {
        if self.sharding.as_ref() == Some(sharding) {
            return Ok(());
        }
        let existing = self.sharding.as_ref();
        Err(Error::input(format!(
            "table {} is sharded by {} and cannot become {sharding}",
            self.uri(),
            existing
                .map_or_else(|| "the shards that its callers name".to_owned(), ToString::to_string)
        )))
    }

    fn check_has_rule(&self, rule: &RuleOptions) -> Result<()> {
        let (found, asked) = (self.rule_options(), rule.clone().with_defaults());
        if found == asked {
            return Ok(());
        }
        let (found, asked) = (found.to_string(), asked.to_string());
        Err(rule_in_table(self.uri(), RuleError::OtherRule { found, asked }))
    }

    /// What a creator would choose to get the merge rule of the table.
    pub(in crate::table) fn rule_options(&self) -> RuleOptions {
        let schema = self.base.known().schema;
        let options = schema.rule.as_ref().map(|rule| rule.options(schema.rows.logical()));
        options.unwrap_or_default()
    }
}

/// The settings of a MemWAL index that is added.
struct IndexSettings<'a> {
    sharding: &'a Sharding,
    rule: &'a RuleOptions,
    config: &'a WriterConfig,
    maintenance: &'a MaintenanceConfig,
}

/// Refuses a changelog that the table could not have.
fn refuse_changelog(uri: &str, schema: &Schema, options: &CreateOptions) -> Result<()> {
    match options.changelog {
        Changelog::Off => Ok(()),
        Changelog::Stored => refuse_reserved(uri, schema),
        Changelog::Flushed if options.primary_key.is_empty() => Err(flushed_errors::needs_key(uri)),
        Changelog::Flushed => refuse_reserved_of_flushes(uri, schema),
    }
}

/// The error of a create at the location of an existing table. It names the call that opens the
/// table.
async fn exists(base: &Dataset, uri: &str) -> Result<Error> {
    let call = if details_of(base).await?.is_some() {
        "lancemem.open_table(uri)"
    } else {
        "lancemem.enable(uri, ...): it is a Lance table without a MemWAL index"
    };
    Ok(Error::table_exists(format!("table {uri} exists; open it with {call}")))
}

/// Whether an interrupted create left this table: the first version, without rows and without an
/// index, with these columns.
async fn is_half_made(base: &Dataset, schema: &Schema, key: &[String]) -> Result<bool> {
    if base.version().version > 1 || base.count_fragments() > 0 || key_of(base)? != key {
        return Ok(false);
    }
    let stored = Schema::from(base.schema());
    let columns = |schema: &Schema| -> Vec<_> {
        let fields = schema.fields().iter();
        fields.map(|it| (it.name().clone(), it.data_type().clone(), it.is_nullable())).collect()
    };
    Ok(columns(&stored) == columns(schema) && details_of(base).await?.is_none())
}

/// Commits the MemWAL index and creates the shards.
async fn enable(
    mut base: Dataset,
    location: Location,
    settings: &IndexSettings<'_>,
) -> Result<Catalog> {
    let IndexSettings { sharding, rule, config, maintenance } = *settings;
    let key = key_of(&base)?;
    let schema = Schema::from(base.schema());
    for name in &key {
        check_key_field(schema.field_with_name(name).context("reading the primary key")?)?;
    }
    sharding.validate(&schema, &key)?;
    refuse_unstorable(&schema)?;
    checked_rule(&location, base.schema(), &key, rule).await?;
    let action = format!("adding the MemWAL index to table {}", location.uri());
    let store = location.store(&base, config.fsync).await?;
    if !location.is_local() {
        store.prove_conditional_put().await?;
    }
    let record = record_of(sharding, base.schema());
    let retired = retire_shards(&store, &location, &record).await;
    base = newest_of(&base).await.context(&action)?;
    let has_none = details_of(&base).await?.is_none();
    if has_none {
        retired?;
        let mut defaults = config.to_defaults();
        defaults.extend(maintenance.to_defaults());
        base = with_index(base, sharding, rule, &defaults, &action).await?;
    }
    let details = details_of(&base)
        .await?
        .ok_or_else(|| Error::internal(format!("{action}: the new version has no such index")))?;
    // Field ids are made non-reusable by the first write of rows, not here. Until then there are no
    // rows above the base table, and older programs can still commit to it.
    if location.is_local() && config.fsync {
        sync_base(&base).await.context(&action)?;
    }
    let catalog = Catalog::with_details(location, base, &details).await?;
    let there = catalog.manifests().await?;
    let there: HashSet<i32> = there.iter().filter_map(|it| catalog.ordinal_of(it)).collect();
    catalog.create_missing(|ordinal| there.contains(&ordinal)).await?;
    if has_none && let Err(error) = catalog.record_emptied().await {
        // Missing generations of these shards are then detected from their first compaction on.
        let table = catalog.uri();
        tracing::warn!(table, %error, "the progress of older shards is not recorded");
    }
    Ok(catalog)
}

/// Commits the MemWAL index and returns the newest version, with a few retries after concurrent
/// commits.
async fn with_index(
    mut base: Dataset,
    sharding: &Sharding,
    rule: &RuleOptions,
    defaults: &HashMap<String, String>,
    action: &str,
) -> Result<Dataset> {
    let mut backoff = beside_commits(MAX_ATTEMPTS);
    loop {
        let rule = rule_for(base.uri(), base.schema(), &key_of(&base)?, rule)?;
        let added = add_index(&base, sharding, rule.as_ref(), defaults).await.context(action);
        base = newest_of(&base).await.context(action)?;
        // Another process may have added the index first; then its index counts.
        let Err(error) = added else { return Ok(base) };
        if details_of(&base).await?.is_some() {
            return Ok(base);
        }
        if error.kind() != ErrorKind::Retry || backoff.is_last() {
            return Err(error);
        }
        backoff.wait().await;
    }
}

async fn add_index(
    base: &Dataset,
    sharding: &Sharding,
    rule: Option<&MergeRule>,
    defaults: &HashMap<String, String>,
) -> lance_core::Result<()> {
    let mut settings = defaults.clone();
    settings.insert(TABLE_ID.to_owned(), fresh_id().to_string());
    if let Some(rule) = rule {
        return add_index_with_rule(base, sharding, rule, settings).await;
    }
    let mut base = committing(base).await?;
    let builder = match sharding {
        Sharding::Unsharded => base.initialize_mem_wal().unsharded(),
        Sharding::Bucket { column, buckets } => {
            base.initialize_mem_wal().bucket_sharding(column, *buckets)
        }
    };
    let builder = settings
        .into_iter()
        .fold(builder, |builder, (name, value)| builder.add_writer_config_default(name, value));
    builder.execute().await
}

/// The sharding as shard manifests of a table with these columns record it.
fn record_of(sharding: &Sharding, columns: &Columns) -> String {
    let column = sharding.column().and_then(|name| columns.field(name));
    sharding.record(column.map(|column| column.id))
}

/// Fences the writers of shards that are older than the index, and makes them shards of `sharding`.
/// Such shards belong to a table whose index was dropped, or to an earlier table at the same
/// location.
async fn retire_shards(store: &Store, location: &Location, sharding: &str) -> Result<()> {
    let uri = location.uri();
    for shard_id in shard_ids(store).await? {
        let manifests = Arc::new(ManifestStore::new(store.clone(), shard_id, 2));
        if manifests.latest().await?.is_none() {
            continue;
        }
        retire(store, &manifests, sharding).await.map_err(|error| match error {
            Error::InvalidInput { message: why, source } => Error::InvalidInput {
                message: format!(
                    "table {uri} has no MemWAL index, and rows of a time when it had one: {why}. \
                     Restore the version of the table that has the index; or remove the folder \
                     {}/{shard_id}, and those rows with it",
                    paths::MEM_WAL
                ),
                source,
            },
            error => error,
        })?;
        let epoch = manifests.existing().await?.writer_epoch;
        ShardTurns::of(location.home(), shard_id).claimed(epoch);
    }
    Ok(())
}

impl Catalog {
    /// Creates the shard of every ordinal for which `is_there` is false. Refuses to do so where the
    /// table has another index than this handle.
    pub(super) async fn create_missing(
        &self,
        is_there: impl Fn(i32) -> bool,
    ) -> Result<Vec<(i32, ShardId)>> {
        let shards = self.sharding.as_ref().map_or(0, Sharding::shards);
        let ordinals =
            (0..shards).map(|ordinal| (ordinal, i32::try_from(ordinal).unwrap_or(i32::MAX)));
        let missing: Vec<_> = ordinals.filter(|(_, key)| !is_there(*key)).collect();
        // Fails where the table was deleted: its folder must not be created again.
        let base = if missing.is_empty() { self.base.known() } else { self.latest().await? };
        let compacted = self.compacted_at(&base.dataset).await?;
        let created = missing.into_iter().map(|(ordinal, key)| {
            let created = self.create_shard(ordinal, &compacted);
            async move { Ok((key, created.await?)) }
        });
        try_join_all(created).await
    }

    /// The id of the table's shard of an ordinal.
    pub(super) fn shard_id_for(&self, ordinal: u32) -> ShardId {
        shard_id_of(self.table_id, self.shard_spec_id, ordinal)
    }

    /// Creates the shard of one ordinal. Its manifest records the bucket.
    ///
    /// The index of a table that was copied without its shards records the compacted generations of
    /// the old shards. The generations of the new shard begin behind them: else its SSTables would
    /// count as compacted.
    async fn create_shard(
        &self,
        ordinal: u32,
        compacted: &HashMap<ShardId, Generation>,
    ) -> Result<ShardId> {
        let shard_id = self.shard_id_for(ordinal);
        let manifests = ManifestStore::new(self.store.clone(), shard_id, 2);
        let value = i32::try_from(ordinal).unwrap_or(i32::MAX).to_le_bytes().to_vec();
        let values = BTreeMap::from([(SHARDING_FIELD.to_owned(), value)]);
        let first = compacted.get(&shard_id).copied().unwrap_or_default().next();
        let record = self.sharding_record.clone();
        manifests.initialize_from(first, self.shard_spec_id, values, record).await?;
        Ok(shard_id)
    }
}

/// The id of the shard that lancemem creates for an ordinal. It is derived, so two processes that
/// create the shard at the same time create the same one. Two shards of one bucket would show a key
/// twice.
pub(super) fn shard_id_of(table_id: Option<Uuid>, spec_id: u32, ordinal: u32) -> ShardId {
    let mut bytes = *b"lncmem\0\0\0\0\0\0\0\0\0\0";
    if let Some(table_id) = table_id {
        bytes[..9].copy_from_slice(&table_id.as_bytes()[..9]);
    }
    bytes[9..12].copy_from_slice(&spec_id.to_be_bytes()[1..]);
    bytes[12..].copy_from_slice(&ordinal.to_be_bytes());
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[expect(clippy::disallowed_methods, reason = "it must differ from the id of any other table")]
fn fresh_id() -> Uuid {
    Uuid::new_v4()
}

/// The table identity; `None` in a table that an older lancemem created or enabled.
pub(super) fn table_id_of(details: &MemWalIndexDetails) -> Result<Option<Uuid>> {
    let Some(id) = details.writer_config_defaults.get(TABLE_ID) else { return Ok(None) };
    let unreadable =
        || Error::corrupt("the MemWAL index", "undecodable", format!("{TABLE_ID} '{id}'"));
    Uuid::parse_str(id).map(Some).map_err(|_| unreadable())
}
