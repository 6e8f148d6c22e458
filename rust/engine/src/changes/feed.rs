//! The changes between two versions as a stream.
//!
//! Owns: [`ChangeFeed`]: its steps, from one version to the next that is left, and the columns that
//! it adds to the images of rows.
//! Does not own: the versions between which it reads (`table`), or how a step is derived and
//! paired, or stored.
//!
//! A step goes from a version to the next one. Where a clean-up removed versions in between, it is
//! one net step: rows that are equal in both versions are no change, although they may have moved.
//! The step of a version that records stored changes reads these; a version that was cleaned up is
//! known by what was published of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::SchemaRef;
use async_recursion::async_recursion as boxed;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::Dataset;
use lancemem_core::store::Store;
use lancemem_core::types::{Error, ErrorKind, Result};
use tokio::sync::OnceCell;

use super::derive::{Difference, Effect, Trust, difference};
use super::errors::{expired, in_step, unavailable};
use super::images::{Rows, Version, scan};
use super::pair::{Paired, Pairing, Side};
use super::parts::{Piece, spread};
use super::shape::Shape;
use super::stored::{Commit, StoredChanges, published};
use super::types::{ChangeCounts, ChangeOptions, ChangePart, ChangeSlice, ChangeVersion, Image};
use crate::errors::{BaseContext, Context};
use crate::schema::{BaseVersion, versions_of};

/// Versions that are compared at the same time.
const CONCURRENT_VERSIONS: usize = 4;
const ACTION: &str = "reading a version of the base table";

/// The versions of a feed.
#[derive(Clone, Debug)]
pub struct Range {
    /// The version behind which it starts; `None` for all rows of the last version as inserts, 0
    /// for the first version.
    pub since: Option<u64>,
    /// The version that it reaches.
    pub until: BaseVersion,
    /// The versions of its steps, the oldest first: those that are left, and before them those
    /// whose changes are stored, where `since` was cleaned up.
    pub versions: Vec<u64>,
}

/// The changes between two versions of the base table, not yet read.
#[derive(Clone, Debug)]
pub struct ChangeFeed(Arc<Feed>);

#[derive(Debug)]
struct Feed {
    store: Store,
    shape: Shape,
    since: Option<u64>,
    until: Arc<Dataset>,
    steps: Vec<Step>,
}

/// From one version to a later one.
#[derive(Debug)]
struct Step {
    /// The slice without fragments.
    slice: ChangeSlice,
    timestamp: SystemTime,
    micros: i64,
    operation: Option<String>,
    /// Its rows, where a compaction stored them.
    stored: Option<StoredChanges>,
    /// The rows that differ, in the versions.
    all: Difference,
    /// The rows of a part; `None` for all.
    own: Option<Difference>,
    paired: OnceCell<Paired>,
}

impl ChangeFeed {
    /// The changes of `range`, of the table in `store`. Compares manifests and deletion files, or
    /// opens stored changes, and reads no row, except where columns were rewritten in place.
    ///
    /// # Errors
    /// An input error where `options` do not fit the table; [`Error::ChangesExpired`] where a
    /// version is gone; [`Error::ChangesUnavailable`] where changes cannot be derived; a storage
    /// error.
    pub async fn new(
        uri: &str,
        store: Store,
        range: Range,
        options: &ChangeOptions,
    ) -> Result<Self> {
        let shape = Shape::new(uri, &range.until, options).await?;
        let (since, until) = (range.since, range.until.dataset.clone());
        let slices = slices_of(&range);
        let mut feed = Feed { store, shape, since, until, steps: Vec::new() };
        let steps = {
            let steps = slices.into_iter().map(|slice| feed.step(slice, None).boxed());
            let steps: Vec<BoxFuture<'_, _>> = steps.collect();
            stream::iter(steps).buffered(CONCURRENT_VERSIONS).try_collect::<Vec<_>>().await?
        };
        feed.steps = steps.into_iter().flatten().collect();
        Ok(Self(Arc::new(feed)))
    }

