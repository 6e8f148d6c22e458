//! The pages of one run: keys in key order with the addresses of their rows.
//!
//! Owns: which pages may have a key, reading only those, and the merge join of two sorted lists of
//! encoded keys.
//! Does not own: what an address means at a version of the base table (`open`).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance_core::cache::LanceCache;
use lance_core::{Error, Result};
use lance_index::scalar::lance_format::LanceIndexStore;
use lance_index::scalar::{IndexReader, IndexStore};
use lance_io::object_store::ObjectStore;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::KeyBlock;
use object_store::path::Path;

pub const PAGES: &str = "page_data.lance";
pub const LOOKUP: &str = "page_lookup.lance";
const VALUES: &str = "values";
const ADDRESSES: &str = "ids";
const FIRST: &str = "min";
const LAST: &str = "max";
const NUMBER: &str = "page_idx";
/// In the metadata of the lookup file.
const PAGE_ROWS: &str = "batch_size";
/// Pages that are read in one call, which merges neighbours into few requests.
const PAGES_AT_ONCE: usize = 32;
/// Concurrent calls of that kind.
const READS_AHEAD: usize = 4;

/// One page: its keys, encoded and as stored, and the address of each.
pub struct Page {
    /// The encoded keys.
    pub keys: KeyBlock,
    /// The keys as the page stores them.
    pub values: ArrayRef,
    /// Their addresses.
    pub addresses: Vec<u64>,
}

/// An open run's pages.
pub struct Pages {
    reader: Arc<dyn IndexReader>,
    page_rows: u64,
    /// Whether the stored values are encoded keys, as for a key of several columns.
    encoded: bool,
    first: KeyBlock,
    last: KeyBlock,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("pages", &self.len()).finish_non_exhaustive()
    }
}

/// A page that may have some keys, and the range of these in the sorted keys.
struct Touched {
    page: u64,
    keys: Range<usize>,
}

