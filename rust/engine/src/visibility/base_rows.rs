//! Rows of the base table whose keys have rows above it.
//!
//! Owns: the look-up of keys in base fragments: in the record index where that covers a fragment
//! and costs less, in the fragment's key columns otherwise. Compactions and deletion vectors ask
//! here.
//! Does not own: what was looked up before, or what becomes of the rows. Rows that the base has
//! deleted are found like the rest, because a version that is restored may show them again.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::{DeadRows, NewerKeys, Pace, found_rows};
use crate::record_index::{RecordIndex, fragment_of};

/// How keys are looked up in the base table.
pub struct BaseLookup<'a> {
    /// The base table.
    pub base: &'a Dataset,
    /// Names of the key columns in primary-key order.
    pub key: &'a Arc<[String]>,
    /// The record index of that version.
    pub index: &'a RecordIndex,
    /// What a look-up waits for before bytes that it reads are used.
    pub pace: Option<Pace>,
    /// Fragments whose key columns are read at the same time.
    pub concurrent: usize,
    /// What errors name.
    pub action: &'static str,
}

impl BaseLookup<'_> {
    /// The rows of `fragments` whose keys `newer` has; `keys` are the same keys. Every one of
    /// `fragments` is known afterwards, also where no row of it was found.
    ///
    /// # Errors
    /// A storage error.
    pub async fn dead_rows<'k>(
        &self,
        fragments: &[Fragment],
        keys: impl Iterator<Item = &'k [u8]>,
        newer: &Arc<NewerKeys>,
    ) -> Result<DeadRows> {
        let mut dead = DeadRows::default();
        for fragment in fragments {
            dead.set(fragment.id, RoaringBitmap::new())?;
        }
        if newer.is_empty() {
            return Ok(dead);
        }
        let mut scanned = fragments.to_vec();
        if let Some(found) = self.index.positions(fragments, newer.len(), keys).await {
            if let Some(pace) = &self.pace {
                pace(found.bytes).await;
            }
            scanned.retain(|fragment| !found.rows.contains_key(&fragment.id));
            for (fragment, rows) in found.rows {
                dead.set(fragment, rows)?;
            }
        }
        if !scanned.is_empty() {
            self.scan(scanned, newer, &mut dead).await?;
        }
        Ok(dead)
    }

    /// Notes the rows of `fragments` in `dead`, out of the key columns.
    async fn scan(
        &self,
        fragments: Vec<Fragment>,
        newer: &Arc<NewerKeys>,
        dead: &mut DeadRows,
    ) -> Result<()> {
        let (base, action) = (self.base, self.action);
        let looks = fragments.into_iter().map(|Fragment { id, .. }| {
            let (key, newer, pace) = (self.key.clone(), newer.clone(), self.pace.clone());
            async move {
                let rows = found_rows(fragment_of(base, id)?, key, newer, pace, action);
                let rows = SpawnedTask::spawn(rows).await;
                let rows = rows.map_err(|error| Error::Internal(format!("{action}: {error}")))?;
                Ok::<_, Error>((id, rows?))
            }
        });
        let mut found = stream::iter(looks).buffered(self.concurrent);
        while let Some((fragment, rows)) = found.try_next().await? {
            dead.set(fragment, rows)?;
        }
        Ok(())
    }
}
