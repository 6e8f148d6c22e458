//! The planner of scans: which columns each source reads and what runs where.
//!
//! ```text
//!   computed columns, limit, sort    `order`
//!       union, one arm a source:
//!         projection
//!           the rest of the condition
//!             NewestRows           by position, by key, or all rows
//!               Reconcile          an SSTable of an older schema only
//!               Lance scan of the base or of an SSTable, or MemTableScan
//!                                  with the part of the condition that cannot fail
//!               SsTableKeysScan    an SSTable of which only keys are read, out of memory
//! ```
//!
//! Whether a row is the newest of its key does not depend on the condition. So a condition may run
//! before or after the merge; only one that could fail on a superseded row has to run after it.
//! Where an earlier scan of the same snapshot cached its dead rows, rows are chosen by position and
//! keys are not read; otherwise by key. A whole scan by key caches the dead rows for the next one.
//! A source whose keys cannot meet the condition has no arm, and is not compared with (`prune`).
//! A part of a scan below many newer rows finds dead rows first: a source without a living row has
//! no arm.
//!
//! The scan of an SSTable with an older schema runs no condition: names and types in the condition
//! may mean other columns there.
//!
//! Owns: the shape above. With nothing above the base table it is a plain Lance scan.
//! Does not own: execution.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::BooleanArray;
use arrow_schema::{Schema, SchemaRef};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::SessionContext;
use lance::Dataset;
use lance_core::ROW_ADDR;
use lance_file::version::ConcreteFileVersion;
use lance_table::format::Fragment;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::memtable::MemTableView;
use lancemem_core::mutant;
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use super::first_rows::Turns;
use super::memory_order::OrderedFilter;
use super::memtable_scan::MemTableScan;
use super::order::{Order, OrderBy};
use super::partition::PartRows;
use super::prune::{Pruned, prune};
use super::row_width::{batch_rows, width_of_columns};
use super::scan_sources::ScanSources;
use super::source_exec::LeafExec;
use super::sstable_keys_scan::SsTableKeysScan;
use super::steps::{columns_of, fields, filtered, in_order, projected};
use super::{Expressions, Filter, ReadPart};
use crate::errors::{Context, SsTableErrors, from_base};
use crate::schema::{ReconcileExec, StoredColumns};
use crate::snapshot::{Snapshot, Source, SsTableHandle, set_batches};
use crate::visibility::{
    DeadRows, KnownRows, LazyChoice, MaskRecorder, MergeCache, Newest, NewestRowsExec,
    PartDeadRows, ScannedSsTable,
};

/// The action that errors name.
const PLANNING: &str = "planning a scan";

/// The request of a scan, with its condition resolved.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Columns of the result, in order. `None` for all columns, an empty list to count rows.
    pub columns: Option<Vec<String>>,
    /// Computed columns, which are the result instead of `columns`.
    pub expressions: Option<Expressions>,
    /// The condition.
    pub filter: Option<Filter>,
    /// Rows to skip first.
    pub offset: usize,
    /// Most rows of the result.
    pub limit: Option<usize>,
    /// The order of the result; empty for no order.
    pub order_by: Vec<OrderBy>,
    /// The part of the rows; `None` for all rows. Offset and limit count within the part.
    pub part: Option<ReadPart>,
    /// The sources whose rows are read.
    pub sources: ScanSources,
    /// The fragments of the base table whose rows are read; `None` for all. Goes with sources by
    /// arm alone.
    pub base_fragments: Option<RoaringBitmap>,
}

/// The plan of a scan.
#[derive(Clone, Debug)]
pub struct ScanPlan {
    /// The root node.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The sources that are pruned.
    pub pruned: Vec<Pruned>,
}

