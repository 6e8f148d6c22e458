//! The vectors of rows in memory, in the partitions of the base table's index.
//!
//! ```text
//!   waiting: columns of vectors that belong to no list yet      no copy
//!     blocks of 1,024 rows, once the MemTable has many bytes of vectors
//!   partition -> its rows, ascending                            4 bytes a row
//! ```
//!
//! Owns: [`MemoryLists`], the lists of one column of one MemTable, [`MakeLists`], which makes it
//! with the centroids of the base table's index, and the choice of the lists that a search reads.
//! Does not own: distances of rows, which of them are the newest, or the vectors.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::compute::concat;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use lance_index::vector::kmeans::{
    compute_partitions_arrow_array, kmeans_find_partitions_arrow_array,
};
use lance_linalg::distance::DistanceType;
use lance_linalg::kernels::{normalize_arrow, normalize_fsl};
use lancemem_core::memtable::{MakeIndex, SecondaryIndex};
use parking_lot::{Mutex, RwLock};

use super::bounds::min_vector_bytes;

/// Rows that are assigned at a time.
const BLOCK_ROWS: usize = 1_024;
/// Without the caller's number of partitions, those are read whose centroid is up to this much
/// farther than the nearest one, relative to it.
const MARGIN: f32 = 0.4;
/// The least number of them: `MIN_PROBES`, or all divided by `MIN_PROBES_DIVISOR` where that is more.
/// By dot product the nearest centroids predict the nearest rows less well.
const MIN_PROBES: usize = 12;
const MIN_PROBES_DIVISOR: usize = 8;
const MIN_PROBES_DIVISOR_DOT: usize = 3;
/// The greatest number of them where they hold enough rows: `MAX_PROBES`, or all divided by
/// `MAX_PROBES_DIVISOR` where that is more.
const MAX_PROBES: usize = 32;
const MAX_PROBES_DIVISOR: usize = 4;
/// Rows in the lists for each row of the result.
const ROWS_A_RESULT: usize = 32;

/// Makes the lists of one column of vectors.
#[derive(Debug)]
pub struct MakeLists {
    name: String,
    column: String,
    model: Arc<Centroids>,
}

/// The centroids of an index.
#[derive(Debug)]
struct Centroids {
    vectors: FixedSizeListArray,
    /// The metric by which Lance assigns vectors; those of cosine are normalized before.
    metric: DistanceType,
    is_cosine: bool,
}

/// The lists of a column of one MemTable.
pub struct MemoryLists {
    column: String,
    model: Arc<Centroids>,
    waiting: Mutex<Waiting>,
    lists: RwLock<Lists>,
}

/// Vectors without a list.
#[derive(Default)]
struct Waiting {
    columns: VecDeque<FixedSizeListArray>,
    rows: usize,
    /// Bytes of all vectors of the MemTable.
    bytes: usize,
    /// Set where vectors could not be joined to a block: all others go on waiting, unassigned.
    is_broken: bool,
}

#[derive(Default)]
struct Lists {
    of_partitions: Vec<Vec<u32>>,
    /// Rows that are near to no centroid, such as one with an infinite number.
    elsewhere: Vec<u32>,
    /// All rows below are in a list, or have no distance from any vector.
    assigned: usize,
    bytes: usize,
}

/// Which lists a search reads.
#[derive(Clone, Copy, Debug)]
pub struct Probes {
    /// The least number of partitions.
    pub least: Option<usize>,
    /// The most.
    pub most: Option<usize>,
    /// Rows of the result.
    pub keep: usize,
}

/// The rows of the lists that a search reads.
#[derive(Debug, PartialEq, Eq)]
pub struct Probed {
    /// Their positions, ascending.
    pub rows: Vec<u32>,
    /// How many lists have them.
    pub partitions: usize,
    /// From here on, no row is in a list.
    pub assigned: usize,
}

