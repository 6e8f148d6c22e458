//! Calls of writers in a table with a rule: what they draw, and the rows of each.
//!
//! Owns: one call (its verb, the columns that it gives, its values), the events that the oracle
//! expects of it, and the batch that the core gets.
//! Does not own: who calls when (`ruled`), or what events add up to (`rules`).

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::format::PutMode;
use lancemem_core::merge::NullPolicy;
use lancemem_core::shard::WriteBatch;
use lancemem_testkit::KeyShape;

use crate::chance::Chance;
use crate::rows::{self, ALL, COLUMNS, Cells, Columns, Event, KEYS, PutId, Row, TS};
use crate::rules::{GROUP, Rule};

/// Sequences are few, so that many are equal.
const SEQUENCES: u64 = 8;
const VALUES: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Put,
    Replace,
    Delete,
}

/// A call, which can be made more than once.
#[derive(Clone, Debug)]
pub struct Call {
    verb: Verb,
    /// The columns of its batch.
    given: Columns,
    /// Whether a null counts as a column that is not given.
    keeps_nulls: bool,
    rows: Vec<(i64, Cells)>,
}

/// What the core gets.
#[derive(Debug)]
pub struct Written {
    batch: RecordBatch,
    deletes: bool,
    mode: PutMode,
}

impl Call {
    /// A call in a table with `rule`.
    pub fn draw(chance: &Chance, rule: Rule) -> Self {
        let verb = match chance.below(20) {
            0 | 1 => Verb::Delete,
            2..5 => Verb::Replace,
            _ => Verb::Put,
        };
        let mut given = ALL;
        if verb == Verb::Put && rule.takes_some_columns() {
            given &= Columns::try_from(chance.below(u64::from(ALL) + 1)).unwrap_or(ALL);
        }
        // A put gives a group whole.
        if rule == Rule::SequenceGroup && given & GROUP != 0 {
            given |= GROUP;
        }
        let keeps_nulls = verb == Verb::Put && rule.records_given() && chance.odds(300);
        let count = 1 + chance.index(5);
        let rows = (0..count).map(|_| {
            let key = i64::try_from(chance.index(KEYS)).unwrap_or_default();
            (key, draw_cells(chance))
        });
        Self { verb, given, keeps_nulls, rows: rows.collect() }
    }

    /// What a report counts it as.
    pub const fn name(&self) -> &'static str {
        match self.verb {
            Verb::Delete => "delete of a key",
            Verb::Replace => "replace",
            Verb::Put if self.given == ALL => "put of all columns",
            Verb::Put => "put of some columns",
        }
    }

    /// The events of the call as the put `id`.
    pub fn events(&self, id: PutId, rule: Rule) -> Vec<Row> {
        self.rows_of(id).map(|(key, cells)| (key, self.event(cells, rule))).collect()
    }

    /// The call as the put `id`.
    pub fn written(&self, id: PutId, shape: KeyShape) -> Written {
        let rows: Vec<(i64, Cells)> = self.rows_of(id).collect();
        let keys: Vec<i64> = rows.iter().map(|(key, _)| *key).collect();
        let keys = shape.keys(&keys);
        let mode = PutMode {
            replace: self.verb == Verb::Replace,
            nulls: self.keeps_nulls.then_some(NullPolicy::Keep),
        };
        if self.verb == Verb::Delete {
            return Written { batch: keys, deletes: true, mode: PutMode::default() };
        }
        let schema = keys.schema();
        let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
        let mut columns = keys.columns().to_vec();
        for (place, name) in COLUMNS.iter().enumerate().filter(|(place, _)| self.gives(*place)) {
            fields.push(Arc::new(Field::new(*name, DataType::Int64, true)));
            let values: Int64Array = rows.iter().map(|(_, cells)| cells[place]).collect();
            columns.push(Arc::new(values) as ArrayRef);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
            .unwrap_or_else(|error| unreachable!("rows of a call: {error}"));
        Written { batch, deletes: false, mode }
    }

    /// The rows, and behind them the row that names the call.
    fn rows_of(&self, id: PutId) -> impl Iterator<Item = (i64, Cells)> {
        let name = (rows::txn(id), [None; COLUMNS.len()]);
        self.rows.iter().copied().chain([name])
    }

    const fn gives(&self, place: usize) -> bool {
        self.given >> place & 1 == 1
    }

    fn event(&self, cells: Cells, rule: Rule) -> Event {
        match self.verb {
            Verb::Delete => return Event::Delete,
            Verb::Replace => return Event::Replace(cells),
            Verb::Put => {}
        }
        let mut given = self.given;
        let in_group = |place: usize| rule == Rule::SequenceGroup && GROUP >> place & 1 == 1;
        for place in (0..COLUMNS.len()).filter(|place| !in_group(*place)) {
            if self.keeps_nulls && cells[place].is_none() {
                given &= !(1 << place);
            }
        }
        // Without a sequence the group is not touched.
        if rule == Rule::SequenceGroup && cells[TS].is_none() {
            given &= !GROUP;
        }
        let is_given = |place: usize| given >> place & 1 == 1;
        let cells = std::array::from_fn(|at| cells[at].filter(|_| is_given(at)));
        // A column that is left out of a function is a null.
        Event::Put { given: if rule.records_given() { given } else { ALL }, cells }
    }
}

impl Written {
    /// In a table without a rule.
    pub fn plain(batch: RecordBatch, deletes: bool) -> Self {
        Self { batch, deletes, mode: PutMode::default() }
    }

    /// The argument of a write.
    pub const fn batch(&self) -> WriteBatch<'_> {
        if self.deletes {
            return WriteBatch::deletes(&self.batch);
        }
        WriteBatch::upserts(&self.batch).with_mode(self.mode)
    }
}

fn draw_cells(chance: &Chance) -> Cells {
    std::array::from_fn(|at| {
        let most = if at == TS { SEQUENCES } else { VALUES };
        let value = i64::try_from(chance.below(most)).unwrap_or_default();
        (!chance.odds(200)).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_stores_of_a_call_what_the_oracle_expects_of_it() {
        for rule in Rule::RULED {
            let (shape, chance) = (KeyShape::Composite, Chance::new(7));
            let schema = rule.row_schema(shape);
            for id in 0..300 {
                let call = Call::draw(&chance, rule);
                let written = call.written(id, shape);
                let stored = written.batch().accept(&schema).unwrap().batch;
                let events = rows::decode(shape, &stored);
                assert_eq!(events, call.events(id, rule), "{rule:?}: {call:?}");
                assert_eq!(rows::put_of(&events), Some(id));
            }
        }
    }
}
