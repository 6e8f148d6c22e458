//! `WriterConfig`: the settings of a job as keywords.
//!
//! Owns: their Python names, and how they override the table's defaults.
//! Does not own: what a setting means, or the names under which Lance persists them.

use lancemem::{KeyIndexKind, WriterConfig as RustConfig};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::Given;
use crate::docs::docstring;
use crate::durations::{IdleInterval, Millis, Rate};
use crate::errors::InvalidInputError;
use crate::values::Repr;

macro_rules! settings {
    ($($name:ident: $type:ty),* $(,)?) => {
        #[doc = docstring!("WriterConfig")]
        #[pyclass(frozen, eq, get_all, skip_from_py_object, module = "lancemem")]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct WriterConfig { $($name: Option<$type>),* }

        #[pymethods]
        impl WriterConfig {
            #[new]
            #[pyo3(signature = (*, $($name=None),*))]
            #[expect(clippy::too_many_arguments, reason = "each is a keyword of one setting")]
            fn new($($name: Option<Given<$type>>),*) -> PyResult<Self> {
                let config = Self {
                    $($name: $name.map(|given| given.named(stringify!($name))).transpose()?),*
                };
                config.kind()?;
                Ok(config)
            }

            /// For `pickle` and `copy`: the given settings as keywords.
            fn __getnewargs_ex__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
                let given = PyDict::new(py);
                $(if let Some(value) = &self.$name { given.set_item(stringify!($name), value)?; })*
                Ok((PyTuple::empty(py), given))
            }

            fn __repr__(&self) -> String {
                let settings = [$((stringify!($name), self.$name.repr())),*];
                let given = settings.iter().filter(|(_, value)| value != "None");
                let given: Vec<String> =
                    given.map(|(name, value)| format!("{name}={value}")).collect();
                format!("WriterConfig({})", given.join(", "))
            }
        }
    };
}

settings! {
    durable: bool,
    sync_index: bool,
    key_index: String,
    fsync: bool,
    max_memtable_rows: usize,
    max_memtable_bytes: usize,
    max_memtable_batches: usize,
    max_wal_buffer_bytes: usize,
    max_wal_flush_interval: Millis,
    max_unflushed_memtable_bytes: usize,
    max_uncompacted_generations: usize,
    max_compaction_wait: Millis,
    idle_flush_interval: IdleInterval,
    maintenance: bool,
    maintenance_generations: usize,
    maintenance_interval: Millis,
    maintenance_older_than: Millis,
    maintenance_bytes_per_second: Rate,
}

impl WriterConfig {
    fn kind(&self) -> PyResult<Option<KeyIndexKind>> {
        let Some(name) = &self.key_index else { return Ok(None) };
        name.parse().map(Some).map_err(|()| {
            let message = format!("key_index must be 'hash' or 'skip_list', got '{name}'");
            InvalidInputError::new_err(message)
        })
    }

    /// `defaults`, with the settings of `config` in their place.
    pub fn over(config: Option<&Self>, defaults: RustConfig) -> PyResult<RustConfig> {
        let Some(own) = config else { return Ok(defaults) };
        let or = |own: Option<Millis>, default| own.map_or(default, |own| own.0);
        let uncompacted = own.max_uncompacted_generations;
        let unflushed = own.max_unflushed_memtable_bytes;
        let idle = own.idle_flush_interval.map(|idle| idle.0);
        let rate = own.maintenance_bytes_per_second.map(|rate| rate.0);
        let config = RustConfig {
            durable_write: own.durable.unwrap_or(defaults.durable_write),
            sync_indexed_write: own.sync_index.unwrap_or(defaults.sync_indexed_write),
            key_index: own.kind()?.unwrap_or(defaults.key_index),
            fsync: own.fsync.unwrap_or(defaults.fsync),
            max_memtable_rows: own.max_memtable_rows.unwrap_or(defaults.max_memtable_rows),
            max_memtable_size: own.max_memtable_bytes.unwrap_or(defaults.max_memtable_size),
            max_memtable_batches: own.max_memtable_batches.unwrap_or(defaults.max_memtable_batches),
            max_wal_buffer_size: own.max_wal_buffer_bytes.unwrap_or(defaults.max_wal_buffer_size),
            max_wal_flush_interval: or(own.max_wal_flush_interval, defaults.max_wal_flush_interval),
            max_unflushed_memtable_bytes: unflushed
                .unwrap_or(defaults.max_unflushed_memtable_bytes),
            max_uncompacted_generations: uncompacted
                .unwrap_or(defaults.max_uncompacted_generations),
            max_compaction_wait: or(own.max_compaction_wait, defaults.max_compaction_wait),
            idle_flush_interval: idle.unwrap_or(defaults.idle_flush_interval),
            maintenance: own.maintenance.unwrap_or(defaults.maintenance),
            maintenance_generations: own
                .maintenance_generations
                .unwrap_or(defaults.maintenance_generations),
            maintenance_interval: or(own.maintenance_interval, defaults.maintenance_interval),
            maintenance_older_than: or(own.maintenance_older_than, defaults.maintenance_older_than),
            maintenance_bytes_per_second: rate.unwrap_or(defaults.maintenance_bytes_per_second),
            ..defaults
        };
        config.validate().map_err(|error| in_our_words(&error.to_string()))?;
        Ok(config)
    }
}

/// The error of a setting under its Python name instead of its persisted name.
fn in_our_words(error: &str) -> PyErr {
    let names = [
        ("max_memtable_size", "max_memtable_bytes"),
        ("max_wal_buffer_size", "max_wal_buffer_bytes"),
    ];
    let text =
        names.iter().fold(error.to_owned(), |text, (stored, ours)| text.replace(stored, ours));
    InvalidInputError::new_err(text)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WriterConfig>()
}
