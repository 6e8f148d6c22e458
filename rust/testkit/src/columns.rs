//! A table's columns in memory: a schema source whose answers a story decides.
//!
//! Owns: the columns, how often they were looked at, and a hold of the next answer.
//! Does not own: what a job makes of them.

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
    /// A table of these columns, which every job knows when it opens, whatever they are by then.
    #[must_use]
    pub fn new(known: Arc<RowSchema>) -> Arc<Self> {
        let newest = Mutex::new(known.clone());
        Arc::new(Self { known, newest, look: Mutex::default(), looks: Mutex::default() })
    }

    /// Changes the table's columns.
    pub fn set(&self, schema: Arc<RowSchema>) {
        *self.newest.lock() = schema;
    }

    /// Takes all changes back.
    pub fn restore(&self) {
        self.set(self.known.clone());
    }

    /// Holds the answer of the next look at `gate`: it is what the columns are now.
    pub fn hold_next_look(&self, gate: Arc<Gate>) {
        *self.look.lock() = Some(gate);
    }

    /// How often a job has looked at the columns.
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
