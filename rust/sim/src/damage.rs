//! Damage of a stored shard without an owner: it is named, and gone once it is mended.
//!
//! Owns: one damaged log entry or manifest at the end of a life, and the readers that have to
//! notice.
//! Does not own: every position of every kind of file (`rust/core/tests/damage_everywhere.rs`).

use std::sync::Arc;

use bytes::Bytes;
use lancemem_core::format::{TRAILER_BYTES, paths};
use lancemem_core::shard::{Look, Replay, ShardIdentity, ShardWriter, verify_wal};
use lancemem_core::store::ManifestStore;
use lancemem_core::types::{Error, ErrorKind, Result, WalPosition};
use lancemem_core::wal::WalTail;
use lancemem_testkit::damage::{DAMAGES, Damage};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::collector::log_entries;
use crate::life::forgive_decoder;
use crate::process::stored_manifest;
use crate::settings;
use crate::storage::Client;
use crate::world::{ROOT, World};

/// Before each message of an Arrow stream, on a multiple of eight.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// One object of the shard, and what becomes of it.
#[derive(Debug)]
struct Harm {
    location: Path,
    /// Where it is a log entry.
    position: Option<WalPosition>,
    whole: Bytes,
    /// `None` where the object is removed.
    damaged: Option<Bytes>,
    how: String,
}

/// Damages one object of a shard without an owner, asks every reader of it, and mends it again.
pub async fn strike(world: &Arc<World>) {
    let Some(harm) = choose(world).await else { return };
    let Harm { location, position, whole, damaged, how } = harm;
    let done = match damaged {
        Some(damaged) => world.objects.put(&location, damaged.into()).await.map(drop),
        None => world.objects.delete(&location).await,
    };
    if let Err(error) = done {
        return world.fail(format!("{how} cannot be done: {error}"));
    }
    world.event("fault: damaged", 0, &how);
    let read = read(world).await;
    must_be_named(world, &how, "a read of the log", read);
    open(world, &how).await;
    check(world, &how, position).await;
    forgive_decoder();
    if let Err(error) = world.objects.put(&location, whole.into()).await {
        world.fail(format!("{location} cannot be mended: {error}"));
    }
}

/// A log entry that a replay reads, or the newest manifest.
async fn choose(world: &World) -> Option<Harm> {
    let manifest = stored_manifest(world)?;
    let covered = manifest.replay_after_wal_entry_position;
    let needed: Vec<_> =
        log_entries(world).await.into_iter().filter(|(position, _)| *position > covered).collect();
    if needed.is_empty() || world.chance.odds(250) {
        let name = paths::manifest(world.shard_id, manifest.version);
        let location = Path::from(format!("{ROOT}/{name}"));
        let whole = world.objects.get(&location).await.ok()?.bytes().await.ok()?;
        let (damaged, how) = spoil(world, &whole);
        let how = format!("{how} of {name}");
        return Some(Harm { location, position: None, whole, damaged: Some(damaged), how });
    }
    let at = world.chance.index(needed.len());
    let (position, location) = needed[at].clone();
    let whole = world.objects.get(&location).await.ok()?.bytes().await.ok()?;
    // Behind the last entry nothing shows that there was another one.
    let (damaged, how) = if at + 1 < needed.len() && world.chance.odds(200) {
        (None, "loss".to_owned())
    } else if needed.len() > 1 && world.chance.odds(200) {
        let (other, location) = &needed[if at > 0 { at - 1 } else { at + 1 }];
        let copied = world.objects.get(location).await.ok()?.bytes().await.ok()?;
        (Some(copied), format!("a copy of entry {other} in the place"))
    } else if world.chance.odds(400) {
        let (damaged, how) = cut_before_a_message(world, &whole);
        (Some(damaged), how)
    } else {
        let (damaged, how) = spoil(world, &whole);
        (Some(damaged), how)
    };
    let how = format!("{how} of log entry {position}");
    Some(Harm { location, position: Some(position), whole, damaged, how })
}

/// `whole` with one kind of damage.
fn spoil(world: &World, whole: &Bytes) -> (Bytes, String) {
    loop {
        let (kind, at) = (world.chance.pick(&DAMAGES), world.chance.index(whole.len()));
        // An entry without its whole trailer is one that lance could write.
        let as_lance = kind == Damage::Cut && at + TRAILER_BYTES == whole.len();
        let damaged = kind.done(whole, at);
        if !as_lance && damaged != *whole {
            return (damaged.into(), format!("{kind:?} at {at}"));
        }
    }
}

/// An upload that ended between two messages of the stream, where readers of Arrow see an end.
fn cut_before_a_message(world: &World, whole: &Bytes) -> (Bytes, String) {
    let starts = (0..whole.len() - TRAILER_BYTES).step_by(8);
    let starts: Vec<_> = starts.filter(|at| whole[*at..].starts_with(&CONTINUATION)).collect();
    let at = world.chance.pick(&starts);
    (whole.slice(..at), format!("cut at {at}"))
}

/// The read of another process that starts from the beginning.
async fn read(world: &Arc<World>) -> Result<()> {
    let store = Client::new(world).store();
    let manifests = ManifestStore::new(store.clone(), world.shard_id, 2);
    let mut tail = WalTail::new(store, world.shard_id, WalPosition(0));
    let first = Look::now(&tail, &manifests).await?;
    let first = first.ok_or_else(|| Error::internal("a shard without a manifest"))?;
    let mut replay = Replay::new(world.shard_id, world.schema.clone());
    replay.catch_up(&mut tail, &manifests, first).await.map(drop)
}

/// An open names it too, and fences no writer.
async fn open(world: &Arc<World>, how: &str) {
    let client = Client::new(world);
    let identity = ShardIdentity::new(world.shard_id);
    let (sink, config) = (world.sink(client.clone()), settings::writer_config(&world.chance));
    let opened =
        ShardWriter::open(client.store(), identity, world.columns(), sink, config).await;
    must_be_named(world, how, "an open", opened.map(drop));
    if client.puts() > 0 {
        world.fail(format!("P7: an open that met {how} wrote to the shard"));
    }
    client.kill();
}

/// `check` names the place.
async fn check(world: &Arc<World>, how: &str, position: Option<WalPosition>) {
    let store = Client::new(world).store();
    let manifests = ManifestStore::new(store.clone(), world.shard_id, 2);
    let report = verify_wal(&store, &manifests).await;
    let Some(position) = position else {
        return must_be_named(world, how, "a check of the log", report.map(drop));
    };
    let found = report.as_ref().ok().and_then(|report| report.first_damage());
    if found.map(|finding| finding.position) != Some(position) {
        world.fail(format!("P7: a check of the log does not name {how}: {report:?}"));
    }
}

fn must_be_named(world: &World, how: &str, what: &str, result: Result<()>) {
    match result {
        Err(error) if error.kind() == ErrorKind::Corruption => {}
        Err(error) => world.fail(format!("P7: {what} tells {how} as another error: {error}")),
        Ok(()) => world.fail(format!("P7: {what} does not notice {how}")),
    }
}
