//! Rows written under an older schema, brought to the columns of a newer one.
//!
//! Owns: which stored column is which column of the table, and which changes of type keep every
//! value. Scans, lookups, compactions and replays ask here and nowhere else.
//! Does not own: where either schema comes from, or what follows from a refusal.
//!
//! A column is its field id: a rename keeps the id, and a column that was dropped and added
//! again has another one. A widened column has a new id and remembers the one before. Names count
//! only where a side has no ids.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    RecordBatch, RecordBatchOptions, StructArray, new_null_array,
};
use arrow_buffer::BooleanBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};

use super::TOMBSTONE;
use super::given_bits::GivenBits;
use crate::merge::{GIVEN, REPLACE};
use crate::types::{Error, Result, TypeName};

/// The key of field metadata under which lance keeps a field id.
pub const FIELD_ID: &str = "lance:field_id";

/// The key of field metadata that marks a column of the primary key.
pub const KEY_MARK: &str = "lance-schema:unenforced-primary-key";

/// The key of field metadata under which a widened column has a [`widened_mark`]: lance gives a
/// column of another type another id.
pub const WIDENED_FROM: &str = "lancemem:widened_from";

/// The ids of a column before and after it was widened. Its own id distinguishes it from columns
/// that carry a copy of its metadata.
#[must_use]
pub fn widened_mark(narrow: i32, wide: i32) -> String {
    format!("{narrow}:{wide}")
}

/// The field id that a field carries.
#[must_use]
pub fn field_id(field: &Field) -> Option<i32> {
    let id = field.metadata().get(FIELD_ID)?.parse().ok()?;
    // lance writes -1 for "none yet".
    (id >= 0).then_some(id)
}

/// The id that a widened column had before. Lance assigns ascending ids: an id that is not below
/// the column's own comes from another table, whose schema was copied. Earlier versions wrote the
/// narrow id alone.
fn narrow_id(field: &Field) -> Option<i32> {
    let own = field_id(field)?;
    let mark = field.metadata().get(WIDENED_FROM)?;
    let narrow = match mark.split_once(':') {
        Some((narrow, wide)) if wide.parse() == Ok(own) => narrow,
        Some(_) => return None,
        None => mark,
    };
    narrow.parse().ok().filter(|narrow| (0..own).contains(narrow))
}

/// Whether `field` is the column with the field id `id`, now or before it was widened.
#[must_use]
pub fn is_field(field: &Field, id: i32) -> bool {
    field_id(field) == Some(id) || narrow_id(field) == Some(id)
}

/// Whether a column of the type `narrow` may become one of the type `wide`.
#[must_use]
pub const fn is_widening(narrow: &DataType, wide: &DataType) -> bool {
    use DataType::{Float32, Float64, Int32, Int64};
    matches!((narrow, wide), (Int32, Int64) | (Float32, Float64))
}

/// Where each column of stored rows is, indexed by id and by name: tables may have thousands of
/// columns.
#[derive(Debug)]
pub struct StoredPlaces<'a> {
    stored: &'a Fields,
    by_id: HashMap<i32, usize>,
    by_narrow_id: HashMap<i32, usize>,
    by_name: HashMap<&'a str, Named>,
}

/// The first column of a name, and the first without an id.
#[derive(Clone, Copy, Debug)]
struct Named {
    first: usize,
    without_id: Option<usize>,
}

impl<'a> StoredPlaces<'a> {
    /// The places of the columns `stored`. Of several columns with one id the first counts.
    #[must_use]
    pub fn of(stored: &'a Fields) -> Self {
        let (mut by_id, mut by_narrow_id) = (HashMap::new(), HashMap::new());
        let mut by_name = HashMap::<&str, Named>::with_capacity(stored.len());
        // `_tombstone` and the reserved columns behind it. An SSTable gives them the next free ids,
        // which the table may give to columns later.
        let reserved = stored.iter().position(|field| field.name() == TOMBSTONE);
        let is_own = |place: usize| reserved.is_none_or(|first| place < first);
        for (place, field) in stored.iter().enumerate() {
            let id = field_id(field);
            let without_id = id.is_none().then_some(place);
            by_name
                .entry(field.name().as_str())
                .and_modify(|named| named.without_id = named.without_id.or(without_id))
                .or_insert(Named { first: place, without_id });
            let Some(id) = id.filter(|_| is_own(place)) else { continue };
            by_id.entry(id).or_insert(place);
            if let Some(narrow) = narrow_id(field) {
                by_narrow_id.entry(narrow).or_insert(place);
            }
        }
        Self { stored, by_id, by_narrow_id, by_name }
    }

    /// The place of the stored column that is the table's column `field`: by the same id, else by
    /// an id before or after a widening, else by name where an id is missing. A stored wide column
    /// is found for a narrow one of the table too: its values do not fit, and a null in their place
    /// would hide the error.
    #[must_use]
    pub fn find(&self, field: &Field) -> Option<usize> {
        let named = self.by_name.get(field.name().as_str());
        if field.name() == TOMBSTONE {
            return named.map(|named| named.first);
        }
        let Some(id) = field_id(field) else { return named.map(|named| named.first) };
        let exact = self.by_id.get(&id).copied();
        exact
            .or_else(|| self.find_other_width(id, field))
            .or_else(|| named.and_then(|named| named.without_id))
    }

