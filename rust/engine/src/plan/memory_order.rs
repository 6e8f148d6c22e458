//! The rows in memory that may meet a filter, by the order of their values.
//!
//! Owns: [`OrderedFilter`]: which columns of a filter have an ordered index in memory, and the
//! values that the filter wants of them.
//! Does not own: the indexes (`memory_indexes`), the domain of a column (`key_range`), or the
//! evaluation of the filter, which runs on every row that is named here.

use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_empty_array};
use arrow_schema::Field;
use datafusion::common::ScalarValue;
use lance::index::DatasetIndexExt;
use lancemem_core::memtable::MemTableView;

use super::Filter;
use super::key_range::Domain;
use crate::memory_indexes::{
    MakeOrder, MemoryOrder, Wanted, filled_so_far, min_ordered_rows, orders_of,
};
use crate::schema::StoredColumns;
use crate::snapshot::{Snapshot, Source};

/// The part of the rows that an index has to leave to be worth its use.
const WORTHY_PART: usize = 8;

/// What a filter wants of columns that are ordered in memory: each of these alone is necessary.
#[derive(Clone, Debug)]
pub(crate) struct OrderedFilter {
    wanted: Arc<[(Arc<MakeOrder>, Wanted)]>,
}

impl OrderedFilter {
    /// For `filter` on `snapshot`; `None` where no MemTable is large, and where the filter is met
    /// by any value of every column that the base table has a `BTREE` or `BITMAP` index of.
    pub async fn of(snapshot: &Snapshot, filter: Option<&Filter>) -> Option<Self> {
        let is_large =
            |source: &Source<'_>| matches!(source, Source::MemTable(rows) if is_large(rows));
        let filter = filter.filter(|_| snapshot.sources().any(|(_, source)| is_large(&source)))?;
        let columns = filter.columns();
        // A search of an index that cannot be read reports that; a filter needs none.
        let indexes = snapshot.base.load_indices().await.ok()?;
        let orders = orders_of(&snapshot.base, &indexes).into_iter();
        let wanted = orders.filter(|order| columns.contains(order.column())).filter_map(|order| {
            let field = snapshot.schema.field_with_name(order.column()).ok()?;
            let wanted = wanted(&Domain::of(filter.expression(), field)?, field)?;
            Some((order, wanted))
        });
        let wanted: Vec<_> = wanted.collect();
        (!wanted.is_empty()).then(|| Self { wanted: wanted.into() })
    }

    /// The same for one MemTable of `snapshot`; `None` for a small one, and for one whose columns
    /// had other names or types.
    pub fn of_view(&self, snapshot: &Snapshot, view: &MemTableView) -> Option<OrderedCandidates> {
        let is_same = |order: &MakeOrder| {
            let name = [order.column().to_owned()];
            StoredColumns::of(view.schema(), &snapshot.columns, &name)
                .is_ok_and(|stored| stored.is_same())
        };
        let wanted = self.wanted.iter().filter(|(order, _)| is_same(order)).cloned();
        let wanted: Vec<_> = wanted.collect();
        let is_used = is_large(view) && !wanted.is_empty();
        is_used.then(|| OrderedCandidates { view: view.clone(), wanted: wanted.into() })
    }
}

fn is_large(view: &MemTableView) -> bool {
    view.rows() >= min_ordered_rows()
}

/// The rows of one MemTable that may meet a filter.
#[derive(Clone, Debug)]
pub(crate) struct OrderedCandidates {
    view: MemTableView,
    wanted: Arc<[(Arc<MakeOrder>, Wanted)]>,
}

impl OrderedCandidates {
    /// Their positions, ascending; `None` where they are too many, or most rows are in no index
    /// yet.
    pub fn rows(&self) -> Option<Vec<u32>> {
        let end = self.view.rows();
        let mut found: Option<Vec<u32>> = None;
        for (order, wanted) in self.wanted.iter() {
            let Some(index) = filled_so_far(&self.view, order.as_ref()) else { continue };
            let Some(index) = index.as_any().downcast_ref::<MemoryOrder>() else { continue };
            let most = found.as_ref().map_or(end / WORTHY_PART, Vec::len);
            found = index.rows_with(wanted, end, most).or(found);
        }
        found
    }
}

impl fmt::Display for OrderedCandidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.wanted.iter().map(|(order, _)| order.column()).collect();
        write!(f, "ordered by [{}] in memory", columns.join(", "))
    }
}

/// A domain as arrays of the column's type.
fn wanted(domain: &Domain, field: &Field) -> Option<Wanted> {
    let array = |values: Vec<ScalarValue>| -> Option<ArrayRef> {
        let made = if values.is_empty() {
            new_empty_array(field.data_type())
        } else {
            ScalarValue::iter_to_array(values).ok()?
        };
        (made.data_type() == field.data_type()).then_some(made)
    };
    let bound = |value: &Option<ScalarValue>| match value {
        Some(value) => array(vec![value.clone()]).map(Some),
        None => Some(None),
    };
    Some(match domain {
        Domain::Values(values) => Wanted::Values(array(values.clone())?),
        Domain::Range(low, high) => Wanted::Range(bound(low)?, bound(high)?),
    })
}