/// The plan of one scan over one snapshot.
///
/// # Errors
/// An input error for an unknown column.
pub async fn plan_scan(
    session: &SessionContext,
    snapshot: &Arc<Snapshot>,
    cache: &Arc<MergeCache>,
    request: &ScanRequest,
) -> Result<ScanPlan> {
    let shown = output_columns(snapshot, request)?;
    let order = Order::of(request, &snapshot.schema)?;
    let output = order.with_keys(&shown);
    let mut pruned = prune(snapshot, request.filter.as_ref()).await?;
    let is_base_only = pruned.len() == snapshot.sources().count();
    let known = if is_base_only { None } else { cache.dead_rows(snapshot).await? };
    let mut planner = Planner::new(session, snapshot, &pruned, (cache, known), request, &output);
    if pruned.is_empty() && request.limit.is_none() {
        planner.find_dead_rows(cache).await?;
    }
    planner.ordered = OrderedFilter::of(snapshot, request.filter.as_ref()).await;
    let base = if request.sources.has(0) { planner.base().await? } else { None };
    let mut arms: Vec<_> = base.into_iter().collect();
    for (arm, (freshness, source)) in (1..).zip(snapshot.sources()) {
        if !request.sources.has(arm) || is_left_out(&pruned, planner.part.as_ref(), arm - 1) {
            continue;
        }
        match source {
            Source::SsTable(sstable) => match planner.sstable(arm, sstable).await? {
                Some(planned) => arms.push(planned),
                None => pruned.push(Pruned::superseded(arm - 1, sstable)),
            },
            Source::MemTable(rows) => arms.push(planner.memtable(arm, freshness, rows)?),
        }
    }
    let rows = match <[_; 1]>::try_from(arms) {
        Ok([only]) => only,
        Err(arms) if arms.is_empty() => {
            Arc::new(EmptyExec::new(selected(&snapshot.schema, &output)))
        }
        Err(arms) => UnionExec::try_new(arms).context(PLANNING)?,
    };
    let plan = order.result(session, rows, request, &shown)?;
    Ok(ScanPlan { plan, pruned })
}

/// Whether the source at `place` of the snapshot has no arm.
fn is_left_out(pruned: &[Pruned], part: Option<&PartRows>, place: usize) -> bool {
    pruned.iter().any(|it| it.source == place)
        || part.is_some_and(|part| part.of_source(place).is_none())
}

/// Rows in files, as [`Planner::scan`] reads them.
struct Stored<'a> {
    dataset: &'a Dataset,
    /// `None` for all fragments.
    fragments: Option<Vec<Fragment>>,
    /// The rows to read, by their position; `None` for all rows. Without a condition alone.
    range: Option<Range<u64>>,
    /// Bytes of a row in memory, where they are known.
    row_bytes: Option<u64>,
}

/// The state that all arms of one plan share.
struct Planner<'a> {
    session: &'a SessionContext,
    snapshot: &'a Snapshot,
    /// Whether any source above the base table is left.
    is_base_only: bool,
    /// The part of the condition that sources run themselves, and the rest of it.
    pushed: Option<Expr>,
    rest: Option<Filter>,
    whole: Option<Filter>,
    output: &'a [String],
    part: Option<PartRows>,
    base_fragments: Option<&'a RoaringBitmap>,
    known: Option<KnownRows>,
    /// Dead rows that a part of the scan knows; `None` where rows are chosen as in a whole scan.
    of_part: Option<PartDeadRows>,
    choice: Arc<LazyChoice>,
    /// The choice among rows in memory; `None` where no rows are in memory.
    memory: Option<Arc<LazyChoice>>,
    recorder: Option<Arc<MaskRecorder>>,
    /// What the condition wants of columns that are ordered in memory.
    ordered: Option<OrderedFilter>,
    turns: Turns,
}

