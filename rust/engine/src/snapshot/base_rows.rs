//! The rows of one version of the base table by their addresses, deleted ones included.
//!
//! Owns: the readers of these rows, and the same version without its deletion files, for a search that
//! drops deleted rows itself.
//! Does not own: which rows are deleted, or read (`lookup`, `search`).

use std::sync::{Arc, OnceLock};

use lance::Dataset;

use super::row_readers::RowReaders;

/// The rows of one version of the base table.
#[derive(Debug)]
pub struct BaseRows {
    pub(super) version: u64,
    /// Reads rows of this version.
    pub readers: Arc<RowReaders>,
    with_deleted: OnceLock<Arc<Dataset>>,
}

impl BaseRows {
    pub(super) fn new(version: u64) -> Self {
        Self { version, readers: Arc::default(), with_deleted: OnceLock::new() }
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
}
