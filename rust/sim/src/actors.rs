//! What happens around the processes: claims, ends, weather, jumps, readers, compactions.
//!
//! Owns: one endless task each. Does not own: what a process does by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lancemem_core::format::paths;
use lancemem_core::shard::{Look, Replay};
use lancemem_core::store::ManifestStore;
use lancemem_core::types::WalPosition;
use lancemem_core::wal::WalTail;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::held::Held;
use crate::process;
use crate::storage::Client;
use crate::world::{Base, Pace, ROOT, Weather, World};

const MAX_OPENINGS: usize = 3;

pub async fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the clock of a life is not a real one")]
    tokio::time::sleep(time.max(Duration::from_millis(1))).await;
}

/// Opens the shard again and again, whether it has an owner or not.
pub async fn claim(world: Arc<World>) {
    let mut pace = Pace::default();
    loop {
        if world.opening.fetch_add(1, Ordering::Relaxed) < MAX_OPENINGS {
            let world = world.clone();
            tokio::spawn(async move {
                if world.chance.odds(100) {
                    process::open_doomed(world.clone()).await;
                }
                process::open(world.clone()).await;
                world.opening.fetch_sub(1, Ordering::Relaxed);
            });
        } else {
            world.opening.fetch_sub(1, Ordering::Relaxed);
        }
        let alone = world.processes.lock().is_empty();
        let most = if alone { 50 } else { world.climate.claims_ms };
        pause(world.pace(&mut pace, most)).await;
    }
}

/// Ends processes, in order or not.
pub async fn end(world: Arc<World>) {
    let mut pace = Pace::default();
    loop {
        pause(world.pace(&mut pace, world.climate.ends_ms)).await;
        if world.chance.odds(100) {
            kill_somebody(&world);
            continue;
        }
        let count = world.processes.lock().len();
        if count == 0 {
            continue;
        }
        let at = world.chance.index(count);
        match world.chance.below(10) {
            0..=4 => {
                let process = world.processes.lock().remove(at);
                world.event("fault: killed", process.client.id, "");
                process.kill();
            }
            5 => {
                let process = world.processes.lock().remove(at);
                world.event("dropped", process.client.id, "");
                process.cancel_callers();
                let world = world.clone();
                tokio::spawn(async move {
                    let client = process.client.clone();
                    drop(process);
                    pause(world.chance.pause(5_000)).await;
                    client.kill();
                });
            }
            _ => {
                let process = world.processes.lock().remove(at);
                let flush = world.chance.odds(500);
                tokio::spawn(process.close(world.clone(), flush));
            }
        }
    }
}

/// Kills any process, one that is just opening or a reader included.
fn kill_somebody(world: &World) {
    let clients = world.clients.lock();
    let alive: Vec<_> = clients.iter().filter(|client| !client.is_dead()).collect();
    if alive.is_empty() {
        return;
    }
    let client = alive[world.chance.index(alive.len())];
    let opening = !world.processes.lock().iter().any(|process| process.client.id == client.id);
    if opening {
        world.event("fault: killed at any time", client.id, "");
        client.kill();
    }
}

pub async fn turn_weather(world: Arc<World>) {
    let all = [
        Weather::Calm,
        Weather::Usual,
        Weather::Usual,
        Weather::Usual,
        Weather::Storm,
        Weather::Outage,
    ];
    let mut pace = Pace::default();
    loop {
        pause(world.pace(&mut pace, world.climate.weather_ms)).await;
        let next = world.chance.pick(&all);
        // Where there are no faults there is no outage either.
        let next = if world.climate.faults == 0 { Weather::Calm } else { next };
        *world.weather.lock() = next;
        world.event(if next == Weather::Outage { "fault: outage" } else { "weather" }, 0, "");
    }
}

pub async fn jump(world: Arc<World>) {
    if !world.climate.jumps {
        return;
    }
    loop {
        pause(world.chance.pause(3_000)).await;
        world.event("fault: clock jumped", 0, "");
        tokio::time::advance(world.chance.pause(90_000)).await;
    }
}

/// A reader of another process that looks again and again.
#[derive(Debug)]
pub struct Reader {
    world: Arc<World>,
    client: Arc<Client>,
    manifests: ManifestStore,
    tail: WalTail,
    replay: Replay,
    held: Held,
}

impl Reader {
    pub fn new(world: &Arc<World>) -> Self {
        let client = Client::new(world);
        Self {
            manifests: ManifestStore::new(client.store(), world.shard_id, 2),
            tail: WalTail::new(client.store(), world.shard_id, WalPosition(0)),
            replay: Replay::new(world.shard_id, world.schema.clone()),
            held: Held::default(),
            world: world.clone(),
            client,
        }
    }

