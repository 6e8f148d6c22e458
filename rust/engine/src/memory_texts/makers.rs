//! The indexes of words that rows in memory get, shared by a table's jobs and searches.
//!
//! Owns: [`TextMakers`]: one maker for each `INVERTED` index of the base table, by its newest known
//! version, so that a put with `sync_search_index` fills the indexes that searches read.
//! Does not own: the indexes (`texts`), or when a put fills them, which the core decides.

use std::sync::Arc;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lancemem_core::memtable::MakeIndex;
use parking_lot::Mutex;

use super::{MakeTexts, is_inverted, recorded_params};

/// The makers of a table.
#[derive(Debug, Default)]
pub struct TextMakers {
    known: Mutex<Known>,
}

/// The makers of one version of the base table.
#[derive(Debug)]
struct Known {
    /// `None` before the first read.
    base_version: Option<u64>,
    makers: Arc<[Arc<dyn MakeIndex>]>,
}

impl Default for Known {
    fn default() -> Self {
        Self { base_version: None, makers: Arc::from([]) }
    }
}

impl TextMakers {
    /// The makers that are known. Makes no request to storage.
    #[must_use]
    pub fn known(&self) -> Arc<[Arc<dyn MakeIndex>]> {
        self.known.lock().makers.clone()
    }

    /// Reads the indexes of the version that `base` has open. Where they cannot be read, there are
    /// none: an index only saves time.
    pub async fn read(&self, base: &Dataset) {
        let version = base.version().version;
        if self.known.lock().base_version == Some(version) {
            return;
        }
        let indexes = match base.load_indices().await {
            Ok(indexes) => indexes,
            Err(error) => {
                let table = base.uri();
                tracing::warn!(table, %error, "rows in memory get no text indexes");
                return;
            }
        };
        let mut makers: Vec<Arc<dyn MakeIndex>> = Vec::new();
        for field in &base.schema().fields {
            let index = indexes.iter().find(|index| is_inverted(index, field.id));
            if let Some(params) = index.and_then(recorded_params) {
                makers.push(Arc::new(MakeTexts::new(&field.name, &params)));
            }
        }
        *self.known.lock() = Known { base_version: Some(version), makers: makers.into() };
    }
}
