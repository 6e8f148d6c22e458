//! Flushed SSTables in memory: a sink that keeps the contract of `SsTableSink` without Lance.
//!
//! Owns: the SSTables, their newest rows, and failures on demand.
//! Does not own: the manifest that lists an SSTable, or the order of SSTables.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use lancemem_core::format::{SsTable, paths};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::SsTableSink;
use lancemem_core::types::{Error, Generation, KeyBytes, Result};
use parking_lot::Mutex;

use crate::gate::Gate;
use crate::reader::newest_of;

/// A flushed SSTable.
#[derive(Clone, Debug)]
pub struct StoredSsTable {
    /// Its age in the shard.
    pub generation: Generation,
    /// The newest row of each key; `None` for a tombstone.
    pub newest: BTreeMap<KeyBytes, Option<i64>>,
    /// Rows, those that are superseded inside the SSTable included.
    pub physical_rows: usize,
}

/// The sink. Share it behind an [`Arc`].
#[derive(Debug, Default)]
pub struct MemorySink {
    sstables: Mutex<BTreeMap<String, Arc<StoredSsTable>>>,
    failures: Mutex<VecDeque<Failure>>,
    gate: Mutex<Option<Arc<Gate>>>,
    calls: Mutex<u32>,
}

#[derive(Debug)]
enum Failure {
    Error(Error),
    Panic,
}

impl MemorySink {
    /// The SSTable in the folder `path`.
    #[must_use]
    pub fn run(&self, path: &str) -> Arc<StoredSsTable> {
        self.sstables.lock()[path].clone()
    }

    /// Lets the next call fail with `error`; calls of this queue up.
    pub fn fail_next(&self, error: Error) {
        self.failures.lock().push_back(Failure::Error(error));
    }

    /// Lets the next call panic.
    pub fn panic_next(&self) {
        self.failures.lock().push_back(Failure::Panic);
    }

    /// Holds every call at `gate` until it is opened.
    pub fn hold(&self, gate: Arc<Gate>) {
        *self.gate.lock() = Some(gate);
    }

    /// How often the sink was called.
    #[must_use]
    pub fn calls(&self) -> u32 {
        *self.calls.lock()
    }
}

#[async_trait]
impl SsTableSink for MemorySink {
    async fn write(&self, rows: &MemTableView) -> Result<SsTable> {
        let nonce = {
            let mut calls = self.calls.lock();
            *calls += 1;
            *calls
        };
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        match self.failures.lock().pop_front() {
            Some(Failure::Error(error)) => return Err(error),
            Some(Failure::Panic) => panic!("injected panic of the sink"),
            None => {}
        }
        assert_eq!(rows.rows_by_key().len(), rows.rows(), "every row position is indexed");
        let path = paths::sstable_folder(nonce, rows.generation());
        let sstable = StoredSsTable {
            generation: rows.generation(),
            newest: newest_of(rows),
            physical_rows: rows.rows(),
        };
        self.sstables.lock().insert(path.clone(), Arc::new(sstable));
        Ok(SsTable {
            generation: rows.generation(),
            path,
            in_memory_bytes: None,
            physical_rows: Some(rows.rows() as u64),
            primary_key_bytes: None,
        })
    }
}