impl MakeLists {
    /// The maker for `column`, with the centroids of an index by `metric`. `None` where Lance does
    /// not assign vectors of their type, or there is nothing to choose from.
    #[must_use]
    pub fn new(column: &str, metric: DistanceType, centroids: FixedSizeListArray) -> Option<Self> {
        let is_cosine = metric == DistanceType::Cosine;
        let metric = if is_cosine { DistanceType::L2 } else { metric };
        let is_metric = matches!(metric, DistanceType::L2 | DistanceType::Dot);
        let value = centroids.value_type();
        if !is_metric || !value.is_floating() || centroids.len() < 2 {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        for buffer in centroids.values().to_data().buffers() {
            buffer.as_slice().hash(&mut hasher);
        }
        let (count, sum) = (centroids.len(), hasher.finish());
        let of = if is_cosine { "cosine" } else { "" };
        let name = format!("lists of {column}: {count} centroids {sum:016x}, {metric} {of}");
        let model = Arc::new(Centroids { vectors: centroids, metric, is_cosine });
        Some(Self { name, column: column.to_owned(), model })
    }

    /// The number of lists.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.model.vectors.len()
    }

    /// Whether it makes lists of vectors of this type.
    #[must_use]
    pub fn fits(&self, data_type: &DataType) -> bool {
        let centroids = &self.model.vectors;
        matches!(data_type, DataType::FixedSizeList(item, width)
            if *item.data_type() == centroids.value_type() && *width == centroids.value_length())
    }
}

impl MakeIndex for MakeLists {
    fn name(&self) -> &str {
        &self.name
    }

    fn make(&self, schema: &SchemaRef) -> Option<Arc<dyn SecondaryIndex>> {
        let field = schema.field_with_name(&self.column).ok()?;
        if !self.fits(field.data_type()) {
            return None;
        }
        let lists =
            Lists { of_partitions: vec![Vec::new(); self.partitions()], ..Lists::default() };
        Some(Arc::new(MemoryLists {
            column: self.column.clone(),
            model: self.model.clone(),
            waiting: Mutex::default(),
            lists: RwLock::new(lists),
        }))
    }
}

impl Centroids {
    /// The partition of each of `vectors`; `None` for a vector that is near to no centroid.
    fn partitions_of(&self, vectors: &FixedSizeListArray) -> Result<Vec<Option<u32>>, ArrowError> {
        let normalized = self.is_cosine.then(|| normalize_fsl(vectors)).transpose()?;
        let vectors = normalized.as_ref().unwrap_or(vectors);
        Ok(compute_partitions_arrow_array(&self.vectors, vectors, self.metric)?.0)
    }

    /// All partitions, the nearest first, with the distances of their centroids.
    fn nearest(&self, query: &ArrayRef) -> Result<(Vec<u32>, Vec<f32>), ArrowError> {
        let normalized = self.is_cosine.then(|| normalize_arrow(query.as_ref())).transpose()?;
        let query = normalized.as_ref().map_or(query, |(query, _)| query);
        let all = self.vectors.len();
        let found =
            kmeans_find_partitions_arrow_array(&self.vectors, query.as_ref(), all, self.metric)?;
        Ok((found.0.values().to_vec(), found.1.values().to_vec()))
    }

    /// How many of the nearest partitions are read at least, and at most.
    fn bounds(&self, probes: Probes, distances: &[f32]) -> (usize, usize) {
        let all = distances.len();
        let part = if self.metric == DistanceType::Dot {
            MIN_PROBES_DIVISOR_DOT
        } else {
            MIN_PROBES_DIVISOR
        };
        let least = MIN_PROBES.max(all / part);
        let most = least.max(MAX_PROBES).max(all / MAX_PROBES_DIVISOR);
        let near = distances.first().map_or(0, |nearest| {
            let limit = nearest + nearest.abs() * MARGIN;
            distances.partition_point(|distance| *distance <= limit)
        });
        let least = near.clamp(least, most).max(probes.least.unwrap_or(0));
        let least = probes.least.filter(|_| probes.least == probes.most).unwrap_or(least);
        let most = probes.most.unwrap_or(all).min(all);
        (least.min(most), most)
    }
}

impl fmt::Debug for MemoryLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryLists({})", self.column)
    }
}

impl MemoryLists {
    /// The rows below `end` of the lists nearest to `query`. `None` where a comparison with all
    /// rows is not much slower: most rows have no list yet, or the lists have most rows.
    #[must_use]
    pub fn probe(&self, query: &ArrayRef, probes: Probes, end: usize) -> Option<Probed> {
        let (nearest, distances) = self.model.nearest(query).ok()?;
        let (least, most) = self.model.bounds(probes, &distances);
        let lists = self.lists.read();
        let assigned = lists.assigned.min(end);
        let below_end = |list: &[u32]| list.partition_point(|row| (*row as usize) < end);
        let wanted = probes.keep.saturating_mul(ROWS_A_RESULT);
        let mut rows = lists.elsewhere[..below_end(&lists.elsewhere)].to_vec();
        let mut partitions = 0;
        for partition in nearest.iter().take(most) {
            if partitions >= least && rows.len() >= wanted {
                break;
            }
            let list = lists.of_partitions.get(*partition as usize)?;
            rows.extend_from_slice(&list[..below_end(list)]);
            partitions += 1;
        }
        drop(lists);
        if rows.len() > assigned / 2 || assigned < end / 2 {
            return None;
        }
        rows.sort_unstable();
        Some(Probed { rows, partitions, assigned })
    }

