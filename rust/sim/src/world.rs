//! Everything that outlives a process: storage, base table, oracle, chance, and the trace.
//!
//! Owns: what one life shares, the counts, and the first failure.
//! Does not own: the actors. A world belongs to one thread and one runtime with paused time.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use lancemem_core::format::{RowSchema, ShardManifest};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::{FixedSchema, SchemaSource, SsTableSink};
use lancemem_core::types::{Error, ErrorKind, Generation, ShardId};
use object_store::memory::InMemory;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::applications::Applications;
use crate::chance::Chance;
use crate::oracle::{Oracle, Seen};
use crate::process::Process;
use crate::rows::{self, PutId, Table};
use crate::rules::Rule;
use crate::settings::Climate;
use crate::sources::{Merging, Source};

/// Root of the table in the store.
pub const ROOT: &str = "table";

/// How often each thing happened. A run in which a fault never struck proves nothing.
pub type Counts = BTreeMap<&'static str, u64>;

/// A flushed SSTable.
#[derive(Debug)]
pub struct Run {
    pub generation: Generation,
    pub puts: Vec<PutId>,
    pub rows: Source,
}

/// The base table: what compactions have taken over, one atomic value.
#[derive(Clone, Debug)]
pub struct Base {
    pub compacted: Generation,
    pub puts: Arc<Vec<PutId>>,
    pub rows: Arc<Table>,
    /// Epoch of the newest writer that a compaction has read.
    pub epoch: u64,
}

/// How often actors act: less and less while no put is tried, or a life would consist of looks
/// without news.
#[derive(Debug, Default)]
pub struct Pace {
    puts_left: usize,
    idle: u32,
}

/// How bad the storage is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Calm,
    Usual,
    Storm,
    Outage,
}

/// One life of one shard.
pub struct World {
    pub chance: Chance,
    pub climate: Climate,
    pub rule: Rule,
    pub merging: Merging,
    pub applications: Applications,
    pub weather: Mutex<Weather>,
    pub objects: Arc<InMemory>,
    pub runs: Mutex<BTreeMap<String, Arc<Run>>>,
    pub base: Mutex<Base>,
    pub oracle: Mutex<Oracle>,
    pub processes: Mutex<Vec<Arc<Process>>>,
    pub clients: Mutex<Vec<Arc<crate::storage::Client>>>,
    pub schema: Arc<RowSchema>,
    pub shard_id: ShardId,
    pub opening: AtomicUsize,
    pub puts_left: AtomicUsize,
    pub next_id: AtomicU64,
    /// Requests that were sent, and the newest of those that have arrived.
    pub sent: AtomicU64,
    pub arrived: AtomicU64,
    /// The newest one that a look past all faults has found.
    pub newest_manifest: Mutex<Option<Arc<ShardManifest>>>,
    /// When an entry was last collected.
    pub collected: Mutex<Option<Instant>>,
    counts: Mutex<Counts>,
    trace: Mutex<DefaultHasher>,
    started: Instant,
    failure: watch::Sender<Option<String>>,
    failed: AtomicBool,
    verbose: bool,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// The world of a seed, in which `puts` puts are tried.
    pub fn new(seed: u64, puts: usize, verbose: bool) -> Arc<Self> {
        let chance = Chance::new(seed);
        let climate = Climate::of(&chance);
        let rule = Rule::of(seed);
        let schema = rule.row_schema(climate.shape);
        let base = Base {
            compacted: Generation(0),
            puts: Arc::default(),
            rows: Arc::new(rows::empty()),
            epoch: 0,
        };
        Arc::new(Self {
            rule,
            merging: Merging::of(climate.shape, &schema),
            applications: Applications::default(),
            schema,
            shard_id: ShardId::from_u128(
                u128::from(chance.next()) << 64 | u128::from(chance.next()),
            ),
            chance,
            climate,
            weather: Mutex::new(Weather::Usual),
            objects: Arc::default(),
            runs: Mutex::default(),
            base: Mutex::new(base),
            oracle: Mutex::new(Oracle::new(rule)),
            processes: Mutex::default(),
            clients: Mutex::default(),
            opening: AtomicUsize::new(0),
            puts_left: AtomicUsize::new(puts),
            next_id: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            newest_manifest: Mutex::default(),
            collected: Mutex::default(),
            counts: Mutex::default(),
            trace: Mutex::new(DefaultHasher::new()),
            started: Instant::now(),
            failure: watch::Sender::new(None),
            failed: AtomicBool::new(false),
            verbose,
        })
    }

