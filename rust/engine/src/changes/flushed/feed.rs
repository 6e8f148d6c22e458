//! The changes of flushes as a stream.
//!
//! Owns: [`FlushedFeed`], and the change rows of one generation with the columns that a feed adds.
//! Does not own: between which positions it reads (`table`), or which rows meet its conditions
//! (`pairs`).

use std::future::ready;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use async_recursion::async_recursion as boxed;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lancemem_core::format::PublishedFlush;
use lancemem_core::store::Store;
use lancemem_core::types::{Error, Generation, Result, ShardId};
use roaring::RoaringBitmap;

use super::errors::changes_expired;
use super::pairs::{Changes, changes, image_of, kept_rows};
use super::position::FlushedPosition;
use super::publication::{open_rows, published_flush};
use super::shape::FlushedShape;
use crate::changes::types::{CHANGE_TYPE, ChangeCounts, RowKinds};
use crate::errors::Context;

const ACTION: &str = "adding the columns of a change feed";

/// The changes of one generation of a shard.
#[derive(Clone, Copy, Debug)]
pub struct FlushedPiece {
    /// The shard.
    pub shard_id: ShardId,
    /// The generation.
    pub generation: Generation,
}

/// The changes of flushes between two positions, not yet read.
#[derive(Clone, Debug)]
pub struct FlushedFeed(Arc<Feed>);

#[derive(Debug)]
struct Feed {
    base: Arc<Dataset>,
    store: Store,
    shape: FlushedShape,
    since: Option<FlushedPosition>,
    until: FlushedPosition,
    /// By shard, and the generations of a shard in their order.
    pieces: Vec<FlushedPiece>,
}

impl FlushedFeed {
    /// The changes of `pieces`, which are those between the two positions of `range`. `base` is any
    /// version of the table.
    pub(crate) fn new(
        base: Arc<Dataset>,
        store: Store,
        shape: FlushedShape,
        range: (Option<FlushedPosition>, FlushedPosition),
        pieces: Vec<FlushedPiece>,
    ) -> Self {
        let (since, until) = range;
        Self(Arc::new(Feed { base, store, shape, since, until, pieces }))
    }

    /// The position behind which it starts; `None` for all changes that are left.
    #[must_use]
    pub fn since(&self) -> Option<&FlushedPosition> {
        self.0.since.as_ref()
    }

    /// The position behind its last change: the `since` of the next feed.
    #[must_use]
    pub fn until(&self) -> &FlushedPosition {
        &self.0.until
    }

    /// The columns of the table, then `_change_type`, `_shard` and `_generation`.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.0.shape.schema.clone()
    }

    /// The changes, shard by shard, those of a shard in the order of generations; of a generation
    /// the images before, then the images after.
    #[must_use]
    pub fn batches(&self) -> BoxStream<'static, Result<RecordBatch>> {
        let feed = self.0.clone();
        let pieces = self.0.pieces.clone();
        let changes = stream::iter(pieces).then(move |piece| feed.clone().changes_of(piece));
        changes.try_flatten().boxed()
    }

    /// All changes.
    ///
    /// # Errors
    /// As the stream of [`Self::batches`]: a storage error, damage, or
    /// [`lancemem_core::types::Error::ChangesExpired`] where a collection removed changes of the
    /// feed.
    #[boxed]
    pub async fn collect(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        Ok((self.schema(), self.batches().try_collect().await?))
    }

    /// How many rows the feed has. Without a condition they are recorded.
    ///
    /// # Errors
    /// As [`Self::collect`].
    #[boxed]
    pub async fn counts(&self) -> Result<ChangeCounts> {
        let feed = &self.0;
        let mut counts = ChangeCounts::default();
        if feed.shape.filter.is_none() && !feed.shape.skip_unchanged {
            for piece in &feed.pieces {
                let of = feed.publication(*piece).await?;
                let (inserted, updated, deleted) = (of.inserted, of.updated, of.deleted);
                counts.add(ChangeCounts { inserted, updated, deleted, rows: of.rows });
            }
            return Ok(counts);
        }
        let mut batches = self.batches();
        while let Some(batch) = batches.try_next().await? {
            counts.add(counts_of(&batch));
        }
        Ok(counts)
    }
}

