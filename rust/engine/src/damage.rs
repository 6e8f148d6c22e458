//! Finds the damaged file of the base table.
//!
//! Owns: the search for that file after a read of the base table has failed. Lance's errors seldom
//! name a file, and its readers panic on some damage.
//! Does not own: which errors are damage (`errors`), or damage of SSTables, whose files have
//! checksums.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::thread;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use lance::Dataset;
use lance::dataset::fragment::{FileFragment, FragReadConfig};
use lance_core::Result as LanceResult;
use lance_core::datatypes::Schema;
use lance_table::io::deletion::relative_deletion_file_path;
use lancemem_core::types::{Error, Result};

use crate::errors::{BASE, NO_THREAD, UNDECODABLE, is_damage, without_path};

/// Files that are opened at a time.
const OPENED: usize = 16;
/// Rows of a batch, and batches that are prefetched.
const BATCH_ROWS: u32 = 8_192;
const BATCHES_AHEAD: usize = 2;
/// The search reads at most this many bytes of data files, then ends without a result.
const MAX_BYTES: u64 = 1 << 30;

/// `work`, which reads `base`. If it fails or panics and the search finds a damaged file, the error
/// names the file.
///
/// # Errors
/// Those of `work`.
pub fn naming_damage<'a, T: Send + 'a>(
    base: &'a Dataset,
    work: impl Future<Output = Result<T>> + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    let work = AssertUnwindSafe(work.boxed()).catch_unwind();
    async move { named(base, work.await).await }.boxed()
}

/// The same for a stream of rows of `base`.
pub fn naming_damage_of<T: Send + 'static>(
    base: Arc<Dataset>,
    rows: impl Stream<Item = Result<T>> + Send + 'static,
) -> BoxStream<'static, Result<T>> {
    let rows = AssertUnwindSafe(rows).catch_unwind();
    rows.then(move |done| {
        let base = base.clone();
        async move {
            match done {
                Ok(Ok(rows)) => Ok(rows),
                failed => named(&base, failed).boxed().await,
            }
        }
    })
    .boxed()
}

async fn named<T>(base: &Dataset, done: thread::Result<Result<T>>) -> Result<T> {
    match done {
        Ok(Err(Error::Corrupt { what, kind, detail, source })) if what == BASE => {
            let found = damaged_file(base).await.filter(|found| !detail.contains(&found.file));
            let file =
                found.map_or_else(String::new, |found| format!("; the file is {}", found.file));
            Err(Error::Corrupt { what, kind, detail: detail + &file, source })
        }
        // For example a panic in one of Lance's tasks.
        Ok(Err(error @ Error::Internal { .. })) => match damaged_file(base).await {
            Some(found) => Err(found.into_error().with_source(error)),
            None => Err(error),
        },
        Ok(done) => done,
        Err(panic) => {
            let is_of_files = !text_of(&*panic).contains(NO_THREAD);
            let found = if is_of_files { damaged_file(base).await } else { None };
            match found {
                Some(found) => Err(found.into_error()),
                None => resume_unwind(panic),
            }
        }
    }
}

/// A file that cannot be read.
struct DamagedBaseFile {
    /// Relative to the table.
    file: String,
    why: String,
}

impl DamagedBaseFile {
    fn into_error(self) -> Error {
        let Self { file, why } = self;
        Error::corrupt(BASE, UNDECODABLE, format!("{file}: {why}"))
    }
}

/// The first file that cannot be opened; else, within [`MAX_BYTES`], the first that cannot be
/// read.
async fn damaged_file(base: &Dataset) -> Option<DamagedBaseFile> {
    let files: Vec<BaseFile> = base.get_fragments().iter().flat_map(BaseFile::of).collect();
    if let Some(found) = first_damaged(files.clone(), false, OPENED).await {
        return Some(found);
    }
    let mut left = MAX_BYTES;
    let read = files.into_iter().take_while(|file| {
        let is_within = left > 0;
        left = left.saturating_sub(file.bytes);
        is_within
    });
    first_damaged(read.collect(), true, 1).await
}

async fn first_damaged(
    files: Vec<BaseFile>,
    whole: bool,
    at_once: usize,
) -> Option<DamagedBaseFile> {
    let checked = stream::iter(files).map(|file| file.checked(whole)).buffered(at_once);
    let mut found = std::pin::pin!(checked.filter_map(futures::future::ready));
    found.next().await
}

/// A file of a fragment.
#[derive(Clone)]
struct BaseFile {
    fragment: FileFragment,
    /// The columns to read; `None` for a deletion file.
    columns: Option<Schema>,
    name: String,
    bytes: u64,
}

impl BaseFile {
    fn of(fragment: &FileFragment) -> Vec<Self> {
        let data = fragment.metadata().files.iter().map(|file| Self {
            fragment: fragment.clone(),
            columns: Some(file.schema(fragment.schema())),
            name: format!("data/{}", file.path),
            bytes: file.file_size_bytes.get().map_or(0, u64::from),
        });
        let deletions = fragment.metadata().deletion_file.iter().map(|file| Self {
            fragment: fragment.clone(),
            columns: None,
            name: relative_deletion_file_path(fragment.id() as u64, file),
            bytes: 0,
        });
        deletions.chain(data).collect()
    }

    /// Opens the file, and with `whole` reads all of its rows. `None` where the file is not
    /// damaged.
    async fn checked(self, whole: bool) -> Option<DamagedBaseFile> {
        let file = self.name.clone();
        let why = match tokio::spawn(self.read(whole)).await {
            Ok(Err(error)) if is_damage(&error) => without_path(&error),
            Ok(Ok(()) | Err(_)) => return None,
            Err(ended) => {
                let panic = ended.try_into_panic().ok()?;
                let text = text_of(&*panic);
                if text.contains(NO_THREAD) {
                    return None;
                }
                format!("its reader panicked: {}", without_path(&text))
            }
        };
        Some(DamagedBaseFile { file, why })
    }

    async fn read(self, whole: bool) -> LanceResult<()> {
        let Some(columns) = &self.columns else {
            return self.fragment.get_deletion_vector().await.map(drop);
        };
        let config = FragReadConfig::default().with_ignore_deletions(true);
        let reader = self.fragment.open(columns, config).await?;
        if whole {
            let mut rows = reader.read_all(BATCH_ROWS).await?.buffered(BATCHES_AHEAD);
            while let Some(batch) = rows.next().await {
                batch?;
            }
        }
        Ok(())
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}
