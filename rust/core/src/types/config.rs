//! Settings of one job's write path, under the names that Lance persists as
//! `writer_config_defaults`.
//!
//! Owns: defaults, parsing and validation of these settings.
//! Does not own: shard identity, which is never a setting, or the settings of maintenance, which
//! the engine keeps in the same persisted map.

use std::collections::HashMap;
use std::time::Duration;

use super::{Error, Result};

/// Several buffers are in use at once, and an encoder holds both its input and its output.
const BUFFERS_IN_BUDGET: usize = 32;

/// The structure that finds the newest row of a key in a MemTable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyIndexKind {
    /// A hash table; key order is made by one sort at the flush.
    #[default]
    Hash,
    /// A concurrent skiplist, in key order at all times.
    SkipList,
}

impl KeyIndexKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::SkipList => "skip_list",
        }
    }
}

impl std::str::FromStr for KeyIndexKind {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Self::Hash, Self::SkipList].into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}

/// Settings of one job's write path. Persisted table defaults apply first, a per-job value wins.
///
/// ```
/// use lancemem_core::types::WriterConfig;
///
/// let config = WriterConfig::default().with_durable_write(false).with_max_memtable_rows(10_000);
/// assert_eq!(config.max_memtable_rows, 10_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own, with its name")]
pub struct WriterConfig {
    /// Whether `put` returns only after its rows are in the WAL.
    pub durable_write: bool,
    /// Whether `put` returns only after its keys are in the key index. Without it a background
    /// task indexes them; reads that need the index do what is left themselves.
    pub sync_indexed_write: bool,
    /// Whether `put` returns only after its rows are in the indexes that searches of rows in memory
    /// use. Without it the first search that needs them adds the rows.
    pub sync_search_index: bool,
    /// The structure of the key index.
    pub key_index: KeyIndexKind,
    /// Whether flushed SSTables get the indexes of the base table. A flush without them takes less
    /// time; searches then read all rows of the SSTable.
    pub index_flushed: bool,
    /// Whether files and folders are synced to disk on a local file system before they count
    /// as written. Without it a put survives a killed process but not a power cut.
    pub fsync: bool,
    /// Bytes of queued rows that start a WAL append without waiting for the interval.
    pub max_wal_buffer_size: usize,
    /// How long rows of non-durable puts may wait for their WAL append.
    pub max_wal_flush_interval: Duration,
    /// Attempts after the first failed WAL append before the job stops.
    pub max_wal_persist_retries: usize,
    /// Pause before the first of those attempts; doubled each time.
    pub wal_persist_retry_base_delay: Duration,
    /// Bytes at which a MemTable is frozen.
    pub max_memtable_size: usize,
    /// Rows at which a MemTable is frozen.
    pub max_memtable_rows: usize,
    /// Batches at which a MemTable is frozen.
    pub max_memtable_batches: usize,
    /// Parallel existence checks while looking for the newest shard manifest.
    pub manifest_scan_batch_size: usize,
    /// Bytes in active and frozen MemTables above which `put` waits for a flush.
    pub max_unflushed_memtable_bytes: usize,
    /// Flushed generations that wait for compaction above which `put` waits for a compaction.
    pub max_uncompacted_generations: usize,
    /// How long a put waits for that compaction before it fails.
    pub max_compaction_wait: Duration,
    /// How long the active MemTable may hold rows without a new put before it is flushed;
    /// zero means forever.
    pub idle_flush_interval: Duration,
}

impl Default for WriterConfig {
    fn default() -> Self {
        Self {
            durable_write: true,
            sync_indexed_write: true,
            sync_search_index: false,
            key_index: KeyIndexKind::default(),
            index_flushed: true,
            fsync: true,
            max_wal_buffer_size: 10 << 20,
            max_wal_flush_interval: Duration::from_millis(100),
            max_wal_persist_retries: 3,
            wal_persist_retry_base_delay: Duration::from_millis(50),
            max_memtable_size: 256 << 20,
            max_memtable_rows: 100_000,
            max_memtable_batches: 8_000,
            manifest_scan_batch_size: 2,
            max_unflushed_memtable_bytes: 1 << 30,
            max_uncompacted_generations: 1_000,
            max_compaction_wait: Duration::from_mins(1),
            idle_flush_interval: Duration::from_mins(1),
        }
    }
}