impl<'a> Planner<'a> {
    fn new(
        session: &'a SessionContext,
        snapshot: &'a Arc<Snapshot>,
        pruned: &[Pruned],
        (cache, known): (&Arc<MergeCache>, Option<KnownRows>),
        request: &'a ScanRequest,
        output: &'a [String],
    ) -> Self {
        let part = request.part.map(|part| part.rows(snapshot));
        let left = if pruned.is_empty() {
            snapshot.clone()
        } else {
            Arc::new(snapshot.without(|place| pruned.iter().any(|it| it.source == place)))
        };
        let is_base_only = left.is_base_only();
        let chooses = !snapshot.key.is_empty() && !is_base_only;
        let known = known.filter(|_| chooses);
        let has_memory = left.shards.iter().any(|shard| !shard.memtables.is_empty());
        let is_whole = request.filter.is_none()
            && request.limit.is_none()
            && request.offset == 0
            && part.is_none()
            && request.sources == ScanSources::All;
        let records = chooses && is_whole && known.is_none();
        let arms = 1 + snapshot.sources().count();
        let (pushed, rest) = request.filter.as_ref().map_or((None, None), Filter::split_fallible);
        let row_bytes = width_of_columns(&snapshot.schema, output);
        let turns = Turns::of(snapshot, row_bytes, |place| {
            // Without all sources there is no first one to wait for.
            request.sources != ScanSources::All || is_left_out(pruned, part.as_ref(), place)
        });
        Self {
            session,
            snapshot,
            is_base_only,
            pushed,
            rest,
            whole: request.filter.clone(),
            output,
            part,
            base_fragments: request.base_fragments.as_ref(),
            known,
            of_part: None,
            memory: has_memory.then(|| Arc::new(LazyChoice::of_memory(left.clone()))),
            choice: Arc::new(if pruned.is_empty() {
                LazyChoice::new(left, cache.clone())
            } else {
                LazyChoice::of_part(snapshot.clone(), left, cache.clone())
            }),
            ordered: None,
            recorder: records
                .then(|| Arc::new(MaskRecorder::new(snapshot.clone(), cache.clone(), arms))),
            turns,
        }
    }

    /// Finds the dead rows of a part, so that the plan reads no source that is dead whole.
    async fn find_dead_rows(&mut self, cache: &MergeCache) -> Result<()> {
        let Some(part) = &self.part else { return Ok(()) };
        if self.is_base_only || self.snapshot.key.is_empty() || self.known.is_some() {
            return Ok(());
        }
        let found = PartDeadRows::find(self.snapshot, &self.choice, cache, &part.fragments);
        self.of_part = found.await?;
        Ok(())
    }

