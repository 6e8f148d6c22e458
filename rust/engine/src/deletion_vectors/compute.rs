//! The look-up of what one SSTable supersedes.
//!
//! Owns: the ways from the run's keys to positions: the record index or the key columns in the
//! base table, the keys of older SSTables, and the SSTable's own tombstones. Deleted rows of the base are
//! looked up as well: an older version that is restored may show them again.
//! Does not own: which sources are missing (`cover`), or where the result is put (`table`).

use std::sync::Arc;

use lancemem_core::format::{FragmentVector, KeyForm, OlderSsTableVector, SsTableVectors};
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use super::Gap;
use crate::record_index::{RecordIndex, fragment_of, key_files, key_ids};
use crate::snapshot::{Snapshot, SsTableKeys};
use crate::visibility::{NewerKeys, SourceKeys, found_rows};

const ACTION: &str = "looking up the rows that an SSTable supersedes";

impl Gap {
    /// Looks up everything that is missing.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn fill(&self, snapshot: &Snapshot, index: &RecordIndex) -> Result<SsTableVectors> {
        let keys = self.sstable.keys(&snapshot.key).await?;
        let form = KeyForm::of(&snapshot.schema, &snapshot.key);
        let of_sstable = SourceKeys {
            freshness: Freshness::SsTable(self.sstable.generation),
            at_most: keys.len(),
            keys: keys.keys(),
        };
        let newer = Arc::new(NewerKeys::of(form, vec![of_sstable])?);
        let key_fields = key_ids(&snapshot.base, &snapshot.key);
        let mut sstables = Vec::with_capacity(self.older.len());
        for older in &self.older {
            let keys = older.keys(&snapshot.key).await?;
            let dead = keys.iter().filter(|(key, _)| newer.newest(key).is_some());
            let dead = bytes_of(&dead.map(|(_, position)| position).collect())?;
            sstables.push(OlderSsTableVector { path: older.path.clone(), dead });
        }
        let tombstones =
            if self.tombstones { Some(self.sstable.tombstones().await?) } else { None };
        Ok(SsTableVectors {
            base_version: snapshot.base.version().version,
            fragments: self.in_base(snapshot, index, &keys, &newer, &key_fields).await?,
            key_fields,
            sstables,
            tombstones: tombstones.as_deref().map(bytes_of).transpose()?,
        })
    }

    async fn in_base(
        &self,
        snapshot: &Snapshot,
        index: &RecordIndex,
        keys: &SsTableKeys,
        newer: &Arc<NewerKeys>,
        key_fields: &[i32],
    ) -> Result<Vec<FragmentVector>> {
        let found = index.positions(&self.fragments, keys.len(), keys.keys()).await;
        let mut found = found.map(|found| found.rows).unwrap_or_default();
        let mut vectors = Vec::with_capacity(self.fragments.len());
        for fragment in &self.fragments {
            let dead = if let Some(dead) = found.remove(&fragment.id) {
                dead
            } else {
                let fragment = fragment_of(&snapshot.base, fragment.id)?;
                found_rows(fragment, snapshot.key.clone(), newer.clone(), None, ACTION).await?
            };
            vectors.push(FragmentVector {
                id: fragment.id,
                physical_rows: fragment.physical_rows.unwrap_or_default() as u64,
                key_files: key_files(fragment, key_fields),
                dead: bytes_of(&dead)?,
            });
        }
        Ok(vectors)
    }
}

fn bytes_of(rows: &RoaringBitmap) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(rows.serialized_size());
    let written = rows.serialize_into(&mut bytes);
    written.map_err(|error| Error::Internal(format!("encoding a deletion vector: {error}")))?;
    Ok(bytes)
}
