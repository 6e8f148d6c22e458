//! One shard on faulty storage with an in-memory sink, and the questions that stories ask of it.
//!
//! Owns: opening writers, reading what is stored past the writer, and the time limit.
//! Does not own: assertions of a story.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lancemem_core::Result;
use lancemem_core::format::{LogAddress, ShardManifest, WalEntry, paths, wal_entry};
use lancemem_core::shard::{Replay, ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{KeyBytes, ShardId, WalPosition, WriterConfig};
use lancemem_core::wal::WalTail;
use lancemem_testkit::{Base, FaultyStore, Gate, KeyShape, MemorySink, Rows, TableColumns};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

pub const HOUR: Duration = Duration::from_hours(1);

/// A shard that was created, without a claim.
pub struct Fixture {
    pub storage: Arc<FaultyStore>,
    pub sink: Arc<MemorySink>,
    pub columns: Arc<TableColumns>,
    /// What compactions have taken over: nothing in a story without compactions.
    pub base: Mutex<Base>,
    pub shape: KeyShape,
    pub shard_id: ShardId,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_key(KeyShape::Int64).await
    }

    pub async fn with_key(shape: KeyShape) -> Self {
        let fixture = Self {
            storage: Arc::default(),
            sink: Arc::default(),
            columns: TableColumns::new(shape.row_schema()),
            base: Mutex::default(),
            shape,
            shard_id: ShardId::from_u128(0xabcd),
        };
        fixture.manifests().initialize(1, BTreeMap::new()).await.unwrap();
        fixture
    }

    pub fn store(&self) -> Store {
        Store::new(self.storage.clone(), "table".into())
    }

    pub fn manifests(&self) -> ManifestStore {
        ManifestStore::new(self.store(), self.shard_id, 2)
    }

    pub async fn open(&self) -> ShardWriter {
        self.try_open(quick()).await.unwrap()
    }

    pub async fn open_with(&self, config: WriterConfig) -> ShardWriter {
        self.try_open(config).await.unwrap()
    }

    pub async fn try_open(&self, config: WriterConfig) -> Result<ShardWriter> {
        let identity = ShardIdentity::new(self.shard_id);
        self.try_open_as(identity, config).await
    }

    pub async fn try_open_as(
        &self,
        identity: ShardIdentity,
        config: WriterConfig,
    ) -> Result<ShardWriter> {
        let (columns, sink) = (self.columns.clone(), self.sink.clone());
        ShardWriter::open(self.store(), identity, columns, sink, config).await
    }

    /// What a reader of the same process sees.
    pub fn seen(&self, writer: &ShardWriter) -> Rows {
        let snapshot = writer.snapshot().unwrap();
        self.base.lock().merge(&snapshot.manifest, &snapshot.memtables, &self.sink)
    }

    /// What a lookup of each of the keys with these numbers finds in the same process.
    pub fn get(&self, writer: &ShardWriter, numbers: &[i64]) -> Vec<Option<i64>> {
        let snapshot = writer.snapshot().unwrap();
        let (keys, base) = (self.shape.encoded(numbers), self.base.lock());
        let get = |key: &KeyBytes| {
            base.get(key.as_slice(), &snapshot.manifest, &snapshot.memtables, &self.sink)
        };
        keys.iter().map(get).collect()
    }

    /// What a reader of another process sees: the manifest and the log behind it.
    pub async fn stored(&self) -> Rows {
        self.try_stored().await.unwrap()
    }

    pub async fn try_stored(&self) -> Result<Rows> {
        let manifest = self.manifests().existing().await?;
        let mut replay = Replay::new(self.shard_id, self.shape.row_schema());
        let after = manifest.replay_after_wal_entry_position;
        let mut tail = WalTail::new(self.store(), self.shard_id, after);
        replay.read_new(&mut tail, manifest.current_generation).await?;
        let views: Vec<_> =
            replay.memtables().iter().map(|replayed| replayed.memtable.view(usize::MAX)).collect();
        Ok(self.base.lock().merge(&manifest, &views, &self.sink))
    }

    pub async fn manifest(&self) -> Arc<ShardManifest> {
        self.manifests().latest().await.unwrap().unwrap()
    }

    pub fn wal_path(&self, position: u64) -> String {
        format!("table/{}", paths::wal_entry(self.shard_id, WalPosition(position)))
    }

    pub const fn place(&self, position: u64) -> LogAddress {
        LogAddress { shard_id: self.shard_id, position: WalPosition(position) }
    }

    /// Every entry, with its path.
    pub async fn entries(&self) -> BTreeMap<WalPosition, (String, WalEntry)> {
        let mut entries = BTreeMap::new();
        for path in self.storage.paths("/wal/").await {
            let name = path.rsplit('/').next().unwrap();
            let position = paths::parse_wal_entry(name).unwrap();
            let bytes = self.storage.bytes(&path).await;
            let entry = wal_entry::decode_at(&bytes, self.place(position.get())).unwrap();
            entries.insert(position, (path, entry));
        }
        entries
    }

    /// Every entry with rows, by position.
    pub async fn data_entries(&self) -> Vec<(u64, WalEntry)> {
        let entries = self.entries().await.into_iter();
        let entries = entries.map(|(position, (_, entry))| (position.get(), entry));
        entries.filter(|(_, entry)| !entry.batches.is_empty()).collect()
    }

    /// The rows with these numbers and values, as a reader returns them.
    pub fn rows(&self, rows: &[(i64, i64)]) -> Rows {
        let (numbers, values): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
        self.shape.encoded(&numbers).into_iter().zip(values).collect()
    }

    pub async fn put(&self, writer: &ShardWriter, rows: &[(i64, i64)]) -> Result<()> {
        writer.put(&self.shape.rows(rows)).await.map(|_| ())
    }

    /// A put on a task of its own, for a story that goes on while it waits.
    pub fn spawn_put(
        self: &Arc<Self>,
        writer: &Arc<ShardWriter>,
        rows: &[(i64, i64)],
    ) -> JoinHandle<Result<()>> {
        let (fixture, writer, rows) = (self.clone(), writer.clone(), rows.to_vec());
        tokio::spawn(async move { fixture.put(&writer, &rows).await })
    }

    pub async fn delete(&self, writer: &ShardWriter, numbers: &[i64]) -> Result<()> {
        writer.delete(&self.shape.keys(numbers)).await.map(|_| ())
    }
}

/// Durable puts, no pauses to speak of.
pub fn quick() -> WriterConfig {
    WriterConfig::default()
        .with_max_wal_flush_interval(Duration::from_millis(10))
        .with_wal_persist_retry_base_delay(Duration::from_millis(1))
}

/// Puts that are not durable, and no timer that would append them.
pub fn patient() -> WriterConfig {
    quick().with_durable_write(false).with_max_wal_flush_interval(HOUR)
}

/// Durable puts into MemTables of at most `rows` rows.
pub fn tiny(rows: usize) -> WriterConfig {
    quick().with_max_memtable_rows(rows)
}

pub fn gate() -> Arc<Gate> {
    Arc::default()
}

/// Ends a story that hangs, before its runner would. A panic that a decoder turns into an error prints
/// a backtrace where the environment asks for one, and a story of damage has thousands of them.
pub async fn within<T>(story: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(50), story).await.expect("the story hangs")
}

/// Looks again until `condition` holds; a story that waits for nothing runs into its limit.
pub async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        #[expect(clippy::disallowed_methods, reason = "the test waits for real tasks")]
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