impl WriterConfig {
    /// The settings, overridden by the keys of `defaults` that this type defines. Other keys belong
    /// to the engine or to other programs and are skipped.
    ///
    /// # Errors
    /// A known key with a value that does not parse is an input error that names the key.
    pub fn with_defaults(mut self, defaults: &HashMap<String, String>) -> Result<Self> {
        for (key, value) in defaults {
            self.set(key, value)?;
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "durable_write" => self.durable_write = parse(key, value)?,
            "sync_indexed_write" => self.sync_indexed_write = parse(key, value)?,
            "sync_search_index" => self.sync_search_index = parse(key, value)?,
            "key_index" => self.key_index = parse(key, value)?,
            "index_flushed" => self.index_flushed = parse(key, value)?,
            "fsync" => self.fsync = parse(key, value)?,
            "max_wal_buffer_size" => self.max_wal_buffer_size = parse(key, value)?,
            "max_wal_flush_interval_ms" => {
                self.max_wal_flush_interval = Duration::from_millis(parse(key, value)?);
            }
            "max_wal_persist_retries" => self.max_wal_persist_retries = parse(key, value)?,
            "wal_persist_retry_base_delay_ms" => {
                self.wal_persist_retry_base_delay = Duration::from_millis(parse(key, value)?);
            }
            "max_memtable_size" => self.max_memtable_size = parse(key, value)?,
            "max_memtable_rows" => self.max_memtable_rows = parse(key, value)?,
            "max_memtable_batches" => self.max_memtable_batches = parse(key, value)?,
            "manifest_scan_batch_size" => self.manifest_scan_batch_size = parse(key, value)?,
            "max_unflushed_memtable_bytes" => {
                self.max_unflushed_memtable_bytes = parse(key, value)?;
            }
            "max_uncompacted_generations" => {
                self.max_uncompacted_generations = parse(key, value)?;
            }
            "max_compaction_wait_ms" => {
                self.max_compaction_wait = Duration::from_millis(parse(key, value)?);
            }
            "idle_flush_interval_ms" => {
                self.idle_flush_interval = Duration::from_millis(parse(key, value)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// The settings as Lance persists them.
    #[must_use]
    pub fn to_defaults(&self) -> HashMap<String, String> {
        let pairs = [
            ("durable_write", self.durable_write.to_string()),
            ("sync_indexed_write", self.sync_indexed_write.to_string()),
            ("key_index", self.key_index.name().to_owned()),
            ("index_flushed", self.index_flushed.to_string()),
            ("fsync", self.fsync.to_string()),
            ("max_wal_buffer_size", self.max_wal_buffer_size.to_string()),
            ("max_wal_flush_interval_ms", self.max_wal_flush_interval.as_millis().to_string()),
            ("max_wal_persist_retries", self.max_wal_persist_retries.to_string()),
            (
                "wal_persist_retry_base_delay_ms",
                self.wal_persist_retry_base_delay.as_millis().to_string(),
            ),
            ("max_memtable_size", self.max_memtable_size.to_string()),
            ("max_memtable_rows", self.max_memtable_rows.to_string()),
            ("max_memtable_batches", self.max_memtable_batches.to_string()),
            ("manifest_scan_batch_size", self.manifest_scan_batch_size.to_string()),
            ("max_unflushed_memtable_bytes", self.max_unflushed_memtable_bytes.to_string()),
            ("max_uncompacted_generations", self.max_uncompacted_generations.to_string()),
            ("max_compaction_wait_ms", self.max_compaction_wait.as_millis().to_string()),
            ("idle_flush_interval_ms", self.idle_flush_interval.as_millis().to_string()),
        ];
        // Tables of earlier versions do not have this one, and a table that leaves it at its default
        // stays equal to them.
        let synced = self.sync_search_index.then(|| ("sync_search_index", "true".to_owned()));
        let pairs = pairs.into_iter().chain(synced);
        pairs.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Size of one buffer of rows on the way to storage, a WAL entry or a page of an SSTable:
    /// `wanted`, or less where the job's memory budget is small.
    #[must_use]
    pub fn buffer_bytes(&self, wanted: usize) -> usize {
        wanted.min((self.max_unflushed_memtable_bytes / BUFFERS_IN_BUDGET).max(1))
    }

    /// Refuses settings under which a job could never accept a row.
    ///
    /// # Errors
    /// An input error that names the setting.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("max_wal_buffer_size", self.max_wal_buffer_size),
            ("max_memtable_size", self.max_memtable_size),
            ("max_memtable_rows", self.max_memtable_rows),
            ("max_memtable_batches", self.max_memtable_batches),
            ("manifest_scan_batch_size", self.manifest_scan_batch_size),
            ("max_unflushed_memtable_bytes", self.max_unflushed_memtable_bytes),
            ("max_uncompacted_generations", self.max_uncompacted_generations),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Err(Error::input(format!("{name} must be at least 1, got 0")));
            }
        }
        if u32::try_from(self.max_memtable_rows).is_err() {
            return Err(Error::input(format!(
                "max_memtable_rows must be below 2^32, got {}",
                self.max_memtable_rows
            )));
        }
        Ok(())
    }
}

/// One builder method a setting.
macro_rules! builders {
    ($($builder:ident: $setting:ident, $kind:ty;)*) => {
        impl WriterConfig {
            $(
                #[doc = concat!("Sets [`Self::", stringify!($setting), "`].")]
                #[must_use]
                pub const fn $builder(mut self, $setting: $kind) -> Self {
                    self.$setting = $setting;
                    self
                }
            )*
        }
    };
}

builders! {
    with_durable_write: durable_write, bool;
    with_sync_indexed_write: sync_indexed_write, bool;
    with_sync_search_index: sync_search_index, bool;
    with_key_index: key_index, KeyIndexKind;
    with_index_flushed: index_flushed, bool;
    with_fsync: fsync, bool;
    with_max_wal_buffer_size: max_wal_buffer_size, usize;
    with_max_wal_flush_interval: max_wal_flush_interval, Duration;
    with_max_wal_persist_retries: max_wal_persist_retries, usize;
    with_wal_persist_retry_base_delay: wal_persist_retry_base_delay, Duration;
    with_max_memtable_size: max_memtable_size, usize;
    with_max_memtable_rows: max_memtable_rows, usize;
    with_max_memtable_batches: max_memtable_batches, usize;
    with_manifest_scan_batch_size: manifest_scan_batch_size, usize;
    with_max_unflushed_memtable_bytes: max_unflushed_memtable_bytes, usize;
    with_max_uncompacted_generations: max_uncompacted_generations, usize;
    with_max_compaction_wait: max_compaction_wait, Duration;
    with_idle_flush_interval: idle_flush_interval, Duration;
}

fn parse<T: std::str::FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| Error::input(format!("{key} has the invalid value '{value}'")))
}

