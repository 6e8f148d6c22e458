//! Random lives of a shard against a map: whatever happens in between, the same rows come back.
//!
//! Owns: the random operations and the model. Does not own: faults, which have their stories.

use std::sync::LazyLock;

use lancemem_core::shard::ShardWriter;
use lancemem_core::types::{KeyIndexKind, WriterConfig};
use lancemem_testkit::{KeyShape, NULL, Rows};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tokio::runtime::Runtime;

use crate::bench::{Bench, quick, within};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(i64, i64)>),
    Delete(Vec<i64>),
    Flush,
    Close {
        flush: bool,
    },
    /// The job is dropped while its successor opens; every row was acknowledged.
    Crash,
    /// A successor opens while the job still lives.
    Takeover,
    /// A reader of another process reads the log behind the manifest.
    Tail,
}

/// Lives of up to 200 steps; `nulls` of ten values are none.
fn steps(nulls: u32) -> impl Strategy<Value = Vec<Step>> {
    let key = -6_i64..12;
    let value = prop_oneof![10 - nulls => -1000_i64..1000, nulls => Just(NULL)];
    let row = (key.clone(), value);
    let step = prop_oneof![
        6 => prop::collection::vec(row, 1..9).prop_map(Step::Put),
        3 => prop::collection::vec(key, 1..4).prop_map(Step::Delete),
        1 => Just(Step::Flush),
        1 => any::<bool>().prop_map(|flush| Step::Close { flush }),
        1 => Just(Step::Crash),
        1 => Just(Step::Takeover),
        1 => Just(Step::Tail),
    ];
    prop::collection::vec(step, 1..=200)
}

fn settings() -> impl Strategy<Value = WriterConfig> {
    let limits = (1_usize..8, 1_usize..4, prop_oneof![Just(1_usize), Just(1 << 20)]);
    let index = prop_oneof![Just(KeyIndexKind::Hash), Just(KeyIndexKind::SkipList)];
    (limits, any::<bool>(), any::<bool>(), index).prop_map(
        |((rows, batches, budget), durable_write, sync_indexed_write, key_index)| WriterConfig {
            max_memtable_rows: rows,
            max_memtable_batches: batches,
            max_unflushed_memtable_bytes: budget,
            durable_write,
            sync_indexed_write,
            key_index,
            ..quick()
        },
    )
}

/// One shard, its present writer and what must be in it.
struct Life {
    bench: Bench,
    writer: ShardWriter,
    config: WriterConfig,
    model: Rows,
}

impl Life {
    async fn begin(shape: KeyShape, config: WriterConfig) -> Self {
        let bench = Bench::with_key(shape).await;
        let writer = bench.open_with(config.clone()).await;
        Self { bench, writer, config, model: Rows::new() }
    }

    async fn live(&mut self, step: &Step) {
        match step {
            Step::Put(rows) => {
                self.bench.put(&self.writer, rows).await.unwrap();
                for (number, value) in rows {
                    self.model.insert(self.bench.shape.key(*number), *value);
                }
            }
            Step::Delete(numbers) => {
                self.bench.delete(&self.writer, numbers).await.unwrap();
                for number in numbers {
                    self.model.remove(&self.bench.shape.key(*number));
                }
            }
            Step::Flush => {
                self.writer.flush().await.unwrap();
                assert_eq!(self.bench.stored().await, self.model);
            }
            Step::Close { flush } => self.reopen(*flush).await,
            Step::Tail if !self.config.durable_write => {}
            Step::Tail => assert_eq!(self.bench.stored().await, self.model),
            Step::Crash | Step::Takeover if !self.config.durable_write => self.reopen(false).await,
            Step::Crash | Step::Takeover => {
                let next = self.bench.open_with(self.config.clone()).await;
                let old = std::mem::replace(&mut self.writer, next);
                if matches!(step, Step::Takeover) {
                    assert!(self.bench.delete(&old, &[1]).await.is_err(), "it was fenced");
                }
            }
        }
        assert_eq!(self.bench.seen(&self.writer), self.model);
    }

    async fn reopen(&mut self, flush: bool) {
        self.writer.close(flush).await.unwrap();
        assert_eq!(self.bench.stored().await, self.model);
        self.writer = self.bench.open_with(self.config.clone()).await;
    }
}

fn live_through(shape: KeyShape, config: WriterConfig, steps: &[Step]) {
    RUNTIME.block_on(within(async {
        let mut life = Life::begin(shape, config).await;
        for step in steps {
            life.live(step).await;
        }
        life.reopen(true).await;
        assert_eq!(life.bench.seen(&life.writer), life.model);
    }));
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