    /// The changes of a part of a feed that reaches `until`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub async fn of_part(
        uri: &str,
        store: Store,
        until: &BaseVersion,
        part: ChangePart,
        options: &ChangeOptions,
    ) -> Result<Self> {
        let shape = Shape::new(uri, until, options).await?;
        let since = part.slices.first().and_then(|slice| slice.base);
        let until = until.dataset.clone();
        let mut feed = Feed { store, shape, since, until, steps: Vec::new() };
        let mut steps = Vec::with_capacity(part.slices.len());
        for slice in part.slices {
            let own = (slice.before.clone(), slice.after.clone());
            let step = feed.step(slice, Some(own)).await?;
            steps.push(step.ok_or_else(|| of_another_table(uri))?);
        }
        feed.steps = steps;
        Ok(Self(Arc::new(feed)))
    }

    /// The version behind which it starts; `None` for all rows of the last version as inserts.
    #[must_use]
    pub fn since(&self) -> Option<u64> {
        self.0.since
    }

    /// The version that it reaches.
    #[must_use]
    pub fn until(&self) -> u64 {
        self.0.until.version().version
    }

    /// The columns of the table, then `_change_type`, `_commit_version` and `_commit_timestamp`.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.0.shape.schema.clone()
    }

    /// The versions that change rows, the oldest first.
    #[must_use]
    pub fn versions(&self) -> Vec<ChangeVersion> {
        let steps = self.0.steps.iter().map(|step| ChangeVersion {
            version: step.slice.version,
            timestamp: step.timestamp,
            operation: step.operation.clone(),
            is_stored: step.stored.is_some(),
        });
        steps.collect()
    }

    /// How many rows the feed has. Reads the keys of the changed rows, once.
    ///
    /// # Errors
    /// A storage error; [`Error::ChangesExpired`] where a version was cleaned up meanwhile.
    #[boxed]
    pub async fn counts(&self) -> Result<ChangeCounts> {
        let mut counts = ChangeCounts::default();
        for step in &self.0.steps {
            counts.add(self.0.paired(step).await?.counts());
        }
        Ok(counts)
    }

    /// The rows, version by version: the images before, then the images after.
    #[must_use]
    pub fn batches(&self) -> BoxStream<'static, Result<RecordBatch>> {
        let feed = self.0.clone();
        let steps = (0..feed.steps.len()).map(move |place| (feed.clone(), place));
        let rows = stream::iter(steps).then(|(feed, place)| feed.rows_of_step(place));
        rows.try_flatten().boxed()
    }

    /// All rows.
    ///
    /// # Errors
    /// As [`Self::counts`].
    #[boxed]
    pub async fn collect(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        Ok((self.schema(), self.batches().try_collect().await?))
    }

    /// The feed in at most `parts` parts, each of which another process can read with
    /// [`crate::Table::changes_of_part`]. Every change is in one part, and the parts in their order
    /// have the rows of the feed in its order.
    ///
    /// # Errors
    /// An input error for no parts.
    pub fn parts(&self, parts: usize) -> Result<Vec<ChangePart>> {
        if parts == 0 {
            return Err(Error::input("num_parts is at least 1, got 0"));
        }
        let pieces = self.0.steps.iter().flat_map(|step| step.pieces(&self.0.shape));
        Ok(spread(pieces.collect(), parts))
    }
}

/// The steps of a range, without fragments.
fn slices_of(range: &Range) -> Vec<ChangeSlice> {
    let until = range.until.dataset.version().version;
    let slice = |base: Option<u64>, version: u64| ChangeSlice {
        base: base.filter(|base| *base > 0),
        version,
        is_net: base.is_some_and(|base| base + 1 < version),
        before: Vec::new(),
        after: Vec::new(),
    };
    let Some(since) = range.since else { return vec![slice(None, until)] };
    let mut base = since;
    let mut slices = Vec::new();
    for version in range.versions.iter().copied().filter(|it| *it > since && *it <= until) {
        slices.push(slice(Some(base), version));
        base = version;
    }
    slices
}

