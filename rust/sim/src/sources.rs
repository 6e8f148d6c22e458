//! What each source of a shard has of a key, and the rows of a base table with the sources above it.
//!
//! Owns: the merge of sources: the newest row without a rule, the fold of the core with one.
//! Does not own: what has to come out (`rules`), or which sources there are (`world`).
//!
//! A flush folds the rows of a MemTable by the calls that the engine uses for an SSTable. A reader
//! gathers the events of a key through the key index, folds each MemTable, and then folds the folds.
//! A compaction keeps rows of the table and nothing else.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use lancemem_core::format::RowSchema;
use lancemem_core::memtable::{Chosen, MemTableView};
use lancemem_core::merge::{Fold, KeyGroups, PairFunctions, REPLACE};
use lancemem_core::types::RowPosition;
use lancemem_testkit::KeyShape;

use crate::rows::{self, COLUMNS, Row, Table};
use crate::rules::Rule;

/// One event of each key that a source has.
#[derive(Debug)]
pub enum Source {
    /// The newest one, in a table without a rule.
    Newest(Vec<Row>),
    /// The fold of all of them.
    Folded {
        /// The keys.
        keys: Vec<usize>,
        /// Their events.
        events: RecordBatch,
    },
}

/// How the sources of a table are merged.
#[derive(Debug)]
pub struct Merging {
    shape: KeyShape,
    /// `None` in a table without a rule.
    fold: Option<Arc<Fold>>,
}

/// Rows of several batches by key, the rows of a key in the order of their arrival.
#[derive(Debug)]
struct Gathered {
    batches: Vec<RecordBatch>,
    /// Batch and row.
    rows: [Vec<(usize, usize)>; rows::KEYS],
}

impl Merging {
    /// For a table with the columns `schema`.
    pub fn of(shape: KeyShape, schema: &RowSchema) -> Self {
        let chosen = schema.rule().map(|choosing| {
            let (rule, key) = (choosing.rule(), schema.key().names());
            let fold = Fold::new(rule, schema.logical(), key, &PairFunctions::new());
            Arc::new(fold.unwrap_or_else(|error| unreachable!("the rule of the table: {error}")))
        });
        Self { shape, fold: schema.fold().cloned().or(chosen) }
    }

    /// What a flush keeps of the rows of a MemTable.
    ///
    /// # Errors
    /// Where the calls of a view disagree, or a fold fails.
    pub fn flushed(&self, view: &MemTableView) -> Result<Source, String> {
        let newest = rows::newest_of(view)?;
        let Some(fold) = &self.fold else { return Ok(self.newest(view, &newest)) };
        let batches = view.folded().map_err(|error| error.to_string())?;
        let gathered = match (batches, view.chosen().map_err(|error| error.to_string())?) {
            (Some(batches), _) => self.gather(batches, newest.iter().map(|row| view.place(*row))),
            (None, Some(chosen)) => {
                let first = (0..).zip(chosen.rows().values().iter());
                let shown = first.filter_map(|(row, is_shown)| is_shown.then_some(row));
                let shown = shown.map(|row| view.place(RowPosition(row)));
                self.gather(marked(view, chosen)?, shown)
            }
            (None, None) => return Err("a table with a rule, and a MemTable without".to_owned()),
        };
        gathered.folded(fold)
    }

    /// What a reader makes of the rows of a MemTable.
    ///
    /// # Errors
    /// As [`Self::flushed`].
    pub fn read(&self, view: &MemTableView) -> Result<Source, String> {
        let newest = rows::newest_of(view)?;
        let Some(fold) = &self.fold else { return Ok(self.newest(view, &newest)) };
        let mut positions = Vec::with_capacity(view.rows());
        let mut is_newest_first = true;
        view.for_each_newest(|key, newest| {
            let first = positions.len();
            view.versions(key, |position| positions.push(position));
            is_newest_first &= positions.get(first) == Some(&newest);
            positions[first..].reverse();
        });
        if !is_newest_first || positions.len() != view.rows() {
            return Err("P6: the rows of a key are not those that were put".to_owned());
        }
        let places = positions.iter().map(|position| view.place(*position));
        self.gather(view.batches().cloned().collect(), places).folded(fold)
    }