    /// Puts a block of rows, the first of them at `first_row`, into their lists.
    fn assign(&self, vectors: &FixedSizeListArray, first_row: usize) {
        // Without partitions the rows are compared in every search.
        let none = || vec![None; vectors.len()];
        let partitions = self.model.partitions_of(vectors).unwrap_or_else(|_| none());
        let has_vector = has_vector(vectors);
        let mut guard = self.lists.write();
        let Lists { of_partitions, elsewhere, assigned, bytes } = &mut *guard;
        for (place, partition) in partitions.into_iter().enumerate() {
            let Ok(row) = u32::try_from(first_row + place) else { continue };
            if !has_vector(place) {
                continue;
            }
            *bytes += size_of::<u32>();
            match partition.and_then(|it| of_partitions.get_mut(it as usize)) {
                Some(list) => list.push(row),
                None => elsewhere.push(row),
            }
        }
        *assigned = first_row + vectors.len();
    }
}

impl SecondaryIndex for MemoryLists {
    fn insert(&self, batch: &RecordBatch, first_row: usize) {
        let column = batch.column_by_name(&self.column);
        let Some(vectors) = column.and_then(|column| column.as_fixed_size_list_opt()) else {
            return;
        };
        let mut waiting = self.waiting.lock();
        let added = waiting.rows + self.lists.read().assigned;
        debug_assert!(waiting.is_broken || added == first_row, "rows are added in their order");
        waiting.push(vectors);
        if waiting.is_broken || waiting.bytes < min_vector_bytes() {
            return;
        }
        while let Some(block) = waiting.take_block() {
            let first_row = self.lists.read().assigned;
            self.assign(&block, first_row);
        }
    }

