//! A process that owns the shard, or has not noticed its loss: its job and the callers of that job.
//!
//! Owns: opening, puts of the bank and of the registers, one call and its answer, flushes, reads of
//! the job, its end.
//! Does not own: when a process starts or ends (`actors`), or callers of tables with a rule
//! (`ruled`).

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lancemem_core::format::{ShardManifest, paths};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::{Acknowledged, ShardIdentity, ShardWriter, WriteOptions};
use lancemem_core::store::waiting_here;
use lancemem_core::types::{Error, ErrorKind, ManifestVersion, WriterConfig};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::applications::txn_of;
use crate::events::{Call, Written};
use crate::held::Held;
use crate::oracle::Version;
use crate::rows::{self, ACCOUNTS, DEPOSIT, Event, KEYS, PutId, Row};
use crate::rules::Rule;
use crate::settings;
use crate::storage::Client;
use crate::world::{Pace, ROOT, World};

/// A job and its callers.
#[derive(Debug)]
pub struct Process {
    pub id: u32,
    pub epoch: u64,
    pub client: Arc<Client>,
    config: WriterConfig,
    writer: ShardWriter,
    closing: AtomicBool,
    /// Whether a call has reported that the job has stopped.
    stopped: AtomicBool,
    callers: Mutex<Vec<AbortHandle>>,
}

/// How a caller goes on after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Again,
    /// The put may or may not have happened.
    Unsure,
    End,
}

/// What a call writes.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Rows of a table without a rule.
    Put,
    /// Keys of a table without a rule.
    Delete,
    /// A call in a table with a rule, and its transaction id.
    Ruled { call: &'a Call, version: Option<Version> },
}

impl Write<'_> {
    fn version(&self) -> Option<Version> {
        if let Self::Ruled { version, .. } = self { *version } else { None }
    }

    /// What the core gets of the put `id`, whose events are `rows`.
    fn written(&self, world: &World, id: PutId, rows: &[Row]) -> Written {
        let shape = world.climate.shape;
        match self {
            Self::Put => {
                let value = |event: &Event| match event {
                    Event::Put { cells, .. } => cells[0].unwrap_or_default(),
                    Event::Replace(_) | Event::Delete => 0,
                };
                let rows: Vec<(i64, i64)> =
                    rows.iter().map(|(key, event)| (*key, value(event))).collect();
                Written::plain(shape.rows(&rows), false)
            }
            Self::Delete => {
                let keys: Vec<i64> = rows.iter().map(|(key, _)| *key).collect();
                Written::plain(shape.keys(&keys), true)
            }
            Self::Ruled { call, .. } => call.written(id, shape),
        }
    }
}

/// Opens the shard and starts callers of the new job.
pub async fn open(world: Arc<World>) {
    let client = Client::new(&world);
    let config = settings::writer_config(&world.chance);
    let (floor, started) = (world.oracle.lock().floor(), Instant::now());
    world.event("open", client.id, "");
    let identity = ShardIdentity::new(world.shard_id);
    let opening = ShardWriter::open(
        client.store(),
        identity,
        world.columns(),
        world.sink(client.clone()),
        config.clone(),
    );
    let opened = client.outlast(opening).await;
    if client.is_dead() {
        return;
    }
    let writer = match opened {
        Some(Ok(writer)) => writer,
        Some(Err(error)) => {
            world.event("not opened", client.id, &error.to_string());
            let collected = error.kind() == ErrorKind::Corruption && world.collected_since(started);
            if !collected {
                world.refuse_unexplained("open", &error);
            }
            client.close();
            return;
        }
        None => return world.fail("an open hangs"),
    };
    let (id, epoch) = (u32::try_from(client.id).unwrap_or(0), writer.epoch().get());
    world.event("opened", client.id, &format!("epoch {epoch}"));
    let found = writer
        .snapshot()
        .map_err(|error| error.to_string())
        .and_then(|snapshot| world.assemble(&snapshot.manifest, &snapshot.memtables, true));
    let verdict = found.and_then(|seen| {
        // A base table with rows of a later owner is newer than any that this owner could have
        // read.
        if world.base.lock().epoch > epoch {
            return Ok(());
        }
        world.oracle.lock().opened(epoch, &seen, &floor)
    });
    world.judge(verdict);
    let process = Arc::new(Process {
        id,
        epoch,
        client,
        config,
        writer,
        closing: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        callers: Mutex::default(),
    });
    world.processes.lock().push(process.clone());
    process.start_callers(&world);
}

