//! The collector, which removes log entries that no reader needs.
//!
//! Owns: what a collector has seen on the clock of a life, and a grace period that is far too
//! short.
//! Does not own: the rule, which is the testkit's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use lancemem_core::format::{paths, wal_entry};
use lancemem_core::types::WalPosition;
use lancemem_testkit::collector::{Content, garbage};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::Instant;

use crate::actors::pause;
use crate::process::stored_manifest;
use crate::world::{ROOT, World};

/// A fence sentinel stays this long.
pub const SENTINEL_AGE: Duration = Duration::from_hours(7 * 24);

/// An entry of the log.
#[derive(Clone, Debug)]
struct Entry {
    location: Path,
    first_seen: Instant,
    is_sentinel: bool,
}

/// What one collector has seen.
#[derive(Debug, Default)]
struct Collector {
    entries: BTreeMap<WalPosition, Entry>,
    /// Covered positions, and since when.
    covered: Vec<(Instant, WalPosition)>,
    /// Whether it takes the newest entry too, as other programs may.
    takes_newest: bool,
}

/// Removes covered entries beside all other actors.
pub async fn collect(world: Arc<World>) {
    let Some(grace) = world.climate.grace_ms.map(Duration::from_millis) else { return };
    let takes_newest = world.climate.takes_newest;
    let mut collector = Collector { takes_newest, ..Collector::default() };
    loop {
        pause(world.chance.pause(1_000)).await;
        collector.look(&world).await;
        let now = Instant::now();
        for location in collector.garbage(now, grace) {
            if world.chance.odds(100) {
                pause(world.chance.pause(200)).await;
            }
            *world.collected.lock() = Some(Instant::now());
            world.event("fault: entry collected", 0, "");
            let _ = world.objects.delete(&location).await;
        }
    }
}

impl Collector {
    async fn look(&mut self, world: &World) {
        let Some(manifest) = stored_manifest(world) else { return };
        let now = Instant::now();
        self.covered.push((now, manifest.replay_after_wal_entry_position));
        let mut entries = BTreeMap::new();
        for (position, location) in log_entries(world).await {
            let entry = if let Some(known) = self.entries.remove(&position) {
                known
            } else {
                let is_sentinel = is_sentinel(world, &location).await;
                Entry { location, first_seen: now, is_sentinel }
            };
            entries.insert(position, entry);
        }
        self.entries = entries;
    }

    fn garbage(&mut self, now: Instant, grace: Duration) -> Vec<Path> {
        let known = self.covered.iter().rposition(|(at, _)| now.duration_since(*at) >= grace);
        let Some(known) = known else { return Vec::new() };
        self.covered.drain(..known);
        let covered = self.covered[0].1;
        let content = |entry: &Entry| {
            let old = now.duration_since(entry.first_seen) >= SENTINEL_AGE;
            if entry.is_sentinel { Content::Sentinel { old } } else { Content::Rows }
        };
        let newest = self.entries.last_key_value().filter(|(position, entry)| {
            self.takes_newest && **position <= covered && !entry.is_sentinel
        });
        let garbage = garbage(&self.entries, covered, content).into_iter();
        let garbage = garbage.chain(newest.map(|(_, entry)| entry));
        garbage.map(|entry| entry.location.clone()).collect()
    }
}

/// The entries that are stored, past all faults, by their positions.
pub async fn log_entries(world: &World) -> BTreeMap<WalPosition, Path> {
    let folder = Path::from(format!("{ROOT}/{}", paths::wal(world.shard_id)));
    let listed: Vec<_> = world.objects.list(Some(&folder)).collect().await;
    let locations = listed.into_iter().filter_map(|meta| Some(meta.ok()?.location));
    let entry = |location: Path| Some((paths::parse_wal_entry(location.filename()?)?, location));
    locations.filter_map(entry).collect()
}

async fn is_sentinel(world: &World, location: &Path) -> bool {
    let Ok(found) = world.objects.get(location).await else { return true };
    let Ok(bytes) = found.bytes().await else { return true };
    wal_entry::decode(&bytes, "listed").is_ok_and(|entry| entry.batches.is_empty())
}