impl Feed {
    /// The step of a slice; `None` where it changes no row.
    async fn step(
        &self,
        slice: ChangeSlice,
        own: Option<(Vec<u32>, Vec<u32>)>,
    ) -> Result<Option<Step>> {
        let (mut slice, mut trust, mut operation) = (slice, Trust::default(), None);
        let is_snapshot = slice.base.is_none() && self.since.is_none();
        if !slice.is_net && !is_snapshot {
            match self.commit_of(slice.version).await? {
                Some(Commit { effect: Effect::Nothing, .. }) => return Ok(None),
                Some(Commit { effect: Effect::Unknown, operation, .. }) => {
                    let why = "this release cannot tell which rows the operation changes";
                    let uri = &self.shape.uri;
                    return Err(unavailable(uri, slice.version, Some(&operation), why));
                }
                Some(commit) => {
                    if let Some(stored) = self.stored(&commit, slice.version).await? {
                        return self.stored_step(&slice, commit, stored, own).map(Some);
                    }
                    let Commit { effect: Effect::Rows(of), operation: name, .. } = commit else {
                        return Ok(None);
                    };
                    (trust, operation) = (of, Some(name));
                }
                // Rows may have moved.
                None => slice.is_net = true,
            }
        }
        let old = match slice.base {
            Some(base) => Some(self.open(base).await?),
            None => None,
        };
        let new = self.open(slice.version).await?;
        let all = difference(&self.shape, old.as_ref(), &new, trust).await;
        let all = all.map_err(|error| {
            in_step(error, &self.shape.uri, slice.version, operation.as_deref())
        })?;
        if all.is_empty() {
            return Ok(None);
        }
        let own = own.map(|(before, after)| self.own_of(&all, &before, &after)).transpose()?;
        (slice.before, slice.after) = (Vec::new(), Vec::new());
        Ok(Some(Step {
            slice,
            timestamp: new.version().timestamp.into(),
            micros: i64::try_from(new.manifest().timestamp_nanos / 1_000).unwrap_or(i64::MAX),
            operation,
            stored: None,
            all,
            own,
            paired: OnceCell::new(),
        }))
    }

