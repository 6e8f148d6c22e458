//! Which source holds the newest row of each key.
//!
//! Owns: the map from key to freshness over everything above the base table.
//! Does not own: rows. A key that is absent here has its newest row in the base table.

use std::collections::HashMap;

use lancemem_core::types::{Freshness, KeyBytes, Result};

use crate::view::{ReadView, Source};

/// For every key above the base table the freshness of its newest row, tombstones included.
#[derive(Debug, Default)]
pub struct KeyChoice(HashMap<KeyBytes, Freshness>);

impl KeyChoice {
    /// The choice over all sources of `view`.
    ///
    /// Keys of different shards never meet, so generations of all shards share one map.
    ///
    /// # Errors
    /// A storage error while keys of an SSTable are read.
    pub async fn of(view: &ReadView) -> Result<Self> {
        let mut newest: HashMap<KeyBytes, Freshness> = HashMap::new();
        let mut note = |key: &KeyBytes, freshness: Freshness| {
            newest
                .entry(key.clone())
                .and_modify(|known| *known = freshness.max(*known))
                .or_insert(freshness);
        };
        for (freshness, source) in view.sources() {
            match source {
                Source::MemTable(rows) => {
                    rows.for_each_newest(|key, _| note(&KeyBytes::new(key), freshness));
                }
                Source::SsTable(run) => {
                    let keys = run.keys(&view.key).await?;
                    keys.iter().for_each(|(key, _)| note(&KeyBytes::new(key), freshness));
                }
            }
        }
        Ok(Self(newest))
    }

    /// Whether the newest row of `key` is in a source of this freshness.
    #[must_use]
    pub fn is_newest(&self, key: &KeyBytes, freshness: Freshness) -> bool {
        self.0.get(key).copied().unwrap_or(Freshness::Base) == freshness
    }

    /// Keys that have a row above the base table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key has a row above the base table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `key` has a row above the base table.
    #[must_use]
    pub fn contains(&self, key: &KeyBytes) -> bool {
        self.0.contains_key(key)
    }
}
