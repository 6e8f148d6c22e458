//! The events of a table as a stream.
//!
//! Owns: [`InputFeed`], and the rows of one SSTable or of one generation of the log as events.
//! Does not own: between which positions it reads, or where the events are stored (`table`).

use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_recursion::async_recursion as boxed;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::{Error, Generation, Result, ShardId};

use super::position::InputPosition;
use super::shape::InputShape;
use crate::errors::SsTableErrors;
use crate::record_index::column_batches;
use crate::schema::StoredColumns;
use crate::snapshot::{MemTableView, SsTableHandle};

/// Where the events of a generation are stored.
#[derive(Clone, Debug)]
pub enum EventSource {
    /// A flushed SSTable, or one of a bulk write.
    SsTable(Arc<SsTableHandle>),
    /// The log.
    Log(MemTableView),
}

/// Consecutive events of one generation of a shard.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The shard.
    pub shard_id: ShardId,
    /// The generation.
    pub generation: Generation,
    /// Rows of the generation.
    pub rows: Range<u64>,
    /// Where they are.
    pub source: EventSource,
}

/// The events between two positions, not yet read.
#[derive(Clone, Debug)]
pub struct InputFeed(Arc<Feed>);

#[derive(Debug)]
struct Feed {
    shape: InputShape,
    since: Option<InputPosition>,
    until: InputPosition,
    /// By shard, and the events of a shard in the order of arrival.
    pieces: Vec<Piece>,
}

impl InputFeed {
    /// The events of `pieces`, which are those between the two positions of `range`.
    pub(crate) fn new(
        shape: InputShape,
        range: (Option<InputPosition>, InputPosition),
        pieces: Vec<Piece>,
    ) -> Self {
        let (since, until) = range;
        Self(Arc::new(Feed { shape, since, until, pieces }))
    }

    /// The position behind which it starts; `None` for all events that no compaction has moved.
    #[must_use]
    pub fn since(&self) -> Option<&InputPosition> {
        self.0.since.as_ref()
    }

    /// The position behind its last event: the `since` of the next feed.
    #[must_use]
    pub fn until(&self) -> &InputPosition {
        &self.0.until
    }

    /// The columns of the table, then `_change_type`, `_shard`, `_generation` and `_row`.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.0.shape.schema.clone()
    }

    /// The events, shard by shard, those of a shard in the order of arrival.
    #[must_use]
    pub fn batches(&self) -> BoxStream<'static, Result<RecordBatch>> {
        let feed = self.0.clone();
        let pieces = (0..feed.pieces.len()).map(move |place| (feed.clone(), place));
        let events = stream::iter(pieces).then(|(feed, place)| feed.events_of_piece(place));
        events.try_flatten().boxed()
    }

    /// All events.
    ///
    /// # Errors
    /// A storage error, or damage.
    #[boxed]
    pub async fn collect(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        Ok((self.schema(), self.batches().try_collect().await?))
    }
}

impl Feed {
    async fn events_of_piece(
        self: Arc<Self>,
        place: usize,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let Some(piece) = self.pieces.get(place) else { return Ok(stream::empty().boxed()) };
        let columns = match &piece.source {
            EventSource::SsTable(sstable) => self.shape.stored(&sstable.columns)?,
            EventSource::Log(rows) => self.shape.stored(rows.schema())?,
        };
        let rows = piece.source.rows(&columns.names).await?;
        let feed = self.clone();
        let mut next = 0_u64;
        let events = rows.map(move |rows| {
            let rows = rows?;
            let first = next;
            next += rows.num_rows() as u64;
            feed.events(place, &columns, &rows, first)
        });
        Ok(events.try_filter_map(|events| ready(Ok(events))).boxed())
    }

    /// The events of `rows` that belong to a piece; the first is row `first` of the generation.
    fn events(
        &self,
        place: usize,
        columns: &StoredColumns,
        rows: &RecordBatch,
        first: u64,
    ) -> Result<Option<RecordBatch>> {
        let Some(piece) = self.pieces.get(place) else { return Ok(None) };
        let start = piece.rows.start.max(first);
        let end = piece.rows.end.min(first + rows.num_rows() as u64);
        if start >= end {
            return Ok(None);
        }
        let rows = rows.slice(length(start - first)?, length(end - start)?);
        let events = self.shape.events(&columns.bring(&rows)?, piece, start)?;
        Ok((events.num_rows() > 0).then_some(events))
    }
}

impl EventSource {
    /// Every row in the order of arrival, superseded rows included. An SSTable is read with the
    /// columns `names` alone.
    async fn rows(&self, names: &[String]) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        match self {
            Self::Log(rows) => {
                let batches: Vec<_> = rows.batches().cloned().map(Ok).collect();
                Ok(stream::iter(batches).boxed())
            }
            Self::SsTable(sstable) => {
                let name = sstable.name();
                let Some(fragment) = sstable.dataset.get_fragments().pop() else {
                    return Ok(stream::empty().boxed());
                };
                let batches = column_batches(&fragment, names).await.in_sstable(&name)?;
                Ok(batches.map(move |batch| batch.in_sstable(&name)).boxed())
            }
        }
    }
}

fn length(rows: u64) -> Result<usize> {
    usize::try_from(rows).map_err(|_| Error::internal(format!("{rows} rows do not fit in memory")))
}