    /// The stored changes of a version; `None` where they have to be derived.
    async fn stored(&self, commit: &Commit, version: u64) -> Result<Option<StoredChanges>> {
        let Some(rows) = &commit.rows else { return Ok(None) };
        match StoredChanges::open(&self.store, &self.until, rows, version).await {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let table = &self.shape.uri;
                tracing::warn!(table, version, %error, "stored changes are damaged, and are derived");
                Ok(None)
            }
            opened => opened,
        }
    }

    /// The step of a version whose changes are stored.
    fn stored_step(
        &self,
        slice: &ChangeSlice,
        commit: Commit,
        stored: StoredChanges,
        own: Option<(Vec<u32>, Vec<u32>)>,
    ) -> Result<Step> {
        let fits = self.shape.stored(&stored.version().dataset, &self.shape.all);
        fits.map_err(|error| {
            in_step(error, &self.shape.uri, slice.version, Some(&commit.operation))
        })?;
        let all = stored.difference();
        let own = own.map(|(before, after)| self.own_of(&all, &before, &after)).transpose()?;
        let since = commit.timestamp.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Step {
            slice: ChangeSlice { before: Vec::new(), after: Vec::new(), ..*slice },
            timestamp: commit.timestamp,
            micros: i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            operation: Some(commit.operation),
            stored: Some(stored),
            all,
            own,
            paired: OnceCell::new(),
        })
    }

    /// The rows of a part.
    fn own_of(&self, all: &Difference, before: &[u32], after: &[u32]) -> Result<Difference> {
        let own = Difference {
            before: all.before.restricted(before),
            after: all.after.restricted(after),
        };
        let found = own.before.fragments().count() + own.after.fragments().count();
        if found == before.len() + after.len() {
            return Ok(own);
        }
        Err(of_another_table(&self.shape.uri))
    }

    /// The commit of a version; `None` where it records no transaction.
    async fn commit_of(&self, version: u64) -> Result<Option<Commit>> {
        let error = match self.until.read_version_transaction(version).await.in_base(ACTION) {
            Ok(read) => return Commit::of(read),
            Err(error) => error,
        };
        match published(&self.store, version).await? {
            Some(published) => Ok(Some(published.into())),
            None => Err(self.gone(version, error).await),
        }
    }

    async fn open(&self, version: u64) -> Result<Arc<Dataset>> {
        if version == self.until() {
            return Ok(self.until.clone());
        }
        match self.until.checkout_version(version).await.in_base(ACTION) {
            Ok(dataset) => Ok(Arc::new(dataset)),
            Err(error) => Err(self.gone(version, error).await),
        }
    }

    fn until(&self) -> u64 {
        self.until.version().version
    }

    /// The error of a version that could not be read: that it was cleaned up, or `failed`.
    async fn gone(&self, version: u64, failed: Error) -> Error {
        match versions_of(&self.until).await {
            Ok(left) if !left.contains(&version) => {
                expired(&self.shape.uri, version, left.first().copied().unwrap_or_default())
            }
            Ok(_) => failed,
            Err(error) => error,
        }
    }

    /// The error of a read of `version`. A file that is missing may have been cleaned up.
    async fn of_read(&self, version: u64, error: Error) -> Error {
        if error.kind() == ErrorKind::Corruption { self.gone(version, error).await } else { error }
    }

    /// The paired rows of a step. They are paired once.
    async fn paired<'a>(&self, step: &'a Step) -> Result<&'a Paired> {
        let pair = async {
            if let Some(paired) = step.paired_when_stored(&self.shape) {
                return Ok(paired);
            }
            let old = self.version_of(step, Image::Before).await?;
            let Some(new) = self.version_of(step, Image::After).await? else {
                return Ok(Paired::default());
            };
            let all = step.located(&step.all);
            let own = step.own.as_ref().map(|own| step.located(own));
            let pairing = Pairing {
                shape: &self.shape,
                old: old.as_ref(),
                new: &new,
                all: &all,
                own: own.as_deref(),
                compared: step.compared(&self.shape),
            };
            match pairing.pair().await {
                Ok(paired) => Ok(paired),
                Err(error) => {
                    let version = step.slice.base.unwrap_or(step.slice.version);
                    let error = self.of_read(version, error).await;
                    Err(step.named(error, &self.shape.uri))
                }
            }
        };
        step.paired.get_or_try_init(|| pair).await
    }

    /// The rows of a step.
    async fn rows_of_step(
        self: Arc<Self>,
        place: usize,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let Some(step) = self.steps.get(place) else { return Ok(stream::empty().boxed()) };
        self.paired(step).await?;
        let before = self.clone().images(place, Image::Before).await?;
        let after = stream::once(self.clone().images(place, Image::After)).try_flatten();
        Ok(before.chain(after).boxed())
    }

    /// One side of a step, which is paired.
    async fn images(
        self: Arc<Self>,
        place: usize,
        image: Image,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let Some(step) = self.steps.get(place) else { return Ok(stream::empty().boxed()) };
        let side = side_of(self.paired(step).await?, image);
        if side.rows.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let Some(version) = self.version_of(step, image).await? else {
            return Ok(stream::empty().boxed());
        };
        let stored = self.shape.stored(&version.dataset, &self.shape.columns);
        let stored = stored.map_err(|error| step.named(error, &self.shape.uri))?;
        let rows = scan(&version, &side.rows, stored).await?;
        let number = match image {
            Image::Before => step.slice.base.unwrap_or(step.slice.version),
            Image::After => step.slice.version,
        };
        let feed = self.clone();
        let images = rows.then(move |rows| {
            let feed = feed.clone();
            async move {
                match rows {
                    Ok(rows) => feed.images_of(place, image, &rows),
                    Err(error) => Err(feed.of_read(number, error).await),
                }
            }
        });
        Ok(images.boxed())
    }

    /// Where the images of one side of a step are read.
    async fn version_of(&self, step: &Step, image: Image) -> Result<Option<Version>> {
        if let Some(stored) = &step.stored {
            return Ok(Some(stored.version().clone()));
        }
        let number = match image {
            Image::Before => step.slice.base,
            Image::After => Some(step.slice.version),
        };
        match number {
            Some(number) => Ok(Some(Version::of(self.open(number).await?))),
            None => Ok(None),
        }
    }

    /// Rows with the columns that a feed adds.
    fn images_of(&self, place: usize, image: Image, rows: &Rows) -> Result<RecordBatch> {
        let missing = || Error::internal(format!("the feed has no step {place}"));
        let step = self.steps.get(place).ok_or_else(missing)?;
        let paired = step.paired.get().ok_or_else(missing)?;
        let updated = &side_of(paired, image).updated;
        let kinds = self.shape.row_kinds;
        let kind = |address: &u64| kinds.text(image, updated.contains(*address));
        let count = rows.rows.num_rows();
        let version = i64::try_from(step.slice.version).unwrap_or(i64::MAX);
        let times = TimestampMicrosecondArray::from_value(step.micros, count).with_timezone("UTC");
        let added: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter_values(rows.addresses.values().iter().map(kind))),
            Arc::new(Int64Array::from_value(version, count)),
            Arc::new(times),
        ];
        let columns = rows.rows.columns().iter().cloned().chain(added).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(self.shape.schema.clone(), columns, &options)
            .context("adding the columns of a change feed")
    }
}