/// An open whose settings are wrong is refused and leaves no trace.
pub async fn open_doomed(world: Arc<World>) {
    let client = Client::new(&world);
    let config = settings::doomed_config(&world.chance);
    let identity = ShardIdentity::new(world.shard_id);
    let sink = world.sink(client.clone());
    let opened = ShardWriter::open(client.store(), identity, world.columns(), sink, config).await;
    world.event("doomed open", client.id, "");
    if opened.is_ok() || client.puts() > 0 {
        world.fail("an open with wrong settings wrote to the shard");
    }
    client.close();
}

impl Process {
    fn start_callers(self: &Arc<Self>, world: &Arc<World>) {
        let mut tasks = vec![tokio::spawn(self.clone().read(world.clone()))];
        let is_ruled = world.rule != Rule::Plain;
        for _ in 0..=world.chance.below(3) {
            tasks.push(if is_ruled {
                tokio::spawn(self.clone().write_events(world.clone()))
            } else {
                tokio::spawn(self.clone().write_registers(world.clone()))
            });
        }
        if world.chance.odds(700) {
            tasks.push(if is_ruled {
                tokio::spawn(self.clone().write_versions(world.clone()))
            } else {
                tokio::spawn(self.clone().run_bank(world.clone()))
            });
        }
        if world.chance.odds(500) {
            tasks.push(tokio::spawn(self.clone().flush(world.clone())));
        }
        self.callers.lock().extend(tasks.iter().map(tokio::task::JoinHandle::abort_handle));
    }

    /// `kill -9` of the job and its callers.
    pub fn kill(&self) {
        self.client.kill();
        self.cancel_callers();
    }

    /// Cancels all calls; their futures are dropped wherever they wait.
    pub fn cancel_callers(&self) {
        self.callers.lock().drain(..).for_each(|task| task.abort());
    }

    /// Ends the job in order, while its callers go on.
    pub async fn close(self: Arc<Self>, world: Arc<World>, flush: bool) {
        self.closing.store(true, Ordering::Relaxed);
        let acked = world.oracle.lock().acked_of(self.id);
        let closed = self.client.outlast(self.writer.close(flush)).await;
        if self.client.is_dead() {
            return;
        }
        match closed {
            Some(Ok(())) => world.oracle.lock().settled(self.id, acked, flush),
            Some(Err(error)) => {
                self.explain(&world, "close", &error);
            }
            None => world.fail("a close hangs"),
        }
        self.client.close();
        world.event("closed", self.client.id, "");
    }

    async fn write_registers(self: Arc<Self>, world: Arc<World>) {
        loop {
            self.think(&world).await;
            let next = if world.chance.odds(200) {
                let keys: Vec<i64> =
                    (0..=world.chance.below(2)).map(|_| register(&world)).collect();
                self.call(&world, Write::Delete, |id| {
                    let keys = keys.iter().copied().chain([rows::txn(id)]);
                    keys.map(|key| (key, Event::Delete)).collect()
                })
                .await
            } else {
                let keys: Vec<i64> =
                    (0..=world.chance.below(4)).map(|_| register(&world)).collect();
                self.call(&world, Write::Put, |id| {
                    keys.iter().map(|key| (*key, rows::put(rows::value(id, *key)))).collect()
                })
                .await
            };
            if next == Next::End {
                return;
            }
        }
    }

    /// One transfer after the other, each computed from what the job shows.
    async fn run_bank(self: Arc<Self>, world: Arc<World>) {
        loop {
            self.think(&world).await;
            let Some(accounts) = self.accounts(&world) else { return };
            let (from, to) = (world.chance.index(ACCOUNTS), world.chance.index(ACCOUNTS - 1));
            let to = if to >= from { to + 1 } else { to };
            let amount = i64::try_from(world.chance.below(20)).unwrap_or(0);
            let transfer: Vec<(i64, i64)> = if accounts.len() < ACCOUNTS {
                (0_i64..).take(ACCOUNTS).map(|key| (key, DEPOSIT)).collect()
            } else if accounts[from] >= amount {
                let row = |at: usize, sum| (i64::try_from(at).unwrap_or(0), sum);
                vec![row(from, accounts[from] - amount), row(to, accounts[to] + amount)]
            } else {
                continue;
            };
            let next = self.call(&world, Write::Put, |id| {
                let row = |(key, sum): &(i64, i64)| (*key, rows::put(rows::value(id, *sum)));
                transfer.iter().map(row).collect()
            });
            // After a transfer that may or may not have happened the sums are unknown.
            if next.await != Next::Again {
                return;
            }
            world.event("transfer", self.client.id, "");
        }
    }

