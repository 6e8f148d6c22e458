//! The look-up of the rows that one SSTable supersedes.
//!
//! Owns: the content of a file: the rows that an SSTable supersedes in the base table and in older
//! SSTables, its own rows that lose to one of theirs by a merge rule, and the SSTable's tombstones.
//! Does not own: how superseded rows are found (`visibility`), which sources are missing
//! (`coverage`), or the writing of the file (`table`).
//!
//! Deleted rows of the base are looked up as well, because a restored version may show them again.

use std::sync::Arc;

use lance_table::format::Fragment;
use lancemem_core::format::{FragmentVector, KeyForm, OlderSsTableVector, SsTableVectors};
use lancemem_core::merge::Choosing;
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use super::MissingVectors;
use super::open::Basis;
use crate::record_index::{RecordIndex, key_files, key_ids};
use crate::snapshot::{Snapshot, SsTableKeys};
use crate::visibility::{BaseLookup, ChosenAgainst, NewerKeys, SourceKeys, superseded_by};

const ACTION: &str = "looking up the rows that an SSTable supersedes";
/// Fragments in which keys are looked up at the same time. The look-up runs beside writers and is
/// not urgent.
const CONCURRENT_LOOKS: usize = 1;

impl MissingVectors {
    /// Computes the missing deletion vectors.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn compute(
        &self,
        snapshot: &Snapshot,
        index: &RecordIndex,
    ) -> Result<SsTableVectors> {
        if let Some(rule) = snapshot.rule() {
            return self.compute_by_rule(snapshot, rule).await;
        }
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
            let dead = bytes_of(&superseded_by(&newer, &keys))?;
            let path = older.path.clone();
            sstables.push(OlderSsTableVector { path, dead, beaten: Vec::new() });
        }
        let tombstones =
            if self.tombstones { Some(self.sstable.tombstones().await?) } else { None };
        Ok(SsTableVectors {
            base_version: snapshot.base.version().version,
            fragments: self.in_base(snapshot, index, &keys, &newer, &key_fields).await?,
            key_fields,
            sstables,
            tombstones: tombstones.as_deref().map(bytes_of).transpose()?,
            rule: String::new(),
        })
    }

    /// As [`Self::compute`], where a merge rule chooses: a row of the SSTable may lose to an older one.
    /// Compares the rows of the whole base table, and of all older SSTables of the shard.
    async fn compute_by_rule(
        &self,
        snapshot: &Snapshot,
        rule: &Arc<Choosing>,
    ) -> Result<SsTableVectors> {
        let compared = self.with_older(snapshot);
        let chosen = Box::pin(ChosenAgainst::last_of(&compared, rule)).await?;
        let basis = Basis::of(snapshot);
        let none = RoaringBitmap::new();
        let mut fragments = Vec::with_capacity(self.fragments.len());
        for fragment in &self.fragments {
            fragments.push(FragmentVector {
                id: fragment.id,
                physical_rows: fragment.physical_rows.unwrap_or_default() as u64,
                key_files: key_files(fragment, &basis.columns),
                dead: bytes_of(chosen.base.of_fragment(fragment.id).unwrap_or(&none))?,
                deletion_file: basis.deletion_file(fragment),
                beaten: bytes_of(chosen.beaten_by_base.get(&fragment.id).unwrap_or(&none))?,
            });
        }
        let mut sstables = Vec::with_capacity(self.older.len());
        let lost = chosen.older.iter().zip(&chosen.beaten_by_older);
        for (older, (dead, beaten)) in self.older.iter().zip(lost) {
            let (path, dead, beaten) = (older.path.clone(), bytes_of(dead)?, bytes_of(beaten)?);
            sstables.push(OlderSsTableVector { path, dead, beaten });
        }
        Ok(SsTableVectors {
            base_version: snapshot.base.version().version,
            key_fields: basis.columns,
            fragments,
            sstables,
            tombstones: Some(bytes_of(self.sstable.tombstones().await?.as_ref())?),
            rule: basis.rule,
        })
    }

    /// `snapshot` with no other source than the SSTable and the older ones of its shard.
    fn with_older(&self, snapshot: &Snapshot) -> Snapshot {
        let mut compared = snapshot.clone();
        compared.shards.retain(|shard| shard.shard_id == self.sstable.shard_id);
        for shard in &mut compared.shards {
            shard.sstables = self.older.iter().chain([&self.sstable]).cloned().collect();
            shard.memtables.clear();
        }
        compared
    }

    async fn in_base(
        &self,
        snapshot: &Snapshot,
        index: &RecordIndex,
        keys: &SsTableKeys,
        newer: &Arc<NewerKeys>,
        key_fields: &[i32],
    ) -> Result<Vec<FragmentVector>> {
        let lookup = BaseLookup {
            base: &snapshot.base,
            key: &snapshot.key,
            index,
            pace: None,
            concurrent: CONCURRENT_LOOKS,
            action: ACTION,
        };
        let dead = lookup.dead_rows(&self.fragments, keys.keys(), newer).await?;
        let none = RoaringBitmap::new();
        let vector = |fragment: &Fragment| {
            Ok::<_, Error>(FragmentVector {
                id: fragment.id,
                physical_rows: fragment.physical_rows.unwrap_or_default() as u64,
                key_files: key_files(fragment, key_fields),
                dead: bytes_of(dead.of_fragment(fragment.id).unwrap_or(&none))?,
                ..FragmentVector::default()
            })
        };
        self.fragments.iter().map(vector).collect()
    }
}

fn bytes_of(rows: &RoaringBitmap) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(rows.serialized_size());
    let written = rows.serialize_into(&mut bytes);
    written.map_err(|error| {
        Error::internal(format!("encoding a deletion vector: {error}")).with_source(error)
    })?;
    Ok(bytes)
}