const fn side_of(paired: &Paired, image: Image) -> &Side {
    match image {
        Image::Before => &paired.before,
        Image::After => &paired.after,
    }
}

fn of_another_table(uri: &str) -> Error {
    Error::input(format!(
        "the part of a change feed is of another table than the table at {uri} now; plan the parts \
         again"
    ))
}

impl Step {
    fn named(&self, error: Error, uri: &str) -> Error {
        in_step(error, uri, self.slice.version, self.operation.as_deref())
    }

    /// The rows of `chosen` where they are read.
    fn located<'a>(&self, chosen: &'a Difference) -> Cow<'a, Difference> {
        match &self.stored {
            Some(stored) => Cow::Owned(stored.located(chosen)),
            None => Cow::Borrowed(chosen),
        }
    }

    /// The rows of the feed, where they are stored and were paired as the feed pairs them.
    fn paired_when_stored(&self, shape: &Shape) -> Option<Paired> {
        let is_whole = shape.filter.is_none() && self.compared(shape).is_none();
        let stored = self.stored.as_ref().filter(|it| is_whole && it.has_key(&shape.key_ids))?;
        Some(stored.paired(self.own.as_ref().unwrap_or(&self.all)))
    }

    /// The columns that are compared to leave out rows without a change.
    fn compared<'a>(&self, shape: &'a Shape) -> Option<&'a [String]> {
        if shape.skip_unchanged {
            return Some(&shape.columns);
        }
        self.slice.is_net.then_some(&*shape.all)
    }

    /// The pieces that parts consist of. Equal rows of a table without a key cancel out, so its
    /// compared rows are one piece.
    fn pieces(&self, shape: &Shape) -> Vec<Piece> {
        let of = self.own.as_ref().unwrap_or(&self.all);
        let before = of.before.fragments().map(|(id, rows)| ((Image::Before, id), rows));
        let after = of.after.fragments().map(|(id, rows)| ((Image::After, id), rows));
        let fragments: Vec<_> = before.chain(after).collect();
        if shape.key.is_empty() && self.compared(shape).is_some() {
            let rows = fragments.iter().map(|(_, rows)| rows).sum();
            let fragments = fragments.into_iter().map(|(fragment, _)| fragment).collect();
            return vec![Piece { slice: self.slice.clone(), fragments, rows }];
        }
        let piece =
            |(fragment, rows)| Piece { slice: self.slice.clone(), fragments: vec![fragment], rows };
        fragments.into_iter().map(piece).collect()
    }
}
