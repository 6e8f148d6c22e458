//! Settings of the maintenance beside a job: when a background task compacts and collects.
//!
//! Owns: their defaults, their validation, and their names among the persisted defaults of a table.
//! Does not own: the task that follows them (`maintain`), or the settings of the write path
//! (`WriterConfig`), which are persisted in the same map.

use std::collections::HashMap;
use std::time::Duration;

use lancemem_core::types::{Error, Result};

/// Settings of the background task beside a job that compacts the table and collects its garbage.
///
/// ```
/// use lancemem::MaintenanceConfig;
///
/// let config = MaintenanceConfig::default().with_enabled(true).with_generations(4);
/// assert_eq!(config.generations, 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceConfig {
    /// Whether the task compacts and collects.
    pub enabled: bool,
    /// Flushed generations of the job's shard at which the task compacts at once.
    pub generations: usize,
    /// How long fewer generations than that wait for a compaction.
    pub interval: Duration,
    /// How long an object must have been garbage before the task removes it.
    pub older_than: Duration,
    /// Bytes per second that the task's compactions may read and write; 0 for no limit.
    pub bytes_per_second: u64,
}

impl Default for MaintenanceConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            generations: 8,
            interval: Duration::from_mins(1),
            older_than: Duration::from_hours(1),
            bytes_per_second: 0,
        }
    }
}

impl MaintenanceConfig {
    /// Sets [`Self::enabled`].
    #[must_use]
    pub const fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Sets [`Self::generations`].
    #[must_use]
    pub const fn with_generations(mut self, generations: usize) -> Self {
        self.generations = generations;
        self
    }

    /// Sets [`Self::interval`].
    #[must_use]
    pub const fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets [`Self::older_than`].
    #[must_use]
    pub const fn with_older_than(mut self, older_than: Duration) -> Self {
        self.older_than = older_than;
        self
    }

    /// Sets [`Self::bytes_per_second`].
    #[must_use]
    pub const fn with_bytes_per_second(mut self, bytes_per_second: u64) -> Self {
        self.bytes_per_second = bytes_per_second;
        self
    }

    /// The settings, overridden by the keys of `defaults` that this type defines. Other keys belong
    /// to `WriterConfig` or to other programs and are skipped.
    ///
    /// # Errors
    /// A known key with a value that does not parse is an input error that names the key.
    pub(super) fn with_defaults(mut self, defaults: &HashMap<String, String>) -> Result<Self> {
        for (key, value) in defaults {
            match key.as_str() {
                "maintenance" => self.enabled = parse(key, value)?,
                "maintenance_generations" => self.generations = parse(key, value)?,
                "maintenance_interval_ms" => {
                    self.interval = Duration::from_millis(parse(key, value)?);
                }
                "maintenance_older_than_ms" => {
                    self.older_than = Duration::from_millis(parse(key, value)?);
                }
                "maintenance_bytes_per_second" => self.bytes_per_second = parse(key, value)?,
                _ => {}
            }
        }
        Ok(self)
    }

    /// The settings as a table persists them, beside those of the write path.
    pub(super) fn to_defaults(&self) -> HashMap<String, String> {
        let pairs = [
            ("maintenance", self.enabled.to_string()),
            ("maintenance_generations", self.generations.to_string()),
            ("maintenance_interval_ms", self.interval.as_millis().to_string()),
            ("maintenance_older_than_ms", self.older_than.as_millis().to_string()),
            ("maintenance_bytes_per_second", self.bytes_per_second.to_string()),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Refuses settings under which the task would run without a pause.
    ///
    /// # Errors
    /// An input error that names the setting.
    pub fn validate(&self) -> Result<()> {
        if self.generations == 0 {
            return Err(Error::input("generations of MaintenanceConfig must be at least 1, got 0"));
        }
        if self.interval.is_zero() {
            return Err(Error::input("interval of MaintenanceConfig must be at least 1 ms, got 0"));
        }
        Ok(())
    }
}

fn parse<T: std::str::FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| Error::input(format!("{key} has the invalid value '{value}'")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lancemem_core::types::WriterConfig;

    use super::{Duration, MaintenanceConfig};

    #[test]
    fn persisted_defaults_read_back_as_the_same_settings() {
        let config = MaintenanceConfig::default()
            .with_enabled(true)
            .with_generations(3)
            .with_interval(Duration::from_secs(5))
            .with_older_than(Duration::from_millis(7))
            .with_bytes_per_second(9);
        let read = MaintenanceConfig::default().with_defaults(&config.to_defaults()).unwrap();
        assert_eq!(read, config);
    }

    /// Tables keep these keys and texts for ever.
    #[test]
    fn a_table_persists_every_setting_in_one_map() {
        let mut persisted = WriterConfig::default().to_defaults();
        persisted.extend(MaintenanceConfig::default().to_defaults());
        let persisted: BTreeMap<_, _> = persisted.into_iter().collect();
        let expected = [
            ("durable_write", "true"),
            ("fsync", "true"),
            ("idle_flush_interval_ms", "60000"),
            ("key_index", "hash"),
            ("maintenance", "false"),
            ("maintenance_bytes_per_second", "0"),
            ("maintenance_generations", "8"),
            ("maintenance_interval_ms", "60000"),
            ("maintenance_older_than_ms", "3600000"),
            ("index_flushed", "true"),
            ("manifest_scan_batch_size", "2"),
            ("max_compaction_wait_ms", "60000"),
            ("max_memtable_batches", "8000"),
            ("max_memtable_rows", "100000"),
            ("max_memtable_size", "268435456"),
            ("max_uncompacted_generations", "1000"),
            ("max_unflushed_memtable_bytes", "1073741824"),
            ("max_wal_buffer_size", "10485760"),
            ("max_wal_flush_interval_ms", "100"),
            ("max_wal_persist_retries", "3"),
            ("sync_indexed_write", "true"),
            ("wal_persist_retry_base_delay_ms", "50"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(persisted, BTreeMap::from(expected));
    }

    #[test]
    fn a_setting_that_does_not_parse_is_named_in_the_error() {
        let defaults = [("maintenance_generations".to_owned(), "many".to_owned())].into();
        let error = MaintenanceConfig::default().with_defaults(&defaults).unwrap_err();
        assert_eq!(error.to_string(), "maintenance_generations has the invalid value 'many'");
    }

    #[test]
    fn a_task_without_a_pause_is_refused_by_the_name_of_the_setting() {
        let error = MaintenanceConfig::default().with_generations(0).validate().unwrap_err();
        assert!(error.to_string().starts_with("generations of MaintenanceConfig"), "{error}");
        let config = MaintenanceConfig::default().with_interval(Duration::ZERO);
        let error = config.validate().unwrap_err();
        assert!(error.to_string().starts_with("interval of MaintenanceConfig"), "{error}");
    }
}