    fn bytes(&self) -> usize {
        let lists = self.lists.read();
        lists.bytes + lists.of_partitions.len() * size_of::<Vec<u32>>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Waiting {
    fn push(&mut self, vectors: &FixedSizeListArray) {
        let width = usize::try_from(vectors.value_length()).unwrap_or(0);
        let number = vectors.value_type().primitive_width().unwrap_or(0);
        self.bytes += vectors.len() * width * number;
        self.rows += vectors.len();
        self.columns.push_back(vectors.clone());
    }

    /// The next block, which is whole; the rest goes on waiting.
    fn take_block(&mut self) -> Option<FixedSizeListArray> {
        if self.rows < BLOCK_ROWS {
            return None;
        }
        let (mut parts, mut rows) = (Vec::new(), 0);
        while rows < BLOCK_ROWS {
            let next = self.columns.pop_front()?;
            let taken = next.len().min(BLOCK_ROWS - rows);
            if taken < next.len() {
                self.columns.push_front(next.slice(taken, next.len() - taken));
            }
            parts.push(next.slice(0, taken));
            rows += taken;
        }
        self.rows -= rows;
        if let [only] = parts.as_slice() {
            return Some(only.clone());
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        let joined = concat(&parts).ok().and_then(|it| it.as_fixed_size_list_opt().cloned());
        self.is_broken = joined.is_none();
        joined
    }
}

/// Whether the row at a place has a vector without nulls: no other is ever in a result.
pub fn has_vector(vectors: &FixedSizeListArray) -> impl Fn(usize) -> bool {
    let nulls = vectors.nulls().cloned();
    let of_numbers = vectors.values().logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let width = usize::try_from(vectors.value_length()).unwrap_or(0);
    move |row| {
        nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
            && of_numbers
                .as_ref()
                .is_none_or(|nulls| nulls.slice(row * width, width).null_count() == 0)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Float32Array;
    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
    use arrow_schema::{Field, Schema};

    use super::super::bounds::set_bounds;
    use super::*;

    fn points(of: impl IntoIterator<Item = Option<f32>>) -> FixedSizeListArray {
        let mut rows = FixedSizeListBuilder::new(Float32Builder::new(), 2);
        for at in of {
            rows.values().append_slice(&[at.unwrap_or(0.0); 2]);
            rows.append(at.is_some());
        }
        rows.finish()
    }

    fn query(at: f32) -> ArrayRef {
        Arc::new(Float32Array::from(vec![at; 2]))
    }

    /// Lists by the centroids 0, 10, .. 90.
    fn lists() -> (SchemaRef, Arc<dyn SecondaryIndex>) {
        let centroids = points((0_u8..10).map(|number| Some(10.0 * f32::from(number))));
        let column = Field::new("vec", centroids.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![column]));
        let maker = MakeLists::new("vec", DistanceType::L2, centroids).unwrap();
        let made = maker.make(&schema).unwrap();
        (schema, made)
    }

    fn of(index: &Arc<dyn SecondaryIndex>) -> &MemoryLists {
        index.as_any().downcast_ref().unwrap()
    }

    #[test]
    fn whole_blocks_are_assigned_and_a_search_reads_the_nearest_lists() {
        set_bounds(Some(1), None);
        let (schema, index) = lists();
        let batch = |rows: std::ops::Range<u16>| {
            let column = points(rows.map(|row| Some(f32::from(row % 100))));
            RecordBatch::try_new(schema.clone(), vec![Arc::new(column)]).unwrap()
        };
        index.insert(&batch(0..1_000), 0);
        let one = Probes { least: Some(1), most: Some(1), keep: 1 };
        assert_eq!(of(&index).probe(&query(31.0), one, 1_000), None, "no block is whole");
        index.insert(&batch(1_000..2_100), 1_000);
        let found = of(&index).probe(&query(31.0), one, 2_100).unwrap();
        assert_eq!((found.partitions, found.assigned), (1, 2_048));
        let expected: Vec<u32> =
            (0..2_048).filter(|row| (26..=34).contains(&(row % 100))).collect();
        let is_tied = |row: &u32| matches!(row % 100, 25 | 35);
        let rows: Vec<u32> = found.rows.into_iter().filter(|row| !is_tied(row)).collect();
        assert_eq!(rows, expected);
        let less = of(&index).probe(&query(31.0), one, 1_500).unwrap();
        assert!(less.assigned == 1_500 && less.rows.iter().all(|row| *row < 1_500));
        let all = Probes { least: Some(10), most: Some(10), keep: 1 };
        assert_eq!(of(&index).probe(&query(31.0), all, 2_100), None, "a search of all is flat");
        assert!(index.bytes() >= 4 * 2_048);
        set_bounds(None, None);
    }

    #[test]
    fn rows_without_a_vector_are_in_no_list_and_far_ones_in_every_search() {
        let (_, index) = lists();
        let rows = [Some(1.0), None, Some(f32::INFINITY), Some(f32::NAN), Some(88.0)];
        of(&index).assign(&points(rows.into_iter().chain(vec![Some(50.0); 9])), 0);
        let one = Probes { least: Some(1), most: Some(1), keep: 1 };
        assert_eq!(of(&index).probe(&query(0.0), one, 14).unwrap().rows, [0, 2, 3]);
    }

    #[test]
    fn without_a_number_of_probes_near_partitions_are_read_until_they_have_enough_rows() {
        let centroids = points((0_u8..200).map(|number| Some(f32::from(number))));
        let model = Centroids { vectors: centroids, metric: DistanceType::L2, is_cosine: false };
        let (_, distances) = model.nearest(&query(0.0)).unwrap();
        let free = Probes { least: None, most: None, keep: 10 };
        assert_eq!(model.bounds(free, &distances), (25, 200));
        let some = Probes { least: Some(3), most: Some(7), keep: 10 };
        assert_eq!(model.bounds(some, &distances), (7, 7));
        let same = Probes { least: Some(3), most: Some(3), keep: 10 };
        assert_eq!(model.bounds(same, &distances), (3, 3));
    }

    #[test]
    fn vectors_of_integers_and_bits_have_no_lists() {
        let bytes =
            FixedSizeListArray::new_null(Arc::new(Field::new("item", DataType::UInt8, true)), 2, 4);
        assert!(MakeLists::new("vec", DistanceType::Hamming, bytes).is_none());
        assert!(MakeLists::new("vec", DistanceType::L2, points([Some(1.0)])).is_none());
    }
}