    fn accounts(&self, world: &Arc<World>) -> Option<Vec<i64>> {
        let snapshot = self.writer.snapshot().ok()?;
        if world.base.lock().epoch > self.epoch {
            return None;
        }
        match world.assemble(&snapshot.manifest, &snapshot.memtables, false) {
            Ok(seen) => {
                let table = world.oracle.lock().table(&seen.puts);
                Some(table[..ACCOUNTS].iter().flatten().map(rows::number).collect())
            }
            Err(reason) => {
                world.fail(reason);
                None
            }
        }
    }

    /// One put or delete, and what its answer means.
    pub async fn call(
        &self,
        world: &Arc<World>,
        write: Write<'_>,
        rows: impl FnOnce(PutId) -> Vec<Row>,
    ) -> Next {
        if self.closing.load(Ordering::Relaxed) || !world.take_put() {
            return Next::End;
        }
        let id = world.oracle.lock().call(self.id, self.epoch, write.version(), rows);
        let rows = world.oracle.lock().rows(id).to_vec();
        let override_mode = world.chance.odds(150).then(|| world.chance.odds(500));
        // Every other process appends on the threads of its puts.
        let inline = self.epoch.is_multiple_of(2);
        let txn = write.version().map(txn_of);
        let options =
            WriteOptions::default().durable(override_mode).inline(inline).txn(txn.as_ref());
        let durable = override_mode.unwrap_or(self.config.durable_write);
        let written = write.written(world, id, &rows);
        let mut put = Box::pin(self.writer.write(written.batch(), options));
        let put = poll_fn(move |context| waiting_here(|| put.as_mut().poll(context)));
        let cancelled = world.chance.odds(world.climate.cancels);
        world.event("put", self.client.id, "");
        if world.oracle.lock().attempts(id) > 1 {
            world.event("write repeated", self.client.id, "");
        }
        let answer = if cancelled {
            tokio::time::timeout(world.chance.pause(30), put).await.ok()
        } else {
            self.client.outlast(put).await
        };
        if self.client.is_dead() {
            return Next::End;
        }
        match answer {
            Some(Ok(acknowledged)) => {
                self.acknowledged(world, id, write.version(), &acknowledged, durable);
                Next::Again
            }
            Some(Err(error)) => self.refused(world, id, &error).await,
            None if cancelled => {
                world.event("fault: call cancelled", self.client.id, "");
                Next::Unsure
            }
            None => {
                world.fail(format!("put {id} hangs"));
                Next::End
            }
        }
    }

    fn acknowledged(
        &self,
        world: &World,
        id: PutId,
        version: Option<Version>,
        answer: &Acknowledged,
        durable: bool,
    ) {
        world.event("acknowledged", self.client.id, "");
        let (rows, attempts) = {
            let oracle = world.oracle.lock();
            (oracle.rows(id).len(), oracle.attempts(id))
        };
        // What is written already is durable, whatever the call asks for.
        let expected = if answer.already_written { (true, 0) } else { (durable, rows) };
        if (answer.durable, answer.rows) != expected || answer.already_written && attempts < 2 {
            world.fail(format!("put {id} was answered with {answer:?}"));
        }
        if answer.already_written {
            world.event("write counted once", self.client.id, "");
        }
        if let Some(version) = version {
            world.applications.acknowledged(version, &world.chance, world.rule);
        }
        world.judge(world.oracle.lock().acknowledged(id, answer.durable));
    }

    async fn refused(&self, world: &Arc<World>, id: PutId, error: &Error) -> Next {
        self.explain(world, "put", error);
        match error {
            Error::Stale { .. } => {
                world.oracle.lock().refused(id);
                Next::Again
            }
            Error::Backlog { .. } | Error::Storage { .. } => {
                world.oracle.lock().refused(id);
                self.pause(Duration::from_millis(200)).await;
                Next::Again
            }
            Error::Closed { .. } => {
                world.oracle.lock().refused(id);
                Next::End
            }
            _ => Next::End,
        }
    }

