//! A table's columns in memory: a schema source whose answers the test sets.
//!
//! Owns: the columns, the number of reads of them, and a gate before the next answer.
//! Does not own: how a job follows the columns.

use std::sync::Arc;

use async_trait::async_trait;
use lancemem_core::format::RowSchema;
use lancemem_core::shard::SchemaSource;
use lancemem_core::types::Result;
use parking_lot::Mutex;

use crate::gate::Gate;

/// The columns. Share them behind an [`Arc`].
#[derive(Debug)]
pub struct TableColumns {
    known: Arc<RowSchema>,
    newest: Mutex<Arc<RowSchema>>,
    look: Mutex<Option<Arc<Gate>>>,
    looks: Mutex<u32>,
}

impl TableColumns {
    /// A table of these columns. [`SchemaSource::known`] returns them, even after a change.
    #[must_use]
    pub fn new(known: Arc<RowSchema>) -> Arc<Self> {
        let newest = Mutex::new(known.clone());
        Arc::new(Self { known, newest, look: Mutex::default(), looks: Mutex::default() })
    }

    /// Changes the table's columns.
    pub fn set(&self, schema: Arc<RowSchema>) {
        *self.newest.lock() = schema;
    }

    /// Reverts all changes of the columns.
    pub fn restore(&self) {
        self.set(self.known.clone());
    }

    /// Holds the answer of the next read at `gate`. The answer has the columns of the time when the
    /// read began.
    pub fn hold_next_look(&self, gate: Arc<Gate>) {
        *self.look.lock() = Some(gate);
    }

    /// How often a job has read the newest columns.
    #[must_use]
    pub fn looks(&self) -> u32 {
        *self.looks.lock()
    }
}

#[async_trait]
impl SchemaSource for TableColumns {
    fn known(&self) -> Arc<RowSchema> {
        self.known.clone()
    }

    async fn newest(&self) -> Result<Arc<RowSchema>> {
        *self.looks.lock() += 1;
        let schema = self.newest.lock().clone();
        let gate = self.look.lock().take();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        Ok(schema)
    }
}