    /// Notes what happened: it counts, and it is part of the trace.
    pub fn event(&self, kind: &'static str, who: u64, what: &str) {
        *self.counts.lock().entry(kind).or_default() += 1;
        let now = self.started.elapsed().as_micros();
        {
            let mut trace = self.trace.lock();
            (kind, who, what, now).hash(&mut *trace);
        }
        if self.verbose {
            tracing_line(now, kind, who, what);
        }
    }

    /// Ends the life as failed; the first reason stays.
    pub fn fail(&self, reason: impl Into<String>) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            self.failure.send_replace(Some(reason.into()));
        }
    }

    /// Fails where a rule was broken.
    pub fn judge(&self, verdict: Result<(), String>) {
        if let Err(reason) = verdict {
            self.fail(reason);
        }
    }

    /// The reason, where the life has failed.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Returns when the life has failed.
    pub async fn failed(&self) {
        let _ = self.failure.subscribe().wait_for(Option::is_some).await;
    }

    /// How often `kind` has happened.
    pub fn count(&self, kind: &str) -> u64 {
        self.counts.lock().get(kind).copied().unwrap_or_default()
    }

    pub fn counts(&self) -> Counts {
        self.counts.lock().clone()
    }

    pub fn trace(&self) -> u64 {
        self.trace.lock().finish()
    }

    /// A number that is unique in this life.
    pub fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether another put may be tried.
    pub fn take_put(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        !self.failed.load(Ordering::Relaxed)
            && self.puts_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// A pause of up to `most` milliseconds, longer where nothing has moved since the last one.
    pub fn pace(&self, pace: &mut Pace, most: u64) -> Duration {
        let left = self.puts_left.load(Ordering::Relaxed);
        pace.idle = if left == pace.puts_left { (pace.idle + 1).min(4) } else { 0 };
        pace.puts_left = left;
        Duration::from_millis(1) + self.chance.pause(most << pace.idle)
    }

    /// Errors that nothing in this life explains: nothing is damaged, and no call is wrong.
    pub fn refuse_unexplained(&self, what: &str, error: &Error) {
        if matches!(
            error.kind(),
            ErrorKind::Corruption | ErrorKind::Internal | ErrorKind::InvalidInput
        ) {
            self.fail(format!("P7: {what} fails without a reason: {error}"));
        }
    }

    /// Whether a collection removed entries since `start`, which a look that began then may miss. A
    /// real collection leaves them for an hour, longer than any read of a log takes.
    pub fn collected_since(&self, start: Instant) -> bool {
        self.collected.lock().is_some_and(|last| last >= start)
    }

    /// The shard as `manifest` and `memtables` describe it on top of the base table, as the
    /// sequence of its puts. With `deep` the key indexes must agree with the rows.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn assemble(
        &self,
        manifest: &ShardManifest,
        memtables: &[MemTableView],
        deep: bool,
    ) -> Result<Seen, String> {
        let base = self.base.lock().clone();
        self.assemble_on(&base, manifest, memtables, deep)
    }

    /// As [`Self::assemble`], on a base table as it was.
    ///
    /// # Errors
    /// The rule that this breaks.
    pub fn assemble_on(
        &self,
        base: &Base,
        manifest: &ShardManifest,
        memtables: &[MemTableView],
        deep: bool,
    ) -> Result<Seen, String> {
        let mut puts = base.puts.as_ref().clone();
        let (mut runs, mut views) = (Vec::new(), Vec::new());
        let mut newest = base.compacted;
        let mut ascend = |generation: Generation| {
            let before = std::mem::replace(&mut newest, generation);
            if generation > before {
                return Ok(());
            }
            Err(format!("P6: generation {generation} stands behind {before}"))
        };
        for sstable in manifest.sstables.iter().filter(|it| it.generation > base.compacted) {
            ascend(sstable.generation)?;
            let run = self.runs.lock().get(&sstable.path).cloned();
            let run = run.ok_or_else(|| format!("SSTable {} was never written", sstable.path))?;
            puts.extend(&run.puts);
            runs.push(run);
        }
        let flushed = puts.len();
        for view in memtables.iter().filter(|view| view.generation() > base.compacted) {
            ascend(view.generation())?;
            if view.generation() < manifest.current_generation {
                return Err(format!("generation {} is flushed and in memory", view.generation()));
            }
            puts.extend(self.puts_of(view)?);
            if deep {
                views.push(self.merging.read(view)?);
            }
        }
        if deep {
            let sources = runs.iter().map(|run| &run.rows).chain(&views);
            self.check_table(&self.merging.table(&base.rows, sources)?, &puts)?;
        }
        self.check_bank(&puts)?;
        Ok(Seen { puts, flushed })
    }

    /// The rows by key are what the rule makes of the puts.
    fn check_table(&self, table: &Table, puts: &[PutId]) -> Result<(), String> {
        let expected = self.oracle.lock().table(puts);
        let differs = |key: &usize| table[*key] != expected[*key];
        let Some(key) = (0..expected.len()).find(differs) else { return Ok(()) };
        let (found, expected) = (table[key], expected[key]);
        Err(format!(
            "P6: key {key} is {found:?}, and its events make {expected:?} ({:?})",
            self.rule
        ))
    }

    /// The puts whose rows a MemTable holds; each must be there whole.
    pub fn puts_of(&self, view: &MemTableView) -> Result<Vec<PutId>, String> {
        let oracle = self.oracle.lock();
        view.batches()
            .map(|batch| {
                let rows = rows::decode(self.climate.shape, batch);
                let id = rows::put_of(&rows).filter(|id| oracle.knows(*id));
                let id = id.ok_or_else(|| format!("no put wrote the rows {rows:?}"))?;
                if oracle.rows(id) == rows {
                    return Ok(id);
                }
                Err(format!("P3: put {id} is there as {rows:?}, not {:?}", oracle.rows(id)))
            })
            .collect()
    }

    /// Transfers keep the sum of all accounts. Tables with a rule have no accounts.
    fn check_bank(&self, puts: &[PutId]) -> Result<(), String> {
        // Now and then, and without a draw: a look must not change what comes.
        if self.rule != Rule::Plain || !puts.len().is_multiple_of(4) {
            return Ok(());
        }
        let table = self.oracle.lock().table(puts);
        let accounts: Vec<i64> =
            table[..rows::ACCOUNTS].iter().flatten().map(rows::number).collect();
        let expected = rows::DEPOSIT * i64::try_from(rows::ACCOUNTS).unwrap_or_default();
        if accounts.is_empty() || accounts.iter().sum::<i64>() == expected {
            return Ok(());
        }
        Err(format!("P2: the bank holds {accounts:?}"))
    }

    /// Drops what holds a reference to this world.
    pub fn forget(&self) {
        self.processes.lock().clear();
        self.clients.lock().clear();
    }

    /// The sink of the process behind `client`.
    pub fn sink(self: &Arc<Self>, client: Arc<crate::storage::Client>) -> Arc<dyn SsTableSink> {
        Arc::new(crate::sink::Sink::new(self.clone(), client))
    }

    /// The table's columns, which never change here.
    pub fn columns(&self) -> Arc<dyn SchemaSource> {
        Arc::new(FixedSchema(self.schema.clone()))
    }
}

#[expect(clippy::print_stderr, reason = "asked for, to read how a failure came about")]
fn tracing_line(now: u128, kind: &str, who: u64, what: &str) {
    eprintln!("{now:>12} us  {who:>4}  {kind:<24} {what}");
}