/// How many rows of each kind are in a batch of a feed.
fn counts_of(batch: &RecordBatch) -> ChangeCounts {
    let kinds = batch.column_by_name(CHANGE_TYPE).and_then(|kinds| kinds.as_string_opt::<i32>());
    let mut counts = ChangeCounts { rows: batch.num_rows() as u64, ..ChangeCounts::default() };
    for kind in kinds.into_iter().flatten().flatten() {
        match kind {
            "insert" | "+I" => counts.inserted += 1,
            "update_postimage" | "+U" => counts.updated += 1,
            "delete" | "-D" => counts.deleted += 1,
            _ => {}
        }
    }
    counts
}

impl Feed {
    async fn publication(&self, piece: FlushedPiece) -> Result<PublishedFlush> {
        let FlushedPiece { shard_id, generation } = piece;
        let found = published_flush(&self.store, shard_id, generation).await?;
        found.ok_or_else(|| {
            changes_expired(self.base.uri(), shard_id, generation, generation.next())
        })
    }

    async fn rows_of(&self, piece: FlushedPiece) -> Result<Option<Arc<Dataset>>> {
        let publication = self.publication(piece).await?;
        match open_rows(&self.base, piece.shard_id, &publication).await {
            Ok(rows) => Ok(rows),
            Err(error) => {
                // A collection removes the publication before the rows.
                self.publication(piece).await?;
                Err(error)
            }
        }
    }

    async fn changes_of(
        self: Arc<Self>,
        piece: FlushedPiece,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let Some(rows) = self.rows_of(piece).await? else { return Ok(stream::empty().boxed()) };
        let kept = kept_rows(&rows, &self.shape).await?;
        let columns = self.shape.stored(&rows, &self.shape.columns)?;
        let read = changes(&rows, columns).await?;
        let batches = read.map(move |some| self.batch(piece, kept.as_ref(), &some?));
        Ok(batches.try_filter(|batch| ready(batch.num_rows() > 0)).boxed())
    }

    fn batch(
        &self,
        piece: FlushedPiece,
        kept: Option<&RoaringBitmap>,
        some: &Changes,
    ) -> Result<RecordBatch> {
        let count = some.rows.num_rows();
        let generation = i64::try_from(piece.generation.get()).unwrap_or(i64::MAX);
        let shard = piece.shard_id.to_string();
        let added: [ArrayRef; 3] = [
            Arc::new(kinds_of(self.shape.row_kinds, &some.kinds)?),
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&shard, count))),
            Arc::new(Int64Array::from_value(generation, count)),
        ];
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let columns = some.rows.columns().iter().cloned().chain(added).collect();
        let schema = self.shape.schema.clone();
        let batch = RecordBatch::try_new_with_options(schema, columns, &options).context(ACTION)?;
        let Some(kept) = kept else { return Ok(batch) };
        let is_kept = |place: &u32| Some(kept.contains(*place));
        let mask: BooleanArray = some.places.values().iter().map(is_kept).collect();
        filter_record_batch(&batch, &mask).context(ACTION)
    }
}

/// The stored kinds in the words of a feed.
fn kinds_of(row_kinds: RowKinds, stored: &StringArray) -> Result<StringArray> {
    if row_kinds == RowKinds::Delta {
        return Ok(stored.clone());
    }
    let text = |kind: Option<&str>| {
        let (image, is_update) = image_of(kind.unwrap_or_default())?;
        Ok::<_, Error>(row_kinds.text(image, is_update))
    };
    let kinds = stored.iter().map(text).collect::<Result<Vec<&str>>>()?;
    Ok(StringArray::from(kinds))
}