    /// The rows of a table: those of `base` and the events of `sources`, oldest source first.
    ///
    /// # Errors
    /// Where a fold fails.
    pub fn table<'a>(
        &self,
        base: &Table,
        sources: impl IntoIterator<Item = &'a Source>,
    ) -> Result<Table, String> {
        let mut table = base.clone();
        let Some(fold) = &self.fold else {
            for source in sources {
                if let Source::Newest(newest) = source {
                    apply(&mut table, newest);
                }
            }
            return Ok(table);
        };
        let (keys, rows) = self.base_rows(fold, base)?;
        let base = fold.base_events(&rows).map_err(|error| error.to_string())?;
        let mut gathered = Gathered { batches: Vec::new(), rows: Default::default() };
        gathered.add(&keys, base);
        for source in sources {
            if let Source::Folded { keys, events } = source {
                gathered.add(keys, events.clone());
            }
        }
        let Source::Folded { events, .. } = gathered.folded(fold)? else { return Ok(table) };
        let shown = fold.visible_rows(&events).map_err(|error| error.to_string())?;
        table.fill(None);
        for (row, cells) in rows::cells(&shown).into_iter().enumerate() {
            if let Some(place) = rows::place(rows::key(self.shape, &shown, row)) {
                table[place] = Some(cells);
            }
        }
        Ok(table)
    }

    fn newest(&self, view: &MemTableView, newest: &[RowPosition]) -> Source {
        let event = |position: &RowPosition| {
            let (batch, row) = view.locate(*position);
            rows::decode(self.shape, &batch.slice(row, 1)).into_iter().next()
        };
        Source::Newest(newest.iter().filter_map(event).collect())
    }

    /// These rows of `batches`, without those that only name a call.
    fn gather(
        &self,
        batches: Vec<RecordBatch>,
        places: impl Iterator<Item = (usize, usize)>,
    ) -> Gathered {
        let mut gathered = Gathered { batches, rows: Default::default() };
        for (batch, row) in places {
            let key = rows::key(self.shape, &gathered.batches[batch], row);
            if let Some(place) = rows::place(key) {
                gathered.rows[place].push((batch, row));
            }
        }
        gathered
    }

    /// The rows of a base table as it stores them, with their keys.
    fn base_rows(&self, fold: &Fold, base: &Table) -> Result<(Vec<usize>, RecordBatch), String> {
        let keys: Vec<usize> = (0..base.len()).filter(|key| base[*key].is_some()).collect();
        let numbers: Vec<i64> = keys.iter().filter_map(|key| i64::try_from(*key).ok()).collect();
        let mut columns = self.shape.keys(&numbers).columns().to_vec();
        for place in 0..COLUMNS.len() {
            let values = base.iter().flatten().map(|cells| cells[place]);
            columns.push(Arc::new(values.collect::<Int64Array>()));
        }
        let rows = RecordBatch::try_new(fold.row_schema().clone(), columns)
            .map_err(|error| error.to_string())?;
        Ok((keys, rows))
    }
}

impl Gathered {
    /// The events of `keys`, one of each, as the newest ones.
    fn add(&mut self, keys: &[usize], events: RecordBatch) {
        for (row, key) in keys.iter().enumerate() {
            self.rows[*key].push((self.batches.len(), row));
        }
        self.batches.push(events);
    }

    /// One event of each key.
    fn folded(self, fold: &Fold) -> Result<Source, String> {
        let (mut keys, mut offsets, mut places) = (Vec::new(), vec![0], Vec::new());
        for (key, rows) in self.rows.into_iter().enumerate() {
            if !rows.is_empty() {
                places.extend(rows);
                offsets.push(places.len());
                keys.push(key);
            }
        }
        let groups = KeyGroups::new(offsets, places).map_err(|error| error.to_string())?;
        let events = fold.fold(&self.batches, &groups).map_err(|error| error.to_string())?;
        Ok(Source::Folded { keys, events })
    }
}

/// The batches of `view`, in which the chosen rows behind a delete or a replace record that older
/// sources count no more.
fn marked(view: &MemTableView, chosen: &Chosen) -> Result<Vec<RecordBatch>, String> {
    let mut positions = 0_u32..;
    let marked = view.batches().map(|batch| {
        let place = batch.schema().index_of(REPLACE).map_err(|error| error.to_string())?;
        let stored = batch.column(place).as_boolean().values().iter();
        // Of all batches of the view, one position after the other.
        let flags = stored.zip(&mut positions);
        let flags = flags.map(|(flag, position)| flag || chosen.replacing().contains(&position));
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        columns[place] = Arc::new(flags.map(Some).collect::<BooleanArray>());
        RecordBatch::try_new(batch.schema(), columns).map_err(|error| error.to_string())
    });
    marked.collect()
}

/// What `newest` makes of a table without a rule.
fn apply(table: &mut Table, newest: &[Row]) {
    for (key, event) in newest {
        if let Some(place) = rows::place(*key) {
            table[place] = Rule::Plain.next(table[place], event);
        }
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::memtable::MemTable;
    use lancemem_core::shard::memtable_layout;
    use lancemem_core::types::{Generation, KeyIndexKind};

    use super::*;
    use crate::chance::Chance;
    use crate::events::Call;
    use crate::oracle::Oracle;

    /// Calls go into MemTables of any length, these are flushed or read, and any number of the oldest
    /// ones becomes the base table.
    #[test]
    fn any_cut_of_the_events_gives_the_rows_that_the_oracle_expects() {
        let shape = KeyShape::Utf8;
        for (rule, seed) in
            Rule::RULED.into_iter().flat_map(|rule| (0..60).map(move |it| (rule, it)))
        {
            let (chance, mut oracle) = (Chance::new(seed), Oracle::new(rule));
            let schema = rule.row_schema(shape);
            let merging = Merging::of(shape, &schema);
            let (mut base, mut sources, mut puts) = (rows::empty(), Vec::new(), Vec::new());
            for generation in 1..8 {
                let index = chance.pick(&[KeyIndexKind::Hash, KeyIndexKind::SkipList]);
                let layout = memtable_layout(&schema, index);
                let memtable = Arc::new(MemTable::new(Generation(generation), layout));
                for _ in 0..=chance.index(12) {
                    let call = Call::draw(&chance, rule);
                    let id = oracle.call(1, 1, None, |id| call.events(id, rule));
                    let stored = call.written(id, shape).batch().accept(&schema).unwrap().batch;
                    memtable.push(stored, None, 1);
                    puts.push(id);
                }
                let view = memtable.view(usize::MAX);
                let is_flushed = chance.odds(500);
                let source = if is_flushed { merging.flushed(&view) } else { merging.read(&view) };
                sources.push(source.unwrap());
                if chance.odds(300) {
                    let oldest: Vec<Source> =
                        sources.drain(..chance.index(sources.len() + 1)).collect();
                    base = merging.table(&base, &oldest).unwrap();
                }
                let table = merging.table(&base, &sources).unwrap();
                assert_eq!(table, oracle.table(&puts), "{rule:?}, seed {seed}");
            }
        }
    }
}