    /// The place of the same column before it was widened, or after.
    fn find_other_width(&self, id: i32, field: &Field) -> Option<usize> {
        let of = |place: &usize| self.stored[*place].data_type();
        let narrow_id = narrow_id(field);
        let narrow = narrow_id.and_then(|narrow| self.by_id.get(&narrow));
        let narrow = narrow.filter(|place| is_widening(of(place), field.data_type()));
        // Widened once more, after a version before the first widening was restored.
        let twin = narrow_id.and_then(|narrow| self.by_narrow_id.get(&narrow));
        let twin = twin.filter(|place| of(place) == field.data_type());
        let wide = self.by_narrow_id.get(&id);
        let wide = wide.filter(|place| is_widening(field.data_type(), of(place)));
        narrow.or(wide).or(twin).copied()
    }
}

/// How rows of one schema become rows of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconcile {
    columns: Vec<Origin>,
}

/// Where a column comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Stored(usize, Way),
    /// The rows are older than the column.
    Null,
    /// The rows are older than a column of flags: no row deletes or replaces its key.
    Live,
    /// Bits of the columns that an event gave.
    Given(usize, GivenBits),
}

/// What happens to the values of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Way {
    Take,
    Cast,
    /// For each child of the struct its origin among the stored children; null where `None`.
    Struct(Vec<Option<(usize, Self)>>),
    /// Of each value of a list, or each entry of a map.
    List(Box<Self>),
}

impl Reconcile {
    /// From rows of `stored` to rows of `table`, both with field ids in the fields' metadata
    /// where they have some.
    ///
    /// # Errors
    /// An input error that names the column whose type changed in a way that is not supported,
    /// or that may not be null and is missing.
    pub fn between(stored: &Schema, table: &Schema) -> Result<Self> {
        let places = StoredPlaces::of(stored.fields());
        // Other tables may give these names to columns of their own.
        let reserved = table.fields().iter().position(|field| field.name() == TOMBSTONE);
        let is_reserved = |at: usize| reserved.is_some_and(|first| at > first);
        let fields = table.fields().iter().enumerate();
        let columns = fields.map(|(at, field)| match places.find(field) {
            Some(place) if field.name() == GIVEN && is_reserved(at) => {
                let bits = GivenBits::between(stored, table, &places);
                let bits = bits.ok_or_else(|| refused(stored.field(place), field))?;
                Ok(Origin::Given(place, bits))
            }
            Some(place) => {
                let way = way(stored.field(place).data_type(), field.data_type());
                let way = way.ok_or_else(|| refused(stored.field(place), field))?;
                Ok(Origin::Stored(place, way))
            }
            None if field.name() == TOMBSTONE => Ok(Origin::Live),
            None if field.name() == REPLACE && is_reserved(at) => Ok(Origin::Live),
            None if field.is_nullable() => Ok(Origin::Null),
            None => Err(Error::input(format!(
                "column '{}' is missing in stored rows and may not be null",
                field.name()
            ))),
        });
        Ok(Self { columns: columns.collect::<Result<_>>()? })
    }

    /// Whether rows stay what they are: the same columns in the same places.
    #[must_use]
    pub fn is_identity(&self, stored: &Schema) -> bool {
        self.columns.len() == stored.fields().len()
            && self.columns.iter().enumerate().all(|(place, origin)| {
                matches!(origin, Origin::Stored(from, Way::Take) if *from == place)
            })
    }