    /// The arm of the base table; `None` where no fragment need be read.
    async fn base(&self) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let is_never_replaced = self.snapshot.key.is_empty() || self.is_base_only;
        let newest = if is_never_replaced || (mutant!("B18") && self.whole.is_some()) {
            Newest::All
        } else {
            let of_part = self.of_part.as_ref().and_then(PartDeadRows::of_base);
            let newest = self.by_position(0).or_else(|| Some(self.below_memory(0, of_part?)));
            newest.unwrap_or_else(|| self.by_key(Freshness::Base))
        };
        let (part, only) = (self.part.as_ref(), self.base_fragments);
        let fragments = fragments_to_read(&self.snapshot.base, &newest, part, only);
        if fragments.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        let kept = self.columns(self.rest.as_ref());
        let read = self.with_key(&kept, &newest);
        let rows = Stored { dataset: &self.snapshot.base, fragments, range: None, row_bytes: None };
        let scan = self.scan(rows, &newest, &read, self.pushed.as_ref()).await;
        let scan = scan.map_err(|error| from_base(PLANNING, error))?;
        self.finished(0, scan, newest, None, self.rest.as_ref()).map(Some)
    }

    /// The arm of an SSTable; `None` where every row is known to be superseded.
    async fn sstable(
        &self,
        arm: usize,
        sstable: &Arc<SsTableHandle>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let newest = self.by_position(arm);
        let newest = newest.unwrap_or_else(|| self.in_sstable(arm, sstable));
        let range = self.range_in(arm, sstable);
        if let Some(of_part) = &self.of_part
            && of_part.supersede(sstable, range.as_ref())?
        {
            return Ok(None);
        }
        // Positions of a range count from the first fragment, so none of them is left out.
        let fragments = match range {
            Some(_) => None,
            None => fragments_to_read(&sstable.dataset, &newest, None, None),
        };
        if fragments.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        let scanned =
            ScannedSsTable { name: sstable.name().into(), dataset: sstable.dataset.clone() };
        let scanned = Some(scanned);
        if range.is_none()
            && let Some(keys) = self.keys_of(sstable, &newest)?
        {
            return self.finished(arm, keys, newest, scanned, None).map(Some);
        }
        let stored = |filter: Option<&Filter>| {
            let mut read = self.with_key(&self.columns(filter), &newest);
            if !matches!(newest, Newest::ByPosition { .. }) {
                read.push(TOMBSTONE.to_owned());
            }
            let stored = StoredColumns::of(&sstable.columns, &self.snapshot.columns, &read);
            stored.map_err(|error| in_sstable(sstable, error))
        };
        let whole = self.whole.as_ref();
        let runs_condition = range.is_none() || self.pushed.is_none();
        let row_bytes = sstable.row_bytes;
        let rows = Stored { dataset: &sstable.dataset, fragments, range, row_bytes };
        // Lance takes a range of rows where it runs no condition.
        if runs_condition && stored(whole)?.is_same() {
            let (rest, pushed) = (self.rest.as_ref(), self.pushed.as_ref());
            let names = stored(rest)?.names;
            let scan = self.scan(rows, &newest, &names, pushed).await;
            let scan = scan.in_sstable(&sstable.name())?;
            return self.finished(arm, scan, newest, scanned, rest).map(Some);
        }
        let stored = Arc::new(stored(whole)?);
        let scan = self.scan(rows, &newest, &stored.names, None).await;
        let scan = scan.in_sstable(&sstable.name())?;
        let address = scan.schema().column_with_name(ROW_ADDR).map(|_| ROW_ADDR.to_owned());
        let extra = address.into_iter().collect();
        let scan = ReconcileExec::try_new(scan, stored, extra).context(PLANNING)?;
        self.finished(arm, Arc::new(scan), newest, scanned, whole).map(Some)
    }

    /// The rows of the part in an SSTable; `None` where they are all its rows.
    fn range_in(&self, arm: usize, sstable: &SsTableHandle) -> Option<Range<u64>> {
        let range = self.part.as_ref()?.of_source(arm - 1)?;
        let rows = sstable.dataset.fragments().iter().map(Fragment::num_rows);
        let all = rows.sum::<Option<usize>>().map_or(u64::MAX, |rows| rows as u64);
        (range.start > 0 || range.end < all).then_some(range)
    }

    /// The rows of `sstable` out of memory, where only key columns are read and the keys are
    /// cached, or will be: a whole scan by key reads the keys of every SSTable.
    fn keys_of(
        &self,
        sstable: &Arc<SsTableHandle>,
        newest: &Newest,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let key = &self.snapshot.key;
        let names = self.with_key(self.output, newest);
        let is_there = self.recorder.is_some() || sstable.keys_in_memory().is_some();
        let is_enough = !key.is_empty() && names.iter().all(|name| key.contains(name));
        if self.whole.is_some() || !is_enough || !is_there {
            return Ok(None);
        }
        let with_tombstones = !matches!(newest, Newest::ByPosition { .. });
        let rows = SsTableKeysScan::try_new(
            sstable.clone(),
            key.clone(),
            &self.snapshot.schema,
            &names,
            with_tombstones,
        );
        Ok(Some(Arc::new(LeafExec::new(rows.context(PLANNING)?))))
    }

    fn memtable(
        &self,
        arm: usize,
        freshness: Freshness,
        rows: &MemTableView,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let shown = self.shown_by_rule(arm, rows);
        let newest = match &self.memory {
            _ if shown.is_some() => Newest::All,
            // No SSTable is newer than a MemTable.
            Some(choice) if !self.has_newest_rows(arm) => {
                Newest::ByKey { choice: choice.clone(), freshness, key: self.snapshot.key.clone() }
            }
            _ => Newest::All,
        };
        let mut read = self.with_key(&self.columns(self.whole.as_ref()), &newest);
        read.push(TOMBSTONE.to_owned());
        let stored = StoredColumns::of(rows.schema(), &self.snapshot.columns, &read)?;
        let ordered = self.ordered.as_ref().and_then(|it| it.of_view(self.snapshot, rows));
        let scan = MemTableScan::new(rows.clone(), stored, shown).among(ordered);
        let scan = Arc::new(LeafExec::new(scan));
        self.finished(arm, scan, newest, None, self.whole.as_ref())
    }

    /// For each row of a MemTable whether the merge rule shows it; `None` without a rule.
    fn shown_by_rule(&self, arm: usize, rows: &MemTableView) -> Option<BooleanArray> {
        self.snapshot.rule()?;
        let dead = self.known.as_ref()?.of_arm(self.snapshot, arm);
        let dead = dead.in_sstable();
        let rows = (0..u32::MAX).take(rows.rows());
        Some(rows.map(|row| Some(!dead.is_some_and(|dead| dead.contains(row)))).collect())
    }

    /// Whether the source has only newest rows, as the newest source of a shard does.
    fn has_newest_rows(&self, arm: usize) -> bool {
        self.snapshot.key.is_empty() || self.snapshot.is_newest_source(arm - 1)
    }

    /// The choice for an SSTable, by the keys of all SSTables.
    fn in_sstable(&self, arm: usize, sstable: &SsTableHandle) -> Newest {
        if self.has_newest_rows(arm) {
            return Newest::All;
        }
        Newest::InSsTable {
            choice: self.choice.clone(),
            sstable: (sstable.shard_id, sstable.generation),
            key: self.snapshot.key.clone(),
            is_below_memory: self.memory.is_some(),
        }
    }

    /// The choice by position, where the dead rows of the source are known. The source is the base
    /// table or an SSTable, at the arm `arm` of the snapshot.
    fn by_position(&self, arm: usize) -> Option<Newest> {
        let known = self.known.as_ref()?;
        let dead = known.of_arm(self.snapshot, arm);
        if matches!(known, KnownRows::Exact(_)) {
            return Some(Newest::ByPosition { dead, above: None });
        }
        Some(self.below_memory(arm, dead))
    }

    /// The choice by the position of flushed dead rows, and by key among rows in memory.
    fn below_memory(&self, arm: usize, dead: Arc<DeadRows>) -> Newest {
        // Without flushed dead rows, no row addresses need be read.
        if let Some(choice) = self.memory.clone()
            && arm == 0
            && dead.is_empty()
        {
            let (freshness, key) = (Freshness::Base, self.snapshot.key.clone());
            return Newest::ByKey { choice, freshness, key };
        }
        let above = self.memory.clone().map(|memory| (memory, self.snapshot.key.clone()));
        Newest::ByPosition { dead, above }
    }

    fn by_key(&self, freshness: Freshness) -> Newest {
        Newest::ByKey { choice: self.choice.clone(), freshness, key: self.snapshot.key.clone() }
    }

    /// A Lance scan of the columns `read`, with row addresses where the choice of newest rows needs
    /// them.
    async fn scan(
        &self,
        of: Stored<'_>,
        newest: &Newest,
        read: &[String],
        pushed: Option<&Expr>,
    ) -> lance_core::Result<Arc<dyn ExecutionPlan>> {
        let Stored { dataset, fragments, range, row_bytes } = of;
        let mut scanner = dataset.scan();
        scanner.project_with_schema(&columns_of(dataset, read)?)?;
        if let Some(fragments) = fragments {
            scanner.with_fragments(fragments);
        }
        if let Some(range) = range {
            let (start, rows) =
                (range.start.cast_signed(), (range.end - range.start).cast_signed());
            scanner.limit(Some(rows), Some(start))?;
        }
        let rows = batch_rows(&self.snapshot.schema, read);
        set_batches(&mut scanner, dataset, read, rows, row_bytes);
        // Lance returns no rows to count where it reads no column.
        let by_position = matches!(newest, Newest::ByPosition { .. } | Newest::InSsTable { .. });
        if read.is_empty() || self.recorder.is_some() || by_position {
            scanner.with_row_address();
        }
        if let Some(pushed) = pushed {
            scanner.filter_expr(pushed.clone());
            // Behind a scalar index, Lance 14.0.2 takes rows with their addresses, and panics there
            // for a legacy file.
            if dataset.manifest().data_storage_format.version == ConcreteFileVersion::V1 {
                scanner.use_scalar_index(false);
            }
        }
        scanner.create_plan().await
    }

    /// The nodes above the scan of a source, with the rest of the condition.
    fn finished(
        &self,
        arm: usize,
        scan: Arc<dyn ExecutionPlan>,
        newest: Newest,
        sstable: Option<ScannedSsTable>,
        filter: Option<&Filter>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.newest(arm, scan, newest, sstable, &self.columns(filter));
        projected(filtered(self.session, rows, filter)?, self.output)
    }

    fn newest(
        &self,
        arm: usize,
        scan: Arc<dyn ExecutionPlan>,
        newest: Newest,
        sstable: Option<ScannedSsTable>,
        kept: &[String],
    ) -> Arc<dyn ExecutionPlan> {
        let record = self.recorder.clone().map(|recorder| (recorder, arm));
        let node = NewestRowsExec::new(scan, newest, fields(&self.snapshot.schema, kept));
        Arc::new(node.recording(record).of_sstable(sstable).in_turn(self.turns.of_arm(arm)))
    }

    /// Columns of the result and of `filter`, in the order of the table.
    fn columns(&self, filter: Option<&Filter>) -> Vec<String> {
        let mut names: BTreeSet<String> = self.output.iter().cloned().collect();
        names.extend(filter.map(Filter::columns).unwrap_or_default());
        in_order(&self.snapshot.schema, |name| names.contains(name))
    }

    fn with_key(&self, kept: &[String], newest: &Newest) -> Vec<String> {
        let by_key = matches!(
            newest,
            Newest::ByKey { .. }
                | Newest::InSsTable { is_below_memory: true, .. }
                | Newest::ByPosition { above: Some(_), .. }
        );
        let is_key = |name: &String| by_key && self.snapshot.key.contains(name);
        in_order(&self.snapshot.schema, |name| kept.contains(name) || is_key(name))
    }
}

