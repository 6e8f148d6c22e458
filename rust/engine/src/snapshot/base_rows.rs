//! The rows of one version of the base table by their addresses, deleted ones included.
//!
//! Owns: the readers of these rows, which of them are deleted, and the same version without its
//! deletion files, for a search that drops deleted rows itself.
//! Does not own: which rows are read (`lookup`, `search`).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance_core::{Error, Result};
use roaring::RoaringBitmap;
use tokio::sync::OnceCell;

use super::row_readers::RowReaders;

/// Deletion files that are read at the same time.
const FILES_AT_ONCE: usize = 16;

/// The offsets of the deleted rows of each fragment that has some.
pub type DeletedRows = BTreeMap<u32, RoaringBitmap>;

/// The rows of one version of the base table.
#[derive(Debug)]
pub struct BaseRows {
    pub(super) version: u64,
    /// Reads rows of this version.
    pub readers: Arc<RowReaders>,
    with_deleted: OnceLock<Arc<Dataset>>,
    deleted: OnceCell<DeletedRows>,
}

impl BaseRows {
    pub(super) fn new(version: u64) -> Self {
        let (with_deleted, deleted) = (OnceLock::new(), OnceCell::new());
        Self { version, readers: Arc::default(), with_deleted, deleted }
    }

    /// `base`, which is this version, with all rows of its data files: no fragment names a deletion
    /// file.
    pub fn with_deleted(&self, base: &Dataset) -> Arc<Dataset> {
        let all_rows = || {
            let (mut all, mut manifest) = (base.clone(), base.manifest().clone());
            let mut fragments = manifest.fragments.as_ref().clone();
            for fragment in &mut fragments {
                fragment.deletion_file = None;
            }
            manifest.fragments = Arc::new(fragments);
            all.manifest = Arc::new(manifest);
            Arc::new(all)
        };
        self.with_deleted.get_or_init(all_rows).clone()
    }

    /// The deleted rows of `base`, which is this version.
    ///
    /// # Errors
    /// A storage error, and damage of a deletion file.
    pub async fn deleted(&self, base: &Dataset) -> Result<&DeletedRows> {
        let read = async || {
            let fragments = base.get_fragments().into_iter();
            let reads = fragments.filter(|it| it.metadata().deletion_file.is_some()).map(
                |fragment| async move {
                    let deleted = fragment.get_deletion_vector().await?;
                    let deleted = deleted.map(|rows| RoaringBitmap::from(rows.as_ref()));
                    let id = u32::try_from(fragment.id())
                        .map_err(|_| Error::internal("a fragment has an id above 2^32 - 1"))?;
                    Ok((id, deleted.unwrap_or_default()))
                },
            );
            stream::iter(reads).buffered(FILES_AT_ONCE).try_collect().await
        };
        self.deleted.get_or_try_init(read).await
    }
}
