//! Random lives of a shard against a map: whatever happens in between, the same rows come back.
//!
//! Owns: what each step does, and the map. Does not own: which steps there are (`steps`); faults,
//! which have their stories.

mod steps;

use std::sync::LazyLock;

use lancemem_core::format::WalEntry;
use lancemem_core::shard::ShardWriter;
use lancemem_core::store::ManifestStore;
use lancemem_core::types::{Generation, WriterConfig};
use lancemem_testkit::collector::{Content, garbage};
use lancemem_testkit::{KeyShape, Rows};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tokio::runtime::Runtime;

use self::steps::{Drain, Step, settings, steps};
use crate::fixture::{Fixture, within};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// One shard, its present writer and what must be in it.
struct Life {
    fixture: Fixture,
    writer: ShardWriter,
    config: WriterConfig,
    /// The compactor's look at the shard, which goes on from one compaction to the next.
    compactor: ManifestStore,
    /// The newest generation that a manifest has lost to the base table.
    drained: Generation,
    model: Rows,
}

impl Life {
    async fn begin(shape: KeyShape, config: WriterConfig) -> Self {
        let fixture = Fixture::with_key(shape).await;
        let writer = fixture.open_with(config.clone()).await;
        let compactor = fixture.manifests();
        let (drained, model) = (Generation::default(), Rows::new());
        Self { fixture, writer, config, compactor, drained, model }
    }

    async fn live(&mut self, step: &Step) {
        match step {
            Step::Put(rows) => {
                self.fixture.put(&self.writer, rows).await.unwrap();
                self.model.extend(self.fixture.rows(rows));
            }
            Step::Delete(numbers) => {
                self.fixture.delete(&self.writer, numbers).await.unwrap();
                for key in self.fixture.shape.encoded(numbers) {
                    self.model.remove(&key);
                }
            }
            Step::Get(numbers) => {
                let keys = self.fixture.shape.encoded(numbers);
                let expected: Vec<_> =
                    keys.iter().map(|key| self.model.get(key).copied()).collect();
                assert_eq!(self.fixture.get(&self.writer, numbers), expected);
            }
            Step::Compact { sstables, then } => self.compact(*sstables, *then).await,
            Step::Collect { later } => self.collect(*later).await,
            Step::Flush => {
                self.writer.flush().await.unwrap();
                assert_eq!(self.fixture.stored().await, self.model);
            }
            Step::Close { flush } => self.reopen(*flush).await,
            Step::Tail if !self.config.durable_write => {}
            Step::Tail => assert_eq!(self.fixture.stored().await, self.model),
            Step::Crash | Step::Takeover if !self.config.durable_write => self.reopen(false).await,
            Step::Crash | Step::Takeover => {
                let next = self.fixture.open_with(self.config.clone()).await;
                let old = std::mem::replace(&mut self.writer, next);
                if matches!(step, Step::Takeover) {
                    assert!(self.fixture.delete(&old, &[1]).await.is_err(), "it was fenced");
                }
            }
        }
        assert_eq!(self.fixture.seen(&self.writer), self.model);
    }

    /// Beside the job, whose flushes go on.
    async fn compact(&mut self, sstables: usize, then: Drain) {
        let manifest = self.compactor.latest().await.unwrap().unwrap();
        let mut listed = manifest.sstables.iter().map(|sstable| sstable.generation);
        assert!(
            listed.all(|sstable| sstable > self.drained),
            "a drained SSTable is listed again: {manifest:?}"
        );
        let compacted = {
            let mut base = self.fixture.base.lock();
            base.take_over(&manifest, &self.fixture.sink, sstables);
            base.compacted()
        };
        if then == Drain::Not
            || manifest.sstables.iter().all(|sstable| sstable.generation > compacted)
        {
            return;
        }
        let drain = self.compactor.update_beside_owner(|manifest| {
            manifest.sstables.retain(|sstable| sstable.generation > compacted);
        });
        let drained = drain.await.unwrap();
        self.drained = compacted;
        assert_eq!(
            drained.writer_epoch,
            self.writer.epoch(),
            "a drain takes the shard from no writer"
        );
        if then == Drain::AndTell {
            self.writer.watch().refresh().await.unwrap();
        }
    }

    /// Beside the job too, and with no grace: no reader reads the log meanwhile.
    async fn collect(&self, later: bool) {
        let covered = self.fixture.manifest().await.replay_after_wal_entry_position;
        let entries = self.fixture.entries().await;
        let content = |(_, entry): &(String, WalEntry)| {
            let is_sentinel = entry.batches.is_empty();
            if is_sentinel { Content::Sentinel { old: later } } else { Content::Rows }
        };
        for (path, _) in garbage(&entries, covered, content) {
            self.fixture.storage.drop_file(path).await;
        }
    }

    async fn reopen(&mut self, flush: bool) {
        self.writer.close(flush).await.unwrap();
        assert_eq!(self.fixture.stored().await, self.model);
        self.writer = self.fixture.open_with(self.config.clone()).await;
    }
}

/// Each step has the time of a story: a busy machine may take its time for a whole life.
fn live_through(shape: KeyShape, config: WriterConfig, steps: &[Step]) {
    RUNTIME.block_on(async {
        let mut life = within(Life::begin(shape, config)).await;
        for step in steps {
            within(life.live(step)).await;
        }
        within(life.reopen(true)).await;
        assert_eq!(life.fixture.seen(&life.writer), life.model);
    });
}

/// 500 lives for each of four tables; `PROPTEST_CASES` asks for another number. What has failed
/// once is lived first, unless a known bug that was put back has failed it.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model.regressions");
    ProptestConfig {
        cases: asked.unwrap_or(500),
        failure_persistence: match std::env::var_os("LANCEMEM_MUTANT") {
            Some(_) => None,
            None => Some(Box::new(FileFailurePersistence::Direct(kept))),
        },
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_shard_with_an_integer_key_is_a_map(config in settings(), steps in steps(1)) {
        live_through(KeyShape::Int64, config, &steps);
    }

    #[test]
    fn a_shard_with_a_text_key_is_a_map(config in settings(), steps in steps(1)) {
        live_through(KeyShape::Utf8, config, &steps);
    }

    #[test]
    fn a_shard_with_a_composite_key_is_a_map(config in settings(), steps in steps(1)) {
        live_through(KeyShape::Composite, config, &steps);
    }

    #[test]
    fn a_shard_of_mostly_nulls_is_a_map(config in settings(), steps in steps(9)) {
        live_through(KeyShape::Int64, config, &steps);
    }
}