/// The fragments of `part` that have a row that `newest` may keep; `None` for all of `dataset`.
fn fragments_to_read(
    dataset: &Dataset,
    newest: &Newest,
    part: Option<&PartRows>,
    only: Option<&RoaringBitmap>,
) -> Option<Vec<Fragment>> {
    let all = dataset.fragments();
    let mut read = part.map_or_else(|| all.to_vec(), |part| part.fragments.clone());
    if let Some(only) = only {
        read.retain(|fragment| u32::try_from(fragment.id).is_ok_and(|id| only.contains(id)));
    }
    if let Newest::ByPosition { dead, .. } = newest {
        read.retain(|fragment| !dead.is_whole(fragment));
    }
    (read.len() < all.len()).then_some(read)
}

/// These columns in this order.
fn selected(schema: &Schema, names: &[String]) -> SchemaRef {
    let fields: Vec<_> =
        names.iter().filter_map(|name| schema.field_with_name(name).ok()).cloned().collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn output_columns(snapshot: &Snapshot, request: &ScanRequest) -> Result<Vec<String>> {
    if let Some(expressions) = &request.expressions {
        return Ok(expressions.columns());
    }
    let Some(columns) = &request.columns else {
        return Ok(snapshot.schema.fields().iter().map(|field| field.name().clone()).collect());
    };
    for column in columns {
        if snapshot.schema.column_with_name(column).is_none() {
            return Err(no_column(column, &snapshot.schema));
        }
    }
    Ok(columns.clone())
}

pub(super) fn no_column(column: &str, schema: &Schema) -> Error {
    let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let known = known.join(", ");
    Error::input(format!("column '{column}' is not in the table; it has {known}"))
}

fn in_sstable(sstable: &SsTableHandle, error: Error) -> Error {
    error.input_at(sstable.name())
}