#[cfg(test)]
mod tests {
    use super::{Duration, WriterConfig};

    #[test]
    fn persisted_defaults_read_back_as_the_same_settings() {
        let config = WriterConfig::default()
            .with_durable_write(false)
            .with_max_memtable_rows(500)
            .with_max_compaction_wait(Duration::from_secs(5));
        let read = WriterConfig::default().with_defaults(&config.to_defaults()).unwrap();
        assert_eq!(read, config);
    }

    #[test]
    fn keys_of_other_programs_are_skipped() {
        let defaults = [("maintenance_generations".to_owned(), "many".to_owned())].into();
        let read = WriterConfig::default().with_defaults(&defaults).unwrap();
        assert_eq!(read, WriterConfig::default());
    }

    #[test]
    fn a_setting_that_does_not_parse_is_named_in_the_error() {
        let defaults = [("max_memtable_rows".to_owned(), "many".to_owned())].into();
        let error = WriterConfig::default().with_defaults(&defaults).unwrap_err();
        assert_eq!(error.to_string(), "max_memtable_rows has the invalid value 'many'");
    }

    #[test]
    fn a_small_budget_makes_small_buffers() {
        let with_budget = |bytes| WriterConfig::default().with_max_unflushed_memtable_bytes(bytes);
        assert_eq!(WriterConfig::default().buffer_bytes(10 << 20), 10 << 20);
        assert_eq!(with_budget(64 << 20).buffer_bytes(10 << 20), 2 << 20);
        assert_eq!(with_budget(1).buffer_bytes(10 << 20), 1);
    }

    #[test]
    fn a_memtable_of_no_rows_is_refused() {
        let config = WriterConfig::default().with_max_memtable_rows(0);
        assert!(config.validate().is_err());
    }
}
