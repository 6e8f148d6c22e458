//! Rows of one version, read by their addresses.
//!
//! Owns: the versions that have rows ([`Version`]), and the scan of selected rows of a version,
//! brought to the columns of the feed.
//! Does not own: which rows are read, or the columns that a feed adds.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, UInt64Array};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use lance::Dataset;
use lance_core::ROW_ADDR;
use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};

use super::selection::Selection;
use crate::damage::naming_damage_of;
use crate::errors::BaseContext;
use crate::record_index::fragment_of;
use crate::schema::StoredColumns;
use crate::snapshot::set_batches;

const ACTION: &str = "reading changes of the base table";
/// Rows of a batch, the default of Lance's scans.
const BATCH_ROWS: usize = 8_192;

/// A dataset with images: a version of the base table, stored change rows, or a version together
/// with the fragments that a commit is about to add to it.
#[derive(Clone, Debug)]
pub struct Version {
    pub dataset: Arc<Dataset>,
    added: Arc<[Fragment]>,
}

impl Version {
    pub fn of(dataset: Arc<Dataset>) -> Self {
        Self { dataset, added: Arc::new([]) }
    }

    /// `base` and the fragments `added`, whose ids `base` does not have.
    pub fn with_added(base: Arc<Dataset>, added: &[Fragment]) -> Self {
        Self { dataset: base, added: added.into() }
    }

    /// The fragments of `selection`, in its order.
    fn fragments_of(&self, selection: &Selection) -> Result<Vec<Fragment>> {
        let fragment = |id: u32| {
            let id = u64::from(id);
            match self.added.iter().find(|added| added.id == id) {
                Some(added) => Ok(added.clone()),
                None => fragment_of(&self.dataset, id).map(|it| it.metadata().clone()),
            }
        };
        selection.fragments().map(|(id, _)| fragment(id)).collect()
    }
}

/// Rows of a version and their addresses.
#[derive(Clone, Debug)]
pub struct Rows {
    pub addresses: UInt64Array,
    pub rows: RecordBatch,
}

/// The selected rows of `version` with the columns `columns`, in the order of the selection.
///
/// # Errors
/// A storage error.
pub async fn scan(
    version: &Version,
    selection: &Selection,
    columns: StoredColumns,
) -> Result<BoxStream<'static, Result<Rows>>> {
    if selection.is_empty() {
        return Ok(stream::empty().boxed());
    }
    let dataset = &version.dataset;
    let mut scanner = dataset.scan();
    scanner.project(&columns.names).in_base(ACTION)?;
    scanner.with_row_address();
    scanner.with_fragments(version.fragments_of(selection)?);
    if let Some(addresses) = selection.addresses() {
        scanner.with_physical_row_addr_prefilter(addresses);
    }
    set_batches(&mut scanner, dataset, &columns.names, BATCH_ROWS, None);
    let batches = scanner.try_into_stream().await.in_base(ACTION)?;
    let rows = batches.map(move |batch| rows_of(&batch.in_base(ACTION)?, &columns));
    Ok(naming_damage_of(dataset.clone(), rows))
}

fn rows_of(batch: &RecordBatch, columns: &StoredColumns) -> Result<Rows> {
    let addresses = batch.column_by_name(ROW_ADDR);
    let addresses = addresses.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let missing = || Error::internal(format!("{ACTION}: column '{ROW_ADDR}' was not read"));
    let addresses = addresses.ok_or_else(missing)?.clone();
    Ok(Rows { addresses, rows: columns.bring(batch)? })
}
