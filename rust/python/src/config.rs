//! `WriterConfig` and `MaintenanceConfig`: the settings of a job as keywords.
//!
//! Owns: their Python names, and how they override the table's defaults.
//! Does not own: what a setting means, or the names under which Lance persists them.

use lancemem::{
    KeyIndexKind, MaintenanceConfig as RustMaintenanceConfig, WriterConfig as RustConfig,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::{Given, wrong};
use crate::docs::docstring;
use crate::durations::{IdleInterval, Millis, Rate};
use crate::errors::InvalidInputError;
use crate::values::Repr;

/// A class whose keywords are settings.
trait Settings {
    /// Refuses a value that the type of its keyword does not exclude.
    fn check(&self) -> PyResult<()> {
        Ok(())
    }
}

macro_rules! settings {
    ($(#[$($lint:tt)*])* $class:ident { $($name:ident: $type:ty),* $(,)? }) => {
        #[doc = docstring!($class)]
        #[pyclass(frozen, eq, get_all, skip_from_py_object, module = "lancemem")]
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $class { $($name: Option<$type>),* }

        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (*, $($name=None),*))]
            $(#[$($lint)*])*
            fn new($($name: Option<Given<$type>>),*) -> PyResult<Self> {
                let config = Self {
                    $($name: $name.map(|given| given.named(stringify!($name))).transpose()?),*
                };
                config.check()?;
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
                format!(concat!(stringify!($class), "({})"), given.join(", "))
            }
        }
    };
}

settings! {
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of one setting")]
    WriterConfig {
        durable: bool,
        sync_index: bool,
        sync_search_index: bool,
        key_index: String,
        index_flushed: bool,
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
    }
}

settings! {
    MaintenanceConfig {
        enabled: bool,
        generations: usize,
        interval: Millis,
        older_than: Millis,
        bytes_per_second: Rate,
    }
}

impl Settings for WriterConfig {
    fn check(&self) -> PyResult<()> {
        self.kind().map(|_| ())
    }
}

impl Settings for MaintenanceConfig {}

impl WriterConfig {
    fn kind(&self) -> PyResult<Option<KeyIndexKind>> {
        let Some(name) = &self.key_index else { return Ok(None) };
        name.parse().map(Some).map_err(|()| {
            let message = format!("key_index must be 'hash' or 'skip_list', got '{name}'");
            InvalidInputError::new_err(message)
        })
    }

    /// `defaults`, with the settings of `config` in their place.
    pub fn over(config: Option<GivenConfig>, defaults: RustConfig) -> PyResult<RustConfig> {
        let Some(GivenConfig(own)) = config else { return Ok(defaults) };
        let mut config = defaults;
        set(&mut config.durable_write, own.durable);
        set(&mut config.sync_indexed_write, own.sync_index);
        set(&mut config.sync_search_index, own.sync_search_index);
        set(&mut config.key_index, own.kind()?);
        set(&mut config.index_flushed, own.index_flushed);
        set(&mut config.fsync, own.fsync);
        set(&mut config.max_memtable_rows, own.max_memtable_rows);
        set(&mut config.max_memtable_size, own.max_memtable_bytes);
        set(&mut config.max_memtable_batches, own.max_memtable_batches);
        set(&mut config.max_wal_buffer_size, own.max_wal_buffer_bytes);
        set(&mut config.max_wal_flush_interval, own.max_wal_flush_interval.map(|it| it.0));
        set(&mut config.max_unflushed_memtable_bytes, own.max_unflushed_memtable_bytes);
        set(&mut config.max_uncompacted_generations, own.max_uncompacted_generations);
        set(&mut config.max_compaction_wait, own.max_compaction_wait.map(|it| it.0));
        set(&mut config.idle_flush_interval, own.idle_flush_interval.map(|it| it.0));
        config.validate().map_err(|error| in_our_words(&error.to_string()))?;
        Ok(config)
    }
}

/// The argument `config`.
#[derive(Clone)]
pub struct GivenConfig(WriterConfig);

impl FromPyObject<'_, '_> for GivenConfig {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.cast::<WriterConfig>() {
            Ok(config) => Ok(Self(config.get().clone())),
            Err(_) => {
                wrong(given, "a WriterConfig, such as WriterConfig(max_memtable_rows=50_000)")
            }
        }
    }
}

/// The argument `maintenance`: a switch, or settings. Settings switch the task on unless their
/// `enabled` is false.
#[derive(Clone, Debug)]
pub struct Maintenance(MaintenanceConfig);

impl FromPyObject<'_, '_> for Maintenance {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let settings = if let Ok(enabled) = given.extract::<bool>() {
            MaintenanceConfig { enabled: Some(enabled), ..MaintenanceConfig::default() }
        } else if let Ok(settings) = given.cast::<MaintenanceConfig>() {
            settings.get().clone()
        } else {
            return wrong(
                given,
                "a bool or a MaintenanceConfig, such as MaintenanceConfig(generations=8)",
            );
        };
        Ok(Self(MaintenanceConfig { enabled: settings.enabled.or(Some(true)), ..settings }))
    }
}

impl Maintenance {
    /// `defaults`, with the settings of `given` in their place.
    pub fn over(
        given: Option<Self>,
        defaults: RustMaintenanceConfig,
    ) -> PyResult<RustMaintenanceConfig> {
        let Some(Self(own)) = given else { return Ok(defaults) };
        let mut config = defaults;
        set(&mut config.enabled, own.enabled);
        set(&mut config.generations, own.generations);
        set(&mut config.interval, own.interval.map(|it| it.0));
        set(&mut config.older_than, own.older_than.map(|it| it.0));
        set(&mut config.bytes_per_second, own.bytes_per_second.map(|it| it.0));
        config.validate().map_err(|error| InvalidInputError::new_err(error.to_string()))?;
        Ok(config)
    }
}

/// Replaces a setting where a value is given.
fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
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
    module.add_class::<WriterConfig>()?;
    module.add_class::<MaintenanceConfig>()
}
