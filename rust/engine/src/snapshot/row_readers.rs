//! Rows of a Lance dataset by fragment and offset, through files that stay open.
//!
//! Owns: one open reader for each fragment and set of columns that a lookup or a search reads, and the threads
//! that read and decode rows of local files in parallel. Each thread has readers of its own: the
//! request queue of a reader is behind a lock, on which threads would wait for each other.
//! Does not own: which rows are read (`lookup`).

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow_array::RecordBatch;
use futures::future::try_join_all;
use lance::Dataset;
use lance::dataset::fragment::{FileFragment, FragReadConfig, FragmentReader};
use lance_core::datatypes::Schema;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore;
use lance_io::scheduler::{ScanScheduler, SchedulerConfig};
use lancemem_core::store::may_wait_here;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::local_files::LocalFiles;

/// Most open readers.
const READERS: usize = 256;
/// Rows that justify a thread of their own.
const ROWS_A_THREAD: usize = 128;
/// Threads of one fragment. A disk serves several requests at once, independent of the number of
/// processors.
const THREADS: usize = 8;
/// The least number of bytes that Lance reads at once from a local file.
const BLOCK_BYTES: usize = 4_096;
/// Concurrent reads of a local disk, and retries of one. A local disk needs no retry.
const READS_AT_ONCE: usize = 8;
const TRIES: usize = 0;

/// A fragment, the ids of the top-level columns that are read, and the number of the thread.
type ReaderKey = (u32, Vec<i32>, usize);

/// The open readers of one dataset, which is one version.
#[derive(Debug, Default)]
pub struct RowReaders {
    open: Mutex<HashMap<ReaderKey, Arc<OpenReader>>>,
    /// The reader of local files, created by the first read of one.
    local: Mutex<Option<LocalReads>>,
}

/// The files that are open, and for each thread the queue of its requests.
#[derive(Debug)]
struct LocalReads {
    files: Arc<LocalFiles>,
    schedulers: [Option<Arc<ScanScheduler>>; THREADS],
}

#[derive(Debug)]
struct OpenReader {
    reader: FragmentReader,
    /// Whether its reads block on a disk on the calling thread.
    is_local: bool,
}

impl RowReaders {
    /// The rows at `offsets` of a fragment of `dataset`, with the columns `columns`. `offsets`
    /// ascend, and none of their rows is deleted.
    ///
    /// # Errors
    /// A storage error.
    pub async fn take(
        &self,
        dataset: &Dataset,
        fragment: u32,
        offsets: &[u32],
        columns: &Schema,
    ) -> Result<RecordBatch> {
        let first = self.reader(dataset, fragment, columns, 0).await?;
        if !first.is_local {
            return first.reader.take_as_batch(offsets, None).await;
        }
        let threads = (offsets.len() / ROWS_A_THREAD).clamp(1, THREADS);
        let mut parts = offsets.chunks(offsets.len().div_ceil(threads).max(1));
        // A thread that may block reads the first part itself, while other threads read the rest.
        let here = if may_wait_here() { parts.next() } else { None };
        let from = usize::from(here.is_some());
        let readers = (from..threads).map(|thread| self.reader(dataset, fragment, columns, thread));
        let readers = try_join_all(readers).await?;
        let others: Vec<_> = readers
            .into_iter()
            .zip(parts)
            .map(|(reader, part)| take_on_thread(reader, part))
            .collect();
        let mut parts = Vec::with_capacity(threads);
        if let Some(part) = here {
            parts.push(first.reader.take_as_batch(part, None).await?);
        }
        parts.extend(try_join_all(others).await?);
        let Some(first) = parts.first() else {
            return Err(Error::internal(format!("no row offsets for fragment {fragment}")));
        };
        if parts.len() == 1 {
            return Ok(first.clone());
        }
        Ok(concat_batches(first.schema_ref(), &parts)?)
    }

    async fn reader(
        &self,
        dataset: &Dataset,
        fragment: u32,
        columns: &Schema,
        thread: usize,
    ) -> Result<Arc<OpenReader>> {
        let ids = columns.fields.iter().map(|field| field.id).collect();
        let place: ReaderKey = (fragment, ids, thread);
        let known = self.open.lock().get(&place).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let file = dataset.get_fragment(fragment as usize);
        let file = file.ok_or_else(|| {
            Error::internal(format!("dataset {} has no fragment {fragment}", dataset.uri()))
        })?;
        let opened = Arc::new(self.open(dataset, &file, columns, thread).await?);
        let mut open = self.open.lock();
        if open.len() >= READERS {
            open.clear();
        }
        open.insert(place, opened.clone());
        Ok(opened)
    }

    async fn open(
        &self,
        dataset: &Dataset,
        file: &FileFragment,
        columns: &Schema,
        thread: usize,
    ) -> Result<OpenReader> {
        // Deletions are ignored: the caller passes offsets of live rows only.
        let mut config = FragReadConfig::default().with_ignore_deletions(true);
        let elsewhere = file.metadata().files.iter().any(|file| file.base_id.is_some());
        let is_local = !elsewhere && dataset.object_store(None).await?.has_direct_local_paths();
        if is_local {
            config = config.with_scan_scheduler(self.local_scheduler(thread)?);
        }
        Ok(OpenReader { reader: file.open(columns, config).await?, is_local })
    }

    fn local_scheduler(&self, thread: usize) -> Result<Arc<ScanScheduler>> {
        let mut local = self.local.lock();
        let LocalReads { files, schedulers } = local.get_or_insert_with(|| LocalReads {
            files: Arc::new(LocalFiles::new()),
            schedulers: Default::default(),
        });
        let Some(known) = schedulers.get_mut(thread) else {
            return Err(Error::internal(format!("reader {thread} is not below {THREADS}")));
        };
        if let Some(known) = known {
            return Ok(known.clone());
        }
        // Of a `file` URI Lance opens files itself; of a `memory` URI it reads through this store.
        let scheme = "memory:///".parse().map_err(|error| Error::internal(format!("{error}")))?;
        let store = ObjectStore::new(
            files.clone(),
            scheme,
            Some(BLOCK_BYTES),
            None,
            false,
            false,
            READS_AT_ONCE,
            TRIES,
            None,
        );
        // The lite scheduler reads where it is polled and spawns no tasks.
        let config = SchedulerConfig::max_bandwidth(&store).with_lite_scheduler();
        let scheduler = ScanScheduler::new(Arc::new(store), config);
        *known = Some(scheduler.clone());
        Ok(scheduler)
    }
}

/// Starts to read and decode on a thread that may block on the disk.
fn take_on_thread(
    reader: Arc<OpenReader>,
    offsets: &[u32],
) -> impl Future<Output = Result<RecordBatch>> + use<> {
    let (offsets, runtime) = (offsets.to_vec(), Handle::current());
    let take = move || runtime.block_on(Box::pin(reader.reader.take_as_batch(&offsets, None)));
    let taking = tokio::task::spawn_blocking(take);
    async move {
        let taken = taking.await;
        taken.map_err(|error| Error::internal(format!("reading rows by offset: {error}")))?
    }
}
