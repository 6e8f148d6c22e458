//! Flushed SSTables in memory, behind the contract of `SsTableSink`.
//!
//! Owns: SSTables as sequences of puts, and their failures.
//! Does not own: the manifest, or what a flush keeps of the rows (`sources`).

use std::sync::Arc;

use async_trait::async_trait;
use lancemem_core::format::{SsTable, paths};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::SsTableSink;
use lancemem_core::types::{Error, Result};

use crate::storage::Client;
use crate::world::{Run, Weather, World};

/// The sink of one process.
#[derive(Debug)]
pub struct Sink {
    world: Arc<World>,
    client: Arc<Client>,
}

impl Sink {
    pub const fn new(world: Arc<World>, client: Arc<Client>) -> Self {
        Self { world, client }
    }

    fn run_of(&self, view: &MemTableView) -> Result<Run, String> {
        Ok(Run {
            generation: view.generation(),
            puts: self.world.puts_of(view)?,
            rows: self.world.merging.flushed(view)?,
        })
    }
}

#[async_trait]
impl SsTableSink for Sink {
    async fn write(&self, view: &MemTableView) -> Result<SsTable> {
        let (world, generation) = (&self.world, view.generation());
        self.client.alive().await;
        let pause = world.chance.pause(world.climate.latency_ms * 4);
        #[expect(clippy::disallowed_methods, reason = "the clock of a life is not a real one")]
        tokio::time::sleep(pause).await;
        self.client.alive().await;
        let calm = *world.weather.lock() == Weather::Calm;
        if !calm && world.chance.odds(world.climate.faults) {
            world.event("fault: flush failed", self.client.id, "");
            return Err(Error::storage("writing an SSTable", "disk full"));
        }
        let nonce = u32::try_from(world.fresh_id()).unwrap_or(0);
        let path = paths::sstable_folder(nonce, generation);
        match self.run_of(view) {
            Ok(run) => world.runs.lock().insert(path.clone(), Arc::new(run)),
            Err(reason) => {
                world.fail(reason);
                return Err(Error::internal("the life has failed"));
            }
        };
        world.event("run written", self.client.id, &path);
        let physical_rows = Some(view.rows() as u64);
        Ok(SsTable {
            generation,
            path,
            in_memory_bytes: None,
            physical_rows,
            primary_key_bytes: None,
        })
    }
}
