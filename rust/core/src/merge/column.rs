//! Columns of events, gathered from several sources.
//!
//! Owns: the names of the columns behind the table's own, and the values of one column in the order
//! of key groups.
//! Does not own: which values count (`live`), or how they become one.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave;

use super::groups::KeyGroups;
use crate::types::{Error, Result};

/// The column of ruled tables that is true for an event before which all others count no more.
pub const REPLACE: &str = "_replace";
/// The column of `partial_update` tables with one bit for each column beside the primary key, in the
/// order of the schema and the least significant bit of a byte first: whether the event gave it.
pub const GIVEN: &str = "_given";

/// The event of each group that gives a column its value; `None` where no event does.
pub(super) type Picks = Vec<Option<usize>>;

/// The events of a fold. Positions are those of [`KeyGroups::rows`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Events<'a> {
    sources: &'a [RecordBatch],
    groups: &'a KeyGroups,
}

impl<'a> Events<'a> {
    /// The events of `groups` in `sources`, which all have the columns of `schema`.
    ///
    /// # Errors
    /// An internal error for a source with other columns, or a row behind its end.
    pub(super) fn new(
        schema: &SchemaRef,
        sources: &'a [RecordBatch],
        groups: &'a KeyGroups,
    ) -> Result<Self> {
        let types = |of: &SchemaRef| -> Vec<_> {
            of.fields()
                .iter()
                .map(|field| (field.name().clone(), field.data_type().clone()))
                .collect()
        };
        let is_other = |batch: &&RecordBatch| {
            !std::sync::Arc::ptr_eq(batch.schema_ref(), schema)
                && types(batch.schema_ref()) != types(schema)
        };
        if let Some(other) = sources.iter().find(is_other) {
            let other = other.schema_ref();
            return Err(Error::internal(format!("events of {other:?}, expected {schema:?}")));
        }
        let lengths: Vec<usize> = sources.iter().map(RecordBatch::num_rows).collect();
        let is_behind =
            |(source, row): &&(usize, usize)| lengths.get(*source).is_none_or(|end| row >= end);
        if let Some((source, row)) = groups.rows().iter().find(is_behind) {
            return Err(Error::internal(format!("no row {row} of source {source} in a fold")));
        }
        Ok(Self { sources, groups })
    }

    pub(super) fn groups(&self) -> &'a KeyGroups {
        self.groups
    }

    /// All values of a column, by position.
    pub(super) fn values(&self, place: usize) -> Result<ArrayRef, ArrowError> {
        let columns: Vec<&dyn Array> =
            self.sources.iter().map(|source| source.column(place).as_ref()).collect();
        interleave(&columns, self.groups.rows())
    }

    /// The values of a column at `picks`, null for a pick without a row.
    pub(super) fn picked(&self, place: usize, picks: &Picks) -> Result<ArrayRef, ArrowError> {
        let mut columns: Vec<&dyn Array> =
            self.sources.iter().map(|source| source.column(place).as_ref()).collect();
        let rows = self.groups.rows();
        let Some(first) = columns.first() else { return interleave(&columns, &[]) };
        let null = new_null_array(first.data_type(), 1);
        let null_place = (columns.len(), 0);
        columns.push(null.as_ref());
        let at: Vec<(usize, usize)> =
            picks.iter().map(|pick| pick.map_or(null_place, |at| rows[at])).collect();
        interleave(&columns, &at)
    }

    /// The values of a boolean column without nulls, by position.
    pub(super) fn flags(&self, place: usize) -> Vec<bool> {
        let columns: Vec<_> =
            self.sources.iter().map(|source| source.column(place).as_boolean().values()).collect();
        self.groups.rows().iter().map(|(source, row)| columns[*source].value(*row)).collect()
    }

    /// Which values of a column are not null, by position.
    pub(super) fn validity(&self, place: usize) -> Vec<bool> {
        let nulls: Vec<_> =
            self.sources.iter().map(|source| source.column(place).logical_nulls()).collect();
        let is_valid = |(source, row): &(usize, usize)| {
            nulls[*source].as_ref().is_none_or(|nulls| nulls.is_valid(*row))
        };
        self.groups.rows().iter().map(is_valid).collect()
    }

    /// The bytes of `_given`, by position.
    pub(super) fn given(&self, place: usize) -> Given<'a> {
        let columns: Vec<_> =
            self.sources.iter().map(|source| source.column(place).as_fixed_size_binary()).collect();
        let rows = self.groups.rows().iter();
        Given(rows.map(|(source, row)| columns[*source].value(*row)).collect())
    }
}

/// The bit in which an event records whether it gave the column with this bit.
fn bit_of(bit: usize) -> usize {
    if mutant!("B25") { bit ^ 1 } else { bit }
}

/// Which columns each event gave.
#[derive(Debug)]
pub(super) struct Given<'a>(Vec<&'a [u8]>);

impl Given<'_> {
    /// Whether the event at `position` gave the column with `bit`.
    pub(super) fn has(&self, position: usize, bit: usize) -> bool {
        let bit = bit_of(bit);
        self.0[position][bit / 8] & (1 << (bit % 8)) != 0
    }

    /// Adds the columns of the event at `position` to `bytes`.
    pub(super) fn add_to(&self, bytes: &mut [u8], position: usize) {
        for (to, from) in bytes.iter_mut().zip(self.0[position]) {
            *to |= from;
        }
    }
}