    /// Every error must have a cause that the oracle has recorded.
    fn explain(&self, world: &Arc<World>, what: &str, error: &Error) {
        world.event("refused", self.client.id, &error.to_string());
        world.refuse_unexplained(what, error);
        if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Reopen)
            && !matches!(error, Error::Closed { .. })
        {
            self.stopped.store(true, Ordering::Relaxed);
            if self.writer.snapshot().is_ok() {
                world.fail(format!("P4: a job serves reads although it has stopped: {error}"));
            }
        }
        match error {
            Error::Stale { app_id, version, recorded, .. }
                if version >= recorded || !world.applications.has_come_to(app_id, *recorded) =>
            {
                world.fail(format!("{what} comes too late, and no newer version exists: {error}"));
            }
            Error::Fenced { .. } if stored_epoch(world) <= self.epoch => {
                world.fail(format!("{what} was fenced, and no later claim exists: {error}"));
            }
            Error::Poisoned { .. }
                // A closing flush that met faults of the sink stops the job too.
                if !self.closing.load(Ordering::Relaxed)
                    && self.client.faults() <= self.config.max_wal_persist_retries as u64 =>
            {
                world.fail(format!("a job stopped after fewer faults than it may meet: {error}"));
            }
            Error::Closed { .. } if !self.closing.load(Ordering::Relaxed) => {
                world.fail(format!("{what} reports a closed job, and no call closed it"));
            }
            _ => {}
        }
    }

    async fn flush(self: Arc<Self>, world: Arc<World>) {
        let mut pace = Pace::default();
        loop {
            self.pause(world.pace(&mut pace, world.climate.think_ms * 20 + 20)).await;
            if self.closing.load(Ordering::Relaxed) || self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let acked = world.oracle.lock().acked_of(self.id);
            let flushed = self.client.outlast(self.writer.flush()).await;
            if self.client.is_dead() {
                return;
            }
            match flushed {
                Some(Ok(())) => {
                    world.event("flushed", self.client.id, "");
                    world.oracle.lock().settled(self.id, acked, true);
                }
                Some(Err(error)) => self.explain(&world, "flush", &error),
                None => world.fail("a flush hangs"),
            }
        }
    }

    /// A reader in the process of the job.
    async fn read(self: Arc<Self>, world: Arc<World>) {
        let mut pace = Pace::default();
        let (mut before, mut held) = (None, Held::default());
        loop {
            self.pause(world.pace(&mut pace, world.climate.think_ms * 10 + 10)).await;
            let acked = world.oracle.lock().acked_of(self.id);
            let Ok(snapshot) = self.writer.snapshot() else { return };
            if world.base.lock().epoch > self.epoch {
                return;
            }
            let deep = world.chance.odds(300);
            let rows: usize = snapshot.memtables.iter().map(MemTableView::rows).sum();
            let now = Some((snapshot.manifest.version, rows, acked, world.base.lock().compacted));
            if std::mem::replace(&mut before, now) == now {
                continue;
            }
            world.judge(held.look_again(&world));
            let (manifest, memtables) = (&snapshot.manifest, &snapshot.memtables);
            let base = world.base.lock().clone();
            let seen = world.assemble_on(&base, manifest, memtables, deep);
            let verdict = seen.and_then(|seen| {
                held.hold(base, manifest, memtables, &seen.puts);
                world.event("read of a job", self.client.id, &seen.puts.len().to_string());
                world.oracle.lock().live(self.id, self.epoch, &seen.puts, acked)
            });
            world.judge(verdict);
            if world.failure().is_some() || self.client.is_dead() {
                return;
            }
        }
    }

    pub async fn think(&self, world: &World) {
        self.pause(world.chance.pause(world.climate.think_ms)).await;
    }

    async fn pause(&self, time: Duration) {
        if time.is_zero() {
            return tokio::task::yield_now().await;
        }
        #[expect(clippy::disallowed_methods, reason = "the clock of a life is not a real one")]
        tokio::time::sleep(time).await;
        self.client.alive().await;
    }
}

fn register(world: &World) -> i64 {
    i64::try_from(ACCOUNTS + world.chance.index(KEYS - ACCOUNTS)).unwrap_or(0)
}

/// The newest manifest in storage, past all faults. Goes on from the version that it found last: no
/// actor removes a manifest here, and a listing of all of them took an eighth of the time of a
/// life.
pub fn stored_manifest(world: &World) -> Option<Arc<ShardManifest>> {
    use futures::FutureExt;
    let mut newest = world.newest_manifest.lock();
    loop {
        let known = newest.as_ref().map_or(ManifestVersion::default(), |manifest| manifest.version);
        let next = known.next();
        let location = Path::from(format!("{ROOT}/{}", paths::manifest(world.shard_id, next)));
        let Ok(found) = world.objects.get(&location).now_or_never()? else {
            return newest.clone();
        };
        let bytes = found.bytes().now_or_never()?.ok()?;
        *newest = Some(Arc::new(ShardManifest::decode(&bytes, "stored").ok()?));
    }
}

fn stored_epoch(world: &World) -> u64 {
    stored_manifest(world).map_or(0, |manifest| manifest.writer_epoch.get())
}