    /// Looks once. An error of the storage is an answer too: nothing was seen.
    pub async fn look(&mut self) -> bool {
        let floor = self.world.oracle.lock().floor();
        let Ok(Some(first)) = Look::now(&self.tail, &self.manifests).await else { return false };
        let manifest = match self.replay.catch_up(&mut self.tail, &self.manifests, first).await {
            Ok(manifest) => manifest,
            Err(error) => {
                self.world.refuse_unexplained("a read of the log", &error);
                return false;
            }
        };
        let views: Vec<_> = self
            .replay
            .memtables()
            .iter()
            .map(|replayed| replayed.memtable.view(usize::MAX))
            .collect();
        self.world.judge(self.held.look_again(&self.world));
        let deep = self.world.chance.odds(300);
        let base = self.world.base.lock().clone();
        let seen = self.world.assemble_on(&base, &manifest, &views, deep);
        let verdict = seen.and_then(|seen| {
            self.held.hold(base, &manifest, &views, &seen.puts);
            self.world.event("read of the log", self.client.id, &seen.puts.len().to_string());
            self.world.oracle.lock().stored(&seen, &floor)
        });
        self.world.judge(verdict);
        true
    }
}

/// Readers: one that goes on where it was, and one that starts from the beginning each time.
pub async fn read(world: Arc<World>) {
    let mut going_on = Reader::new(&world);
    let mut pace = Pace::default();
    loop {
        pause(world.pace(&mut pace, world.climate.think_ms * 60 + 60)).await;
        if world.chance.odds(400) || going_on.client.is_dead() {
            going_on = Reader::new(&world);
        }
        let patient = tokio::time::timeout(Duration::from_mins(10), going_on.look()).await;
        if patient.is_err() && !going_on.client.is_dead() {
            world.fail("a reader hangs");
        }
    }
}

/// Takes SSTables over into the base table, then drains the manifest beside the living writer.
pub async fn compact(world: Arc<World>) {
    let mut client = Client::new(&world);
    let mut manifests = ManifestStore::new(client.store(), world.shard_id, 2);
    let mut pace = Pace::default();
    loop {
        pause(world.pace(&mut pace, world.climate.think_ms * 50 + 100)).await;
        if client.is_dead() || world.chance.odds(300) {
            client.close();
            client = Client::new(&world);
            manifests = ManifestStore::new(client.store(), world.shard_id, 2);
        }
        let step = compact_once(&world, &manifests);
        if tokio::time::timeout(Duration::from_mins(10), step).await.is_err() && !client.is_dead() {
            world.fail("a compaction hangs");
        }
    }
}

async fn compact_once(world: &Arc<World>, manifests: &ManifestStore) {
    let Ok(Some(manifest)) = manifests.latest().await else { return };
    let mut base: Base = world.base.lock().clone();
    let (mut puts, mut taken) = (base.puts.as_ref().clone(), Vec::new());
    let before = base.compacted;
    let runs = manifest.sstables.iter().filter(|run| run.generation > before);
    for sstable in runs.take(1 + world.chance.index(3)) {
        let Some(run) = world.runs.lock().get(&sstable.path).cloned() else {
            return world
                .fail(format!("the manifest lists {}, which was not written", sstable.path));
        };
        if run.generation != sstable.generation {
            return world.fail("the manifest lists an SSTable under another generation");
        }
        puts.extend(&run.puts);
        base.compacted = run.generation;
        taken.push(run);
    }
    let rows = world.merging.table(&base.rows, taken.iter().map(|run| &run.rows));
    let rows = match rows {
        Ok(rows) => rows,
        Err(reason) => return world.fail(reason),
    };
    base.epoch = base.epoch.max(manifest.writer_epoch.get());
    base.puts = Arc::new(puts);
    base.rows = Arc::new(rows);
    pause(world.chance.pause(50)).await;
    let compacted = base.compacted;
    *world.base.lock() = base;
    world.event("compacted", 0, &compacted.to_string());
    let drained = manifests
        .update_beside_owner(|manifest| {
            manifest.sstables.retain(|run| run.generation > compacted);
        })
        .await;
    let Ok(drained) = drained else { return };
    let before = manifest_at(world, drained.version.get() - 1).await;
    if before.is_some_and(|before| before.writer_epoch != drained.writer_epoch) {
        world.fail("a compaction took the shard from its writer");
    }
}

async fn manifest_at(world: &World, version: u64) -> Option<lancemem_core::format::ShardManifest> {
    let version = lancemem_core::types::ManifestVersion(version);
    let path = Path::from(format!("{ROOT}/{}", paths::manifest(world.shard_id, version)));
    let bytes = world.objects.get(&path).await.ok()?.bytes().await.ok()?;
    lancemem_core::format::ShardManifest::decode(&bytes, "stored").ok()
}
