//! The indexes that rows in memory get, shared by a table's jobs and searches.
//!
//! Owns: [`IndexMakers`]: the makers that follow from the indexes of the base table, by its newest
//! known version, so that a put with `sync_search_index` fills the indexes that searches read; and
//! the centroids of vector indexes, each read once.
//! Does not own: the indexes (`texts`, `vectors`, `scalars`), or when a put fills them, which the
//! core decides.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::runtime::SpawnedTask;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_core::datatypes::Field;
use lance_table::format::IndexMetadata;
use lancemem_core::memtable::MakeIndex;
use parking_lot::Mutex;
use uuid::Uuid;

use super::{MakeLists, MakeOrder, MakeTexts, is_inverted, recorded_params};
use crate::sstable::model_of;

/// The ends of the types of the details of indexes whose columns are ordered in memory.
const ORDERED: [&str; 2] = ["BTreeIndexDetails", "BitmapIndexDetails"];
/// Vector indexes whose centroids a table remembers.
const REMEMBERED: usize = 64;

/// The makers of a table.
#[derive(Debug, Default)]
pub struct IndexMakers {
    known: Mutex<Known>,
    /// By the segment of an index; `None` for one without lists.
    lists: Mutex<HashMap<Uuid, Option<Arc<MakeLists>>>>,
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

impl IndexMakers {
    /// The makers that are known. Makes no request to storage.
    #[must_use]
    pub fn known(&self) -> Arc<[Arc<dyn MakeIndex>]> {
        self.known.lock().makers.clone()
    }

    /// Reads the indexes of the version that `base` has open, unless those of a newer one are
    /// known. Where they cannot be read, there are none: an index only saves time.
    pub async fn read(&self, base: &Dataset) {
        let version = base.version().version;
        if self.known.lock().base_version.is_some_and(|known| known >= version) {
            return;
        }
        let indexes = match base.load_indices().await {
            Ok(indexes) => indexes,
            Err(error) => {
                let table = base.uri();
                tracing::warn!(table, %error, "rows in memory get no search indexes");
                return;
            }
        };
        let mut makers: Vec<Arc<dyn MakeIndex>> = Vec::new();
        for field in &base.schema().fields {
            let index = indexes.iter().find(|index| is_inverted(index, field.id));
            if let Some(params) = index.and_then(recorded_params) {
                makers.push(Arc::new(MakeTexts::new(&field.name, &params)));
            }
            if let Some(order) = order_of(&indexes, field) {
                makers.push(order);
            }
            // The first segment, by which searches of the column go.
            let index = indexes.iter().find(|index| index.fields.first() == Some(&field.id));
            let has_vectors = matches!(field.data_type(), DataType::FixedSizeList(..));
            if let Some(index) = index.filter(|_| has_vectors)
                && let Some(lists) = self.lists(base, index).await
            {
                makers.push(lists);
            }
        }
        *self.known.lock() = Known { base_version: Some(version), makers: makers.into() };
    }

    /// The maker of lists by the centroids of `index`, a segment of a vector index of `base`;
    /// `None` where rows in memory have no lists by it.
    pub async fn lists(&self, base: &Dataset, index: &IndexMetadata) -> Option<Arc<MakeLists>> {
        if let Some(known) = self.lists.lock().get(&index.uuid) {
            return known.clone();
        }
        let column = index.fields.first().and_then(|field| base.schema().field_by_id(*field))?;
        let (of, segment) = (base.clone(), index.clone());
        // A task of its own, because Lance panics over some files of its first versions.
        let read = SpawnedTask::spawn(async move { model_of(&of, &segment).await }).await;
        let model = match read.map_err(lance_core::Error::from).and_then(|model| model) {
            Ok(model) => model,
            Err(error) => {
                let (table, index) = (base.uri(), &index.name);
                tracing::warn!(table, index, %error, "rows in memory are not assigned to lists");
                return None;
            }
        };
        let lists = model.and_then(|model| {
            MakeLists::new(&column.name, model.metric, model.ivf.centroids?).map(Arc::new)
        });
        let lists = lists.filter(|lists| lists.fits(&column.data_type()));
        let mut known = self.lists.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(index.uuid, lists.clone());
        lists
    }
}

/// The makers of ordered indexes for the columns of `base` that `indexes` order.
#[must_use]
pub fn orders_of(base: &Dataset, indexes: &[IndexMetadata]) -> Vec<Arc<MakeOrder>> {
    base.schema().fields.iter().filter_map(|field| order_of(indexes, field)).collect()
}

fn order_of(indexes: &[IndexMetadata], field: &Field) -> Option<Arc<MakeOrder>> {
    let is_ordered = |index: &IndexMetadata| {
        let details = index.index_details.as_ref().map(|details| details.type_url.as_str());
        let is_kind = |kind: &str| details.is_some_and(|details| details.ends_with(kind));
        index.fields == [field.id] && ORDERED.into_iter().any(is_kind)
    };
    if !indexes.iter().any(is_ordered) {
        return None;
    }
    MakeOrder::new(&field.name, &field.data_type()).map(Arc::new)
}
