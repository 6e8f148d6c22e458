//! The registry of SSTables that are open in this process.
//!
//! Owns: a weak reference to every SSTable that was opened. The strong references are in snapshots,
//! plans that still stream, compactions and the caches of tables.
//! Does not own: the SSTables, or what may be removed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lance::Dataset;
use lance_io::local::to_local_path;
use lancemem_core::types::PerProcess;
use object_store::path::Path;
use parking_lot::Mutex;

/// One registry for the process: two handles of one table read the same SSTables.
static OPENED: PerProcess<Mutex<Opened>> = PerProcess::new(Mutex::default);

type Opened = HashMap<String, Vec<Weak<Dataset>>>;

/// Registers an open SSTable for as long as a strong reference to it exists.
pub fn remember(sstable: &Arc<Dataset>) {
    let place = place_of(sstable, &sstable.branch_location().path);
    let mut opened = OPENED.get().lock();
    opened.retain(|_, sstables| {
        sstables.retain(|sstable| sstable.strong_count() > 0);
        !sstables.is_empty()
    });
    opened.entry(place).or_default().push(Arc::downgrade(sstable));
}

/// Whether a reader in this process holds the SSTable in the folder `path` of the table of `base`.
#[must_use]
pub fn is_pinned(base: &Dataset, path: &str) -> bool {
    let folder = path.split('/').fold(base.branch_location().path, Path::join);
    let place = place_of(base, &folder);
    let opened = OPENED.get().lock();
    let sstables = opened.get(&place);
    sstables.is_some_and(|sstables| sstables.iter().any(|sstable| sstable.strong_count() > 0))
}

/// The canonical name of a folder: symbolic links are resolved.
fn place_of(dataset: &Dataset, folder: &Path) -> String {
    let is_local =
        dataset.uri().split_once("://").is_none_or(|(scheme, _)| scheme.starts_with("file"));
    let real = is_local.then(|| std::fs::canonicalize(to_local_path(folder)).ok()).flatten();
    let real = real.and_then(|real| real.into_os_string().into_string().ok());
    real.unwrap_or_else(|| folder.to_string())
}