impl Pages {
    /// Opens the pages in `folder`, for a key of `columns` columns.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn open(store: Arc<ObjectStore>, folder: Path, columns: usize) -> Result<Self> {
        let files = LanceIndexStore::new(store, folder, Arc::new(LanceCache::no_cache()));
        let (lookup, reader) =
            futures::try_join!(files.open_index_file(LOOKUP), files.open_index_file(PAGES))?;
        let page_rows = lookup.schema().metadata.get(PAGE_ROWS).and_then(|rows| rows.parse().ok());
        let no_page_rows = || damaged(&format!("no valid {PAGE_ROWS} in {LOOKUP}"));
        let page_rows = page_rows.filter(|rows| *rows > 0).ok_or_else(no_page_rows)?;
        let pages = lookup.read_range(0..lookup.num_rows(), None).await?;
        let numbers = column(&pages, NUMBER)?;
        let numbers = numbers.as_primitive_opt::<UInt32Type>();
        let numbers = numbers.ok_or_else(|| other_type(NUMBER))?;
        if !numbers.values().iter().zip(0..).all(|(number, place)| *number == place) {
            return Err(damaged("page numbers are not consecutive"));
        }
        let encoded = columns > 1;
        let first = keys_of(&column(&pages, FIRST)?, encoded)?;
        let last = keys_of(&column(&pages, LAST)?, encoded)?;
        Ok(Self { reader, page_rows, encoded, first, last })
    }

    /// Number of pages.
    pub const fn len(&self) -> usize {
        self.first.len()
    }

    /// Every entry of a key of `keys`, which ascend: index of the key, address.
    ///
    /// # Errors
    /// A storage error.
    pub async fn search(&self, keys: &[&[u8]]) -> Result<Vec<(u32, u64)>> {
        let touched = self.touched(keys);
        let reads = touched.chunks(PAGES_AT_ONCE).map(|pages| self.read(pages).boxed());
        let reads: Vec<_> = reads.collect();
        let mut reads = stream::iter(reads).buffered(READS_AHEAD);
        let mut found = Vec::with_capacity(keys.len());
        while let Some(pages) = reads.try_next().await? {
            for (page, keys_of_page) in pages {
                self.join(&page, keys, keys_of_page, &mut found)?;
            }
        }
        Ok(found)
    }

    /// The page `number`, for a check of all pages.
    pub async fn page(&self, number: usize) -> Result<(KeyBlock, Vec<u64>)> {
        let page = self.reader.read_record_batch(number as u64, self.page_rows).await?;
        let Page { keys, addresses, .. } = self.decoded(&page)?;
        Ok((keys, addresses))
    }

    /// The whole pages `numbers`, in order, for a merge.
    pub async fn range(&self, numbers: Range<usize>) -> Result<Vec<Page>> {
        let numbers: Vec<u64> = numbers.map(|number| number as u64).collect();
        let pages = self.reader.read_record_batches(&numbers, self.page_rows).await?;
        pages.iter().map(|page| self.decoded(page)).collect()
    }

    fn decoded(&self, page: &RecordBatch) -> Result<Page> {
        let values = column(page, VALUES)?;
        let (keys, addresses) = (keys_of(&values, self.encoded)?, addresses_of(page)?.to_vec());
        if keys.len() != addresses.len() {
            let what = format!("a page has {} keys and {} addresses", keys.len(), addresses.len());
            return Err(damaged(&what));
        }
        Ok(Page { keys, values, addresses })
    }

    /// First and last key of a page, as the lookup file records them.
    pub fn bounds(&self, number: usize) -> (&[u8], &[u8]) {
        (self.first.get(number), self.last.get(number))
    }

    fn touched(&self, keys: &[&[u8]]) -> Vec<Touched> {
        let (Some(lowest), Some(highest)) = (keys.first(), keys.last()) else { return Vec::new() };
        let mut touched = Vec::new();
        let mut rest = 0;
        for page in self.first_page_from(lowest)..self.len() {
            let (first, last) = self.bounds(page);
            if first > *highest {
                break;
            }
            let start = rest + keys[rest..].partition_point(|key| *key < first);
            let end = start + keys[start..].partition_point(|key| *key <= last);
            if start < end {
                touched.push(Touched { page: page as u64, keys: start..end });
            }
            // The entries of a key may continue in the next page.
            rest = start;
        }
        touched
    }

    /// The first page that may have `key` or a greater one, by binary search.
    fn first_page_from(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.last.get(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    async fn read(&self, pages: &[Touched]) -> Result<Vec<(RecordBatch, Range<usize>)>> {
        let numbers: Vec<u64> = pages.iter().map(|touched| touched.page).collect();
        let batches = self.reader.read_record_batches(&numbers, self.page_rows).await?;
        if batches.len() != pages.len() {
            let (expected, found) = (pages.len(), batches.len());
            return Err(damaged(&format!("expected {expected} pages, found {found}")));
        }
        Ok(batches.into_iter().zip(pages.iter().map(|touched| touched.keys.clone())).collect())
    }

    fn join(
        &self,
        page: &RecordBatch,
        keys: &[&[u8]],
        places: Range<usize>,
        found: &mut Vec<(u32, u64)>,
    ) -> Result<()> {
        let values = keys_of(&column(page, VALUES)?, self.encoded)?;
        let addresses = addresses_of(page)?;
        let mut row = 0;
        for place in places {
            let key = keys[place];
            row = lower_bound(&values, row, key);
            let mut entry = row;
            while entry < values.len() && values.get(entry) == key {
                #[expect(clippy::cast_possible_truncation, reason = "a call has fewer keys")]
                found.push((place as u32, addresses[entry]));
                entry += 1;
            }
        }
        Ok(())
    }
}

/// The first index from `from` on whose key is not less than `key`. Exponential search: near
/// indexes are found fastest, because consecutive keys of a call often lie close together.
fn lower_bound(values: &KeyBlock, from: usize, key: &[u8]) -> usize {
    let (mut low, mut step) = (from, 1);
    while low + step < values.len() && values.get(low + step) < key {
        low += step;
        step *= 2;
    }
    let mut high = (low + step).min(values.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if values.get(middle) < key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn column(batch: &RecordBatch, name: &str) -> Result<ArrayRef> {
    batch.column_by_name(name).cloned().ok_or_else(|| no_column(name))
}

fn addresses_of(page: &RecordBatch) -> Result<&[u64]> {
    let addresses = page.column_by_name(ADDRESSES).ok_or_else(|| no_column(ADDRESSES))?;
    let addresses = addresses.as_primitive_opt::<UInt64Type>();
    Ok(addresses.ok_or_else(|| other_type(ADDRESSES))?.values())
}

/// The encoded keys of a column of values.
fn keys_of(values: &ArrayRef, encoded: bool) -> Result<KeyBlock> {
    if values.null_count() > 0 {
        return Err(damaged("a key is null"));
    }
    if encoded {
        let values = values.as_binary_opt::<i32>().ok_or_else(|| other_type(VALUES))?;
        let mut keys = KeyBlock::with_capacity(values.len(), values.value_data().len());
        for value in values.iter().flatten() {
            keys.push_with(|bytes| bytes.extend_from_slice(value));
        }
        return Ok(keys);
    }
    let data_type: &DataType = values.data_type();
    let schema = Arc::new(Schema::new(vec![Field::new(VALUES, data_type.clone(), true)]));
    let encoder = KeyEncoder::new(&schema, &[VALUES.to_owned()])
        .map_err(|error| Error::invalid_input(error.to_string()))?;
    let batch = RecordBatch::try_new(schema, vec![values.clone()])?;
    Ok(encoder.encode_block(&batch))
}

fn no_column(name: &str) -> Error {
    damaged(&format!("column '{name}' is missing"))
}

fn other_type(name: &str) -> Error {
    damaged(&format!("column '{name}' has another type"))
}

fn damaged(what: &str) -> Error {
    Error::invalid_input(format!("the pages of a run of the record index are damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_bound_is_found_from_every_place() {
        let mut values = KeyBlock::default();
        for key in [1_u8, 3, 3, 3, 7, 9, 9, 12] {
            values.push_with(|bytes| bytes.push(key));
        }
        for key in 0..14_u8 {
            let all = values.iter().take_while(|value| **value < [key][..]).count();
            for from in 0..=all {
                assert_eq!(lower_bound(&values, from, &[key]), all, "{key} from {from}");
            }
        }
    }
}