    /// `batch` under `schema`, which has the shape of the newer schema.
    ///
    /// # Errors
    /// An input error where a value does not fit.
    pub fn apply(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = self.columns.iter().zip(schema.fields()).map(|(origin, field)| {
            let column = match origin {
                Origin::Stored(place, way) => bring(batch.column(*place), way, field.data_type()),
                Origin::Given(place, bits) => bits.apply(batch.column(*place)),
                Origin::Null => Ok(new_null_array(field.data_type(), rows)),
                Origin::Live => {
                    let live = BooleanArray::new(BooleanBuffer::new_unset(rows), None);
                    Ok(Arc::new(live) as ArrayRef)
                }
            };
            column.map_err(|error| {
                Error::input(format!("column '{}': {error}", field.name())).with_source(error)
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            .map_err(|error| Error::input(error.to_string()).with_source(error))
    }
}

/// Refuses a table whose primary key differs from the key of stored rows: writers and readers must
/// identify rows by the same key. Both schemas are complete.
///
/// # Errors
/// An input error that names the column.
pub fn refuse_other_key(stored: &Schema, table: &Schema) -> Result<()> {
    let is_key = |field: &Field| field.metadata().get(KEY_MARK).is_some_and(|mark| mark == "true");
    for key in stored.fields().iter().filter(|field| is_key(field)) {
        let Some(id) = field_id(key) else { continue };
        let is_same = |field: &Arc<Field>| field_id(field) == Some(id) && is_key(field);
        if !table.fields().iter().any(is_same) {
            return Err(Error::input(format!(
                "column '{}' is in the primary key of stored rows and not in the key of the table; \
                 a key never changes",
                key.name()
            )));
        }
    }
    Ok(())
}

fn refused(stored: &Field, field: &Field) -> Error {
    Error::input(format!(
        "column '{}' was {} and is {} now; only int32 to int64 and float32 to float64 keep the \
         rows that were written before",
        field.name(),
        TypeName(stored.data_type()),
        TypeName(field.data_type())
    ))
}

/// How values of one type become values of another; `None` where that could lose some.
fn way(stored: &DataType, table: &DataType) -> Option<Way> {
    use DataType::{FixedSizeList, Float32, Float64, Int32, Int64, LargeList, List, Map, Struct};
    match (stored, table) {
        _ if stored == table => Some(Way::Take),
        (Int32, Int64) | (Float32, Float64) => Some(Way::Cast),
        _ if is_other_layout(stored, table) => Some(Way::Cast),
        (Struct(stored), Struct(table)) => {
            let places = StoredPlaces::of(stored);
            let children = table.iter().map(|field| match places.find(field) {
                Some(place) => {
                    Some(Some((place, way(stored[place].data_type(), field.data_type())?)))
                }
                None => field.is_nullable().then_some(None),
            });
            Some(Way::Struct(children.collect::<Option<_>>()?))
        }
        (List(stored), List(table)) | (LargeList(stored), LargeList(table)) => {
            Some(Way::List(Box::new(way(stored.data_type(), table.data_type())?)))
        }
        (FixedSizeList(stored, length), FixedSizeList(table, wanted)) if length == wanted => {
            Some(Way::List(Box::new(way(stored.data_type(), table.data_type())?)))
        }
        (Map(stored, was_sorted), Map(table, is_sorted)) if was_sorted == is_sorted => {
            Some(Way::List(Box::new(way(stored.data_type(), table.data_type())?)))
        }
        _ => stored.equals_datatype(table).then_some(Way::Cast),
    }
}

/// Whether both types are text, or both bytes, with lengths stored in another way.
fn is_other_layout(stored: &DataType, table: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    let text = |of: &DataType| matches!(of, Utf8 | LargeUtf8 | Utf8View);
    let bytes = |of: &DataType| matches!(of, Binary | LargeBinary | BinaryView);
    (text(stored) && text(table)) || (bytes(stored) && bytes(table))
}

fn bring(column: &ArrayRef, way: &Way, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match (way, to) {
        (Way::Struct(children), DataType::Struct(fields)) => {
            let stored = column.as_struct();
            let children = children.iter().zip(fields).map(|(child, field)| match child {
                Some((place, way)) => bring(stored.column(*place), way, field.data_type()),
                None => Ok(new_null_array(field.data_type(), stored.len())),
            });
            let children = children.collect::<Result<Vec<_>, _>>()?;
            let nulls = stored.nulls().cloned();
            let brought =
                StructArray::try_new_with_length(fields.clone(), children, nulls, stored.len())?;
            Ok(Arc::new(brought))
        }
        (Way::List(way), DataType::List(item)) => bring_list::<i32>(column, way, item),
        (Way::List(way), DataType::LargeList(item)) => bring_list::<i64>(column, way, item),
        (Way::List(way), DataType::FixedSizeList(item, length)) => {
            let stored = column.as_fixed_size_list();
            let values = bring(stored.values(), way, item.data_type())?;
            let nulls = stored.nulls().cloned();
            Ok(Arc::new(FixedSizeListArray::try_new(item.clone(), *length, values, nulls)?))
        }
        (Way::List(way), DataType::Map(entries, is_sorted)) => {
            let stored = column.as_map();
            let values: ArrayRef = Arc::new(stored.entries().clone());
            let values = bring(&values, way, entries.data_type())?.as_struct().clone();
            let (offsets, nulls) = (stored.offsets().clone(), stored.nulls().cloned());
            let brought = MapArray::try_new(entries.clone(), offsets, values, nulls, *is_sorted)?;
            Ok(Arc::new(brought))
        }
        _ if column.data_type() == to => Ok(column.clone()),
        // A wider type, or the same one whose inner fields carry other metadata.
        _ => cast_with_options(column, to, &CastOptions { safe: false, ..CastOptions::default() }),
    }
}

fn bring_list<O: OffsetSizeTrait>(
    column: &ArrayRef,
    way: &Way,
    item: &Arc<Field>,
) -> Result<ArrayRef, ArrowError> {
    let stored = column.as_list::<O>();
    let values = bring(stored.values(), way, item.data_type())?;
    let (offsets, nulls) = (stored.offsets().clone(), stored.nulls().cloned());
    Ok(Arc::new(GenericListArray::<O>::try_new(item.clone(), offsets, values, nulls)?))
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
